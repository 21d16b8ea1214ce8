"""Runs Kyverno's admission controller: the API server asks it about every object that a policy judges."""

from __future__ import annotations

import base64
import itertools
import json
import re
import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx

from neuroscale.cluster.admission_tripwires import try_tripwires
from neuroscale.core.files import write_public
from neuroscale.core.money_and_time import duration
from neuroscale.core.waiting import attempts
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.kube.control_plane import ControlPlane
from neuroscale.local.charts import Chart, hold, program_of, registered, render, settings_of
from neuroscale.local.cluster_parts import add_service_account, definitions, namespace
from neuroscale.local.control_plane import CONTROLLER_MANAGER, cluster, control_plane, environment
from neuroscale.local.copied_programs import copy_tool
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PASSABLE, LocalError, State, read_json
from neuroscale.policies.policy_set import PolicySet

NAME: Final = "kyverno-controller"
NAMESPACE = "kyverno"
_METRICS = "kyverno-metrics"
PORTS = (NAME, _METRICS)
GROUPS = ("kyverno.io", "policies.kyverno.io", "reports.kyverno.io", "wgpolicyk8s.io", "openreports.io")
MANAGED = "webhook.kyverno.io/managed-by=kyverno"
"""The label of the webhook configurations that Kyverno writes."""
RESOURCES = "kyverno-resource-validating-webhook-cfg"
"""The webhook configuration through which policies judge objects."""

_POLICIES = "kyverno-policy-validating-webhook-cfg"
_DEPLOYMENT = "kyverno-admission-controller"
CHART = Chart(NAME, "kyverno", "kyverno", NAMESPACE)
_ROLE = "kyverno:admission-controller"
_AUTHORITY = "kyverno-svc.kyverno.svc.kyverno-tls-ca"
_LEASE_VERSION = "coordination.k8s.io/v1"
_LEADS, _HEALTH = "kyverno", "kyverno-health"
"""Leases: of the process that registers the webhooks, and of the last time at which the webhooks worked."""
_HELD_BY = "neuroscale"
_HELD_FOR = 3600  # seconds; the lease is released as soon as Kyverno judges
_RESULTS = re.compile(r'^kyverno_validating_policy_results_total\{[^}]*policy_name="([^"]+)"', re.MULTILINE)
_ROLE_WITHIN = 90.0
_ANSWERS_WITHIN = 5.0
_PAUSE = 0.2


@dataclass(frozen=True)
class Kyverno:
    """Kyverno of a local platform: its files and its process. Its port must have been chosen."""

    state: State

    @property
    def folder(self) -> Path:
        return self.state.run / "kyverno"

    @property
    def wanted(self) -> Path:
        """The rendered chart: arguments, environment, and the objects for the cluster."""
        return self.folder / "chart.json"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.state.instance.ports[NAME]}"

    @property
    def _plane(self) -> ControlPlane:
        return control_plane(self.state)

    def prepare(self, values: Sequence[Path]) -> None:
        """Write its program and the chart's settings. `values`: files of the chart's values."""
        copy_tool(self.state, NAME)
        self.state.make_folder(self.folder, None, PASSABLE)
        chart = render(CHART, values, {"crds.install": "false"})
        program = program_of(chart, _DEPLOYMENT, "kyverno")
        add_service_account(self._plane, NAME, NAMESPACE, program.service_account)
        facts = {
            "arguments": program.arguments,
            "environment": program.environment,
            "objects": [namespace(NAMESPACE), *settings_of(chart)],
        }
        write_public(self.wanted, json.dumps(facts, indent=1) + "\n")

    def process(self) -> Process:
        """The process for the supervisor."""
        facts: dict[str, Any] = read_json(self.wanted)
        port = self.state.instance.ports[NAME]
        return Process(
            name=NAME,
            argv=(
                str(self._plane.program(NAME)),
                # Of a repeated option the last one counts.
                *facts.get("arguments", ()),
                f"--kubeconfig={self._plane.kubeconfig_of(NAME)}",
                # It registers its webhooks at this address, and makes a certificate for it.
                f"--serverIP={self.address}",
                f"--webhookServerHost={LOOPBACK}",
                f"--webhookServerPort={port}",
                f"--servicePort={port}",
                "--tlsKeyAlgorithm=ECDSA",
                f"--metricsHost={LOOPBACK}",
                f"--metricsPort={self.state.instance.ports[_METRICS]}",
                "--controllerRuntimeMetricsAddress=0",
            ),
            environment={**environment(self._plane.folder), **facts.get("environment", {})},
            folder=self._plane.folder,
            user=self.state.cluster_user,
            ready=self._problem,
            port=port,
            # The controller manager fills in its role.
            needs=(CONTROLLER_MANAGER,),
            settings=json.dumps(facts.get("objects", [])),
            prepare=self._apply,
        )

    def _apply(self) -> None:
        objects: Any = read_json(self.wanted).get("objects", [])
        with cluster(self.state) as found:
            apply_all(found, [*definitions(GROUPS), *objects])
            hold(found, MANAGED)
            # Only one Kyverno runs here: it need not wait until a dead one's lease expires.
            for name in (_LEADS, _HEALTH):
                found.delete(Identity(_LEASE_VERSION, "Lease", NAMESPACE, name))
            if _policies(found) and found.get("v1", "Secret", _AUTHORITY, NAMESPACE):
                _take_turn(found)
            _await_role(found)

    def _problem(self) -> str | None:
        with cluster(self.state) as found:
            secret = found.get("v1", "Secret", _AUTHORITY, NAMESPACE)
            if secret is None:
                return "Kyverno has not made its certificate yet"
            authority = base64.b64decode(secret["data"]["tls.crt"]).decode()
            context = ssl.create_default_context(cadata=authority)
            return (
                answers(f"https://{self.address}/health/readiness", context)
                or self._starting_problem(found, context)
                or registration_problem(found, self.address)
                or calling_problem(found)
            )

    def _starting_problem(self, found: Cluster, context: ssl.SSLContext) -> str | None:
        """Why Kyverno must not register its webhooks yet, or None once it may.

        It answers before it has read its policies, and allows objects whose policy it has not read. So this asks it
        about an empty object for every policy, until its own metrics show that each policy judged.
        """
        lease = found.get(_LEASE_VERSION, "Lease", _LEADS, NAMESPACE) or {}
        if lease.get("spec", {}).get("holderIdentity") != _HELD_BY:
            return None
        reviews = {
            name: review for name, policy in _policies(found).items() if (review := _review(found, policy)) is not None
        }
        metrics = f"http://{LOOPBACK}:{self.state.instance.ports[_METRICS]}/metrics"
        try:
            with httpx.Client(timeout=_ANSWERS_WITHIN, trust_env=False, verify=context) as client:
                for name in _unread(client, metrics, reviews):
                    client.post(f"https://{self.address}/vpol/{name}", json=reviews[name]).raise_for_status()
                unread = _unread(client, metrics, reviews)
        except httpx.HTTPError as error:
            return f"Kyverno does not judge yet ({type(error).__name__})"
        if unread:
            return f"Kyverno has not read {', '.join(unread)} yet"
        found.delete(Identity(_LEASE_VERSION, "Lease", NAMESPACE, _LEADS))
        return None


def _policies(found: Cluster) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in found.list("policies.kyverno.io/v1", "ValidatingPolicy")}


def _take_turn(found: Cluster) -> None:
    """Keep Kyverno from registering its webhooks: only the leader does, and none can lead while this holds the
    lease."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    found.create(
        {
            "apiVersion": _LEASE_VERSION,
            "kind": "Lease",
            "metadata": {"name": _LEADS, "namespace": NAMESPACE},
            "spec": {
                "holderIdentity": _HELD_BY,
                "leaseDurationSeconds": _HELD_FOR,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }
    )


def _unread(client: httpx.Client, metrics: str, policies: Collection[str]) -> list[str]:
    """The policies by which this Kyverno has judged nothing since its start."""
    answer = client.get(metrics)
    answer.raise_for_status()
    return sorted(set(policies) - set(_RESULTS.findall(answer.text)))


def _review(found: Cluster, policy: Object) -> Object | None:
    """An admission review of an object of the first kind that a policy judges and the cluster has; None without one.

    The object has only a name.
    """
    for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
        for group, version, plural in itertools.product(rule["apiGroups"], rule["apiVersions"], rule["resources"]):
            kind, served = _served(found, group, version, plural)
            if kind:
                return _review_of(group, served, plural, kind)
    return None


def _served(found: Cluster, group: str, version: str, plural: str) -> tuple[str, str]:
    """The kind of a resource and its version (for `*` the preferred one), or empty texts if the cluster lacks it."""
    try:
        if version == "*":
            version = found.request("GET", f"/apis/{group}")["preferredVersion"]["version"] if group else "v1"
        listed = found.request("GET", f"/apis/{group}/{version}" if group else f"/api/{version}")["resources"]
    except RefusedError as error:
        if error.code != 404:
            raise
        return "", ""
    return next((one["kind"] for one in listed if one["name"] == plural), ""), version


def _review_of(group: str, version: str, plural: str, kind: str) -> Object:
    group_version = f"{group}/{version}" if group else version
    name = "neuroscale-readiness"
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": name,
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": plural},
            "name": name,
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": _HELD_BY},
            "object": {"apiVersion": group_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}},
            "dryRun": True,
        },
    }


def _await_role(found: Cluster) -> None:
    """Wait until the controller manager has filled in Kyverno's rights. Raises LocalError."""
    for _ in attempts(_ROLE_WITHIN, _PAUSE):
        role = found.get("rbac.authorization.k8s.io/v1", "ClusterRole", _ROLE) or {}
        if role.get("rules"):
            return
    raise LocalError(f"The role {_ROLE} has no rules yet. Check that kube-controller-manager runs.")


def registration_problem(found: Cluster, address: str) -> str | None:
    """Why the API server would not ask this Kyverno about every object that a policy judges, or None."""
    for _, url, authority in registered(found, "ValidatingWebhookConfiguration", _POLICIES) or [("", "", "")]:
        if not (url.startswith(f"https://{address}/") and authority):
            return "Kyverno has not registered its webhooks yet"
    judged: set[str] = set()
    for _, url, authority in registered(found, "ValidatingWebhookConfiguration", RESOURCES):
        if not (url.startswith(f"https://{address}/") and authority):
            return "Kyverno has not registered its webhooks again yet"
        judged |= set(url.split("/")[4:])
    if missing := sorted(set(_policies(found)) - judged):
        return f"Kyverno has not registered {', '.join(missing)} yet"
    return None


def calling_problem(found: Cluster) -> str | None:
    """Why the API server cannot ask Kyverno, or None. It tries by a dry-run an object that hardly any policy refuses.

    If no policy judges its kind, the registration has to suffice.
    """
    try:
        found.create(_TRIED, dry_run=True)
    except RefusedError as error:
        # A refusal by a policy is an answer too.
        return error.message if "failed calling webhook" in error.message else None
    return None


# In a namespace that policies judge. A violation would write an event at every look.
_TRIED: Object = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "neuroscale-readiness", "namespace": "default"},
    "spec": {"maxReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}},
}


def await_policies(found: Cluster, policy_set: PolicySet, within: float = 60.0) -> None:
    """Wait until every policy refuses its tripwire at admission. Raises LocalError that names the others."""
    for _ in attempts(within, _PAUSE):
        silent = try_tripwires(found, policy_set).silent
        if not silent:
            return
    raise LocalError(f"After {duration(within)} Kyverno does not refuse the tripwires of: {', '.join(silent)}.")

"""Kyverno's admission controller: the API server asks it about every object that a policy judges."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neuroscale.files import write_public
from neuroscale.gates.manifests import Manifest
from neuroscale.gates.policy_set import PolicySet, load_policy_set
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.kube.control_plane import ControlPlane
from neuroscale.local.charts import Chart, program_of, render, settings_of
from neuroscale.local.control_plane import CONTROLLER_MANAGER, cluster, control_plane, environment
from neuroscale.local.errors import LocalError
from neuroscale.local.kserve import add_service_account, definitions, namespace
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PASSABLE, State, read_json
from neuroscale.local.tool_copies import copy_tool
from neuroscale.local.webhooks import hold, registered
from neuroscale.snapshot import FolderSnapshot

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
_LEASES = ("kyverno", "kyverno-health")
_ROLE_WITHIN = 30.0
_PAUSE = 0.2


@dataclass(frozen=True)
class Kyverno:
    """Where Kyverno of a local platform lies, and how it is run. Its port must have been chosen."""

    state: State

    @property
    def folder(self) -> Path:
        return self.state.run / "kyverno"

    @property
    def wanted(self) -> Path:
        """What the chart became: arguments, environment, and the objects that the cluster gets."""
        return self.folder / "chart.json"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.state.instance.ports[NAME]}"

    @property
    def _plane(self) -> ControlPlane:
        return control_plane(self.state)

    def prepare(self, values: Sequence[Path]) -> None:
        """Write its program and what the chart says. `values`: files of the chart's values."""
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
        """What the supervisor runs."""
        facts: dict[str, Any] = read_json(self.wanted)
        port = self.state.instance.ports[NAME]
        return Process(
            name=NAME,
            argv=(
                str(self._plane.program(NAME)),
                # The last one of an option counts.
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
            # Its role is put together by the controller manager.
            needs=(CONTROLLER_MANAGER,),
            settings=json.dumps(facts.get("objects", [])),
            prepare=self._apply,
        )

    def _apply(self) -> None:
        objects: Any = read_json(self.wanted).get("objects", [])
        with cluster(self.state) as found:
            apply_all(found, [*definitions(GROUPS), *objects])
            hold(found, MANAGED)
            # There is one Kyverno here: it need not wait until the dead one's turn has run out.
            for name in _LEASES:
                found.delete(Identity("coordination.k8s.io/v1", "Lease", NAMESPACE, name))
            _await_role(found)

    def _problem(self) -> str | None:
        with cluster(self.state) as found:
            return self._answers(found) or registration_problem(found, self.address) or judging_problem(found)

    def _answers(self, found: Cluster) -> str | None:
        secret = found.get("v1", "Secret", _AUTHORITY, NAMESPACE)
        if secret is None:
            return "Kyverno has not made its certificate yet"
        authority = base64.b64decode(secret["data"]["tls.crt"]).decode()
        return answers(f"https://{self.address}/health/readiness", ssl.create_default_context(cadata=authority))


def _await_role(found: Cluster) -> None:
    """Wait until the controller manager has put together what Kyverno may do. Raises LocalError."""
    ends = time.monotonic() + _ROLE_WITHIN
    while True:
        role = found.get("rbac.authorization.k8s.io/v1", "ClusterRole", _ROLE) or {}
        if role.get("rules"):
            return
        if time.monotonic() >= ends:
            raise LocalError(f"The role {_ROLE} has no rules yet: does kube-controller-manager run?")
        time.sleep(_PAUSE)


def registration_problem(found: Cluster, address: str) -> str | None:
    """Why the API server would not ask this Kyverno about every object that a policy judges, or None."""
    for _, url, authority in registered(found, "ValidatingWebhookConfiguration", _POLICIES) or [("", "", "")]:
        if not (url.startswith(f"https://{address}/") and authority):
            return "Kyverno has not registered its webhooks yet"
    judged: set[str] = set()
    for _, url, authority in registered(found, "ValidatingWebhookConfiguration", RESOURCES):
        if not (url.startswith(f"https://{address}/") and authority):
            return "Kyverno has not registered its webhooks anew yet"
        judged |= set(url.split("/")[4:])
    policies = {one["metadata"]["name"] for one in found.list("policies.kyverno.io/v1", "ValidatingPolicy")}
    if missing := sorted(policies - judged):
        return f"Kyverno has not registered {', '.join(missing)} yet"
    return None


def judging_problem(found: Cluster) -> str | None:
    """Why Kyverno's judgement cannot be relied on, or None: it must refuse a Deployment that no policy would allow.

    Where no policy judges Deployments, an answer is enough.
    """
    judged = any(
        "deployments" in rule["resources"]
        for policy in found.list("policies.kyverno.io/v1", "ValidatingPolicy")
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
    )
    try:
        found.create(_BAD, dry_run=True)
    except RefusedError as error:
        if "failed calling webhook" in error.message:
            return f"the API server could not ask Kyverno: {error.message}"
        return None if not judged or "denied the request" in error.message else error.message
    return "Kyverno lets a Deployment pass that every policy must refuse" if judged else None


# Tried out in a namespace that policies judge; nothing of it is kept.
_BAD: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "neuroscale-readiness", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "readiness"}},
        "template": {
            "metadata": {"labels": {"app": "readiness"}},
            "spec": {
                "hostNetwork": True,
                "containers": [{"name": "main", "image": "example.invalid/none", "securityContext": {"runAsUser": 0}}],
            },
        },
    },
}


def apply_policies(found: Cluster, root: Path, *, within: float = 60.0) -> PolicySet:
    """Bring a repository's policies to the cluster, and wait until each refuses its tripwire in its own words.

    `root`: the repository; `within`: seconds. Raises UntrustedError for policies that cannot be used, KubernetesError
    and LocalError.
    """
    policy_set = load_policy_set(FolderSnapshot(root))
    apply_all(found, [policy.value for policy in policy_set.policies])
    await_policies(found, policy_set, within)
    return policy_set


def await_policies(found: Cluster, policy_set: PolicySet, within: float = 60.0) -> None:
    """Wait until every policy refuses its tripwire at admission. Raises LocalError naming those that do not."""
    ends = time.monotonic() + within
    while silent := _silent(found, policy_set):
        if time.monotonic() >= ends:
            names = ", ".join(sorted(silent))
            raise LocalError(f"After {within:g} s Kyverno does not refuse the tripwires of: {names}.")
        time.sleep(_PAUSE)


def _silent(found: Cluster, policy_set: PolicySet) -> set[str]:
    said = "\n".join(_refusal(found, tripwire) for tripwire in policy_set.tripwires)
    return {policy.name for policy in policy_set.policies if denial(policy.name, policy.tripwire_message) not in said}


def denial(policy: str, message: str) -> str:
    """How Kyverno words at admission that a policy refuses an object."""
    return f"Policy {policy} failed: {message}"


def _refusal(found: Cluster, tripwire: Manifest) -> str:
    """What the API server says of a known-bad object that is only tried out; empty where it lets it pass."""
    value = {**tripwire.value, "metadata": {**tripwire.value["metadata"], "namespace": "default"}}
    try:
        found.create(value, dry_run=True)
    except RefusedError as error:
        return error.message
    return ""

"""The kinds check: names objects whose kind nobody judges, and never counts them as passed.

A policy that applies to a kind or a rule of this module judges it, the reviewed list holds it as harmless, or the list
of refused kinds says why nobody may bring it. Every other kind is unjudged: with `strict` a finding, otherwise named
in the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from neuroscale.catalog.settings import Environment
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.printable import shortened
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import Path
from neuroscale.gate.check import GateCheck, Run
from neuroscale.gate.checks.object_findings import (
    HOOK,
    INTERNAL,
    INTERNAL_TEXT,
    SYNC_ANNOTATION,
    impossible_replicas,
    internal_texts,
    secrets_of_map,
    stopped_services,
    sync_annotations,
)
from neuroscale.gate.checks.open_networks import RULE as OPEN_NETWORK
from neuroscale.gate.checks.open_networks import Answering, open_rules
from neuroscale.gate.checks.refused_kinds import REFUSED
from neuroscale.gate.checks.stored_keys import check_tripwires, is_stored_key, stored_key_findings
from neuroscale.gate.evaluation import Evaluation, manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests import pod_sets
from neuroscale.manifests.objects import Manifest, tripwire
from neuroscale.policies.policy_set import Policy
from neuroscale.repo.layout import TEMPLATE

GATE = "kinds"

HARMLESS = frozenset(
    {
        ("", "ConfigMap"),  # except those that configure a cluster's own programs (_SYSTEM_MAPS), or hold secrets
        ("", "LimitRange"),
        ("", "PersistentVolumeClaim"),
        ("", "ResourceQuota"),
        ("", "ServiceAccount"),  # except those with rights in a cloud (_CLOUD_IDENTITIES)
        ("policy", "PodDisruptionBudget"),
    }
)
"""Kinds that need no judge but this module's rules: none of their objects gives rights, runs a pod or opens access."""

_SYSTEM_NAMESPACES = (
    *("argo", "cert-manager", "envoy-gateway", "gke-", "istio", "keda"),
    *("knative", "kourier", "kserve", "kube-", "kyverno", "monitoring"),
)
_SYSTEM_MAPS = ("argocd-", "aws-auth", "config-", "coredns", "inferenceservice-config", "kube-", "kyverno")
"""Prefixes of the names of namespaces and ConfigMaps that configure a cluster's own programs."""
_CLOUD_IDENTITIES = ("azure.workload.identity/", "eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account")
"""Prefixes of annotations that give pods of a ServiceAccount the rights of an account of the cloud."""

_POD_SECURITY = "pod-security.kubernetes.io/enforce"
_OUTSIDE = ("LoadBalancer", "NodePort")
_MANY = 1_000_000
"""More pods than a budget's number can mean."""
_TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
_MOST_NAMED = 3


@dataclass(frozen=True)
class _Trouble:
    """A fault of an object, and its place in the object. `lenient`: a notice unless the run is strict, because objects
    of other platforms have it for good reasons."""

    rule: str
    place: Path
    message: str
    fix: str
    lenient: bool = False


class KindsCheck(GateCheck):
    """Whether somebody judges the kind of every object. Hands on the objects whose kind nobody judges."""

    name = GATE
    title = "Kinds"
    needs = ("files", "effects")

    def evaluate(self, run: Run) -> Evaluation:
        policies = run.judge.policies().policies
        around = partial(_environment, run)
        evaluation, unjudged = evaluate_kinds(
            run.judged, policies, run.schemas(), strict=run.subject.strict, around=around
        )
        self.value = tuple(unjudged)
        return evaluation

    def not_checked(self, run: Run) -> Iterable[str]:  # noqa: ARG002
        return unjudged_kinds(self.value or ())


def _environment(run: Run, manifest: Manifest) -> Environment | None:
    """The environment of an object's service, by the settings of the side that judges; for what a change of the
    settings would render, by its own."""
    if manifest.service is None:
        return None
    sources = run.after if manifest.file.startswith(f"{TEMPLATE}/") else run.judge
    try:
        return sources.settings().environments.get(manifest.service.environment)
    except InputError:
        return None  # the catalog check reports it


def _nowhere(_: Manifest) -> None:
    return None


def evaluate_kinds(
    manifests: Sequence[Manifest],
    policies: Sequence[Policy],
    schemas: SchemaSet,
    *,
    strict: bool,
    around: Callable[[Manifest], Environment | None] = _nowhere,
) -> tuple[Evaluation, list[Manifest]]:
    """The findings of this module's rules, and the objects whose kind nobody judges; with `strict` these are findings.
    `around`: the environment of an object's service.

    Raises UntrustedError if the rules have no finding for one of the gate's own known-bad objects.
    """
    traps = _tripwires()
    for rule, trap in traps:
        found, _ = _look([trap], (), schemas, strict=True)
        if [finding.rule for finding in found] != [rule]:
            raise UntrustedError(f"the kinds check did not find its tripwire for the rule {rule!r}.")
    # The kind of this one has policies, and no other rule of this module.
    if not list(impossible_replicas(GATE, tripwire("serving.kserve.io/v1beta1", "InferenceService", spec=_IMPOSSIBLE))):
        raise UntrustedError("the kinds check did not find its tripwire for the rule 'impossible-replicas'.")
    findings, unjudged = _look(manifests, policies, schemas, strict=strict, around=around)
    detail = f"{len(unjudged)} of {len(manifests)} objects are of a kind that nothing judges" if unjudged else ""
    count, caught = len(manifests), len(traps) + 1 + check_tripwires(GATE)
    return Evaluation(tuple(findings), count, count, "objects", caught, caught, detail), unjudged


def unjudged_kinds(unjudged: Sequence[Manifest]) -> Iterator[str]:
    """The kinds that nobody judged, in words, for the verdict's list."""
    files: dict[str, dict[str, None]] = {}
    for manifest in unjudged:
        files.setdefault(f"{manifest.api_version} {manifest.kind}", {})[manifest.file] = None
    told = [f"{kind} ({shortened(list(named), _MOST_NAMED, 'file')})" for kind, named in sorted(files.items())]
    if told:
        yield (
            "Objects of kinds that no policy and no rule judges, so that only their form was checked: "
            + "; ".join(told)
            + "."
        )


def _look(
    manifests: Sequence[Manifest],
    policies: Sequence[Policy],
    schemas: SchemaSet,
    *,
    strict: bool,
    around: Callable[[Manifest], Environment | None] = _nowhere,
) -> tuple[list[Finding], list[Manifest]]:
    findings: list[Finding] = []
    unjudged: list[Manifest] = []
    for manifest in manifests:
        findings += sync_annotations(GATE, manifest)
        findings += stopped_services(GATE, manifest)
        findings += impossible_replicas(GATE, manifest)
        findings += internal_texts(GATE, manifest)
        refusal = REFUSED.get((manifest.group, manifest.kind))
        if refusal is not None and (strict or refusal.everywhere):
            told = f"{manifest.kind} is refused: {refusal.why}"
            findings.append(manifest_finding(GATE, "refused-kind", manifest, ("kind",), told, refusal.fix))
            if not refusal.everywhere:
                unjudged.append(manifest)
            continue
        environment = around(manifest)
        if is_stored_key(manifest):
            findings += stored_key_findings(GATE, manifest, environment.secret_store if environment else None)
            continue
        kind = schemas.kinds.get((manifest.api_version, manifest.kind))
        if kind is None:
            continue  # the schema check and the policy check report it
        rule = _RULES.get((manifest.group, manifest.kind))
        if rule is _network_policy:
            rule = partial(_network_policy, answering=environment.answering_addresses if environment else ())
        for one in (*_references(manifest.value), *(rule(manifest.value) if rule else ())):
            severity = Severity.NOTICE if one.lenient and not strict and manifest.service is None else Severity.ERROR
            findings.append(
                manifest_finding(GATE, one.rule, manifest, one.place, one.message, one.fix, severity=severity)
            )
        if rule is not None and (manifest.group, manifest.kind) not in HARMLESS:
            continue
        if not _is_harmless(manifest) and not any(policy.applies(manifest, kind.plural) for policy in policies):
            unjudged.append(manifest)
            if strict:
                message = f"nothing here judges what a {manifest.kind} does: it may give rights or switch off a guard"
                fix = "Remove it, write a policy for its kind, or judge it yourself and pass --no-strict."
                findings.append(manifest_finding(GATE, "unjudged-kind", manifest, ("kind",), message, fix))
    return findings, unjudged


def judged_by_rules(group: str, kind: str) -> bool:
    """Whether this module has a rule for a kind, or refuses the kind wherever it stands."""
    refusal = REFUSED.get((group, kind))
    return (group, kind) in _RULES or (refusal is not None and refusal.everywhere)


def _is_harmless(manifest: Manifest) -> bool:
    if (manifest.group, manifest.kind) not in HARMLESS:
        return False
    if manifest.kind == "ServiceAccount":
        annotations = manifest.value["metadata"].get("annotations")
        return not any(str(key).startswith(_CLOUD_IDENTITIES) for key in annotations or ())
    # Without a namespace, the person who applies the file chooses it: the name alone decides then.
    place = manifest.namespace or manifest.name
    return manifest.kind != "ConfigMap" or not (
        place.startswith(_SYSTEM_NAMESPACES) or manifest.name.startswith(_SYSTEM_MAPS)
    )


def _references(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    """Kubernetes' garbage collector deletes an object once the last of its owners is gone, or was never there."""
    if value["metadata"].get("ownerReferences"):
        message = (
            "metadata.ownerReferences: the cluster deletes this object when the objects that they name do not exist"
        )
        fix = "Remove them: controllers set them in the cluster. Argo CD deletes an object when its file is removed."
        yield _Trouble("owner-reference", ("metadata", "ownerReferences"), message, fix, lenient=True)


def _config_map(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    for key, told in secrets_of_map(value):
        message = f"data[{key!r:.80}] {told}: everybody who can read the repository has it"
        fix = "Revoke it, make a Secret in the cluster, and refer to it by secretKeyRef."
        yield _Trouble("plain-secret", ("data", key), message, fix)


def _disruption_budget(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return
    with suppress(ValueError):  # the API server refuses it
        if pod_sets.selects(spec, {}):
            message = (
                "spec.selector selects every pod of the namespace: Kubernetes evicts no pod that has a second budget"
            )
            fix = "Select the pods of one service by their labels."
            yield _Trouble("budget-of-all-pods", ("spec", "selector"), message, fix, lenient=True)
    with suppress(ValueError):
        if pod_sets.pods_kept(spec, _MANY) == _MANY:
            message = "it allows no eviction, whatever the number of pods: no node with one of them can drain"
            fix = "Write maxUnavailable: 1, and no minAvailable."
            yield _Trouble("no-eviction", ("spec",), message, fix, lenient=True)


def _secret(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    for field in ("data", "stringData"):
        entries = value.get(field)
        if any(entries.values()) if isinstance(entries, dict) else entries:
            message = f"{field} holds secret values: everybody who can read the repository has them"
            fix = "Revoke it, make the Secret in the cluster, and keep no values of it in files."
            yield _Trouble("plain-secret", (field,), message, fix)

    if value.get("type") == _TOKEN_TYPE:
        message = (
            f"Kubernetes fills a Secret of the type {_TOKEN_TYPE} with a token of a ServiceAccount that never expires"
        )
        fix = "Remove it: pods get tokens that expire, and people use kubectl create token."
        yield _Trouble("lasting-token", ("type",), message, fix)


def _service(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return  # the schema check reports it
    if spec.get("type") in _OUTSIDE:
        told = f"spec.type {spec['type']} opens the Service to outside the cluster, past the gateway and its TLS"
        fix = "Write type: ClusterIP, and let the gateway's route lead to it."
        yield _Trouble("open-service", ("spec", "type"), told, fix)
    if spec.get("type") == "ExternalName":
        told = "spec.type ExternalName gives a name inside the cluster to a host elsewhere: callers send it their keys"
        yield _Trouble(
            "external-name", ("spec", "type"), told, "Call the host by its own name, over TLS.", lenient=True
        )
    if spec.get("externalIPs"):
        told = "spec.externalIPs takes over addresses: any node sends their traffic to this Service"
        fix = "Remove externalIPs, and let the gateway's route lead to it."
        yield _Trouble("open-service", ("spec", "externalIPs"), told, fix)


def _namespace(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    labels = value["metadata"].get("labels")
    level = labels.get(_POD_SECURITY) if isinstance(labels, dict) else None
    if not level:
        message = f"the label {_POD_SECURITY} is missing: most clusters then allow pods every right on their node"
        fix = "Write restricted, or baseline where a pod needs more."
        yield _Trouble("unguarded-namespace", ("metadata", "labels"), message, fix, lenient=True)
    if level == "privileged":
        message = f"the label {_POD_SECURITY} allows pods every right on their node"
        fix = "Write restricted, or baseline where a pod needs more."
        yield _Trouble("privileged-namespace", ("metadata", "labels", _POD_SECURITY), message, fix)


def _network_policy(value: Mapping[str, Any], answering: Answering = ()) -> Iterator[_Trouble]:
    spec = value.get("spec")
    for one in open_rules(spec, answering) if isinstance(spec, dict) else ():
        yield _Trouble(OPEN_NETWORK, one.place, one.told, one.fix)


_RULES: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Iterator[_Trouble]]] = {
    ("", "ConfigMap"): _config_map,
    ("", "Namespace"): _namespace,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    pod_sets.KIND: _disruption_budget,
}


_METADATA = "169.254.169.254/32"
_IMPOSSIBLE = {"predictor": {"minReplicas": 3, "maxReplicas": 2}}


def _tripwires() -> list[tuple[str, Manifest]]:
    """Known-bad objects, each with the rule that must find it."""

    def network(**spec: Any) -> Manifest:
        return tripwire("networking.k8s.io/v1", "NetworkPolicy", spec={"podSelector": {}, **spec})

    return [
        ("refused-kind", tripwire("serving.kserve.io/v1alpha1", "TrainedModel")),
        ("unjudged-kind", tripwire("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")),
        (SYNC_ANNOTATION, tripwire("v1", "ConfigMap", {"annotations": {HOOK: "PreSync"}})),
        ("owner-reference", tripwire("v1", "LimitRange", {"ownerReferences": [{"kind": "ConfigMap", "name": "gone"}]})),
        ("plain-secret", tripwire("v1", "ConfigMap", data={"DB_PASSWORD": "tripwire"})),
        (
            "budget-of-all-pods",
            tripwire("policy/v1", "PodDisruptionBudget", spec={"selector": {}, "maxUnavailable": 1}),
        ),
        ("no-eviction", tripwire("policy/v1", "PodDisruptionBudget", spec={"maxUnavailable": 0})),
        ("external-name", tripwire("v1", "Service", spec={"type": "ExternalName"})),
        ("unguarded-namespace", tripwire("v1", "Namespace")),
        (INTERNAL_TEXT, tripwire("v1", "ConfigMap", {"annotations": {f"{INTERNAL}storage-spec": "true"}})),
        ("plain-secret", tripwire("v1", "Secret", stringData={"token": "tripwire"})),
        ("lasting-token", tripwire("v1", "Secret", type=_TOKEN_TYPE)),
        ("open-service", tripwire("v1", "Service", spec={"type": "LoadBalancer"})),
        (OPEN_NETWORK, network(ingress=[{"ports": [{"port": 8080}]}])),
        (OPEN_NETWORK, network(ingress=[{"from": [{"ipBlock": {"cidr": f"{n}.0.0.0/1"}} for n in (0, 128)]}])),
        (OPEN_NETWORK, network(policyTypes=["Egress"], egress=[{}])),
        (OPEN_NETWORK, network(egress=[{"to": [{"ipBlock": {"cidr": _METADATA}}], "ports": [{"port": 80}]}])),
        ("privileged-namespace", tripwire("v1", "Namespace", {"labels": {_POD_SECURITY: "privileged"}})),
    ]

"""The kinds gate names objects whose kind nobody judges, and never counts them as passed.

A policy that applies to a kind or a rule of this module judges it, the reviewed list holds it as harmless, or the list
of refused kinds says why nobody may bring it. Every other kind is unjudged: with `strict` a finding, otherwise named
in the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import Document, Path
from neuroscale.gate.check import Evaluation, GateCheck, manifest_finding
from neuroscale.gate.checks.refused_kinds import REFUSED
from neuroscale.gate.checks.sync_annotations import HOOK, RULE, sync_annotations
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import TRIPWIRE_PREFIX, Manifest
from neuroscale.policies.policy_set import Policy

if TYPE_CHECKING:
    from neuroscale.gate.run_state import Run

GATE = "kinds"

HARMLESS = frozenset(
    {
        ("", "ConfigMap"),  # except those that configure a cluster's own programs (_SYSTEM_MAPS)
        ("", "LimitRange"),
        ("", "PersistentVolumeClaim"),
        ("", "ResourceQuota"),
        ("", "ServiceAccount"),  # except those with rights in a cloud (_CLOUD_IDENTITIES)
        ("policy", "PodDisruptionBudget"),
    }
)
"""Kinds that need no judge: none of their objects gives rights, runs a pod or opens access."""

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
_TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
_MOST_NAMED = 3


@dataclass(frozen=True)
class _Trouble:
    """A fault of an object, and its place in the object."""

    rule: str
    place: Path
    message: str
    fix: str


class KindsCheck(GateCheck):
    """Whether somebody judges the kind of every object. Hands on the objects whose kind nobody judges."""

    name = GATE
    title = "Kinds"

    def evaluate(self, run: Run) -> Evaluation:
        policies = run.judge.policies().policies
        evaluation, unjudged = evaluate_kinds(run.judged, policies, run.schemas(), strict=run.subject.strict)
        run.unjudged.extend(unjudged)
        return evaluation

    def not_checked(self, run: Run) -> Iterable[str]:
        return unjudged_kinds(run.unjudged)


def evaluate_kinds(
    manifests: Sequence[Manifest], policies: Sequence[Policy], schemas: SchemaSet, *, strict: bool
) -> tuple[Evaluation, list[Manifest]]:
    """The findings of this module's rules, and the objects whose kind nobody judges; with `strict` these are findings.

    Raises UntrustedError if the rules have no finding for one of the gate's own known-bad objects.
    """
    traps = _tripwires()
    for rule, trap in traps:
        found, _ = _look([trap], (), schemas, strict=True)
        if [finding.rule for finding in found] != [rule]:
            raise UntrustedError(f"the kinds gate did not find its tripwire for the rule {rule!r}.")
    findings, unjudged = _look(manifests, policies, schemas, strict=strict)
    detail = f"{len(unjudged)} of {len(manifests)} objects are of a kind that nothing judges" if unjudged else ""
    count = len(manifests)
    return Evaluation(tuple(findings), count, count, "objects", len(traps), len(traps), detail), unjudged


def unjudged_kinds(unjudged: Sequence[Manifest]) -> Iterator[str]:
    """The kinds that nobody judged, in words, for the verdict's list."""
    files: dict[str, dict[str, None]] = {}
    for manifest in unjudged:
        files.setdefault(f"{manifest.api_version} {manifest.kind}", {})[manifest.file] = None
    told = [
        f"{kind} ({', '.join(list(named)[:_MOST_NAMED])}"
        + (f" and {len(named) - _MOST_NAMED} more files)" if len(named) > _MOST_NAMED else ")")
        for kind, named in sorted(files.items())
    ]
    if told:
        yield (
            "Objects of kinds that no policy and no rule judges, so that only their form was checked: "
            + "; ".join(told)
            + "."
        )


def _look(
    manifests: Sequence[Manifest], policies: Sequence[Policy], schemas: SchemaSet, *, strict: bool
) -> tuple[list[Finding], list[Manifest]]:
    findings: list[Finding] = []
    unjudged: list[Manifest] = []
    for manifest in manifests:
        findings += sync_annotations(GATE, manifest)
        refusal = REFUSED.get((manifest.group, manifest.kind))
        if refusal is not None and (strict or refusal.everywhere):
            told = f"{manifest.kind} is refused: {refusal.why}"
            findings.append(manifest_finding(GATE, "refused-kind", manifest, ("kind",), told, refusal.fix))
            if not refusal.everywhere:
                unjudged.append(manifest)
            continue
        kind = schemas.kinds.get((manifest.api_version, manifest.kind))
        if kind is None:
            continue  # the schema check and the policy check report it
        rule = _RULES.get((manifest.group, manifest.kind))
        if rule is not None:
            for one in rule(manifest.value):
                findings.append(manifest_finding(GATE, one.rule, manifest, one.place, one.message, one.fix))
        elif not _is_harmless(manifest) and not any(policy.applies(manifest, kind.plural) for policy in policies):
            unjudged.append(manifest)
            if strict:
                findings.append(
                    manifest_finding(
                        GATE,
                        "unjudged-kind",
                        manifest,
                        ("kind",),
                        f"nothing here judges what a {manifest.kind} does: it may give rights or switch off a guard",
                        "Remove it, write a policy for its kind, or judge it yourself and pass --no-strict.",
                    )
                )
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
    # Without a namespace, whoever applies the file chooses it: the name alone decides then.
    place = manifest.namespace or manifest.name
    return manifest.kind != "ConfigMap" or not (
        place.startswith(_SYSTEM_NAMESPACES) or manifest.name.startswith(_SYSTEM_MAPS)
    )


def _secret(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    for field in ("data", "stringData"):
        entries = value.get(field)
        if any(entries.values()) if isinstance(entries, dict) else entries:
            yield _Trouble(
                "plain-secret",
                (field,),
                f"{field} holds secret values: whoever reads the repository has them",
                "Revoke it, make the Secret in the cluster, and keep no values of it in files.",
            )

    if value.get("type") == _TOKEN_TYPE:
        yield _Trouble(
            "lasting-token",
            ("type",),
            f"Kubernetes fills a Secret of the type {_TOKEN_TYPE} with a token of a ServiceAccount that never expires",
            "Remove it: pods get tokens that expire, and people use kubectl create token.",
        )


def _service(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return  # the schema check reports it
    fix = "Use type: ClusterIP, and let the gateway's route lead to it."
    if spec.get("type") in _OUTSIDE:
        told = f"spec.type {spec['type']} opens the Service to outside the cluster, past the gateway and its TLS"
        yield _Trouble("open-service", ("spec", "type"), told, fix)
    if spec.get("externalIPs"):
        told = "spec.externalIPs takes over addresses: any node sends their traffic to this Service"
        yield _Trouble("open-service", ("spec", "externalIPs"), told, fix)


def _namespace(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    labels = value["metadata"].get("labels")
    if isinstance(labels, dict) and labels.get(_POD_SECURITY) == "privileged":
        yield _Trouble(
            "privileged-namespace",
            ("metadata", "labels", _POD_SECURITY),
            f"the label {_POD_SECURITY} allows pods every right on their node",
            "Write restricted, or baseline where a pod needs more.",
        )


def _network_policy(value: Mapping[str, Any]) -> Iterator[_Trouble]:
    """Network policies add up: one that lets everybody in undoes every other one."""
    spec = value.get("spec")
    types = spec.get("policyTypes") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or (types and "Ingress" not in types):
        return
    rules = spec.get("ingress")
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        given = rule if isinstance(rule, dict) else {}
        whole = not given.get("ports") or _selects_all(spec.get("podSelector"))
        peers = given.get("from")
        if whole and (not peers or (isinstance(peers, list) and any(map(_is_everybody, peers)))):
            what = "every port of its pods" if not given.get("ports") else "ports of all pods of the namespace"
            yield _Trouble(
                "open-network",
                ("spec", "ingress", index),
                f"spec.ingress[{index}] lets everybody in to {what}, whatever other policies keep out",
                "Name the allowed callers in `from`, and the allowed ports in `ports`.",
            )


def _is_everybody(peer: Any) -> bool:
    if not isinstance(peer, dict):
        return False
    block = peer.get("ipBlock")
    if isinstance(block, dict):
        return str(block.get("cidr")).endswith("/0") and not block.get("except")
    return peer.get("namespaceSelector") is not None and all(
        _selects_all(peer.get(name)) for name in ("namespaceSelector", "podSelector")
    )


def _selects_all(selector: Any) -> bool:
    return not selector or (isinstance(selector, dict) and not any(selector.values()))


_RULES: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Iterator[_Trouble]]] = {
    ("", "Namespace"): _namespace,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
}


def _tripwires() -> list[tuple[str, Manifest]]:
    """Known-bad objects, each with the rule that must find it."""

    def manifest(
        api_version: str,
        kind: str,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Manifest:
        texts = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
        metadata = {"name": TRIPWIRE_PREFIX, **texts}
        value = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
        return Manifest("tripwire.yaml", value, Document(value, {(): 1}))

    return [
        ("refused-kind", manifest("serving.kserve.io/v1alpha1", "TrainedModel")),
        ("unjudged-kind", manifest("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")),
        (RULE, manifest("v1", "ConfigMap", annotations={HOOK: "PreSync"})),
        ("plain-secret", manifest("v1", "Secret", stringData={"token": "tripwire"})),
        ("lasting-token", manifest("v1", "Secret", type=_TOKEN_TYPE)),
        ("open-service", manifest("v1", "Service", spec={"type": "LoadBalancer"})),
        ("open-network", manifest("networking.k8s.io/v1", "NetworkPolicy", spec={"podSelector": {}, "ingress": [{}]})),
        ("privileged-namespace", manifest("v1", "Namespace", {_POD_SECURITY: "privileged"})),
    ]

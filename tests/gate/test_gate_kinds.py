"""The kinds check: whatever nobody judges is named, refused where it is strict, and never counted as passed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from neuroscale.cli.gate import run_gate
from neuroscale.cli.options import Reports
from neuroscale.core import schemas
from neuroscale.core.errors import UntrustedError
from neuroscale.gate import gate_code_of_base
from neuroscale.gate.checks import judged_kinds as kinds
from neuroscale.gate.checks.judged_kinds import HARMLESS, evaluate_kinds, unjudged_kinds
from neuroscale.gate.checks.refused_kinds import REFUSED, plural_of
from neuroscale.gate.runner import gate_paths
from neuroscale.gate.verdict import Severity, Verdict
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.policies.policy_set import load_policy_set
from neuroscale.repo.layout import RENDERED_KINDS, ServicePath
from neuroscale.repo.snapshot import FolderSnapshot
from repositories import Repository
from roots import ROOT

pytestmark = pytest.mark.tools
TODAY = date(2026, 11, 21)
CORE, RBAC, KSERVE, KYVERNO = "v1", "rbac.authorization.k8s.io/v1", "serving.kserve.io", "policies.kyverno.io/v1"


def manifest(api_version: str, kind: str, name: str = "a", **fields: Any) -> Manifest:
    metadata = {"name": name, **fields.pop("metadata", {})}
    value = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
    return read_manifests(json.dumps(value).encode(), f"{kind}-{name}.json")[0]


def look(*manifests: Manifest, strict: bool = True) -> tuple[list[str], list[Manifest]]:
    policies = load_policy_set(FolderSnapshot(ROOT)).policies
    evaluation, unjudged = evaluate_kinds(manifests, policies, schemas.find(), strict=strict)
    assert evaluation.evaluated == evaluation.expected == len(manifests)
    return [finding.rule for finding in evaluation.findings], unjudged


def network(spec: dict[str, Any], **more: Any) -> Manifest:
    """A NetworkPolicy with one rule for what comes in."""
    return manifest("networking.k8s.io/v1", "NetworkPolicy", spec={"podSelector": {}, "ingress": [spec], **more})


def callers(*peers: dict[str, Any]) -> Manifest:
    """A NetworkPolicy that lets peers in."""
    return network({"from": list(peers), **PORT}, **ONE)


def goals(*rules: dict[str, Any], **more: Any) -> Manifest:
    """A NetworkPolicy with rules for what goes out."""
    spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": list(rules), **more}
    return manifest("networking.k8s.io/v1", "NetworkPolicy", spec=spec)


def budget(**spec: Any) -> Manifest:
    """A PodDisruptionBudget."""
    return manifest("policy/v1", "PodDisruptionBudget", spec={"selector": {"matchLabels": {"app": "one"}}, **spec})


ORDINARY = {
    "MAX_TOKENS": "100",
    "REQUIRE_TOKEN": "true",
    "GOOGLE_APPLICATION_CREDENTIALS": "/var/secrets/key.json",
    "DB_PASSWORD": "$(FROM_A_SECRET)",
    "REGISTRY_CREDENTIALS": "bob:${FROM_A_SECRET}",
    "HF_TOKEN": "",
    "partition-key": "user",
    "BYPASS": "example",
    "URL": "postgres://bob:$(DB_PASSWORD)@db/x and http://proxy:8080/a@b",
}
"""Entries of a ConfigMap that hold no secret."""
ONE = {"podSelector": {"matchLabels": {"app": "one"}}}
PORT = {"ports": [{"port": 8080}]}
HTTPS = {"ports": [{"port": 443}]}
_SELECTORS: list[dict[str, Any]] = [
    *({"operator": operator, "values": ["gateway"]} for operator in ("In", "NotIn")),
    *({"operator": operator} for operator in ("Exists", "DoesNotExist")),
]
NAMED: dict[str, Any] = {
    one["operator"]: {"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", **one}]}}
    for one in _SELECTORS
}
_NOT_THE_INTERNET = ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"]
INTERNET = {"ipBlock": {"cidr": "0.0.0.0/0", "except": _NOT_THE_INTERNET}}


PASSED_UNREAD = (
    manifest(CORE, "PersistentVolume", spec={"hostPath": {"path": "/"}}),
    manifest(CORE, "PodTemplate", template={"spec": {"hostPID": True}}),
    manifest(CORE, "ConfigMap", "inferenceservice-config"),
    manifest(CORE, "ConfigMap", "argocd-rbac-cm"),
    manifest(CORE, "ConfigMap", metadata={"namespace": "kserve"}),
    manifest(CORE, "ConfigMap", "istio"),  # in whatever namespace it is applied to
    *(
        manifest(CORE, "ServiceAccount", metadata={"annotations": {key: "admin"}})
        for key in ("eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account", "azure.workload.identity/client-id")
    ),
    manifest(RBAC, "ClusterRoleBinding", roleRef={"kind": "ClusterRole", "name": "cluster-admin"}),
    manifest(RBAC, "RoleBinding"),
    manifest(KYVERNO, "MutatingPolicy"),
    manifest(KYVERNO, "ValidatingPolicy", spec={"validationActions": ["Audit"]}),
    manifest(f"{KSERVE}/v1alpha1", "LocalModelNodeGroup"),
)


@pytest.mark.parametrize("one", PASSED_UNREAD, ids=lambda one: f"{one.group}-{one.kind}-{one.name}")
def test_an_object_that_no_policy_looks_at_is_named_and_refused_where_it_is_strict(one: Manifest) -> None:
    assert look(one) == (["unjudged-kind"], [one])
    assert look(one, strict=False) == ([], [one])
    (told,) = unjudged_kinds([one])
    assert one.kind in told
    assert one.file in told


REFUSED_IN_A_CHANGE = (
    manifest("networking.k8s.io/v1", "Ingress"),
    manifest("gateway.networking.k8s.io/v1", "HTTPRoute", spec={"hostnames": ["other-team.models.example.com"]}),
    manifest("argoproj.io/v1alpha1", "Application", spec={"project": "platform"}),
    manifest("argoproj.io/v1alpha1", "AppProject"),
    manifest("kyverno.io/v2", "PolicyException"),
    manifest(KYVERNO, "PolicyException"),
    manifest(KYVERNO, "DeletingPolicy"),
)
REFUSED_EVERYWHERE = (
    manifest("keda.sh/v1alpha1", "ScaledObject"),  # set-up installs no definition of it
    manifest("keda.sh/v1alpha1", "ScaledJob"),
    manifest(f"{KSERVE}/v1alpha1", "TrainedModel"),
    manifest(f"{KSERVE}/v1alpha1", "ClusterStorageContainer"),
    manifest(f"{KSERVE}/v1alpha1", "LLMInferenceServiceConfig"),
    manifest(f"{KSERVE}/v1alpha2", "LLMInferenceServiceConfig"),
)


@pytest.mark.parametrize("one", REFUSED_IN_A_CHANGE, ids=lambda one: f"{one.group}-{one.kind}")
def test_a_kind_that_undoes_other_checks_is_refused_by_name_in_a_change(one: Manifest) -> None:
    assert look(one) == (["refused-kind"], [one])
    # The schema check refuses a kind that it does not know.
    known = (one.api_version, one.kind) in schemas.find().kinds
    assert look(one, strict=False) == ([], [one] if known else [])


@pytest.mark.parametrize("one", REFUSED_EVERYWHERE, ids=lambda one: f"{one.version}-{one.kind}")
@pytest.mark.parametrize("strict", [True, False])
def test_a_kind_that_no_folder_needs_is_refused_by_name_everywhere(one: Manifest, strict: bool) -> None:
    assert look(one, strict=strict) == (["refused-kind"], [])


@pytest.mark.parametrize(
    ("one", "fix"),
    [
        (manifest(CORE, "Service", spec={"type": "NodePort"}), "Write type: ClusterIP,"),
        (manifest(CORE, "Service", spec={"externalIPs": ["1.2.3.4"]}), "Remove externalIPs,"),
        (
            manifest("policy/v1", "PodDisruptionBudget", spec={"minAvailable": "100%"}),
            "Write maxUnavailable: 1, and no minAvailable.",
        ),
    ],
)
def test_a_fix_ends_well_when_it_is_followed_literally(one: Manifest, fix: str) -> None:
    found, _ = evaluate_kinds([one], (), schemas.find(), strict=True)
    assert any(finding.fix.startswith(fix) for finding in found.findings), found.findings


def test_admission_refuses_the_kinds_that_the_gate_refuses_everywhere() -> None:
    everywhere = {(group, plural_of(kind)) for (group, kind), refusal in REFUSED.items() if refusal.everywhere}
    policies = load_policy_set(FolderSnapshot(ROOT)).policies
    (policy,) = (one for one in policies if one.name == "refused-kinds")
    named = {(group, resource) for rule in policy.rules for group in rule.groups for resource in rule.resources}
    assert named == everywhere
    assert all(rule.versions == {"*"} for rule in policy.rules)


@pytest.mark.parametrize(
    ("one", "rules"),
    [
        (manifest(CORE, "Secret", stringData={"token": "x"}), ["plain-secret"]),
        (manifest(CORE, "Secret", data={"token": "eA=="}), ["plain-secret"]),
        (manifest(CORE, "Secret", data={"token": ""}, stringData=None), []),
        (manifest(CORE, "Service", spec={"type": "LoadBalancer"}), ["open-service"]),
        (manifest(CORE, "Service", spec={"type": "NodePort"}), ["open-service"]),
        (manifest(CORE, "Service", spec={"externalIPs": ["1.2.3.4"]}), ["open-service"]),
        (
            manifest(CORE, "Service", spec={"type": "LoadBalancer", "externalIPs": ["1.2.3.4"]}),
            ["open-service", "open-service"],
        ),
        (manifest(CORE, "Service", spec={"type": "ClusterIP", "externalIPs": []}), []),
        (manifest(CORE, "Service"), []),
        (manifest(CORE, "Secret", type="kubernetes.io/service-account-token"), ["lasting-token"]),
        (network({}), ["open-network"]),
        (network({}, policyTypes=["Egress", "Ingress"], **ONE), ["open-network"]),
        (network({"from": [ONE, {"ipBlock": {"cidr": "::/0"}}]}, **ONE), ["open-network"]),
        (network({"from": [{"namespaceSelector": {"matchLabels": {}}, "podSelector": {}}]}, **ONE), ["open-network"]),
        (network(PORT), ["open-network"]),
        (network(PORT, **ONE), ["open-network"]),
        (network({"ports": [{"port": 1, "endPort": 65535}]}, **ONE), ["open-network"]),
        (callers({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["203.0.113.1/32"]}}), ["open-network"]),
        (callers({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}), ["open-network"]),
        (callers({"ipBlock": {"cidr": "0.0.0.0/1"}}, {"ipBlock": {"cidr": "128.0.0.0/1"}}), ["open-network"]),
        (callers(*({"ipBlock": {"cidr": f"198.{n}.0.0/16"}} for n in (51, 60, 70))), ["open-network"]),
        (callers({"ipBlock": {"cidr": "10.0.0.0/8"}}), ["open-network"]),  # every pod of many clusters
        (callers({"ipBlock": {"cidr": "2000::/3"}}), ["open-network"]),
        (callers({"ipBlock": {"cidr": "everything"}}), ["open-network"]),
        (callers(NAMED["Exists"]), ["open-network"]),
        (callers(NAMED["NotIn"]), ["open-network"]),
        (callers(NAMED["DoesNotExist"]), ["open-network"]),
        (callers({**NAMED["In"], **ONE}, {"namespaceSelector": {}, **ONE}), ["open-network"]),
        (callers({"namespaceSelector": {"matchLabels": {"app.kubernetes.io/part-of": "a"}}}), ["open-network"]),
        (callers({"namespaceSelector": {"matchLabels": {"pod-security.kubernetes.io/warn": "a"}}}), ["open-network"]),
        (callers({"podSelector": {}}), []),
        (callers(NAMED["In"]), []),
        (callers({"namespaceSelector": {"matchLabels": {"a": "b"}}}), []),
        (callers({"ipBlock": {"cidr": "35.191.0.0/16"}}, {"ipBlock": {"cidr": "130.211.0.0/22"}}), []),
        (callers({"ipBlock": {"cidr": "10.20.30.0/24"}}, {"ipBlock": {"cidr": "10.20.30.0/24"}}), []),
        (callers({"ipBlock": {"cidr": "192.0.2.0/24"}}, {"ipBlock": {"cidr": "2001:db8::/48"}}), []),
        (network({}, policyTypes=["Egress"]), []),
        (goals({}), ["open-network"]),
        (goals({"to": []}), ["open-network"]),
        (goals({"ports": [{"port": 443}]}), ["open-network"]),
        (goals({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], **HTTPS}), ["open-network"]),
        (goals({"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}], **HTTPS}), ["open-network"]),
        (goals({"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]}), ["open-network"]),
        (goals({"to": [INTERNET]}), ["open-network"]),
        (goals({"to": [INTERNET], "ports": [{"port": 443, "endPort": 444}]}), ["open-network"]),
        (goals({"to": [INTERNET], "ports": [{"port": 443, "protocol": "UDP"}]}), ["open-network"]),
        (goals({"to": [INTERNET], "ports": [{"port": 443}, {"port": 22}]}), ["open-network"]),
        (goals({"to": [{"namespaceSelector": {}}], **HTTPS}), ["open-network"]),
        (goals({"to": [NAMED["Exists"]]}), ["open-network"]),
        (goals({}, policyTypes=None), ["open-network"]),
        (goals({"to": [INTERNET], **HTTPS}, {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]}), []),
        (goals({"to": [{"namespaceSelector": {}, **ONE}]}), []),
        (goals({"to": [{"podSelector": {}}, NAMED["In"]]}), []),
        (goals({}, policyTypes=["Ingress"]), []),
        (manifest("networking.k8s.io/v1", "NetworkPolicy", spec={"podSelector": {}}), []),
        (
            manifest(CORE, "Namespace", metadata={"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}),
            ["privileged-namespace"],
        ),
        (manifest(CORE, "Namespace", metadata={"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}), []),
        (manifest(CORE, "ConfigMap", data={"HF_TOKEN": "example", "password": "example"}), ["plain-secret"] * 2),
        (manifest(CORE, "ConfigMap", data={"db.pass": "example", "api-key": "example"}), ["plain-secret"] * 2),
        (manifest(CORE, "ConfigMap", data={"REGISTRY_CREDENTIALS": "bob:example"}), ["plain-secret"]),
        (manifest(CORE, "ConfigMap", data={"app.yaml": "url: redis://:example@cache:6379\n"}), ["plain-secret"]),
        (manifest(CORE, "ConfigMap", data={"DB_PASS": "$(SALT)example"}), ["plain-secret"]),
        (manifest(CORE, "ConfigMap", data=ORDINARY), []),
        (manifest(CORE, "ConfigMap", data=None, binaryData={"a": "AAAA"}), []),
    ],
)
def test_secrets_services_networks_and_namespaces_are_judged_by_what_stands_in_them(
    one: Manifest, rules: list[str]
) -> None:
    assert look(one, strict=False) == (rules, [])


@pytest.mark.parametrize(
    ("one", "rule"),
    [
        (manifest(CORE, "Namespace", metadata={"labels": None}), "unguarded-namespace"),
        (manifest(CORE, "Namespace", metadata={"labels": {"a": "b"}}), "unguarded-namespace"),
        (manifest(CORE, "Service", spec={"type": "ExternalName", "externalName": "example.org"}), "external-name"),
        (manifest("apps/v1", "Deployment", metadata={"ownerReferences": [{"name": "gone"}]}), "owner-reference"),
        (budget(selector={}, maxUnavailable=1), "budget-of-all-pods"),
        (budget(selector={"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), "budget-of-all-pods"),
        (budget(maxUnavailable=0), "no-eviction"),
        (budget(maxUnavailable="0%"), "no-eviction"),
        (budget(minAvailable="100%"), "no-eviction"),
    ],
)
def test_what_other_platforms_have_good_reasons_for_is_named_and_refused_where_it_is_strict(
    one: Manifest, rule: str
) -> None:
    policies = load_policy_set(FolderSnapshot(ROOT)).policies
    inside = replace(one, service=ServicePath("dev", "chat"))
    for given, strict, severity in ((one, False, Severity.NOTICE), (one, True, Severity.ERROR)):
        evaluation, _ = evaluate_kinds([given], policies, schemas.find(), strict=strict)
        assert (rule, severity) in [(found.rule, found.severity) for found in evaluation.findings]
        assert {found.severity for found in evaluation.findings} == {severity}
    evaluation, _ = evaluate_kinds([inside], policies, schemas.find(), strict=False)
    assert {found.severity for found in evaluation.findings} == {Severity.ERROR}


@pytest.mark.parametrize(
    "one",
    [
        budget(maxUnavailable=1),
        budget(minAvailable=2),
        budget(maxUnavailable="some"),
        budget(minAvailable="50%", selector=None),
        manifest("apps/v1", "Deployment", metadata={"ownerReferences": []}),
    ],
)
def test_budgets_that_let_a_node_drain_pass(one: Manifest) -> None:
    assert look(one) == ([], [])


def test_what_the_platform_renders_and_what_a_policy_judges_is_not_unjudged() -> None:
    rendered = (f"{KSERVE}/v1beta1", "networking.k8s.io/v1", "policy/v1")
    given = [manifest(version, kind) for version, kind in zip(rendered, RENDERED_KINDS.values(), strict=True)]
    given += [manifest(CORE, "Pod"), manifest(f"{KSERVE}/v1alpha1", "ServingRuntime")]
    given += [manifest("apps/v1", "Deployment"), manifest(CORE, "ConfigMap", metadata={"namespace": "team-alpha"})]
    assert look(*given) == ([], [])


def test_every_kind_of_the_reviewed_list_is_one_that_there_is() -> None:
    known = {(version.rpartition("/")[0], kind) for version, kind in schemas.find().kinds}
    assert known >= HARMLESS


def test_a_kind_without_a_schema_is_left_to_the_checks_that_say_so() -> None:
    assert look(manifest("example.com/v1", "Anything")) == ([], [])


@pytest.mark.parametrize(
    "kind", ["Secret", "Service", "Namespace", "NetworkPolicy", "ConfigMap", "PodDisruptionBudget"]
)
def test_a_gate_that_lost_a_rule_is_not_trusted(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(kinds, "_RULES", {key: rule for key, rule in kinds._RULES.items() if key[1] != kind})
    with pytest.raises(UntrustedError, match="tripwire"):
        look()


@pytest.mark.parametrize("part", ["sync_annotations", "_references"])
def test_a_gate_that_reads_no_metadata_is_not_trusted(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(kinds, part, lambda *_: ())
    with pytest.raises(UntrustedError, match="tripwire"):
        look()


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        ("argocd.argoproj.io/hook", "PreSync", "the object is then a hook"),
        ("argocd.argoproj.io/hook", "Skip", "during a sync or never"),
        ("argocd.argoproj.io/hook-delete-policy", "HookSucceeded", "the object is then a hook"),
        ("argocd.argoproj.io/sync-options", "Prune=false", "keep an object that Git no longer has"),
        ("argocd.argoproj.io/sync-options", "Replace=true,Force=true", "or delete it to update it"),
        ("argocd.argoproj.io/compare-options", "IgnoreExtraneous", "hide that the object differs"),
        ("argocd.argoproj.io/ignore-healthcheck", "true", "treats this one object"),
        ("argocd.argoproj.io/tracking-id", "other:/Job:a/b", "treats this one object"),
        ("helm.sh/hook", "pre-install", "the object is then a hook"),
        ("helm.sh/resource-policy", "keep", "keeps the object"),
    ],
)
@pytest.mark.parametrize("kind", ["Job", "InferenceService"])
def test_an_object_of_a_service_cannot_leave_the_way_of_its_application(
    kind: str, annotation: str, value: str, told: str
) -> None:
    version = "batch/v1" if kind == "Job" else f"{KSERVE}/v1beta1"
    one = manifest(version, kind, metadata={"annotations": {annotation: value, "argocd.argoproj.io/sync-wave": "1"}})
    policies = load_policy_set(FolderSnapshot(ROOT)).policies
    for service, severity in ((ServicePath("dev", "chat"), Severity.ERROR), (None, Severity.NOTICE)):
        evaluation, _ = evaluate_kinds([replace(one, service=service)], policies, schemas.find(), strict=True)
        (finding,) = evaluation.findings
        assert (finding.rule, finding.severity) == ("sync-annotation", severity)
        assert annotation in finding.message
        assert told in finding.message


@pytest.mark.parametrize("annotations", [None, "text", {"helm.sh/chart": "a-1.0.0", "other/hook": "PreSync"}])
def test_other_annotations_are_left_alone(annotations: Any) -> None:
    one = manifest(CORE, "ConfigMap", metadata={"annotations": annotations, "namespace": "team-alpha"})
    assert look(replace(one, service=ServicePath("dev", "chat"))) == ([], [])


@pytest.mark.parametrize(
    ("component", "message"),
    [
        ({"minReplicas": 3, "maxReplicas": 2}, "at least 3 and at most 2"),
        ({"maxReplicas": -1}, "negative"),
        ({"minReplicas": -2}, "negative"),
        ({"minReplicas": 3}, ""),
        ({"minReplicas": 3, "maxReplicas": 0}, ""),
        ({"minReplicas": 0, "maxReplicas": 1}, ""),
        ({"minReplicas": "3", "maxReplicas": 2}, ""),
    ],
)
@pytest.mark.parametrize("part", ["predictor", "transformer"])
def test_numbers_of_replicas_that_kserve_refuses_are_findings(
    part: str, component: dict[str, Any], message: str
) -> None:
    one = manifest(f"{KSERVE}/v1beta1", "InferenceService", spec={part: component})
    policies = load_policy_set(FolderSnapshot(ROOT)).policies
    evaluation, _ = evaluate_kinds([one], policies, schemas.find(), strict=True)
    found = [finding for finding in evaluation.findings if finding.rule == "impossible-replicas"]
    assert [message in finding.message for finding in found] == [True] * bool(message)


@pytest.mark.parametrize(
    ("version", "kind", "stop", "told"),
    [
        ("v1beta1", "InferenceService", "true", True),
        ("v1alpha2", "LLMInferenceService", "True", True),
        ("v1beta1", "InferenceService", "false", False),
        ("v1alpha1", "ServingRuntime", "true", False),
    ],
)
def test_a_service_that_an_annotation_stops_is_a_notice(version: str, kind: str, stop: str, told: bool) -> None:
    one = manifest(f"{KSERVE}/{version}", kind, metadata={"annotations": {f"{KSERVE}/stop": stop}})
    policies = load_policy_set(FolderSnapshot(ROOT)).policies
    evaluation, _ = evaluate_kinds([one], policies, schemas.find(), strict=True)
    found = [(finding.rule, finding.severity) for finding in evaluation.findings]
    assert found == [("stopped", Severity.NOTICE)] * told


TEXT = {"internal.serving.kserve.io/storage-initializer-sourceuri": "https://models.example/llama.tar"}
PODS: dict[str, Any] = {"metadata": {"annotations": TEXT}}


@pytest.mark.parametrize(
    "one",
    [
        manifest("apps/v1", "Deployment", spec={"template": PODS}),
        manifest("batch/v1", "CronJob", spec={"jobTemplate": {"spec": {"template": PODS}}}),
        manifest(CORE, "Pod", **PODS),
        manifest(CORE, "Pod", metadata={"labels": TEXT}),
        manifest(f"{KSERVE}/v1alpha1", "ServingRuntime", spec={"annotations": TEXT}),
        manifest(CORE, "ConfigMap", **PODS),
    ],
    ids=lambda one: one.kind,
)
def test_nobody_writes_the_texts_that_kserve_hands_itself(one: Manifest) -> None:
    policies = load_policy_set(FolderSnapshot(ROOT)).policies
    for service in (ServicePath("dev", "chat"), None):
        evaluation, _ = evaluate_kinds([replace(one, service=service)], policies, schemas.find(), strict=False)
        (finding,) = evaluation.findings
        assert (finding.rule, finding.severity) == ("internal-text", Severity.ERROR)
        assert "storage-initializer-sourceuri is KServe's own" in finding.message


def test_the_policy_alone_judges_the_texts_of_kserves_services() -> None:
    assert look(manifest(f"{KSERVE}/v1beta1", "InferenceService", **PODS)) == ([], [])


def test_a_gate_that_finds_every_kind_harmless_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_is_harmless", lambda _: True)
    with pytest.raises(UntrustedError, match="tripwire"):
        look()


def write(folder: Path, *manifests: Manifest) -> Path:
    folder.mkdir()
    for one in manifests:
        (folder / one.file).write_text(json.dumps(one.value))
    return folder


BINDING = manifest(
    RBAC,
    "ClusterRoleBinding",
    roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}],
)
MAP = manifest(CORE, "ConfigMap", "settings", metadata={"namespace": "team-alpha"})


@pytest.mark.parametrize(
    ("given", "strict", "status", "headline"),
    [
        ((MAP, BINDING), False, 0, "Passed: 1 file checked, and 1 file with kinds that nothing judges"),
        ((MAP, BINDING), True, 1, "Refused: 1 finding in 1 file"),
        ((BINDING,), False, 0, "Nothing to check: 1 file of kinds that nothing judges"),
    ],
    ids=["beside a judged file", "strict", "alone"],
)
def test_the_headline_counts_no_file_as_passed_that_nobody_judged(
    tmp_path: Path, given: tuple[Manifest, ...], strict: bool, status: int, headline: str
) -> None:
    verdict = gate_paths([write(tmp_path / "theirs", *given)], ROOT, TODAY, strict=strict)
    assert (verdict.exit_status, verdict.headline) == (status, headline)
    assert any(BINDING.kind in line and BINDING.file in line for line in verdict.not_checked)


@pytest.mark.parametrize(
    ("asked", "for_paths", "for_a_change"), [(None, False, True), (True, True, True), (False, False, False)]
)
def test_a_change_is_judged_strictly_and_paths_are_not_unless_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool | None, for_paths: bool, for_a_change: bool
) -> None:
    seen: dict[str, bool] = {}

    def judge(name: str) -> Any:
        def judged(*_: object, strict: bool, **__: object) -> Verdict:
            seen[name] = strict
            return Verdict(tool_version="1", exit_status=0, headline="Passed")

        return judged

    for module, name in (("runner", "gate_paths"), ("runner", "gate_change"), ("gate_code_of_base", "judge_by_base")):
        monkeypatch.setattr(f"neuroscale.gate.{module}.{name}", judge(name))
    monkeypatch.delenv(gate_code_of_base.JUDGE, raising=False)
    made = Repository(tmp_path / "repository")
    made.commit({"platform/settings.yaml": ""})
    made.commit({"README.md": "hi", "src/neuroscale/a.py": "0"})
    made.commit({"src/neuroscale/a.py": "1"})
    try:
        run_gate([tmp_path], "", "", made.root, Reports(), strict=asked)
        run_gate([], "HEAD~2", "HEAD~1", made.root, Reports(), strict=asked)
        run_gate([], "HEAD~1", "HEAD", made.root, Reports(), only_read_head=True, strict=asked)
    finally:
        made.git.close()
    assert seen == {"gate_paths": for_paths, "gate_change": for_a_change, "judge_by_base": for_a_change}

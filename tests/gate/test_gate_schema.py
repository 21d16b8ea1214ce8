"""The schema check: every object has one answer, every kind a schema, and a kubeconform that lies is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake_tools import lying_tool
from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.gate.checks.file_modes import file_modes
from neuroscale.gate.checks.schema import evaluate_schemas
from neuroscale.gate.evaluation import Evaluation
from neuroscale.manifests.objects import read_manifests

pytestmark = pytest.mark.tools

GOOD: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "good", "namespace": "team"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}},
}


def judge(folder: Path, *values: dict[str, Any], kubeconform: Path | None = None) -> Evaluation:
    given = [item for value in values for item in read_manifests(json.dumps(value).encode(), "a.json")]
    return evaluate_schemas(given, schemas.find(), kubeconform or tool_cache.find("kubeconform"), folder)


def changed(**fields: Any) -> dict[str, Any]:
    return {**GOOD, **fields}


def test_a_valid_object_passes_and_a_tripwire_of_each_kind_is_caught(tmp_path: Path) -> None:
    seen = judge(tmp_path, GOOD)
    assert (seen.findings, seen.evaluated, seen.expected) == ((), 1, 1)
    # Three rendered kinds by kubeconform, the two native ones by kubernetes-validate too.
    assert seen.tripwires == seen.caught == 5


POD: dict[str, Any] = {"containers": [{"name": "a", "image": "b"}]}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
SELECTOR: dict[str, Any] = {"matchLabels": {"a": "b"}}
WORKLOADS: dict[tuple[str, str], dict[str, Any]] = {
    ("v1", "Pod"): POD,
    ("v1", "Service"): {"ports": [{"port": 80}]},
    ("apps/v1", "Deployment"): {"selector": SELECTOR, "template": TEMPLATE},
    ("apps/v1", "StatefulSet"): {"selector": SELECTOR, "template": TEMPLATE, "serviceName": "a"},
    ("apps/v1", "DaemonSet"): {"selector": SELECTOR, "template": TEMPLATE},
    ("apps/v1", "ReplicaSet"): {"selector": SELECTOR, "template": TEMPLATE},
    ("batch/v1", "Job"): {"template": TEMPLATE},
    ("batch/v1", "CronJob"): {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "maxReplicas": 2,
        "scaleTargetRef": {"kind": "Deployment", "name": "a"},
    },
}


@pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: kind[1])
def test_good_and_bad_objects_of_the_native_kinds_are_told_apart(tmp_path: Path, kind: tuple[str, str]) -> None:
    api_version, name = kind
    good: dict[str, Any] = {"apiVersion": api_version, "kind": name, "metadata": {"name": "a"}, "spec": WORKLOADS[kind]}
    assert judge(tmp_path / "good", good).findings == ()
    for number, bad in enumerate(({**good, "spec": []}, {**good, "spec": {**good["spec"], "unknown": 1}})):
        assert judge(tmp_path / f"bad-{number}", bad).findings, bad


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (changed(extra=1), "extra"),
        (changed(metadata={"name": "good", "lables": {}}), "lables"),
        (changed(metadata={"name": "good", "labels": {"a": 7}}), "labels.a"),
        (changed(spec={"maxUnavailable": 1, "selektor": {}}), "selektor"),
        (changed(spec=[]), "spec"),
        (changed(spec={"maxUnavailable": {}}), "spec.maxUnavailable"),
    ],
)
def test_each_wrong_field_is_a_finding_that_names_it(tmp_path: Path, value: dict[str, Any], word: str) -> None:
    findings = judge(tmp_path, GOOD, value).findings
    assert findings
    assert all(finding.rule == "invalid" and finding.subject.startswith("PodDisruptionBudget") for finding in findings)
    assert word in " ".join(finding.message for finding in findings)


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("policy/v2", "PodDisruptionBudget"),
        ("policy/v1", "PodDisruptionBuget"),
        ("example.org/v1", "Thing"),
        ("serving.kserve.io/v1", "InferenceService"),
        ("policy/v1", "../policy/poddisruptionbudget"),
        ("../../../etc/v1", "Passwd"),
        ("{{ .Group }}/v1", "{{ .ResourceKind }}"),
    ],
)
def test_a_kind_without_a_schema_is_a_finding_and_never_skipped(tmp_path: Path, api_version: str, kind: str) -> None:
    seen = judge(tmp_path, GOOD, changed(apiVersion=api_version, kind=kind))
    assert [finding.rule for finding in seen.findings] == ["no-schema"]
    assert seen.evaluated == 2


def test_both_validators_can_judge_every_kind_that_has_a_schema(tmp_path: Path) -> None:
    bare = [{"apiVersion": version, "kind": kind, "metadata": {"name": "a"}} for version, kind in schemas.find().kinds]
    seen = judge(tmp_path, *bare)
    assert {finding.rule for finding in seen.findings} == {"invalid"}
    assert seen.evaluated == len(bare)


@pytest.mark.parametrize("kind", ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"])
def test_kinds_that_are_newer_than_kyvernos_table_are_judged(tmp_path: Path, kind: str) -> None:
    good: dict[str, Any] = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}}
    assert judge(tmp_path / "good", {**good, "spec": {}}).findings == ()
    (finding,) = judge(tmp_path / "bad", {**good, "spec": {"policyNames": []}}).findings
    assert (finding.rule, "policyNames" in finding.message) == ("invalid", True)


CASES = Path(__file__).parent / "cases" / "file-modes"


@pytest.mark.parametrize(
    ("case", "rule", "fix"),
    [
        ("fix-plain-number", "file-mode", "Write 493 (0755 in octal)."),
        ("fix-plain-777", "file-mode", "Write 511 (0777 in octal)."),
        ("fix-quoted", "invalid", "Write 493 (0755 in octal)."),
    ],
)
def test_the_fix_of_a_wrong_file_mode_ends_well(tmp_path: Path, case: str, rule: str, fix: str) -> None:
    read = read_manifests((CASES / f"{case}.yaml").read_bytes(), f"{case}.yaml")
    (finding,) = evaluate_schemas(read, schemas.find(), tool_cache.find("kubeconform"), tmp_path).findings
    assert (finding.rule, finding.line, finding.fix) == (rule, 8, fix)
    assert "spec.volumes[0].configMap.defaultMode" in finding.message


def test_the_right_file_mode_passes(tmp_path: Path) -> None:
    read = read_manifests((CASES / "right.yaml").read_bytes(), "right.yaml")
    assert evaluate_schemas(read, schemas.find(), tool_cache.find("kubeconform"), tmp_path).findings == ()
    with pytest.raises(InputError) as caught:
        read_manifests((CASES / "octal.yaml").read_bytes(), "octal.yaml")
    assert caught.value.problems[0].fix == "Write 493 (0755 in octal)."


@pytest.mark.parametrize(
    ("mode", "severity"),
    [
        *((0, None), (256, None), (420, None), (511, None), (400, "notice"), (444, "notice")),
        *((512, "error"), (644, "error"), (755, "error"), (1777, "error"), (-1, "error")),
    ],
)
def test_each_mode_of_a_volume_is_looked_at(mode: int, severity: str | None) -> None:
    items = [{"key": "a", "path": "a", "mode": mode}]
    volumes = [
        {"name": "a", "secret": {"secretName": "a", "defaultMode": mode}},
        {"name": "b", "projected": {"sources": [{"configMap": {"name": "a", "items": items}}]}},
        {"name": "c", "downwardAPI": {"items": items}},
    ]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"volumes": volumes}}
    (read,) = read_manifests(json.dumps(pod).encode(), "a.json")
    assert [finding.severity.value for finding in file_modes("schema", read)] == ([severity] * 3 if severity else [])


def test_a_mode_of_another_kind_is_not_a_files(tmp_path: Path) -> None:
    other = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"mode": 755, "defaultMode": 755}}
    (read,) = read_manifests(json.dumps(other).encode(), "a.json")
    assert list(file_modes("schema", read)) == []


def test_an_old_version_of_a_kind_is_answered_with_the_versions_that_there_are(tmp_path: Path) -> None:
    (finding,) = judge(tmp_path, changed(apiVersion="policy/v1beta1")).findings
    assert (finding.rule, finding.fix) == ("no-schema", "Write apiVersion: policy/v1, with the fields of that version.")


TRIPWIRE = "[r for r in answers if r['status'] == 'statusInvalid'][-1]"
LIES = {
    "says nothing": ("sys.exit(0)", "cannot be read"),
    "ends with 0": ("status = 0", "exit status 0"),
    "crashes": ("status = 2", "exit status 2"),
    "leaves out an object": ("answers.pop()", "answered for"),
    "answers twice": ("answers.append(answers[0])", "answered for"),
    "counts wrong": ("summary['valid'] += 1", "disagrees"),
    "skips": (
        "answers[0].update(status='statusSkipped'); summary['valid'] -= 1; summary['skipped'] = 1",
        "disagrees",
    ),
    "passes a tripwire": (
        f"{TRIPWIRE}.update(status='statusValid', msg=''); summary['invalid'] -= 1; summary['valid'] += 1",
        "did not refuse the tripwire",
    ),
    "refuses a tripwire for another reason": (
        f"{TRIPWIRE}.update(msg='?')",
        "did not refuse the tripwire",
    ),
    "cannot read a schema": (
        "good = next(r for r in answers if r['status'] == 'statusValid'); "
        "good.update(status='statusError'); summary['valid'] -= 1; summary['errors'] += 1",
        "could not judge",
    ),
    "reads another object": ("min(answers, key=lambda r: r['filename']).update(name='other')", "kubeconform read"),
    "prints something else": ("print('panic')", "cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_kubeconform_that_lies_is_not_believed(tmp_path: Path, lie: str) -> None:
    text, word = LIES[lie]
    with pytest.raises(UntrustedError, match=word):
        judge(tmp_path / "run", GOOD, kubeconform=lying_tool(tmp_path, "kubeconform", text))

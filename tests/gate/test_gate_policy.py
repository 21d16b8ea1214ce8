"""The policy check believes nothing that it has not counted: every way in which Kyverno can be silent is exit 3."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fake_tools import lying_tool
from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import dump
from neuroscale.gate.checks.kyverno_process import Batch, KyvernoResult, Reference, reference
from neuroscale.gate.checks.policy import evaluate_policies
from neuroscale.gate.evaluation import Evaluation
from neuroscale.gate.verdict import Severity
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.policies.policy_set import PolicySet, load_policy_set
from neuroscale.repo.snapshot import MemorySnapshot

TODAY = date(2026, 11, 21)
pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("kyverno_once")]


def policy(name: str, label: str, **spec: Any) -> dict[str, Any]:
    """A policy that demands one label on Deployments."""
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {
            "name": name,
            "annotations": {
                "neuroscale.dev/fix": f"Set the label {label}.",
                "neuroscale.dev/tripwire-message": f"no {label}",
            },
        },
        "spec": {
            "validationActions": ["Deny"],
            "autogen": {"podControllers": {"controllers": []}},
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["apps"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["deployments"],
                    }
                ]
            },
            "validations": [
                {"expression": f"object.metadata.?labels['{label}'].orValue('') != ''", "message": f"no {label}"}
            ],
            **spec,
        },
    }


def deployment(name: str, namespace: str = "team", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {}}


def files(*policies: dict[str, Any]) -> dict[str, bytes]:
    made = {f"policies/{value['metadata']['name']}/policy.yaml": dump(value).encode() for value in policies}
    return {**made, "policies/tripwires.yaml": dump(deployment("neuroscale-tripwire", "neuroscale-tripwire")).encode()}


def policy_set(*policies: dict[str, Any], **others: bytes) -> PolicySet:
    return load_policy_set(MemorySnapshot({**files(*policies), **others}))


def manifests(*values: dict[str, Any], file: str = "a.yaml") -> list[Manifest]:
    return read_manifests("---\n".join(dump(value) for value in values).encode(), file)


OWNER, COST = policy("owner", "owner"), policy("cost", "cost")
BINDING = b"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: everything\n"


def with_lines(lines: bytes) -> dict[str, bytes]:
    """One policy, with lines behind it in its file."""
    return {**files(OWNER), "policies/owner/policy.yaml": dump(OWNER).encode() + lines}


def marked(field: str, value: Any) -> dict[str, bytes]:
    """One policy with something more in its metadata."""
    there = OWNER["metadata"].get(field, {})
    return files({**OWNER, "metadata": {**OWNER["metadata"], field: {**there, **value} if there else value}})


def judge(
    given: list[Manifest], used: PolicySet, folder: Path, kyverno: Path | None = None, workers: int = 2
) -> Evaluation:
    return evaluate_policies(
        used, given, schemas.find(), kyverno or tool_cache.find("kyverno"), folder, today=TODAY, workers=workers
    )


def test_each_object_is_judged_by_each_policy_and_the_finding_names_the_place(tmp_path: Path) -> None:
    given = manifests(deployment("good", owner="a", cost="b"), deployment("bad", owner="a"))
    seen = judge(given, policy_set(OWNER, COST), tmp_path)
    assert (seen.evaluated, seen.expected, seen.caught, seen.tripwires) == (4, 4, 2, 2)
    (finding,) = seen.findings
    assert (finding.rule, finding.file, finding.subject) == ("cost", "a.yaml", "Deployment team/bad")
    assert finding.line == given[1].line("kind")
    assert (finding.message, finding.fix) == ("no cost", "Set the label cost.")


def test_nothing_to_judge_still_sends_the_tripwires(tmp_path: Path) -> None:
    seen = judge([], policy_set(OWNER, COST), tmp_path)
    assert (seen.evaluated, seen.caught) == (0, 2)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_answer_does_not_depend_on_the_number_of_processes(tmp_path: Path, workers: int) -> None:
    given = manifests(*(deployment(f"d{index}", owner="a" if index % 2 else "") for index in range(20)))
    seen = judge(given, policy_set(OWNER, COST), tmp_path, workers=workers)
    assert (seen.evaluated, len(seen.findings)) == (40, 30)


@pytest.mark.parametrize(("alike", "processors", "processes"), [(12, 2, 2), (11, 2, 1), (12, 1, 1)])
def test_a_few_objects_are_not_sent_to_many_policies_of_other_kinds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, alike: int, processors: int, processes: int
) -> None:
    """Kyverno compiles each policy for each object of its process, also for those that the policy does not judge."""
    batches: list[Batch] = []

    def passes(batch: Batch, *_: object) -> dict[tuple[str, Reference], KyvernoResult]:
        batches.append(batch)
        return {(one.name, reference(thing)): KyvernoResult("pass", "") for one in batch.policies for thing in given}

    monkeypatch.setattr("neuroscale.gate.checks.policy.ask_with_tripwires", passes)
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    jobs = json.loads(
        json.dumps(policy("of-jobs", "owner")).replace('"apps"', '"batch"').replace("deployments", "jobs")
    )
    made = files(*(policy(f"p{number}", "owner") for number in range(alike)), jobs)
    job = {**deployment("neuroscale-tripwire-job"), "apiVersion": "batch/v1", "kind": "Job"}
    made["policies/tripwires.yaml"] += b"---\n" + dump(job).encode()
    given = manifests(deployment("a", owner="a"))
    seen = evaluate_policies(
        load_policy_set(MemorySnapshot(made)), given, schemas.find(), tmp_path, tmp_path, today=TODAY
    )
    assert (seen.evaluated, seen.expected, seen.caught) == (alike, alike, alike + 1)
    assert len(batches) == processes
    named = {batch.policies[0].name: [one.kind for one in (*batch.manifests, *batch.tripwires)] for batch in batches}
    if processes == 2:
        assert named == {"p0": ["Deployment", "Deployment"], "of-jobs": ["Job"]}


def test_the_same_object_in_two_environments_is_judged_twice(tmp_path: Path) -> None:
    given = [*manifests(deployment("a"), file="dev.yaml"), *manifests(deployment("a", owner="x"), file="prod.yaml")]
    seen = judge(given, policy_set(OWNER), tmp_path)
    assert [(finding.file, seen.evaluated) for finding in seen.findings] == [("dev.yaml", 2)]


def test_an_object_without_a_namespace_is_judged(tmp_path: Path) -> None:
    value = deployment("a")
    del value["metadata"]["namespace"]
    assert len(judge(manifests(value), policy_set(OWNER), tmp_path).findings) == 1


def test_an_unknown_kind_is_a_finding_and_not_left_out(tmp_path: Path) -> None:
    value = {**deployment("a", owner="x"), "apiVersion": "apps/v9"}
    seen = judge(manifests(value), policy_set(OWNER), tmp_path)
    assert [finding.rule for finding in seen.findings] == ["unknown-kind"]


def test_a_policy_that_cannot_be_evaluated_on_an_object_is_a_finding(tmp_path: Path) -> None:
    value = deployment("a")
    value["metadata"]["labels"] = ["no", "mapping"]
    (finding,) = judge(manifests(value), policy_set(OWNER), tmp_path).findings
    assert "could not be evaluated" in finding.message


def exception(**fields: str) -> dict[str, bytes]:
    value = {
        "schema_version": 1,
        "policy": "owner",
        "kind": "Deployment",
        "namespace": "team",
        "name": "bad",
        "reason": "migration to signed images",
        "approved_by": "platform",
        "expires": "2026-12-01",
        **fields,
    }
    return {"policies/exceptions/one.yaml": dump(value).encode()}


@pytest.mark.parametrize(
    ("fields", "severity", "word"),
    [
        ({}, Severity.NOTICE, "migration"),
        ({"expires": "2026-11-21"}, Severity.NOTICE, "migration"),
        ({"expires": "2026-11-20"}, Severity.ERROR, "expired"),
        ({"expires": "2027-11-22"}, Severity.NOTICE, "until 2027-11-22"),
        ({"expires": "2027-11-23"}, Severity.ERROR, "may last 366 days at most"),
        ({"reason": "."}, Severity.ERROR, "the reason '.', which says nothing"),
        ({"name": "other"}, Severity.ERROR, "no owner"),
        ({"namespace": "other"}, Severity.ERROR, "no owner"),
        ({"policy": "cost"}, Severity.ERROR, "no owner"),
    ],
)
def test_a_reviewed_exception_counts_for_its_object_until_its_day(
    tmp_path: Path, fields: dict[str, str], severity: Severity, word: str
) -> None:
    used = policy_set(OWNER, **exception(**fields))
    found = judge(manifests(deployment("bad")), used, tmp_path).findings
    (finding,) = (one for one in found if one.rule == "owner")
    assert finding.severity is severity
    assert word in finding.message


def test_an_exception_that_nothing_needs_is_a_notice(tmp_path: Path) -> None:
    used = policy_set(OWNER, **exception())
    (finding,) = judge(manifests(deployment("bad", owner="a")), used, tmp_path).findings
    assert (finding.severity, finding.rule) == (Severity.NOTICE, "exception-unneeded")
    assert "policies/exceptions/one.yaml excepts it until 2026-12-01: migration" in finding.message


@pytest.mark.parametrize(
    "broken",
    [
        policy("owner", "owner", validations=[{"expression": "object.metadata.nope.", "message": "no owner"}]),
        policy("owner", "owner", validations=[{"expression": "true", "message": "no owner"}]),
        policy("owner", "owner", validations=[{"expression": "false", "message": "another message"}]),
        policy("owner", "owner", validations=[{"expresion": "false", "message": "no owner"}]),
        policy(
            "owner",
            "owner",
            variables=[{"name": "x", "expression": "object.spec.x.y.z"}],
            validations=[{"expression": "variables.x", "message": "no owner"}],
        ),
    ],
    ids=["does-not-compile", "always-passes", "other-message", "misspelt-field", "evaluation-error"],
)
def test_a_policy_that_does_not_load_or_does_not_bite_is_untrusted_even_for_good_objects(
    tmp_path: Path, broken: dict[str, Any]
) -> None:
    with pytest.raises(UntrustedError, match="owner"):
        judge(manifests(deployment("a", owner="x", cost="y")), policy_set(broken, COST), tmp_path, workers=1)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"matchConditions": [{"name": "off", "expression": "false"}]}, "narrow"),
        ({"validationActions": ["Audit"]}, "Deny"),
        ({"validationActions": ["Block"]}, "Deny"),
        ({"failurePolicy": "Ignore"}, "Fail"),
        ({"evaluation": {"mode": "JSON"}}, "mode"),
        ({"autogen": {}}, "autogen|derives"),
        ({"validations": []}, "empty"),
        ({"matchConstraints": {"resourceRules": []}}, "empty"),
        ({"matchConstraints": {"resourceRules": [], "namespaceSelector": {}}}, "resourceRules"),
        (
            {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": ["apps"],
                            "apiVersions": ["v1"],
                            "operations": ["UPDATE"],
                            "resources": ["deployments"],
                        }
                    ]
                }
            },
            "CREATE",
        ),
        (
            {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": ["apps"],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["deployments"],
                            "resourceNames": ["a"],
                        }
                    ]
                }
            },
            "narrows",
        ),
    ],
)
def test_a_policy_whose_reach_cannot_be_computed_is_untrusted(change: dict[str, Any], word: str) -> None:
    with pytest.raises(UntrustedError, match=word):
        policy_set(policy("owner", "owner", **change))


TWICE = "---\n".join(dump(deployment("neuroscale-tripwire", owner)) for owner in ("a", "b")).encode()


@pytest.mark.parametrize(
    ("files_of", "word"),
    [
        (dict, "holds no policy"),
        (lambda: {"policies/README.md": b"hi"}, "holds no policy"),
        (lambda: {**files(OWNER), "policies/empty/README.md": b"hi"}, "missing"),
        (lambda: {**files(OWNER), "policies/tripwires.yaml": dump(deployment("x")).encode()}, "reserved name"),
        (lambda: {**files(OWNER), "policies/tripwires.yaml": b"a: b"}, "apiVersion"),
        (lambda: {**files(OWNER), "policies/tripwires.yaml": TWICE}, "is there twice"),
        (lambda: {**files(OWNER), "policies/other/policy.yaml": dump(OWNER).encode()}, "folder's name"),
        (lambda: {**files(OWNER), "policies/exceptions/a.yaml": b"policy: owner\n"}, "missing"),
        (lambda: {**files(OWNER), "policies/exceptions/a.txt": b"x"}, "exception file"),
        (lambda: {**files(OWNER), "policies/owner/policy.yaml": b"a: ["}, "YAML"),
        # Argo CD applies every file of that name, at whatever depth, with all rights.
        (lambda: {**files(OWNER), "policies/owner/more/policy.yaml": BINDING}, "reach the cluster"),
        (lambda: {**files(OWNER), "policies/owner/.kyverno-test/policy.yaml": BINDING}, "reach the cluster"),
        (lambda: {**files(OWNER), "policies/exceptions/policy.yaml": BINDING}, "reach the cluster"),
        (lambda: {**files(OWNER), "policies/policy.yaml": BINDING}, "reach the cluster"),
        # It reads these as other objects than a YAML parser does, or as none.
        (lambda: with_lines(b"---\n" + BINDING), "exactly one object"),
        (lambda: with_lines(b"---#x:\n  " + BINDING.replace(b"\n", b"\n  ")), "read differently"),
        (lambda: with_lines(b"# +argocd:skip-file-rendering\n"), "leaves out"),
        (lambda: marked("annotations", {"argocd.argoproj.io/hook": "Skip"}), "out of the cluster"),
        (lambda: marked("annotations", {"helm.sh/hook": "test"}), "out of the cluster"),
        (lambda: marked("labels", {"cleanup.kyverno.io/ttl": "1s"}), "out of the cluster"),
        (lambda: marked("namespace", "default"), "out of the cluster"),
    ],
)
def test_a_policy_folder_that_is_not_whole_is_untrusted(files_of: Callable[[], dict[str, bytes]], word: str) -> None:
    with pytest.raises(UntrustedError, match=word):
        load_policy_set(MemorySnapshot(files_of()))


LIES = {
    "says nothing": ("sys.exit(0)", "evaluated nothing"),
    "says nothing but the right status": ("sys.exit(1)", "evaluated nothing"),
    "ends with 0": ("status = 0", "exit status 0"),
    "crashes": ("status = 2", "exit status 2"),
    "is killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
    "leaves out one object": (
        "report['results'] = [r for r in answers if r['resources'][0]['name'] != 'good']; summary['pass'] -= 1",
        "no answer for 1",
    ),
    "skips one object": (
        "[r.update(result='skip') for r in answers if r['resources'][0]['name'] == 'good']; "
        "summary['pass'] -= 1; summary['skip'] = 1",
        "neither passed nor refused",
    ),
    "warns in place of failing": (
        "[r.update(result='warn') for r in answers if r['resources'][0]['name'] == 'bad']; "
        "summary['fail'] -= 1; summary['warn'] = 1",
        "neither passed nor refused",
    ),
    "answers twice": ("answers.append(answers[0])", "twice"),
    "answers for something else": (
        "extra = json.loads(json.dumps(answers[0])); extra['resources'][0]['name'] = 'x'; answers.append(extra); "
        "summary[extra['result']] += 1",
        "no policy rule covers",
    ),
    "passes the tripwire": (
        "[r.update(result='pass') for r in answers if 'tripwire' in r['resources'][0]['name']]; "
        "summary['pass'] += 1; summary['fail'] -= 1",
        "did not refuse its tripwire",
    ),
    "refuses the tripwire for another reason": (
        "[r.update(message='?') for r in answers if 'tripwire' in r['resources'][0]['name']]",
        "did not refuse its tripwire",
    ),
    "counts wrong": ("summary['pass'] += 1", "disagrees"),
    "prints something else": ("print('level=error msg=boom')", "not a report"),
    "prints half a report": ("print(json.dumps(report)[:100]); sys.exit(1)", "not a report"),
    "prints another object": ("report['kind'] = 'Other'", "a report was expected"),
    "names no resource": ("answers[0]['resources'] = []", "cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_kyverno_that_lies_is_not_believed(tmp_path: Path, lie: str) -> None:
    text, word = LIES[lie]
    given = manifests(deployment("good", owner="x"), deployment("bad"))
    with pytest.raises(UntrustedError, match=word):
        judge(given, policy_set(OWNER), tmp_path / "run", lying_tool(tmp_path, "kyverno", text), workers=1)


def test_warnings_before_the_report_are_no_reason_for_distrust(tmp_path: Path) -> None:
    kyverno = lying_tool(tmp_path, "kyverno", "print('Warning: something is deprecated')")
    seen = judge(manifests(deployment("bad")), policy_set(OWNER), tmp_path / "run", kyverno, workers=1)
    assert len(seen.findings) == 1


def test_an_object_cannot_exempt_itself(tmp_path: Path) -> None:
    """A PolicyException among the objects has no effect."""
    exempting = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "me", "namespace": "team"},
        "spec": {"policyRefs": [{"name": "owner", "kind": "ValidatingPolicy"}]},
    }
    seen = judge(manifests(exempting, deployment("bad")), policy_set(OWNER), tmp_path)
    assert [finding.rule for finding in seen.findings] == ["owner"]


def test_json_text_with_template_syntax_is_data(tmp_path: Path) -> None:
    value = deployment("a", owner="x")
    value["metadata"]["annotations"] = {"a": "{{ request.object }} ${{ x }} $(sh) \u2028 \U0001f600 --- \n---\n"}
    assert json.dumps(value)
    assert judge(manifests(value), policy_set(OWNER), tmp_path).findings == ()


# A policy with a tripwire of its own ----------------------------------------------------------------------------------

OWN = policy("own", "own")
OWN_CASES = {
    "bases": [{"base": "good", "cases": [{"name": "bad", "remove": ["metadata.labels.own"], "message": "no own"}]}]
}


def own_files(value: dict[str, Any] = OWN, cases: dict[str, Any] | None = None) -> dict[str, bytes]:
    """A policy whose first case is its tripwire, beside one that has a shared one."""
    annotations = {"neuroscale.dev/fix": "Set the label own."}
    made = files({**value, "metadata": {"name": "own", "annotations": annotations}}, OWNER)
    made["policies/own/good.yaml"] = dump(deployment("good", "place", own="a", owner="a")).encode()
    return made | {"policies/own/cases.yaml": dump(OWN_CASES if cases is None else cases).encode()}


def test_the_first_case_of_a_policy_without_the_annotation_is_its_tripwire(tmp_path: Path) -> None:
    used = load_policy_set(MemorySnapshot(own_files()))
    seen = judge(manifests(deployment("a", owner="x"), deployment("b", own="y", owner="x")), used, tmp_path, workers=1)
    assert (seen.evaluated, seen.caught, seen.tripwires) == (4, 2, 2)
    assert [(one.rule, one.subject, one.message) for one in seen.findings] == [("own", "Deployment team/a", "no own")]
    own = next(one for one in used.policies if one.name == "own")
    assert own.tripwire is not None
    assert own.tripwire.name == "neuroscale-tripwire-own"  # no real object may have such a name
    assert used.every_tripwire == (*used.tripwires, own.tripwire)


@pytest.mark.parametrize(
    "change",
    [
        {"validations": [{"expression": "true", "message": "no own"}]},
        {"validations": [{"expression": "false", "message": "something else"}]},
    ],
)
def test_a_policy_that_does_not_refuse_its_own_tripwire_is_untrusted_and_its_files_are_named(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    used = load_policy_set(MemorySnapshot(own_files(policy("own", "own", **change))))
    with pytest.raises(UntrustedError, match=r"in policies/own/policy\.yaml, or the first case in policies/own/cases"):
        judge(manifests(deployment("a", owner="x", own="y")), used, tmp_path, workers=1)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: {path: data for path, data in own_files().items() if "cases" not in path}, "cases.yaml: is missing"),
        (lambda: own_files(cases={"bases": []}), "hold no case"),
        (lambda: own_files(cases={"bases": [{"base": "none", "cases": []}]}), "is not an object of good.yaml"),
    ],
)
def test_a_policy_without_any_tripwire_is_untrusted_and_named(made: Callable[[], dict[str, bytes]], words: str) -> None:
    with pytest.raises(UntrustedError, match=r"policies/own/cases\.yaml") as caught:
        load_policy_set(MemorySnapshot(made()))
    assert words in str(caught.value)


def test_a_tripwire_of_a_kind_that_its_policy_does_not_judge_is_untrusted(tmp_path: Path) -> None:
    made = own_files()
    pod = {**deployment("good", "place", own="a"), "apiVersion": "v1", "kind": "Pod"}
    used = load_policy_set(MemorySnapshot({**made, "policies/own/good.yaml": dump(pod).encode()}))
    with pytest.raises(UntrustedError, match=r"case in policies/own/cases\.yaml, the policy's tripwire, is of a kind"):
        judge(manifests(deployment("a", owner="x", own="y")), used, tmp_path)

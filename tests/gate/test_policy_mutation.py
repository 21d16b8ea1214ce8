"""Mutants of policies and of their test objects are made, judged and counted, and one that nobody catches is seen."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import httpx
import pytest

from command_line import Said, commands
from comparisons import ALL
from neuroscale.core import schemas
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.yaml_io import dump, flow, read_mapping
from neuroscale.kube.client import Cluster
from neuroscale.policies.bad_objects import EXPECTED_MESSAGE
from neuroscale.policies.policy_set import Policy, load_policy_set
from neuroscale.policies.render import shared_blocks
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from neuroscale.vllm.known_arguments import versions
from neuroscale.vllm.version_parser import Word, parser_of, spelled
from policies_support import NAMES, fixtures
from policy_mutation import command, judge_policies
from policy_mutation.command_spellings import flag_spellings, script_spellings
from policy_mutation.field_operators import field_changes, in_other_notations
from policy_mutation.judge_live import Live, judge_live
from policy_mutation.judge_policies import JudgedPolicy, Notice
from policy_mutation.judge_resources import Judged, Stage, judge_resources
from policy_mutation.mutant import Mutant
from policy_mutation.policy_mutants import PolicyMutant, expression_changes, policy_mutants, shared_mutants
from policy_mutation.resource_mutants import resource_mutants
from policy_mutation.statement import Equivalent, Statement, read_statement
from policy_mutation.strength import SHARED_TEXT, TABLE, _unused, measure, strength_table, total, with_table, written
from roots import ROOT

SMALL = "no-legacy-deployment-mode"
NIGHT = bool(os.environ.get(ALL))
RENEW = "Run `.venv/bin/python scripts/policy_mutation --write`, and look at what it prints."


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    snapshot = FolderSnapshot(ROOT)
    return [
        one
        for name in NAMES
        for one in resource_mutants(snapshot, name, read_statement(snapshot, name), schemas.find())
    ]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one small policy."""
    for path in (f"policies/{SMALL}", "policies/tripwires.yaml", TABLE, "platform/settings.yaml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / path).is_dir() else shutil.copyfile)(ROOT / path, tmp_path / path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    return commands(capsys, monkeypatch, main=command.main)


# A live cluster's answers ---------------------------------------------------------------------------------------------


def asked(code: int, message: str) -> Live:
    """The answer about a mutant of a bad object if the API server answers each request so."""

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            row = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["create"]}
            return httpx.Response(200, json={"resources": [row]})
        return httpx.Response(code, json={"message": message})

    client = httpx.Client(base_url="http://cluster", transport=httpx.MockTransport(respond))
    metadata = {"name": "bad", "annotations": {EXPECTED_MESSAGE: "spec: is wrong"}}
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    mutant = Mutant("non-root", "removed", "Pod", "bad", "spec", "mutant-1", "", value)
    with Cluster("http://cluster", client, "a cluster") as cluster:
        (found,) = judge_live(
            [mutant], {("non-root", "Pod", "bad"): value}, cluster, "team", excused=lambda _: "", told=print
        )
    return found.answer


@pytest.mark.parametrize(
    ("code", "message", "answer"),
    [
        (201, "", Live.ADMITTED),
        (422, "spec: required", Live.SERVER),
        (400, 'admission webhook "vpol.validate" denied the request: Policy non-root failed: x', Live.POLICY),
        # KServe's answer about a service whose predictor has an empty list of containers.
        (500, 'admission webhook "defaulter" denied the request: panic: index out of range [recovered]', Live.SERVER),
    ],
)
def test_a_live_cluster_refuses_with_a_status_that_says_so(code: int, message: str, answer: Live) -> None:
    assert asked(code, message) is answer


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (500, 'Internal error occurred: failed calling webhook "vpol.validate": context deadline exceeded'),
        (403, 'failed calling webhook "vpol.validate": no answer'),
        (409, "already exists"),
        (429, "too many requests"),
        (503, "the server is starting"),
    ],
)
def test_a_live_cluster_that_could_not_judge_has_caught_nothing(code: int, message: str) -> None:
    with pytest.raises(UntrustedError, match=f"did not judge Pod bad, it answered with {code}"):
        asked(code, message)


# The mutants ----------------------------------------------------------------------------------------------------------


@pytest.mark.tools
def test_there_are_thousands_of_mutants_of_every_kind_each_with_its_own_name(mutants: list[Mutant]) -> None:
    assert len(mutants) >= 1500
    assert len({one.id for one in mutants}) == len({one.name for one in mutants}) == len(mutants)
    operators = Counter(one.operator.partition(":")[0] for one in mutants)
    assert {
        *("removed", "emptied", "null", "wrong type", "case", "white space", "look-alike", "moved", "quantity"),
        *("namespace", "first container", "last container", "init container", "sidecar", "ephemeral container"),
        *("model as a container", "spelling", "notation", "bad value"),
        *("second document", "version", "other kind", "anchor", "List", "generateName", "key twice"),
    } <= set(operators)
    assert {one.policy for one in mutants} == set(NAMES)


def test_there_are_hundreds_of_changed_policies_and_each_differs_from_its_policy() -> None:
    policies = list(load_policy_set(FolderSnapshot(ROOT)).policies)
    found = [(policy, one) for policy in policies for one in policy_mutants(policy)]
    assert len(found) >= 300
    assert len({one.id for _, one in found}) == len(found)
    assert [one.id for policy, one in found if one.value == policy.value] == []
    operators = {one.operator.partition(":")[0] for _, one in found}
    assert {
        "rule dropped",
        "condition negated",
        "operator",
        "scope",
        "message broken",
        "alternative dropped",
    } <= operators
    assert {name for name, _, _ in shared_mutants(policies)} == set(shared_blocks(FolderSnapshot(ROOT)))


def test_a_change_of_a_field_leaves_the_object_as_it_was_and_changes_a_copy() -> None:
    value = {"metadata": {"labels": {"owner": "team-1"}}, "spec": {"list": [{"limits": {"cpu": "1"}, "on": True}]}}
    before = copy.deepcopy(value)
    for path in (("metadata", "labels", "owner"), ("spec", "list", 0, "limits", "cpu"), ("spec", "list", 0, "on")):
        changes = list(field_changes(value, path))
        assert len(changes) > 8
        assert all(flow(other) != flow(before) for _, other in changes)
    assert value == before


def test_a_text_of_an_expression_is_no_code() -> None:
    changes = dict(expression_changes(r"a == 'b == c' && x.matches(r'^(p|q)$') && n < 3"))
    assert [name for name in changes if name.startswith("operator:==")] == ["operator:== 2 in a == 'b == c' && x.mat"]
    assert r"a == 'b == c' && x.matches(r'^(q)$') && n < 3" in changes.values()
    assert r"a == 'b == c' && x.matches(r'(p|q)$') && n < 3" in changes.values()
    assert r"a == 'b == c' && x.matches(r'^(p|q)$') && n <= 3" in changes.values()


# The table ------------------------------------------------------------------------------------------------------------


@pytest.mark.tools
def test_the_table_counts_the_mutants_that_are_made_today_and_names_none_that_passes(mutants: list[Mutant]) -> None:
    table = written((ROOT / TABLE).read_text(encoding="utf-8"))
    assert {name: row[0] for name, row in table.items() if name in NAMES} == dict(
        Counter(one.policy for one in mutants)
    ), RENEW
    assert set(table) == {*NAMES, SHARED_TEXT, "all"}, RENEW
    assert {name: row[4] for name, row in table.items() if row[4]} == {}


@pytest.mark.tools
@pytest.mark.usefixtures("kyverno_once")
def test_a_sample_of_the_mutants_is_caught_as_the_table_says(tmp_path: Path) -> None:
    """By night every mutant, and the whole table."""
    snapshot = FolderSnapshot(ROOT)
    found = measure(
        snapshot,
        load_policy_set(snapshot),
        NAMES,
        schemas.find(),
        tmp_path,
        told=print,
        every=1 if NIGHT else 250,
    )
    assert [f"{one.mutant.id}: {one.stage} {one.said}" for one in found.passed] == []
    assert [one.mutant.id for one in found.unnoticed] == []
    assert found.unused == ()
    assert total(found.rows).objects > 20
    if NIGHT:
        document = (ROOT / TABLE).read_text(encoding="utf-8")
        assert with_table(document, found.rows, TABLE) == document, RENEW


# What must be seen ----------------------------------------------------------------------------------------------------


@pytest.mark.tools
def test_the_command_counts_one_policy_and_finds_nothing(run: Callable[..., Said]) -> None:
    found = run(SMALL, "--json", "--repository", ROOT).json
    (row,) = found["policies"]
    assert row["objects"] == row["by_policy"] + row["by_form"] + row["equivalents"] > 50
    assert row["not_caught"] == row["not_noticed"] == 0
    assert found["passed"] == found["unnoticed"] == found["excusing_nothing"] == []
    assert len(found["not_loaded"]) == row["not_loaded"]


def test_an_entry_that_excuses_only_what_an_earlier_entry_excuses_is_a_finding() -> None:
    mutants = [
        Mutant(SMALL, operator, "Pod", "good", place, f"mutant-{place}", "", None)
        for operator, place in (("removed", "spec.a"), ("emptied", "spec.b"))
    ]
    judged = [Judged(mutant, Stage.EQUIVALENT, "because") for mutant in mutants]
    changes = [
        JudgedPolicy(PolicyMutant(SMALL, "operator:==", place, {}), Notice.NOBODY)
        for place in ("spec.variables.a", "spec.variables.b")
    ]

    def unused(*entries: tuple[tuple[str, ...], str, str], of_policy: tuple[str, ...] = ()) -> list[str]:
        listed = tuple(Equivalent(operators, place, (), "*", where, "because") for operators, place, where in entries)
        about = tuple(Equivalent(("operator:*",), place, (), "*", "everywhere", "because") for place in of_policy)
        return _unused({SMALL: Statement("mutations.yaml", (), listed, about)}, judged, changes)

    wide = (("removed", "emptied"), "spec.*", "everywhere")
    narrow = (("removed",), "spec.a", "everywhere")
    assert unused(narrow, wide) == []
    assert unused(wide, narrow) == unused(narrow, narrow) == ["mutations.yaml: equivalents: removed at spec.a"]
    # An excuse for the gate alone leaves the one for everywhere its work at admission.
    assert unused((("removed",), "spec.a", "gate"), narrow) == []
    assert unused(narrow, (("removed",), "spec.a", "admission")) == ["mutations.yaml: equivalents: removed at spec.a"]
    assert unused((("removed",), "spec.nothing", "admission")) == [
        "mutations.yaml: equivalents: removed at spec.nothing"
    ]
    assert unused(of_policy=("spec.variables.a", "*")) == []
    assert unused(of_policy=("*", "spec.variables.a")) == [
        "mutations.yaml: of the policy: operator:* at spec.variables.a"
    ]


@pytest.mark.tools
def test_a_loose_policy_a_missing_test_and_a_needless_excuse_are_findings(
    run: Callable[..., Said], repository: Path
) -> None:
    policy = repository / "policies" / SMALL / "policy.yaml"
    text = policy.read_text(encoding="utf-8")
    strict = "variables.mode in ['Standard', 'Knative']"
    assert strict in text
    policy.write_text(text.replace(strict, "variables.mode.trim() in ['Standard', 'Knative']"), encoding="utf-8")
    cases = policy.with_name("cases.yaml")
    kept, removed = re.subn(r"  - name: bad-serverless\n(?:    .*\n)+", "", cases.read_text(encoding="utf-8"))
    assert removed == 1
    cases.write_text(kept, encoding="utf-8")
    statement = policy.with_name("mutations.yaml")
    excuse = "equivalents:\n  - operators: [removed]\n    place: spec.nothing\n    reason: It is not there.\n"
    statement.write_text(statement.read_text(encoding="utf-8").partition("equivalents:")[0] + excuse, encoding="utf-8")
    said = run("--json", "--repository", repository)
    assert said.status == 1
    assert {one["mutant"].split("/")[3] for one in said.json["passed"]} >= {"white space:behind", "white space:before"}
    assert any("list item dropped:'Serverless'" in one for one in said.json["unnoticed"]), said.json["unnoticed"]
    assert len(said.json["excusing_nothing"]) == 1
    assert "an earlier entry excuses (1)" in run("--repository", repository).out


@pytest.mark.tools
@pytest.mark.parametrize(
    ("answers", "heard"),
    [
        ((Notice.NOBODY, Notice.INVALID), Notice.NOBODY),
        ((Notice.INVALID, Notice.NOBODY), Notice.NOBODY),
        ((Notice.INVALID, Notice.TESTS), Notice.TESTS),
        ((Notice.INVALID, Notice.INVALID), Notice.INVALID),
    ],
)
def test_a_change_that_one_policy_cannot_hold_is_still_put_to_another(
    answers: tuple[Notice, Notice], heard: Notice, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = load_policy_set(FolderSnapshot(repository)).policies
    two = replace(one, name="other")
    mutant = PolicyMutant(one.name, "changed", "spec", {}, variable="pods")
    shared = [("pods", "changed", {one.name: mutant, two.name: mutant})]
    said = dict(zip((one.name, two.name), answers, strict=True))

    def by_tests(policy: Policy, left: object, tests: object, folder: object, found: dict[int, JudgedPolicy]) -> None:
        found[0] = JudgedPolicy(mutant, said[policy.name])

    monkeypatch.setattr(judge_policies, "shared_mutants", lambda _: shared)
    monkeypatch.setattr(judge_policies, "by_tests", by_tests)
    tests = {name: judge_policies._Tests((), {}) for name in said}
    (found,) = judge_policies._judge_shared([one, two], tests, tmp_path, 1)
    assert found.notice is heard


@pytest.mark.tools
def test_a_policy_whose_tests_fail_proves_nothing(repository: Path, tmp_path: Path) -> None:
    cases = repository / "policies" / SMALL / "cases.yaml"
    cases.write_text(cases.read_text(encoding="utf-8").replace("is an old name", "is old"), encoding="utf-8")
    snapshot = FolderSnapshot(repository)
    with pytest.raises(UntrustedError, match=r"does not answer for .* as its tests say"):
        measure(snapshot, load_policy_set(snapshot), [SMALL], schemas.find(), tmp_path / "run", told=print, every=40)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wishes: []", "wishes: is not a field here"),
        ("demands: text", "demands: is not a list"),
        ("demands:\n  - place: ''", "place: is missing or not text"),
        pytest.param("demands:\n  - place: spec.nowhere", "is a field of no good object", marks=pytest.mark.tools),
        ("bad_values:\n  - place: spec.name\n    ways: case", "ways: is not a list of ways"),
        ("equivalents:\n  - operators: []\n    reason: x", "operators: is not a list of operators"),
        ("equivalents:\n  - operators: [removed]", "reason: is missing or not text"),
        ("equivalents:\n  - operators: [removed]\n    where: here\n    reason: x", "where: is not one of"),
    ],
)
def test_a_statement_that_cannot_be_used_is_named_with_its_field(repository: Path, text: str, words: str) -> None:
    file = repository / "policies" / SMALL / "mutations.yaml"
    file.write_text(f"{text}\n", encoding="utf-8")
    snapshot = FolderSnapshot(repository)
    with pytest.raises(InputError, match=words) as caught:
        resource_mutants(snapshot, SMALL, read_statement(snapshot, SMALL), schemas.find())
    assert caught.value.problems[0].where == f"policies/{SMALL}/mutations.yaml"


def test_only_the_whole_table_can_be_written(run: Callable[..., Said]) -> None:
    said = run(SMALL, "--write", "--repository", ROOT)
    assert said.status == 2
    assert "Leave out the names" in said.err
    unknown = run("no-legacy", "--repository", ROOT)
    assert unknown.status == 2
    assert SMALL in unknown.err


def test_without_a_running_platform_no_mutant_is_sent(run: Callable[..., Said], tmp_path: Path) -> None:
    said = run(SMALL, "--live", "--state", tmp_path / "none", "--repository", ROOT)
    assert said.status == 2
    assert "neuroscale local up --cluster" in said.err
    assert "Add --live" in run(SMALL, "--state", tmp_path, "--repository", ROOT).err
    assert "--live" in run("--write", "--live", "--repository", ROOT).err


def test_a_table_is_renewed_in_its_place_and_reads_back() -> None:
    text = "before\n<!-- mutants -->\nold\n<!-- end of mutants -->\nafter\n"
    renewed = with_table(text, [], "README.md")
    assert renewed.startswith("before\n")
    assert renewed.endswith("after\n")
    assert strength_table([]) in renewed
    assert written(renewed) == {"all": (0,) * 10}
    with pytest.raises(InputError, match="does not mark"):
        with_table("no place", [], "README.md")


# Other kinds and other spellings --------------------------------------------------------------------------------------

WORKLOADS = {"Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "ReplicationController"}


@pytest.mark.tools
def test_the_harms_of_a_policy_about_servers_are_put_into_every_kind_with_a_pod(mutants: list[Mutant]) -> None:
    for name in ("endpoint-key", "model-labels", "allowed-storage", "probes-present"):
        mine = [one for one in mutants if one.policy == name]
        hosts = {str(one.value["kind"]) for one in mine if one.value is not None}
        assert WORKLOADS | {"PodTemplate", "LeaderWorkerSet", "ServingRuntime", "ClusterServingRuntime"} <= hosts, name


@pytest.mark.tools
def test_a_rule_that_sees_one_kind_alone_lets_mutants_of_the_others_pass(tmp_path: Path) -> None:
    """The policy as it is, but for InferenceServices alone, with the test objects of that kind."""
    name, kind = "no-host-access", "InferenceService"
    good = {value["metadata"]["name"]: value for value in fixtures(name, "good") if value["kind"] == kind}
    cases = read_mapping((ROOT / f"policies/{name}/cases.yaml").read_text(), "cases.yaml").value
    files = {
        f"policies/{name}/good.yaml": "---\n".join(map(dump, good.values())).encode(),
        f"policies/{name}/cases.yaml": dump(
            {"bases": [base for base in cases["bases"] if base["base"] in good]}
        ).encode(),
    }
    whole = load_policy_set(FolderSnapshot(ROOT))
    policies = tuple(
        replace(one, rules=tuple(rule for rule in one.rules if rule.resources == {"inferenceservices"}))
        if one.name == name
        else one
        for one in whole.policies
    )
    asked = [
        one
        for one in resource_mutants(MemorySnapshot(files), name, Statement("mutations.yaml"), schemas.find())
        if one.operator == "other kind:apps/v1 Deployment"
    ]
    found = judge_resources(
        asked,
        replace(whole, policies=policies),
        schemas.find(),
        tmp_path,
        excused=lambda _: "",
        workers=1,
        told=print,
    )
    assert len(found) > 3
    assert {one.stage for one in found} == {Stage.NOBODY}


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", "example", "--port=8080"],
        ["--data-parallel-size=2", "--served-model-name=--trust-remote-code", "--enable-expert-parallel"],
        ["-dp", "2", "--root-path=/v", "--max-model-len", "4096"],
    ],
)
def test_another_spelling_of_flags_means_the_same_to_vllm(words: list[str]) -> None:
    def read(given: list[str]) -> dict[str, object]:
        parsed = parser_of(versions()[-1]).parser.parse_args(
            [one.text for one in spelled(list(map(Word, given, count())))]
        )
        return vars(parsed)

    found = dict(flag_spellings(words))
    assert {"underscores", "two items", "number:sign", "number:full width"} <= set(found)
    for detail, others in found.items():
        assert read(others) == read(words), detail


def test_another_spelling_of_a_script_means_the_same_to_a_shell(tmp_path: Path) -> None:
    """A program named vllm writes down its arguments and its variables."""
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "key=${VLLM_API_KEY:-none}"\n')
    program.chmod(0o755)

    def run(script: str) -> str:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "VLLM_API_KEY": "example"}
        done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.replace("_", "-")  # as vLLM's parser reads names of flags

    script = "unset VLLM_API_KEY; exec vllm serve a/b --api-key example --port 8080"
    found = dict(script_spellings(script))
    assert len(found) == 7
    for detail, other in found.items():
        assert other != script
        assert run(other) == run(script) != "", detail


@pytest.mark.parametrize(("value", "count_of"), [(True, 7), (0, 9)])
def test_a_switch_or_a_number_of_a_bad_object_is_written_in_other_notations(value: object, count_of: int) -> None:
    metadata = {"name": "bad", "annotations": {EXPECTED_MESSAGE: "spec: is wrong"}}
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"field": value}}
    found = list(in_other_notations("non-root", [bad], [{**bad, "spec": {"field": 7}}]))
    assert len(found) == count_of
    assert len({one.text for one in found}) == count_of
    assert all('"field": ' in one.text and "mutant-value" not in one.text for one in found)
    assert list(in_other_notations("non-root", [bad], [bad])) == []

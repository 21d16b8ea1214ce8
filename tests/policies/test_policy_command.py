"""`neuroscale policy`: descriptions that follow the files, who judges which kind, and a new policy that works."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from command_line import Said, commands
from neuroscale.core import schemas, tool_cache
from neuroscale.core.yaml_io import dump
from neuroscale.gate.checks.changed_policies import evaluate_policy_tests
from neuroscale.gate.checks.policy import check_reach
from neuroscale.policies.description import describe
from neuroscale.policies.policy_set import load_policy_set
from neuroscale.repo.snapshot import FolderSnapshot
from policies_support import NAMES, documents, fixtures, judge, judges
from roots import ROOT


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    return commands(capsys, monkeypatch, "policy")


def read(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the policies and nothing else."""
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    (tmp_path / "platform").mkdir()
    shutil.copyfile(ROOT / "platform/settings.yaml", tmp_path / "platform/settings.yaml")
    return tmp_path


def test_every_policy_is_listed_and_explained_by_its_own_words(run: Callable[..., Said]) -> None:
    listed = run("list", "--json", "--repository", ROOT).json
    assert [one["name"] for one in listed["policies"]] == NAMES
    assert set(NAMES) <= set(run("list", "--repository", ROOT).out.split())
    snapshot = FolderSnapshot(ROOT)
    policies = load_policy_set(snapshot)
    for policy in policies.policies:
        found = describe(snapshot, policies, policy)
        announced = fixtures(policy.name, "bad")
        said = {one["metadata"]["annotations"]["neuroscale.dev/expect-message"].partition(": ")[2] for one in announced}
        assert said == set(found.messages), policy.name
        assert (found.good, found.bad) >= (1, len(announced))
        assert all((found.title, found.description, found.why, found.fix, found.kinds, found.fields)), found


def test_the_fields_that_a_policy_reads_are_named(run: Callable[..., Said]) -> None:
    found = run("explain", "ownership-labels", "--json", "--repository", ROOT).json
    assert {"metadata.labels", "spec.template.metadata.labels", "spec.prefill.labels"} <= set(found["fields"])
    shown = run("explain", "ownership-labels", "--repository", ROOT).out
    assert "cost-center is missing or empty" in shown
    assert "neuroscale milestones a-policy-engine-that-exits-0" in shown
    refused = next(value for value in fixtures("no-host-access", "bad") if value["kind"] == "CronJob")
    case = refused["metadata"]["name"]
    assert run("explain", "no-host-access", case, "--json", "--repository", ROOT).json == refused
    assert run("explain", "no-host-access", case, "--repository", ROOT).out == dump(refused)
    missed = run("explain", "no-host-access", case[:-1], "--repository", ROOT)
    assert (missed.status, f"Did you mean '{case}'" in missed.err) == (2, True)
    unknown = run("explain", "ownership-label", "--repository", ROOT)
    assert (unknown.status, "ownership-labels" in unknown.err) == (2, True)


@pytest.mark.tools
def test_each_known_kind_is_judged_by_somebody_or_named_as_judged_by_nobody(run: Callable[..., Said]) -> None:
    found = run("coverage", "--json", "--repository", ROOT).json
    kinds = [kind for group in found.values() for kind in group]
    assert sorted(kinds) == sorted(" ".join(kind) for kind in schemas.find().kinds)
    of_services = found["policies"]["serving.kserve.io/v1beta1 InferenceService"]
    assert of_services == [name for name in NAMES if judges(name, "inferenceservices")]
    assert "v1 Secret" in found["gate_rules"]
    assert "rbac.authorization.k8s.io/v1 ClusterRoleBinding" in found["nobody"]
    assert "argoproj.io/v1alpha1 AppProject" in found["refused"]


@pytest.mark.tools
@pytest.mark.parametrize("kinds", [("InferenceService", "LLMInferenceService", "CronJob"), ("Pod", "ReplicaSet")])
def test_a_new_policy_judges_and_is_tested_at_once(
    run: Callable[..., Said], repository: Path, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    options = [word for kind in kinds for word in ("--kind", kind)]
    before = read(repository / "policies")
    made = run("new", "no-debug", *options, "--shared", "containers", "--repository", repository)
    assert made.status == 0, made.err
    snapshot = FolderSnapshot(repository)
    policies = load_policy_set(snapshot)
    names = [policy.name for policy in policies.policies]
    assert sorted([*NAMES, "no-debug"]) == names
    evaluation = evaluate_policy_tests(
        snapshot,
        policies,
        {"no-debug"},
        schemas.find(),
        tool_cache.find("kyverno"),
        tmp_path / "tests",
        today=date(2026, 11, 21),
    )
    assert [finding.message for finding in evaluation.findings] == []
    assert evaluation.evaluated == 2 * len(kinds)
    # The gate trusts no policy that leaves out a version of a kind.
    check_reach(policies.policies, schemas.find())
    blocks = (repository / "policies/no-debug/policy.yaml").read_text().count("-- end shared: ")
    assert blocks == 2
    # Its tripwire: its own first case, which it refuses in the words that it announces. Nobody else's file changes.
    policy = next(one for one in policies.policies if one.name == "no-debug")
    first = policy.tripwire
    assert first is not None
    assert (first.kind, first.file) == (kinds[0], "policies/no-debug/cases.yaml")
    answers = judge([str(repository / "policies/no-debug")], [first.value], tmp_path / "tripwire")
    assert answers["no-debug", first.kind, first.name] == ("fail", policy.tripwire_message)
    written = read(repository / "policies")
    assert {path: data for path, data in written.items() if not path.startswith("no-debug/")} == before


@pytest.mark.tools
def test_a_new_policy_is_short_and_tested_by_a_command_that_names_a_case_that_is_not_refused(
    run: Callable[..., Said], repository: Path
) -> None:
    made = run("new", "no-debug", "--repository", repository)
    folder = repository / "policies/no-debug"
    lines = [len((folder / name).read_text().splitlines()) for name in ("policy.yaml", "good.yaml", "cases.yaml")]
    assert sum(lines) <= 60
    assert "neuroscale policy test no-debug" in made.out
    assert ".venv" not in made.out
    passed = run("test", "no-debug", "--repository", repository)
    assert (passed.status, passed.out) == (0, "no-debug: all 2 test objects\n")
    cases = folder / "cases.yaml"
    more = "      - name: bad-second\n        patch: {metadata.labels: {a: b}}\n        message: 'metadata: is bad'\n"
    cases.write_text(cases.read_text() + more)
    run("render", "--repository", repository)
    second = run("test", "no-debug", "--repository", repository)
    assert second.status == 1
    assert "policies/no-debug/cases.yaml:9: InferenceService no-debug/bad-second: is not refused" in second.out
    policy = folder / "policy.yaml"
    policy.write_text(policy.read_text().replace("!= 'refused'", "!= 'REFUSED'"))
    first = run("test", "no-debug", "--repository", repository)
    assert first.status == 1
    assert (
        "policies/no-debug/cases.yaml:4: InferenceService no-debug/bad-inference-service: is not refused" in first.out
    )
    assert "Correct the rule in policies/no-debug/policy.yaml" in first.out
    # A rule that Kyverno cannot load is no answer.
    policy.write_text(policy.read_text().replace("object.?metadata", "no_such_function(object).?metadata"))
    assert run("test", "no-debug", "--repository", repository).status == 3
    unknown = run("test", "no-debu", "--repository", repository)
    assert (unknown.status, "Did you mean 'no-debug'" in unknown.err) == (2, True)


@pytest.mark.tools
def test_the_example_in_a_new_policy_about_pods_works_once_it_replaces_the_rule(
    run: Callable[..., Said], repository: Path, tmp_path: Path
) -> None:
    run("new", "no-debug", "--kind", "Pod", "--shared", "pods", "--repository", repository)
    path = repository / "policies/no-debug/policy.yaml"
    before, _, rest = path.read_text().partition("    # REPLACE this by")
    comment = [line.removeprefix("    # ") for line in rest.partition("  validations:\n")[0].splitlines()[1:]]
    split = next(index for index, line in enumerate(comment) if line.startswith("and the rule below"))
    parts = ("".join(f"    {line}\n" for line in lines) for lines in (comment[:split], comment[split + 1 :]))
    path.write_text(before + "  validations:\n".join(parts))
    answers = judge([str(path.parent)], [with_volumes(name) for name in VOLUMES], tmp_path / "example")
    found = {name: answers["no-debug", "Pod", name] for name in VOLUMES}
    assert found.pop("host") == ("fail", "spec: mounts a hostPath volume")
    assert {answer for answer, _ in found.values()} == {"pass"}


def test_shared_text_and_cases_are_written_once(run: Callable[..., Said], repository: Path) -> None:
    run("render", "--repository", repository)  # the files that git does not track
    assert run("render", "--repository", repository).out == ""
    shared = repository / "policies/shared.yaml"
    shared.write_text(shared.read_text().replace("# Every pod spec", "# Each pod spec"))
    path = repository / "policies/non-root/cases.yaml"
    path.write_text(f"{path.read_text()}  - {{name: bad-new, patch: {{apiVersion: v1, kind: Secret}}, message: new}}\n")
    written = run("render", "--repository", repository).out.split()
    assert "policies/pinned-models/policy.yaml" in written
    assert [path for path in written if path.endswith("test.yaml")] == [
        "policies/non-root/.kyverno-test/kyverno-test.yaml"
    ]
    (cases,) = documents(repository / written[written.index("policies/non-root/policy.yaml") + 1])
    assert cases["results"][-1]["resources"] == ["bad-new"]
    assert documents(repository / ".state/policies/non-root/bad.yaml")[-1]["metadata"]["name"] == "bad-new"
    assert "# Each pod spec" in (repository / "policies/non-root/policy.yaml").read_text()
    assert run("render", "--repository", repository).out == ""


VOLUMES: dict[str, object] = {
    "host": [{"name": "a", "hostPath": {"path": "/"}}],
    "other": [{"name": "a", "emptyDir": {}}],
    "none": [],
    "null": None,
}


def with_volumes(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "b"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"volumes": VOLUMES[name]}}


@pytest.mark.tools
def test_a_name_that_is_taken_and_a_kind_without_an_example_write_nothing(
    run: Callable[..., Said], repository: Path
) -> None:
    before = read(repository)
    for arguments in (
        ("non-root",),
        ("Nope",),
        ("../x",),
        ("no-debug", "--shared", "pod"),
        ("no-debug", "--kind", "Deploymint"),
    ):
        refused = run("new", *arguments, "--repository", repository)
        assert refused.status == 2, arguments
    assert "Deployment" in refused.err
    assert read(repository) == before

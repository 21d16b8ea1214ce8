"""What a check of the gate is: how it begins, how it fails, and what a run reads for all of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core.errors import InputError, Problem, UntrustedError
from neuroscale.gate import platform_sources
from neuroscale.gate.check import GateCheck, LeftOut, Run, Subject, begin, in_order
from neuroscale.gate.checks.files import FilesCheck
from neuroscale.gate.evaluation import Evaluation
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.merged_change import Change, find_change, read_change
from neuroscale.gate.platform_sources import PlatformSources, ReadOnce
from neuroscale.gate.runner import all_checks, gate_paths
from neuroscale.gate.verdict import Outcome
from neuroscale.policies.policy_set import PolicySet, load_policy_set
from neuroscale.repo.layout import CATALOG, SETTINGS
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot
from repositories import Repository
from roots import ROOT

TODAY = date(2026, 11, 21)
GOOD = Evaluation((), 1, 1, "objects", 1, 1)


def run_of(change: Change | None = None) -> Run:
    """A run that looks at nothing, or at what a change brings."""
    if change is None:
        nothing = MemorySnapshot({})
        return Run(Subject(GateInput(nothing), list, nothing), TODAY, Path())
    return Run(Subject(read_change(change), list, change.before, change), TODAY, Path())


class Probe(GateCheck):
    """A check that does what it is told."""

    name = "probe"
    title = "Probe"

    def __init__(self, **does: Callable[[], Any]) -> None:
        self._does = does

    def left_out(self, run: Run) -> LeftOut | None:
        found: LeftOut | None = self._does.get("left_out", lambda: None)()
        return found

    def begin(self, run: Run) -> None:
        self._does.get("begin", lambda: None)()

    def evaluate(self, run: Run) -> Evaluation:
        found: Evaluation = self._does.get("evaluate", lambda: GOOD)()
        return found


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    made.commit({SETTINGS: "", f"{CATALOG}/a.yaml": "a: 1\n"})
    yield made
    made.git.close()


def test_the_gate_has_these_checks_in_this_order() -> None:
    """Whoever takes one away, or puts one elsewhere, has to say so here."""
    assert [one.name for one in all_checks()] == [
        *("pin", "files", "change", "catalog", "effects", "effects-fit"),
        *("policy", "schema", "secrets", "policy-of-head", "policy-tests", "server"),
        *("kinds", "owners", "drift", "fit", "fit-of-head", "platform", "production", "cost"),
    ]
    assert [one.name for one in all_checks() if one.beside] == [
        *("policy", "schema", "secrets", "policy-of-head", "policy-tests", "server")
    ]


def test_kyverno_does_not_wait_until_planning_is_imported() -> None:
    code = (
        "import sys; from neuroscale.gate.runner import all_checks\n"
        "checks = all_checks(of_change=False, renders_anew=False)\n"
        "assert [next(checks).name for _ in range(2)] == ['files', 'policy']\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    needless = ("jinja2", "jsonschema", "neuroscale.models.config", "neuroscale.planning.fit", "rich")
    assert not set(needless) & set(done.stdout.split())


def test_without_rendered_services_the_catalog_is_read_while_other_programs_run() -> None:
    names = [one.name for one in all_checks(renders_anew=False)]
    assert not {"effects", "effects-fit"} & set(names)
    assert names.index("owners") + 1 == names.index("catalog") == names.index("drift") - 1


class Waiting(Probe):
    """A check that needs others."""

    def __init__(self, name: str, *needs: str, beside: bool = False) -> None:
        super().__init__()
        self.name, self.needs, self.beside = name, needs, beside  # type: ignore[misc]


def ordered(*checks: Waiting) -> list[str]:
    made = {one.name: one for one in checks}
    return [one.name for one in in_order(made, made.__getitem__)]


def test_a_check_begins_behind_those_that_it_needs_and_else_in_its_turn() -> None:
    assert ordered(Waiting("a", "c"), Waiting("b"), Waiting("c", "d", "gone"), Waiting("d")) == ["d", "c", "a", "b"]


@pytest.mark.parametrize(
    "checks", [(Waiting("a", "b"), Waiting("b", "a")), (Waiting("a", beside=True), Waiting("b", "a"))]
)
def test_checks_that_cannot_wait_for_each_other_are_an_error(checks: tuple[Waiting, ...]) -> None:
    with pytest.raises(UntrustedError, match="cannot wait"):
        ordered(*checks)


def test_a_check_that_takes_what_it_does_not_name_is_untrusted() -> None:
    run = run_of().ended_with("files", None, ())
    assert [one.value for one in (_outcome(run, needs) for needs in ((), ("files",)))] == ["untrusted", "passed"]


def _outcome(run: Run, needs: tuple[str, ...]) -> Outcome:
    class Taker(Probe):
        def evaluate(self, run: Run) -> Evaluation:
            assert run.manifests == ()
            return GOOD

    check = Taker()
    check.needs = needs  # type: ignore[misc]
    result = begin(check, run)()
    assert result is not None
    return result.check.outcome


def test_a_run_shares_no_check_with_another() -> None:
    first, second = list(all_checks()), list(all_checks())
    assert not {id(one) for one in first} & {id(one) for one in second}


@pytest.mark.parametrize("step", ["left_out", "begin", "evaluate"])
@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), UntrustedError("boom"), InputError(Problem("a", "", "boom", "Mend it."))]
)
def test_a_check_that_fails_in_any_step_is_untrusted(step: str, error: Exception) -> None:
    def fails() -> None:
        raise error

    result = begin(Probe(**{step: fails}), run_of())()
    assert result is not None
    assert (result.check.name, result.check.outcome) == ("probe", Outcome.UNTRUSTED)
    assert "boom" in result.check.detail


def test_a_check_is_named_unless_nothing_asks_for_it() -> None:
    result = begin(Probe(left_out=lambda: LeftOut("for a reason")), run_of())()
    assert result is not None
    assert (result.check.outcome, result.check.detail) == (Outcome.NOT_RUN, "for a reason")
    assert begin(Probe(left_out=LeftOut), run_of())() is None
    passed = begin(Probe(), run_of())()
    assert passed is not None
    assert passed.check.outcome is Outcome.PASSED


def test_a_check_without_tripwires_is_untrusted() -> None:
    result = begin(Probe(evaluate=lambda: Evaluation((), 1, 1, "objects", 0, 0)), run_of())()
    assert result is not None
    assert result.check.outcome is Outcome.UNTRUSTED


def test_the_checks_that_judge_every_input_are_never_left_out() -> None:
    always = ("files", "policy", "schema", "secrets", "kinds", "fit")
    found = [one for one in all_checks() if one.name in always]
    assert len(found) == len(always)
    assert [one.left_out(run_of()) for one in found] == [None] * len(always)


def test_what_is_read_once_is_read_once_by_many_threads() -> None:
    asked: list[int] = []

    def read() -> str:
        asked.append(1)
        return "read"

    once = ReadOnce(read)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: once(), range(50))) == {"read"}
    assert len(asked) == 1


def test_what_cannot_be_read_is_an_error_to_everybody_who_asks() -> None:
    files = PlatformSources(MemorySnapshot({}))
    for _ in range(2):
        with pytest.raises(UntrustedError):
            files.policies()
        with pytest.raises(InputError):
            files.settings()


@pytest.mark.parametrize(
    ("path", "catalog", "settings"),
    [("README.md", True, True), (f"{CATALOG}/a.yaml", False, True), (SETTINGS, True, False)],
)
def test_a_judge_shares_only_what_the_change_leaves_alone(
    repository: Repository, path: str, catalog: bool, settings: bool
) -> None:
    repository.commit({path: "b: 1\n"})
    run = run_of(find_change(repository.git, "main~1", "main"))
    assert (run.judge.catalog is run.after.catalog, run.judge.settings is run.after.settings) == (catalog, settings)
    assert run.judge.policies is not run.after.policies


def test_one_run_loads_the_policies_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Snapshot] = []

    def load(snapshot: Snapshot) -> PolicySet:
        loaded.append(snapshot)
        return load_policy_set(snapshot)

    monkeypatch.setattr(platform_sources, "load_policy_set", load)
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "empty"))
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    assert gate_paths([tmp_path / "a.yaml"], ROOT, TODAY).exit_status == 3
    assert len(loaded) == 1


def test_a_verdict_on_paths_says_that_it_has_no_tree_to_look_at(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "empty"))
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    told = [one for one in gate_paths([tmp_path / "a.yaml"], ROOT, TODAY).not_checked if "tree around" in one]
    assert len(told) == 1
    assert all(word in told[0] for word in ("tracked paths", "links", "submodules", "attributes", "did not look"))
    repository.commit({"README.md": "hi"})
    assert list(FilesCheck().not_checked(run_of(find_change(repository.git, "main~1", "main")))) == []

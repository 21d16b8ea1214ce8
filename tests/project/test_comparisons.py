"""When a long comparison runs in full, and when as a sample."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import comparisons
from comparisons import COMPARISONS, Comparison


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one input, which was proven as it is."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "one.py").write_text("one = 1\n")
    monkeypatch.setattr(comparisons, "ROOT", tmp_path)
    monkeypatch.setattr(comparisons, "PROVEN", tmp_path / "proven.json")
    monkeypatch.delenv(comparisons.ALL, raising=False)
    monkeypatch.delenv(comparisons.QUICK, raising=False)
    # The inputs change within a test.
    monkeypatch.setattr(Comparison, "digest", inspect.unwrap(Comparison.digest))
    monkeypatch.setattr(comparisons, "_content", inspect.unwrap(comparisons._content))
    (tmp_path / "proven.json").write_text(json.dumps({"compared": ONE.digest()}))
    comparisons._proven.cache_clear()
    yield tmp_path
    comparisons._proven.cache_clear()


ONE = Comparison("compared", ("src",))


def test_what_was_proven_as_it_is_runs_as_a_sample(root: Path) -> None:
    assert ONE.sample([1, 2, 3], [1]) == [1]


def test_what_changed_runs_in_full(root: Path) -> None:
    (root / "src" / "one.py").write_text("one = 2\n")
    assert ONE.sample([1, 2, 3], [1]) == [1, 2, 3]


def test_other_comments_and_docstrings_are_not_a_change(root: Path) -> None:
    (root / "src" / "one.py").write_text('"""One."""\n\n# The first number.\none = 1  # really\n')
    assert not ONE.in_full
    (root / "src" / "one.py").write_text('"""One."""\n"""Two."""\none = "1"\n')
    assert ONE.in_full


def test_a_new_or_renamed_input_counts_as_a_change_and_a_compiled_module_does_not(root: Path) -> None:
    (root / "src" / "__pycache__").mkdir()
    (root / "src" / "__pycache__" / "one.pyc").write_bytes(b"x")
    assert not ONE.in_full
    shutil.move(root / "src" / "one.py", root / "src" / "two.py")
    assert ONE.in_full


def test_what_was_never_proven_runs_in_full_and_so_does_all_where_that_is_asked(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Comparison("another", ("src",)).in_full
    assert not ONE.in_full
    monkeypatch.setenv(comparisons.ALL, "1")
    assert ONE.in_full


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda one: one.name)
def test_every_input_is_there(comparison: Comparison) -> None:
    assert len(comparison.digest()) == 64


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda one: one.name)
def test_a_test_that_only_a_full_run_holds_is_there_and_its_file_is_an_input(comparison: Comparison) -> None:
    for place in comparison.only_in_full:
        file, _, name = place.partition("::")
        (path,) = (comparisons.ROOT / one for one in comparison.inputs if one.endswith(f"/{file}"))
        assert (f"\ndef {name}(" if name else "\ndef test_") in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("comparison", [one for one in COMPARISONS if one.only_in_full], ids=lambda one: one.name)
def test_a_change_of_waits_and_retries_repeats_all_tests_of_hindered_programs(comparison: Comparison) -> None:
    assert set(comparisons.WHEN_HINDERED) <= set(comparison.inputs)


def test_no_cluster_runs_on_what_only_a_gate_starts() -> None:
    """So a change of it repeats no test of the platform."""
    modules = {f"neuroscale.kube.{name.removesuffix('.py')}" for name in comparisons.ONLY_IN_A_GATE}
    assert all(importlib.util.find_spec(module) for module in modules)
    users = {
        path.relative_to(comparisons.ROOT / "src" / "neuroscale").parts[0]
        for path in (comparisons.ROOT / "src").rglob("*.py")
        if any(re.search(rf"\b{re.escape(module)}\b", path.read_text(encoding="utf-8")) for module in modules)
    }
    assert users == {"gate"}


@pytest.mark.slow
def test_what_only_a_full_run_holds_is_left_out_of_a_sample_and_can_be_asked_for_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = comparisons.KILLED_FORGE.only_in_full[0].partition("::")[2]
    file = "tests/local/test_local_life.py"

    for variable in (comparisons.ALL, comparisons.QUICK):
        monkeypatch.delenv(variable, raising=False)

    def collected(kind: str, asked: str) -> str:
        monkeypatch.setenv(comparisons.KILLED_FORGE.variable, kind)
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", asked]
        done = subprocess.run(command, cwd=comparisons.ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert name not in collected("sample", file)
    assert name in collected("full", file)
    assert name in collected("sample", f"{file}::{name}")

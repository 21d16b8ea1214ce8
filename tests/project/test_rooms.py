"""The rooms of the program: an import that runs the wrong way fails with its reason, and no module grows too long."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roots import CHECKOUT

PROGRAM = Path(sys.executable).with_name("lint-imports")
SOURCE = CHECKOUT / "src" / "neuroscale"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "--no-cache", "--no-logo"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(CHECKOUT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(CHECKOUT / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line", "told"),
    [
        ("core/errors.py", "import neuroscale.gate.verdict\n", "neuroscale.core.errors -> neuroscale.gate.verdict"),
        (
            "gate/merged_change.py",
            "from neuroscale.report import summary\n",
            "neuroscale.gate.merged_change -> neuroscale.report",
        ),
        ("planning/plan.py", "import httpx\n", "neuroscale.planning.plan -> httpx"),
        ("cli/plan.py", "from neuroscale.cli import fit\n", "neuroscale.cli.plan -> neuroscale.cli.fit"),
        ("actions/progress.py", "import typer\n", "neuroscale.actions.progress -> typer"),
        (
            "gate/fit/volumes.py",
            "import neuroscale.gate.checks.production\n",
            "No cycles are allowed in neuroscale.gate",
        ),
    ],
)
def test_a_wrong_import_is_refused_with_its_reason(copy: Path, module: str, line: str, told: str) -> None:
    file = copy / "src" / "neuroscale" / module
    file.write_text(f"{file.read_text()}\n{line}")
    done = lint(copy)
    assert done.returncode == 1
    assert told in done.stdout


def test_a_new_room_must_be_given_its_place(copy: Path) -> None:
    (copy / "src/neuroscale/attic").mkdir()
    (copy / "src/neuroscale/attic/__init__.py").touch()
    done = lint(copy)
    assert done.returncode == 1
    assert "attic" in done.stdout


def test_every_room_says_what_it_is_for_and_nothing_lies_loose() -> None:
    loose = {path.name for path in SOURCE.glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}
    silent = [path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    silent = [name for name in silent if not (SOURCE / name / "__init__.py").read_text().startswith('"""')]
    assert silent == []


def test_every_room_has_tests_of_its_own() -> None:
    rooms = [path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()]
    assert [name for name in rooms if not list((CHECKOUT / "tests" / name).glob("test_*.py"))] == []


def test_no_module_is_too_long_to_read_at_once() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {str(path.relative_to(SOURCE)): lines for path, lines in lengths.items() if lines > 400} == {}


@pytest.mark.parametrize(
    "name",
    ["kube/keeper", "local/gateway_routes", "local/node/read_only_root", "local/node/shim", "local/webhook_relay"],
)
def test_a_program_that_a_bare_python_runs_imports_the_standard_library_alone(name: str) -> None:
    tree = ast.parse((SOURCE / f"{name}.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {module.split(".")[0] for module in imported} - sys.stdlib_module_names == set()

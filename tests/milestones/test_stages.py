"""The six stages: each has its page and a program, which runs real commands in order until one fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from neuroscale.milestones.lessons import FOLDER, STAGES
from roots import ROOT

STAGE_FOLDERS = sorted(path for path in (ROOT / FOLDER / STAGES).iterdir() if path.is_dir())
ARGUMENTS = {3: ["answers.yaml"], 4: ["my-cluster", "dev"], 5: ["dev", "chat"], 6: ["dev", "chat"]}
_STEP = re.compile(r"^step (?P<command>.+)$", re.MULTILINE)


def number(folder: Path) -> int:
    return int(folder.name.partition("-")[0])


def copied(tmp_path: Path, folder: Path, *, failing: str = "") -> Path:
    """The stage in a repository whose programs only print how they were called; the one that has `failing` among its
    words ends with 4."""
    stages = tmp_path / FOLDER / STAGES
    stages.mkdir(parents=True)
    (stages / "checks.sh").write_text((folder.parent / "checks.sh").read_text())
    (stages / folder.name).mkdir()
    program = stages / folder.name / "check"
    program.write_text((folder / "check").read_text())
    program.chmod(0o755)
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("neuroscale", "kubectl", "make"):
        tool = tools / name
        tool.write_text(
            f'#!/bin/sh\necho "called {name} $*"\ncase " $* " in *" {failing or "nothing"} "*) exit 4;; esac\n'
        )
        tool.chmod(0o755)
    return program


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_there_is_a_page_and_a_program_for_each_of_the_six_stages() -> None:
    assert [number(folder) for folder in STAGE_FOLDERS] == [1, 2, 3, 4, 5, 6]
    table = (ROOT / FOLDER / "README.md").read_text()
    for folder in STAGE_FOLDERS:
        assert os.access(folder / "check", os.X_OK)
        page = (folder / "STAGE.md").read_text()
        assert "**What must be true before" in page
        assert f"milestones/stages/{folder.name}/check" in page
        assert f"]({STAGES}/{folder.name}/STAGE.md)" in table


@pytest.mark.parametrize("folder", STAGE_FOLDERS, ids=lambda folder: folder.name)
def test_a_program_runs_its_commands_in_order_and_names_what_to_look_at(tmp_path: Path, folder: Path) -> None:
    steps = _STEP.findall((folder / "check").read_text())
    done = run(copied(tmp_path, folder), *ARGUMENTS.get(number(folder), []))
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("called ")] == [
        step.split()[0] for step in steps
    ]
    assert f"Every command of stage {number(folder)} ended with 0. Look yourself:" in done.stdout
    for argument in ARGUMENTS.get(number(folder), []):
        assert argument in done.stdout


@pytest.mark.parametrize("folder", STAGE_FOLDERS, ids=lambda folder: folder.name)
def test_a_command_that_fails_ends_the_program_and_names_the_page(tmp_path: Path, folder: Path) -> None:
    first = _STEP.findall((folder / "check").read_text())[0].split()[1]
    done = run(copied(tmp_path, folder, failing=first), *ARGUMENTS.get(number(folder), []))
    assert done.returncode == 1
    assert done.stdout.count("called ") == 1
    assert f"Stage {number(folder)} is not done" in done.stderr
    assert f"ended with 4. Read milestones/stages/{folder.name}/STAGE.md" in done.stderr


@pytest.mark.parametrize("folder", STAGE_FOLDERS[2:], ids=lambda folder: folder.name)
def test_a_missing_argument_is_told_with_the_usage_and_nothing_runs(tmp_path: Path, folder: Path) -> None:
    program = copied(tmp_path, folder)
    done = run(program)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Usage: milestones/stages/{folder.name}/check " in done.stderr
    assert run(program, "--help").returncode == 0


@pytest.mark.parametrize(
    "command",
    sorted(
        {
            step
            for folder in STAGE_FOLDERS
            for step in _STEP.findall((folder / "check").read_text())
            if step.startswith("neuroscale ")
        }
    ),
)
def test_every_command_and_option_exists(command: str) -> None:
    words = command.replace('"', "").split()
    names = [word for word in words[1:3] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
    shown = subprocess.run(
        [sys.executable, "-m", "neuroscale", *names, "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert all(option in shown for option in words if option.startswith("--"))

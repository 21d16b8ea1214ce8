"""The worked examples of docs/extending.md: each does in a copy of this repository what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from repositories import Repository, copy_of_the_example_repository
from roots import CHECKOUT

pytestmark = pytest.mark.tools

_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BEHIND = re.compile(r"<!-- behind: (\S+): \"(.*?)\" -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A section of the page: the files and lines that it adds, and the commands that it runs after them.

    `lines`: a file, the line that new ones go behind, and the new ones.
    """

    files: dict[str, str]
    lines: tuple[tuple[str, str, str], ...]
    commands: tuple[str, ...]


def example(title: str) -> Example:
    page = (CHECKOUT / "docs/extending.md").read_text(encoding="utf-8")
    (section,) = [part for part in page.split("\n## ") if part.startswith(f"{title}\n")]
    lines = "".join(_CONSOLE.findall(section)).splitlines()
    commands = tuple(line.removeprefix("$ ") for line in lines)
    return Example(dict(_FILE.findall(section)), tuple(_BEHIND.findall(section)), commands)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = copy_of_the_example_repository(tmp_path / "repository")
    made.commit({}, "platform")
    return made


def follow(repository: Repository, title: str) -> list[str]:
    """Do what a section says; returns what each command printed."""
    found = example(title)
    assert found.files
    assert found.commands
    for name, text in found.files.items():
        (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / name).write_text(text, encoding="utf-8")
    for name, line, new in found.lines:
        text = (repository.root / name).read_text(encoding="utf-8")
        line = f"{line}\n"
        assert text.count(line) == 1, f"{name} has no line, or several, that read {line!r}"
        (repository.root / name).write_text(text.replace(line, f"{line}{new}"), encoding="utf-8")
    (repository.root.parent / "bin").mkdir()
    program = repository.root.parent / "bin" / "neuroscale"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m neuroscale "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(repository.root / "src"),
        "COLUMNS": "160",
    }
    said = []
    for command in found.commands:
        done = subprocess.run(
            command, shell=True, cwd=repository.root, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said.append(done.stdout)
    return said


def test_a_model(repository: Repository) -> None:
    facts, fit = follow(repository, "A model")
    assert "dense, 7.62 B parameters" in facts
    assert "57,344" in facts
    assert "fits" in fit


def test_an_accelerator(repository: Repository) -> None:
    fit, _ = follow(repository, "An accelerator")
    assert "fits" in fit
    assert "44.4" in fit


def test_a_check_of_the_gate(repository: Repository) -> None:
    _, verdict = follow(repository, "A check of the gate")
    assert re.search(r"✔ Replicas +passed .* 1 of 1 services, 1 of 1 tripwire caught", verdict)


def test_a_command(repository: Repository) -> None:
    text, values, _ = follow(repository, "A command")
    assert dict(line.split() for line in text.splitlines()) == json.loads(values)
    assert "neuroscale teams" in (repository.root / "docs/commands.md").read_text()


def test_a_policy(repository: Repository) -> None:
    _, tested, _, verdict = follow(repository, "A policy")
    assert tested == "time-to-finish: all 2 test objects\n"
    count = 1 + len(list((CHECKOUT / "policies").glob("*/policy.yaml")))
    assert re.search(rf"Policies of the change +passed .* {count} of {count} tripwires caught", verdict)
    assert re.search(r"Tests of the changed policies +passed .* 2 of 2 test resources", verdict)

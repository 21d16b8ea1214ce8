"""The documents that are made from the program say what it says."""

from __future__ import annotations

import re

import pytest

import cause_reference
import command_reference
from command_line import commands
from neuroscale.cli.app import COMMANDS


def test_the_document_holds_the_help_of_every_command() -> None:
    assert command_reference.FILE.read_text() == command_reference.reference(), (
        "docs/commands.md differs from the program's help: run `.venv/bin/python scripts/command_reference.py`"
    )


def test_the_document_of_causes_holds_every_cause() -> None:
    assert cause_reference.FILE.read_text() == cause_reference.reference(), (
        "docs/causes.md differs from the causes: run `.venv/bin/python scripts/cause_reference.py`"
    )


def test_the_help_imports_no_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr("neuroscale.cli.app.importlib.import_module", refuse)
    assert "fit  " in commands(capsys, monkeypatch)("--help").out


def test_the_help_lists_every_command_once_in_its_group() -> None:
    text = command_reference.reference().split("```")[1]
    sections = re.findall(r"^([A-Z][a-z ]+):\n((?:  .+\n)+)", text, re.MULTILINE)[1:]  # the first one: options
    assert [name for name, _ in sections] == [
        "Decide",
        "Change",
        "Operate",
        "Cost",
        "Repository",
        "For workflows",
    ]
    listed = [name for _, rows in sections for name in re.findall(r"^  ([a-z-]+) {2,}[A-Z]", rows, re.MULTILINE)]
    assert listed == list(COMMANDS)

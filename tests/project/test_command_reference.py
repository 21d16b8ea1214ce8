"""The documents that are made from the program say what it says."""

from __future__ import annotations

import cause_reference
import command_reference


def test_the_document_holds_the_help_of_every_command() -> None:
    assert command_reference.FILE.read_text() == command_reference.reference(), (
        "docs/commands.md differs from the program's help: run `.venv/bin/python scripts/command_reference.py`"
    )


def test_the_document_of_causes_holds_every_cause() -> None:
    assert cause_reference.FILE.read_text() == cause_reference.reference(), (
        "docs/causes.md differs from the causes: run `.venv/bin/python scripts/cause_reference.py`"
    )

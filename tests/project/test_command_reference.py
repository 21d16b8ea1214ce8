"""The document of all commands says what the program's own help says."""

from __future__ import annotations

import command_reference


def test_the_document_holds_the_help_of_every_command() -> None:
    assert command_reference.FILE.read_text() == command_reference.reference(), (
        "docs/commands.md differs from the program's help: run `.venv/bin/python scripts/command_reference.py`"
    )

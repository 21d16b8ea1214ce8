"""Writes docs/commands.md, the reference of all commands, from the program's own help.

Usage: .venv/bin/python scripts/command_reference.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from neuroscale.cli.app import app

FILE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
_WIDTH = 100
"""Columns of the help texts, independent of the terminal."""
_START = """# Commands

The program prints these texts with `--help`. `scripts/command_reference.py` writes this file.
"""


def reference() -> str:
    """The whole document, in Markdown: a section for each command, in the order of the program's help."""
    return "\n".join([_START, *_sections(typer.main.get_command(app), "neuroscale", None)])


def _sections(command: Any, name: str, parent: Any) -> list[str]:
    context = type(command).context_class(
        command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    path = context.command_path
    heading = f"{'#' * (2 + path.count(' '))} {path}"
    sections = [f"{heading}\n\n```text\n{command.get_help(context).strip()}\n```\n"]
    for subcommand in names:
        sections += _sections(command.get_command(context, subcommand), subcommand, context)
    return sections


def main() -> int:
    """Write the file. Returns 0."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main())

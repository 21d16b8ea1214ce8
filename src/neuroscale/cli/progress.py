"""Prints the progress of a command."""

from __future__ import annotations

import typer


def say_progress(text: str) -> None:
    """One line on standard error, which says what the command does now."""
    typer.echo(f"{text} ...", err=True)

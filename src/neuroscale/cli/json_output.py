"""Prints the JSON of `--json` for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer


def print_json(fields: Mapping[str, Any]) -> None:
    """Print a mapping as JSON, one field on each line."""
    from neuroscale.core.json_text import json_text

    typer.echo(json_text(fields))

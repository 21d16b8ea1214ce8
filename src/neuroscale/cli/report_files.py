"""Writes a command's result into files, beside its output."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reports:
    """The file for a result in each format; None: not written."""

    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None


def write_whole(path: Path, text: str) -> None:
    """Write a file so that its name never holds a half-written one. Raises OSError, and then leaves no file."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    except OSError:
        half.unlink(missing_ok=True)
        raise

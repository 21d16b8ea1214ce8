"""The files that a command writes its result into, beside what it prints."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reports:
    """Where to write a result in each format; None: nowhere."""

    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a half-written one never stands under its name. Raises OSError, and leaves nothing then."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    except OSError:
        half.unlink(missing_ok=True)
        raise

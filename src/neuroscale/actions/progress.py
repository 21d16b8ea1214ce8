"""Carries what happens meanwhile to the person who asked, in the way of each face."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _silent(_: str) -> None:
    return None


@dataclass(frozen=True)
class Progress:
    """Two callbacks. `step`: a step that takes a while begins, as a clause without a full stop. `note`: a sentence that
    the person should know."""

    step: Callable[[str], None] = _silent
    note: Callable[[str], None] = _silent


SILENT = Progress()
"""For a face that shows nothing until the answer is there."""

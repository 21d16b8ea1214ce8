"""Draws a value over time as a line of blocks; readable without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.:-=+*#"


class Gap(Enum):
    """A time without a value: there was nothing to measure, or nobody measured."""

    IDLE = "·"
    UNSEEN = " "


Point = float | Gap


def highest(points: Sequence[Point]) -> float | None:
    """The largest value; None if there are no values."""
    return max((point for point in points if not isinstance(point, Gap)), default=None)


def chart(points: Sequence[Point], *, ascii_only: bool = False) -> str:
    """One character for each point, scaled from 0 to the highest: only 0 gets the lowest block."""
    blocks = _ASCII if ascii_only else BLOCKS
    top = highest(points) or 0.0
    return "".join(_character(point, top, blocks, ascii_only) for point in points)


def _character(point: Point, top: float, blocks: str, ascii_only: bool) -> str:
    if isinstance(point, Gap):
        return "~" if ascii_only and point is Gap.IDLE else point.value
    if point <= 0 or top <= 0:
        return blocks[0]
    return blocks[max(1, math.ceil(point / top * (len(blocks) - 1)))]

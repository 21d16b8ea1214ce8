"""Judges whether an answer is garbage: a pure function of its text.

It does not judge the meaning. It finds the answers of servers with broken weights, cache or numbers: nothing, the same
token again and again (NaN logits give text like `!!!!`), a short cycle, or bytes that are not text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

MOST_UNTEXT: Final = 0.05
"""The largest allowed share of control, replacement, unassigned or private characters."""
FEWEST_REPEATS: Final = 4
LEAST_SHARE: Final = 0.5
"""A part that repeats at least so often, over at least this share of the answer, is a cycle."""
_LONGEST_CYCLE: Final = {"words": 16, "characters": 48}
_SHORTEST: Final = {"words": 8, "characters": 16}
_UNTEXT: Final = ("Cc", "Cn", "Co", "Cs")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def garbage(text: str) -> str | None:
    """The fault of an answer, in words; None if it is text."""
    # A character of several tokens may be cut in two if the answer reaches its longest length.
    text = text.removesuffix(_REPLACEMENT)
    if not text.strip():
        return "it is empty"
    if (share := _untext(text)) > MOST_UNTEXT:
        return f"it is not text: {share:.0%} of its characters are control, replacement or unassigned characters"
    for kind, units in (("words", text.split()), ("characters", list(text.strip()))):
        if found := _cycle(units, _LONGEST_CYCLE[kind], _SHORTEST[kind]):
            length, times = found
            part = "the same one" if length == 1 else f"the same {length}"
            return f"it repeats itself: {part} of its {kind} {times} times"
    return None


def _untext(text: str) -> float:
    wrong = sum(
        character == _REPLACEMENT or (unicodedata.category(character) in _UNTEXT and character not in "\t\n\r")
        for character in text
    )
    return wrong / len(text)


def _cycle(units: Sequence[str], longest: int, shortest: int) -> tuple[int, int] | None:
    """Length and count of a part whose repetition fills most of the units."""
    for length in range(1, min(longest, len(units) // FEWEST_REPEATS) + 1):
        run = best = 0
        for before, now in zip(units, units[length:], strict=False):
            run = run + 1 if before == now else 0
            best = max(best, run)
        filled = best + length
        if best and filled >= max(shortest, LEAST_SHARE * len(units)) and filled // length >= FEWEST_REPEATS:
            return length, filled // length
    return None

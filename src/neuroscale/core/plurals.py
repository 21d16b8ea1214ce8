"""Writes a number with its noun."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 finding`, `2,000 findings`."""
    return f"{number:,} {noun_for(number, noun)}"


def plainly_counted(number: int, noun: str) -> str:
    """`1 finding`, `2000 findings`: without separators, as in the sentences of a plan."""
    return f"{number} {noun_for(number, noun)}"


def noun_for(number: int, noun: str) -> str:
    """`finding` for 1, `findings` for any other number."""
    return noun if number == 1 else f"{noun}s"

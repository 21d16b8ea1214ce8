"""Says whether a reviewed exception is valid: it needs a reason, and an end within the longest term.

Overrides of a plan, exceptions from policies and exceptions from budgets are reviewed exceptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from neuroscale.core.validation import shorten


@dataclass(frozen=True)
class Fault:
    """The reason why a reviewed exception is not valid: `rule` is its short name, `field` the field at fault."""

    rule: Literal["expired", "term", "reason"]
    field: Literal["expires", "reason"]
    message: str
    fix: str


_SHORTEST_REASON = 10  # letters and digits


def fault_of(reason: str, expires: date, today: date, longest_days: int) -> Fault | None:
    """The fault of an exception by its reason and its last day; None if it is valid."""
    if expires < today:
        return Fault("expired", "expires", f"expired on {expires}", "Remove it, or have a new expiry reviewed.")
    if (expires - today).days > longest_days:
        return Fault(
            "term",
            "expires",
            f"ends on {expires}, and may last {longest_days} days at most",
            f'Write "{today + timedelta(days=longest_days)}" or an earlier day; exceptions.longest_days of the '
            "settings sets the longest term.",
        )
    if sum(character.isalnum() for character in reason) < _SHORTEST_REASON:
        return Fault(
            "reason",
            "reason",
            f"has the reason {shorten(reason)}, which says nothing",
            f"Write why it is needed, in {_SHORTEST_REASON} letters or more.",
        )
    return None

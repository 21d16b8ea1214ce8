"""Sets how many cases a property test generates: its own number, fewer for `make check`, more by night."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

from comparisons import ALL, QUICK

T = TypeVar("T")

_QUICK = bool(os.environ.get(QUICK))


def examples(many: int) -> int:
    """The number of cases for `max_examples`."""
    if _QUICK:
        return min(many, max(5, many // 10))
    return many * (5 if os.environ.get(ALL) else 1)


def one_or_by_night_all(cases: Sequence[T], number: int) -> Sequence[T]:
    """One of the cases, another for another `number`; by night all."""
    return cases if os.environ.get(ALL) else [cases[number % len(cases)]]


def some_where_fewer_are_asked(cases: Sequence[T]) -> Sequence[T]:
    """All cases; for `make check` every fourth."""
    return cases[::4] if _QUICK else cases


def set_profile() -> None:
    """No case has a bound of time: on a busy machine any takes long. For `make check`, tests without a number of their
    own generate fewer cases, too.
    """
    fewer: dict[str, Any] = {"max_examples": examples(100)} if _QUICK else {}
    settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], **fewer)
    settings.load_profile("ours")

"""Searches the most users of one replica with whom the first token of 95 of 100 answers still comes in time.

Single runs vary, so the edge that doubling and halving found is measured again: what holds in every run is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

EDGE_RUNS = 3
"""How often the result is measured in all; the next larger load is measured once less."""
_FINE = 20  # neighbours differ by a twentieth
_Z = 1.645  # of a normal distribution: 95 % on one side
_LATE = 0.05  # of the requests may be late at a p95

Sure = Literal["sure", "likely", "unsure"]


@dataclass(frozen=True)
class Trial:
    """A run with so many users: the p95 of its TTFT in seconds, requests, and those whose first token came late.
    `problem`: why it could not be measured (""); it then keeps nothing."""

    users: int
    p95: float
    requests: int
    late: int
    problem: str = ""


@dataclass(frozen=True)
class LargestLoad:
    """`users`: the most who keep the promise, in each of `kept_runs` (0: not even one does). `missed_users`: the fewest
    of whom a run missed it (None: nobody did, and `ended` says why the search went no further). `late_share`: with 95 %
    confidence, at most this share of first tokens is late with `users` (None: nobody was measured)."""

    users: int
    kept_runs: int
    missed_users: int | None
    missed_runs: tuple[int, int]  # of so many runs, so many missed it
    late_share: float | None
    sure: Sure
    ended: str
    trials: tuple[Trial, ...]


class OverError(Exception):
    """The search ends here, before it is done: the text is the reason, a sentence."""


def search(
    measure: Callable[[int, int], Trial], promise: float, first: int, most: int, why_most: str = ""
) -> LargestLoad:
    """The largest load. `measure` runs so many users for the so-manieth time, and may raise OverError. `promise`: the
    p95 of TTFT in seconds. `first`: where to begin; `most`: the most users, and `why_most`, a sentence."""
    runs: dict[int, list[Trial]] = {}
    order: list[Trial] = []

    def keeps(users: int, times: int = 1) -> bool:
        """Whether each of the first `times` runs keeps the promise; it stops at one that does not."""
        there = runs.setdefault(users, [])
        while len(there) < times and all(_kept(trial, promise) for trial in there):
            there.append(measure(users, len(there) + 1))
            order.append(there[-1])
        return all(_kept(trial, promise) for trial in there)

    def missed(users: int, times: int) -> None:
        there = runs[users]
        while len(there) < times:
            there.append(measure(users, len(there) + 1))
            order.append(there[-1])

    ended, complete = "", True
    try:
        while (low := _edge(keeps, runs, promise, min(max(first, 1), most), most)) and not keeps(low, EDGE_RUNS):
            pass
        high = _fewest_missed(runs, promise)
        if high is not None:
            missed(high, EDGE_RUNS - 1)
        elif low == most:
            ended = why_most or f"No more than {most} users were tried."
    except OverError as error:
        ended, complete = str(error), False
    return _result(runs, promise, ended, complete, tuple(order))


def _edge(keeps: Callable[[int], bool], runs: dict[int, list[Trial]], promise: float, first: int, most: int) -> int:
    """The most users who keep the promise in one run, between those that are known to and those that are known not to;
    0 if not even one does."""
    low, high = _most_kept(runs, promise), _fewest_missed(runs, promise)
    users = first
    while high is None and low < most:
        if keeps(users):
            low, users = users, min(2 * users, most)
        else:
            high = users
    while high is not None and high - low > max(1, low // _FINE):
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _kept(trial: Trial, promise: float) -> bool:
    return not trial.problem and trial.p95 <= promise


def _fewest_missed(runs: dict[int, list[Trial]], promise: float) -> int | None:
    return min((users for users, there in runs.items() if not all(_kept(one, promise) for one in there)), default=None)


def _most_kept(runs: dict[int, list[Trial]], promise: float) -> int:
    """The most users of whom each run keeps the promise, below all of whom one misses it."""
    high = _fewest_missed(runs, promise)
    return max((users for users in runs if (high is None or users < high) and runs[users]), default=0)


def _result(
    runs: dict[int, list[Trial]], promise: float, ended: str, complete: bool, order: tuple[Trial, ...]
) -> LargestLoad:
    users, high = _most_kept(runs, promise), _fewest_missed(runs, promise)
    kept = runs.get(users, [])
    above = runs.get(high, []) if high is not None else []
    misses = sum(not _kept(trial, promise) for trial in above)
    share = upper_share(sum(one.late for one in kept), sum(one.requests for one in kept)) if kept else None
    sure: Sure = "unsure"
    if complete and len(kept) >= EDGE_RUNS and misses == len(above):
        sure = "sure" if share is not None and share <= _LATE else "likely"
    elif complete and not users and misses == len(above) >= EDGE_RUNS - 1:
        sure = "sure"
    return LargestLoad(users, len(kept), high, (len(above), misses), share, sure, ended, order)


def upper_share(late: int, requests: int) -> float:
    """The share below which the true one lies with 95 % confidence, after `late` of `requests` (Wilson's interval)."""
    share, spread = late / requests, _Z**2 / requests
    root = math.sqrt(share * (1 - share) * spread + spread**2 / 4)
    return min(1.0, (share + spread / 2 + root) / (1 + spread))

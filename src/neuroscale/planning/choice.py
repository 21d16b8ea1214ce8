"""Chooses among the candidates for a request: the cheapest that works, or a surer one where certainty is asked for.

Judges how sure a choice is.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from neuroscale.planning.candidates import Candidate, Case, candidates
from neuroscale.planning.fit.confidence import confidence_of, unknown_clauses
from neuroscale.planning.fit.device import device
from neuroscale.planning.fit.result import Confidence


def confidence(candidate: Candidate) -> Confidence:
    """How far the memory, the price and the speed rest on published or measured figures. It is at most the memory
    engine's (`planning/fit/confidence.py`), which `neuroscale fit` shows for the same command. Medium also: the weights
    are the files' bytes or counted, or a price or the speed is unknown."""
    level = confidence_of(candidate.doubts)
    known = candidate.weights_basis == "measured" and candidate.price is not None
    return level if level != "high" or (known and candidate.speed.ttft_seconds is not None) else "medium"


def risks(candidate: Candidate) -> tuple[str, ...]:
    """The reasons why a choice that works may still fail, each as a clause; empty for a sure choice."""
    clauses = []
    if candidate.tight:
        clauses.append(
            f"it is tight ({candidate.memory.free:.2f} GiB free, and the estimate of the memory may be off by "
            f"{candidate.band_gib:.2f} GiB)"
        )
    if unknown := unknown_clauses(candidate.doubts):
        clauses.append(f"its confidence is low ({'; '.join(unknown)})")
    if device(candidate.accelerator).slice_of:
        clauses.append("no start of vLLM on a slice of a card was measured")
    if candidate.weights_basis != "measured":
        clauses.append("nobody has measured what the model takes once loaded")
    if candidate.speed.ttft_seconds is None:
        clauses.append("its speed is not known")
    return tuple(clauses)


@dataclass(frozen=True)
class Choice:
    """The choice for a case. `tried` holds every candidate, cheapest first."""

    tried: tuple[Candidate, ...]
    chosen: Candidate  # the candidate that the plan takes; if none works, the nearest to working
    # The cheapest choice that works, if the environment asks for certainty and the plan takes `chosen` in its place.
    cheaper: Candidate | None = None
    surer: Candidate | None = None  # the cheapest choice of fewer risks, if it costs too much to replace `chosen`


def choose(case: Case) -> Choice:
    """The choice for a case: the cheapest that works; if the environment asks for certainty, the one with the fewest
    risks (of several, the cheapest), as long as it costs less than `price_factor` times the cheapest. Costs are those
    of the fewest replicas. Costs without a known price cannot be compared: then the first choice that works stays."""
    tried = tuple(candidates(case))
    working = [candidate for candidate in tried if candidate.works]
    if not working:
        return Choice(tried, min(tried, key=lambda candidate: candidate.distance))
    cheapest = working[0]
    certainty = case.environment.certainty
    least = cheapest.hourly
    if certainty is None or least is None:
        return Choice(tried, cheapest)
    most = least * Decimal(str(certainty.price_factor))
    surer = [
        candidate
        for candidate in working
        if candidate.hourly is not None and len(risks(candidate)) < len(risks(cheapest))
    ]
    # A sort keeps the order of equals: the cheapest first.
    taken = sorted(
        (one for one in surer if one.hourly is not None and one.hourly < most), key=lambda one: len(risks(one))
    )
    if taken:
        return Choice(tried, taken[0], cheaper=cheapest)
    return Choice(tried, cheapest, surer=surer[0] if surer else None)


def best(case: Case) -> Candidate | None:
    """The candidate that `choose` takes; None if no candidate works."""
    chosen = choose(case).chosen
    return chosen if chosen.works else None

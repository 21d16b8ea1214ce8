"""Chooses among the candidates for a request: the cheapest that works, or a surer one where certainty is asked for.

Judges how sure a choice is.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from neuroscale.planning.candidates import Candidate
from neuroscale.planning.case import Case
from neuroscale.planning.fit.confidence import confidence_of, unknown_clauses
from neuroscale.planning.fit.device import device
from neuroscale.planning.fit.result import Confidence
from neuroscale.planning.load_choice import ONCE, Judge, with_spare


def confidence(candidate: Candidate) -> Confidence:
    """How far the memory, the price and the speed rest on published or measured figures. It is at most the memory
    engine's (`planning/fit/confidence.py`), which `neuroscale fit` shows for the same command. Medium also: the weights
    are the files' bytes or counted, a price is unknown, or the speed under the load is not sure."""
    level = confidence_of(candidate.doubts)
    known = candidate.weights_basis == "measured" and candidate.price is not None
    return level if level != "high" or (known and not _speed_risks(candidate)) else "medium"


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
    return (*clauses, *_speed_risks(candidate))


def _speed_risks(candidate: Candidate) -> tuple[str, ...]:
    """What is not sure about the speed, as clauses."""
    load = candidate.load
    if load is None:  # not judged
        return ()
    if candidate.unchecked:
        return ("its speed is not known",)
    # One clause, as for an unknown speed: what is known less well must not count as surer.
    clauses = ["its speed under the load is extrapolated"] if load.speed.coverage == "extrapolated" else []
    return (", and ".join([*clauses, *load.beyond]),) if clauses or load.beyond else ()


@dataclass(frozen=True)
class Choice:
    """The choice for a case. `tried` holds the candidates that were judged under the load, cheapest first: every one if
    none works, else those that cost no more than what matters."""

    tried: tuple[Candidate, ...]
    chosen: Candidate  # the candidate that the plan takes; if none works, the nearest to working
    # The cheapest choice that works, if the environment asks for certainty and the plan takes `chosen` in its place.
    cheaper: Candidate | None = None
    surer: Candidate | None = None  # the cheapest choice of fewer risks, if it costs too much to replace `chosen`
    # The cheapest choice that memory alone would take before `chosen`: nothing is known about its speed.
    unchecked: Candidate | None = None


def choose(case: Case) -> Choice:
    """The choice for a case: the cheapest that works; if the environment asks for certainty, the one with the fewest
    risks (of several, the cheapest), as long as it costs less than `price_factor` times the cheapest. Costs are those
    of the fewest replicas. Costs without a known price cannot be compared: then the first choice that works stays. A
    choice of unknown speed works only where no other does."""
    certainty = case.environment.certainty
    factor = Decimal(str(certainty.price_factor)) if certainty else ONCE
    judge = Judge(case)
    working = judge.find(lambda one: not one.unchecked, factor=factor) or judge.find()
    if not working:
        tried = tuple(judge.found)
        return Choice(tried, min(tried, key=lambda one: one.distance))
    cheapest = chosen = working[0]
    surer = None
    least, fewest = cheapest.hourly, len(risks(cheapest))
    if certainty is not None and least is not None and fewest:
        within = (one for one in working if one is cheapest or (one.hourly is not None and one.hourly < least * factor))
        chosen = min(within, key=lambda one: len(risks(one)))  # the cheapest of those with equally few
        if chosen is cheapest:

            def is_surer(one: Candidate) -> bool:
                return one.hourly is not None and len(risks(one)) < fewest

            # A load adds risks, so a choice that has as many without it is no surer.
            surer = next(iter(judge.find(is_surer, possible=is_surer)), None)
    judge.find(lambda one: one.accelerator.name != chosen.accelerator.name and one.rank > chosen.rank)
    roomy = with_spare(case, chosen)
    tried = tuple(roomy if one is chosen else one for one in judge.found)
    before = (one for one in tried if one.works and one.unchecked and one.rank < chosen.rank)
    unchecked = None if chosen.unchecked else next(before, None)
    return Choice(tried, roomy, cheaper=None if chosen is cheapest else cheapest, surer=surer, unchecked=unchecked)


def best(case: Case) -> Candidate | None:
    """The candidate that `choose` takes; None if no candidate works."""
    chosen = choose(case).chosen
    return chosen if chosen.works else None

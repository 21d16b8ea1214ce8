"""Judges how sure a choice is, and makes the choice for environments that ask for certainty."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from neuroscale.core.printable import plainly_counted
from neuroscale.planning.candidates import Candidate, Case, candidates
from neuroscale.planning.fit.confidence import confidence_of, unknown_clauses
from neuroscale.planning.fit.device import device
from neuroscale.planning.fit.result import Confidence


def confidence(candidate: Candidate) -> Confidence:
    """How far the memory, the price and the speed rest on published or measured figures.

    It is at most the memory engine's (`planning/fit/confidence.py`), which `neuroscale fit` shows for the same command.
    Medium also: the weights are the files' bytes or counted, or a price or the speed is unknown.
    """
    found = confidence_of(candidate.doubts)
    known = candidate.weights_basis == "measured" and candidate.price is not None
    return found if found != "high" or (known and candidate.speed.ttft_seconds is not None) else "medium"


def risks(candidate: Candidate) -> tuple[str, ...]:
    """The reasons why a choice that works may still fail, each as a clause; empty for a sure choice."""
    found = []
    if candidate.tight:
        found.append(
            f"it is tight ({candidate.memory.free:.2f} GiB free, and the estimate of the memory may be off by "
            f"{candidate.band_gib:.2f} GiB)"
        )
    if unknown := unknown_clauses(candidate.doubts):
        found.append(f"its confidence is low ({'; '.join(unknown)})")
    if device(candidate.accelerator).slice_of:
        found.append("no start of vLLM on a slice of a card was measured")
    if candidate.weights_basis != "measured":
        found.append("nobody has measured what the model takes once loaded")
    if candidate.speed.ttft_seconds is None:
        found.append("its speed is not known")
    return tuple(found)


@dataclass(frozen=True)
class Choice:
    """The choice for a case. `tried` holds every candidate, cheapest first.

    `chosen`: the candidate that the plan takes; if none works, the nearest to working. `cheaper`: the cheapest choice
    that works, if the environment asks for certainty and the plan takes `chosen` in its place. `surer`: the cheapest
    choice of fewer risks, if it costs too much to replace `chosen`.
    """

    tried: tuple[Candidate, ...]
    chosen: Candidate
    cheaper: Candidate | None = None
    surer: Candidate | None = None


def choose(case: Case) -> Choice:
    """The choice for a case: the cheapest that works; if the environment asks for certainty, the one with the fewest
    risks (of several, the cheapest), as long as it costs less than `price_factor` times the cheapest.

    Costs are those of the fewest replicas. Costs without a known price cannot be compared: then the first choice that
    works stays.
    """
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


def sentences(case: Case, choice: Choice) -> list[str]:
    """The sentences on certainty for a reviewer of the choice; none if the environment does not ask for certainty."""
    certainty = case.environment.certainty
    if certainty is None or not choice.chosen.works:
        return []
    asks = f"The environment {case.environment_name} asks for certainty"
    factor = f"{certainty.price_factor:g} times"
    if choice.cheaper is not None:
        return [
            f"A cheaper choice works, and is not sure: {_priced(choice.cheaper)}, because "
            f"{_joined(risks(choice.cheaper))}. {asks}, and a surer choice costs less than {factor} as much."
        ]
    found = risks(choice.chosen)
    if not found:
        return []
    if choice.surer is not None:
        return [
            f"Not sure: {_joined(found)}. {asks}; the cheapest surer choice, {_priced(choice.surer)}, costs {factor} "
            "as much or more, so it is not taken."
        ]
    return [f"Not sure: {_joined(found)}. {asks}, and no choice with a known price is surer."]


def _priced(candidate: Candidate) -> str:
    pods = candidate.replicas.min
    replicas = f" with {plainly_counted(pods, 'replica')}" if pods > 1 else ""
    return f"{candidate.label}{replicas} at {candidate.hourly:.4f} US dollars per hour"


def _joined(clauses: tuple[str, ...]) -> str:
    return ", and ".join(clauses)

"""Lists the choices that the planner judged for a request and did not take, for people who review the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Settings
from neuroscale.planning.candidates import Candidate, Case, OverrideValue, candidates
from neuroscale.planning.explain import passed_over, risks
from neuroscale.planning.plan import Plan
from neuroscale.request.service_request import Request

_FORCED = frozenset({"accelerator", "accelerator_count"})


@dataclass(frozen=True)
class Considered:
    """A choice that was not taken. `hourly` in US dollars with its fewest replicas (None: no price is known)."""

    label: str
    replicas: int
    hourly: Decimal | None
    against: str  # complete sentences on why it does not work, empty if it works
    risks: tuple[str, ...] = ()  # clauses on why a choice that works may still fail


@dataclass(frozen=True)
class NotChosen:
    """The other choices. `told`: the sentences of the plan's own reasons that these choices make superfluous."""

    choices: tuple[Considered, ...]
    told: frozenset[str]


def not_chosen(request: Request, catalog: Catalog, settings: Settings, plan: Plan) -> NotChosen:
    """The best candidate of every other accelerator, and of fewer of the chosen one, cheapest first. Overrides that
    force the accelerator do not count here: their reviewer wants to know the choices without them."""
    environment = settings.environments[request.environment]
    overrides = {override.field: override.value for override in request.overrides}
    model = catalog.models[request.model]

    def tried(values: Mapping[str, OverrideValue]) -> list[Candidate]:
        return candidates(Case(request, model, request.environment, environment, catalog, dict(values)))

    free = tried({field: value for field, value in overrides.items() if field not in _FORCED})
    best: dict[str, Candidate] = {}
    for candidate in free:
        name = candidate.accelerator.name
        if name == plan.accelerator and (candidate.works or candidate.count >= plan.accelerator_count):
            continue
        there = best.get(name)
        if there is None or (not there.works and (candidate.works or candidate.distance < there.distance)):
            best[name] = candidate
    choices = tuple(
        Considered(
            candidate.label,
            candidate.replicas.min,
            candidate.hourly,
            candidate.failures[0].sentence if candidate.failures else "",
            risks(candidate) if candidate.works else (),
        )
        for candidate in sorted(best.values(), key=lambda candidate: (not candidate.works, candidate.rank))
    )
    forced = tried(overrides)
    chosen = next((candidate for candidate in forced if _is(candidate, plan)), None)
    return NotChosen(choices, frozenset(passed_over(forced, chosen) if chosen else ()))


def _is(candidate: Candidate, plan: Plan) -> bool:
    return candidate.works and (candidate.accelerator.name, candidate.count) == (
        plan.accelerator,
        plan.accelerator_count,
    )

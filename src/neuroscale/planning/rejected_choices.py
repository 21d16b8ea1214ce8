"""Lists choices outside a plan: those that it did not take, and the accelerators that can serve a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Environment, Settings
from neuroscale.planning.candidates import Candidate, candidates
from neuroscale.planning.case import Case, OverrideValue
from neuroscale.planning.choice import confidence, risks
from neuroscale.planning.explain import passed_over
from neuroscale.planning.load_choice import all_judged
from neuroscale.planning.plan import Plan
from neuroscale.request.service_request import Request

_USERS, _PROMPT, _ANSWER = 8, 4096, 1024  # the defaults of the form
_SECONDS = 120.0  # the longest time that a form allows, so that speed refuses nothing


@dataclass(frozen=True)
class AcceleratorFit:
    """The smallest number of an accelerator that serves the model (0: no number does, for the `reason`)."""

    accelerator: str
    count: int
    tight: bool  # the free memory is less than the estimate may be off, or some figures are not known
    users: int  # requests at once that one replica holds
    context: int  # tokens of a request in the example
    reason: str


def fits_of(model: str, environment: str, catalog: Catalog, settings: Environment) -> list[AcceleratorFit]:
    """For each accelerator of the environment, whether it serves the model with the example traffic of the form. For a
    model whose context is shorter than the example's prompt and answer, the request has half that context."""
    entry = catalog.models[model]
    longest = entry.facts.max_position_embeddings
    prompt, answer = (_PROMPT, _ANSWER) if longest >= _PROMPT + _ANSWER else (longest // 4, longest // 4)
    request = Request(
        service="example",
        model=model,
        team="example",
        environment=environment,
        concurrent_users=_USERS,
        longest_prompt_tokens=max(prompt, 1),
        longest_answer_tokens=max(answer, 1),
        p95_ttft_seconds=_SECONDS,
        availability="standard",
    )
    case = Case(request, entry, environment, settings, catalog, {})
    tried = candidates(case)
    return [
        _of(name, case, [candidate for candidate in tried if candidate.accelerator.name == name])
        for name in settings.accelerators
    ]


def _of(name: str, case: Case, tried: list[Candidate]) -> AcceleratorFit:
    working = [candidate for candidate in tried if candidate.works]
    if not working:
        nearest = min(tried, key=lambda candidate: candidate.distance)
        return AcceleratorFit(name, 0, False, 0, case.max_model_len, nearest.failures[0].sentence)
    best = min(
        working, key=lambda candidate: (candidate.count, candidate.tight, candidate.arguments.kv_cache_dtype != "auto")
    )
    tight = best.tight or confidence(best) == "low"
    return AcceleratorFit(name, best.count, tight, best.capacity, case.max_model_len, "")


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
        return all_judged(Case(request, model, request.environment, environment, catalog, dict(values)))

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
    forced = tried(overrides) if _FORCED & overrides.keys() else free
    chosen = next((candidate for candidate in forced if _is(candidate, plan)), None)
    return NotChosen(choices, frozenset(passed_over(forced, chosen) if chosen else ()))


def _is(candidate: Candidate, plan: Plan) -> bool:
    return candidate.works and (candidate.accelerator.name, candidate.count) == (
        plan.accelerator,
        plan.accelerator_count,
    )

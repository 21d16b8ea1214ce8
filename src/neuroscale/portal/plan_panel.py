"""Lays a plan out for a page: the verdict, the memory of an accelerator, the figures, and what works instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.money_and_time import usd
from neuroscale.planning.plan import Plan
from neuroscale.planning.plan_facts import VERDICTS, Fact, facts
from neuroscale.planning.price import HOURS_PER_MONTH
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.plan_step import request_of
from neuroscale.report import phrases
from neuroscale.request.service_request import Request

_SHOWN = (
    *("First token", "Tokens a second", "Room", "Speed", "Price a month", "A million output tokens", "Replicas"),
    *("A later change", "Start", "How sure"),
)
_WIDTH = 1000.0  # of the picture's own units, for the whole memory
_SMALLEST = 4.0  # a part that is there can be seen


@dataclass(frozen=True)
class Part:
    """A part of the memory: `start` and `width` in the units of the picture."""

    kind: str
    name: str
    size: str
    start: float
    width: float


@dataclass(frozen=True)
class Bar:
    """The memory of one accelerator. `limit`: where what may be used ends."""

    parts: tuple[Part, ...]
    limit: float
    sentence: str  # what the picture shows, in a sentence
    caption: str


@dataclass(frozen=True)
class Instead:
    """A choice that works, and its price ("": not known). `fill`: JSON of the answers that make it ("": the form
    cannot)."""

    text: str
    price: str
    fill: str


@dataclass(frozen=True)
class Panel:
    """A plan as a page shows it; `problems` and no verdict where there is none yet."""

    verdict: str = ""
    word: str = ""
    placement: str = ""
    bar: Bar | None = None
    facts: tuple[Fact, ...] = ()
    reasons: tuple[str, ...] = ()
    instead: tuple[Instead, ...] = ()
    problems: tuple[Problem, ...] = ()
    changes: tuple[tuple[str, str, str], ...] = ()
    merge: str = ""


def live_request(answers: Mapping[str, Any], inputs: PlanningInputs) -> Request:
    """The request of a form that may not be complete: a plan needs neither the service's name nor its team. Raises
    InputError."""
    stand_ins = {"service": "new-service", "team": next(iter(inputs.catalog.teams), "")}
    return request_of({**stand_ins, **answers}, inputs.known)


def live_panel(answers: Mapping[str, Any], inputs: PlanningInputs) -> Panel:
    """The plan of a form while somebody types."""
    try:
        request = live_request(answers, inputs)
    except InputError as error:
        return Panel(problems=tuple(error.problems))
    return panel(inputs.plan(request))


def panel(plan: Plan) -> Panel:
    """A plan, for a page."""
    return Panel(
        verdict=plan.verdict,
        word="Cannot be served" if plan.verdict == "refused" else VERDICTS[plan.verdict].capitalize(),
        placement=phrases.placement(plan, str),
        bar=_bar(plan),
        facts=() if plan.verdict == "refused" else tuple(figures(plan).values()),
        reasons=plan.reasons,
        instead=tuple(
            Instead(
                choice.change,
                "" if choice.hourly is None else f"{usd(choice.hourly * HOURS_PER_MONTH)} a month",
                json.dumps(choice.answers) if choice.answers else "",
            )
            for choice in plan.alternatives
        ),
    )


def figures(plan: Plan) -> dict[str, Fact]:
    """The facts of a plan that people decide by, by their labels."""
    known = facts(plan)
    return {label: known[label] for label in _SHOWN if label in known}


def _bar(plan: Plan) -> Bar:
    memory, count = plan.memory_gib, plan.accelerator_count
    named = {name: size for name, size in memory.parts.items() if name != "free" or size}
    total = max(sum(named.values()), memory.usable, 1e-9)
    parts, start = [], 0.0
    for name, size in named.items():
        width = max(size, 0.0) / total * _WIDTH
        width = min(max(width, _SMALLEST if size > 0 else 0.0), _WIDTH - start)
        parts.append(Part(name.removeprefix("KV "), name, phrases.gib(size), round(start, 1), round(width, 1)))
        start += width
    sentence = ", ".join(f"{part.name} {part.size} GiB" for part in parts)
    limit = min(memory.usable / total, 1.0) * _WIDTH
    if memory.free < 0:
        sentence += f": {phrases.gib(-memory.free)} GiB too much for {phrases.gib(memory.usable)} GiB"
    each = f"on each of {count} accelerators" if count > 1 else "on the accelerator"
    each = each if plan.resources.accelerator_resource else "of the pod's memory"
    caption = f"{phrases.gib(memory.usable - memory.free)} of {phrases.gib(memory.usable)} GiB {each}"
    return Bar(tuple(parts), round(limit, 1), f"Memory: {sentence}", caption)

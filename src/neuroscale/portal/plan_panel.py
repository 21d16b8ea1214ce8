"""Lays a plan out for a page: the verdict, the memory of an accelerator, the figures, and what works instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.printable import counted
from neuroscale.planning.load_choice import COVERAGE
from neuroscale.planning.plan import Band, Plan
from neuroscale.planning.planner import plan
from neuroscale.planning.price import HOURS_PER_MONTH
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.plan_step import request_of
from neuroscale.report import phrases
from neuroscale.report.change_phrases import later_changes
from neuroscale.request.service_request import KnownNames, Request

_WORDS = {"fits": "Fits", "tight": "Fits, but tight", "refused": "Cannot be served"}
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
    told: str  # what the picture shows, in a sentence
    caption: str


@dataclass(frozen=True)
class Fact:
    """A figure: its name, the figure, and what else is to be known of it."""

    name: str
    value: str
    more: str = ""


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
    known = KnownNames.of(inputs.catalog, inputs.settings)
    stand_ins = {"service": "new-service", "team": next(iter(known.teams), "")}
    return request_of({**stand_ins, **answers}, known)


def live_panel(answers: Mapping[str, Any], inputs: PlanningInputs) -> Panel:
    """The plan of a form while somebody types."""
    try:
        request = live_request(answers, inputs)
    except InputError as error:
        return Panel(problems=tuple(error.problems))
    return panel(plan(request, inputs.catalog, inputs.settings, inputs.template.version))


def panel(made: Plan) -> Panel:
    """A plan, for a page."""
    return Panel(
        verdict=made.verdict,
        word=_WORDS[made.verdict],
        placement=phrases.placement(made, str),
        bar=_bar(made),
        facts=() if made.verdict == "refused" else tuple(facts(made)),
        reasons=made.reasons,
        instead=tuple(
            Instead(
                one.change,
                "" if one.hourly is None else f"{phrases.amount(one.hourly * HOURS_PER_MONTH)} USD a month",
                json.dumps(one.answers) if one.answers else "",
            )
            for one in made.alternatives
        ),
    )


def facts(made: Plan) -> list[Fact]:
    """The figures of a plan that people decide by."""
    found = [*_speed(made), Fact("Price a month", *_price(made))]
    if made.load is not None and made.load.usd_per_million_output_tokens is not None:
        amount = phrases.amount(made.load.usd_per_million_output_tokens)
        found.append(Fact("A million output tokens", f"{amount} USD", "at this load without a pause"))
    found.append(Fact("Replicas", phrases.replicas(made.replicas), f"each on {phrases.accelerators(made, str)}"))
    if later := later_changes(made):
        kind, _, effect = later.partition(", ")
        found.append(Fact("A later change", kind, effect))
    found.append(Fact("Start", f"up to {phrases.seconds(made.startup.expected_seconds)}", "until a replica answers"))
    if made.load is not None and made.load.ttft_seconds is not None:
        found.append(Fact("How sure", made.confidence, f"the speed: {COVERAGE[made.load.coverage]}"))
    return found


def _speed(made: Plan) -> list[Fact]:
    load = made.load
    if load is None or load.ttft_seconds is None or load.tokens_per_second is None:
        return [Fact("Speed", "not known", COVERAGE[load.coverage] if load is not None else "")]
    users = counted(load.users, "user")
    found = [
        Fact("First token", _seconds(load.ttft_seconds.p95), f"for 95 of 100 while {users} ask"),
        Fact("Tokens a second", _rate(load.tokens_per_second.user), "for each user"),
    ]
    if load.head_room_users is not None:
        room = load.head_room_users
        text = f"{counted(room, 'more user')}" if room >= 0 else f"{counted(-room, 'user')} too many"
        found.append(Fact("Room", text))
    return found


def _seconds(band: Band) -> str:
    return f"{phrases.seconds(band.value)} ({phrases.seconds(band.low)} to {phrases.seconds(band.high)})"


def _rate(band: Band) -> str:
    return f"{band.value:.3g} ({band.low:.3g} to {band.high:.3g})"


def _price(made: Plan) -> tuple[str, str]:
    low, high = made.cost.monthly_min, made.cost.monthly_max
    if low is None or high is None:
        return "not known", f"the catalog has no price for {made.accelerator}"
    when = f", prices of {made.cost.price_date}" if made.cost.price_date else ""
    return phrases.between(low, high), f"730 hours{when}"


def _bar(made: Plan) -> Bar:
    memory, count = made.memory_gib, made.accelerator_count
    named = [("weights", "weights", memory.weights), ("cache", "KV cache", memory.kv_cache)]
    named.append(("overhead", "overhead", memory.overhead))
    if memory.free > 0:
        named.append(("free", "free", memory.free))
    total = max(sum(size for _, _, size in named), memory.usable, 1e-9)
    parts, start = [], 0.0
    for kind, name, size in named:
        width = max(size, 0.0) / total * _WIDTH
        width = min(max(width, _SMALLEST if size > 0 else 0.0), _WIDTH - start)
        parts.append(Part(kind, name, phrases.gib(size), round(start, 1), round(width, 1)))
        start += width
    told = ", ".join(f"{part.name} {part.size} GiB" for part in parts)
    limit = min(memory.usable / total, 1.0) * _WIDTH
    if memory.free < 0:
        told += f": {phrases.gib(-memory.free)} GiB too much for {phrases.gib(memory.usable)} GiB"
    each = f"on each of {count} accelerators" if count > 1 else "on the accelerator"
    each = each if made.resources.accelerator_resource else "of the pod's memory"
    caption = f"{phrases.gib(memory.usable - memory.free)} of {phrases.gib(memory.usable)} GiB {each}"
    return Bar(tuple(parts), round(limit, 1), f"Memory: {told}", caption)

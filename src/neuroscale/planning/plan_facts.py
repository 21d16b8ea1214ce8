"""Lists the facts of a plan in words, once: pages, commands, comments and descriptions choose from this list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from neuroscale.core.money_and_time import amount, amounts, duration, pace
from neuroscale.core.printable import counted, noun_for
from neuroscale.planning.load_choice import COVERAGE
from neuroscale.planning.plan import Band, Plan, PlannedLoad

Escape = Callable[[str], str]

VERDICTS = {"fits": "fits", "tight": "fits, but tight", "refused": "refused"}
"""The verdicts of a plan, and of a fit, in words."""


@dataclass(frozen=True)
class Fact:
    """A fact of a plan. `unit`: what the figure counts ("": the figure says it, or counts nothing). `band`: where most
    measurements lie. `more`: what else is to be known of it."""

    label: str
    value: str
    unit: str = ""
    band: str = ""
    more: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.value, self.unit, self.band and f"({self.band})")))


def facts(plan: Plan, name: Escape = str) -> dict[str, Fact]:
    """The facts of a plan by their labels, in the order of a page. `name` escapes names."""
    return {fact.label: fact for fact in (*load_facts(plan.load), *_facts(plan, name))}


def load_facts(load: PlannedLoad | None) -> Iterator[Fact]:
    """How fast the replicas answer under the load, and what a million tokens cost then."""
    if load is None or load.ttft_seconds is None or load.tokens_per_second is None:
        yield Fact("Speed", "not known", more=COVERAGE[load.coverage] if load is not None else "")
        return
    yield _band(
        "First token", load.ttft_seconds.p95, duration, f"for 95 of 100 while {counted(load.users, 'user')} ask"
    )
    yield _band("Tokens a second", load.tokens_per_second.user, pace, "for each user")
    if (room := load.head_room_users) is not None:
        unit = noun_for(room, "more user") if room >= 0 else f"{noun_for(-room, 'user')} too many"
        yield Fact("Room", f"{abs(room):,}", unit)
    if load.usd_per_million_output_tokens is not None:
        million = amount(load.usd_per_million_output_tokens)
        yield Fact("A million output tokens", million, "USD", more="at this load without a pause")


def _band(label: str, band: Band, worded: Callable[[float], str], more: str) -> Fact:
    return Fact(label, worded(band.value), band=f"{worded(band.low)} to {worded(band.high)}", more=more)


def _facts(plan: Plan, name: Escape) -> Iterator[Fact]:
    cost, replicas, memory = plan.cost, plan.replicas, plan.memory_gib
    each = accelerators(plan, name)
    if cost.monthly_min is None or cost.monthly_max is None:
        yield Fact("Price a month", "not known", more=f"the catalog has no price for {name(plan.accelerator)}")
    else:
        dated = f", prices of {cost.price_date}" if cost.price_date else ""
        yield Fact("Price a month", amounts(cost.monthly_min, cost.monthly_max), "USD", more=f"730 h{dated}")
    number = f"{replicas.min:,}" if replicas.min == replicas.max else f"{replicas.min:,} to {replicas.max:,}"
    yield Fact("Replicas", number, "replica" if number == "1" else "replicas", more=f"each on {each}")
    if (way := plan.rollout) is not None:
        effect = "nothing answers" if way.gap_minutes else "one replica fewer answers"
        if way.kind == "surge":
            effect = needs(plan, way.extra_accelerators, name, more=True)
        yield Fact("A later change", way.kind, more=f"{effect} for about {way.minutes:,} min of each change")
    yield Fact("Start", f"up to {duration(plan.startup.expected_seconds)}", more="until a replica answers")
    if plan.load is not None and plan.load.ttft_seconds is not None:
        yield Fact("How sure", plan.confidence, more=f"the speed: {COVERAGE[plan.load.coverage]}")
    yield Fact("Verdict", plan.verdict, more=f"confidence {plan.confidence}")
    yield Fact("Model", name(plan.model))
    yield Fact("Accelerators", each)
    yield Fact("Tensor parallel size", f"{plan.tensor_parallel_size:,}")
    yield Fact("Memory", f"{memory.usable - memory.free:.1f} of {memory.usable:.1f}", "GiB", more="of each accelerator")
    yield Fact("Longest context", f"{plan.max_model_len:,}", "tokens")
    yield Fact("Concurrency", f"{plan.max_concurrency:,}", more="of full length on each replica")
    yield Fact("Runtime", name(plan.runtime.image))
    yield Fact("Cost centre", name(plan.tenancy.cost_center))


def accelerators(plan: Plan, name: Escape = str) -> str:
    """`2 x L4`: of a replica."""
    return f"{plan.accelerator_count:,} x {name(plan.accelerator)}"


def needs(plan: Plan, count: int, name: Escape, *, more: bool = False) -> str:
    """``needs 2 more `nvidia-l4` ``; for pods without an accelerator, their room on the nodes."""
    beside = " more" if more else ""
    if plan.resources.accelerator_resource:
        return f"needs {count:,}{beside} {name(plan.accelerator)}"
    pods = counted(count // max(plan.accelerator_count, 1), f"{beside} pod".strip())
    return f"needs room for {pods} of {plan.resources.cpu:,} CPU and {plan.resources.memory_gib:,} GiB"

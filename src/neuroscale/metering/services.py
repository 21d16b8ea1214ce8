"""Finds the repository's facts about metered services: each cost by the plan that its service had at that time.

Finds metered costs that lack a real price: accelerators that OpenCost does not count, and its placeholder prices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

from neuroscale.catalog.price_list import OPENCOST_DEFAULTS
from neuroscale.core.money_and_time import usd
from neuroscale.core.printable import counted
from neuroscale.costs.node_prices import COUNTED
from neuroscale.metering.allocation import Meter, Metered
from neuroscale.metering.plan_history import PlanHistory, Version
from neuroscale.metering.window import Window
from neuroscale.planning.plan import Plan
from neuroscale.planning.plan_facts import accelerators
from neuroscale.repo.layout import ServicePath

ServiceKey = tuple[str, str, str, int]
"""The cluster as OpenCost names it, the namespace and the name of a service, and the part of the meter."""


@dataclass(frozen=True)
class Estimate:
    """A plan's estimate for a service: US dollars per hour of one replica (None: no price), and its fewest replicas.

    `gpus` and `cpu` (cores) are the resources of one replica that OpenCost counts; `gpus` is 0 for accelerators that
    OpenCost does not count.
    """

    hourly: Decimal | None
    replicas: int
    gpus: int
    cpu: Decimal

    def replica_hours(self, of: Iterable[Metered]) -> Fraction:
        """The metered hours of replicas: by their GPUs, or by their CPU if OpenCost does not count their accelerators.

        OpenCost charges the CPU that a pod used where that is more than it requested.
        """
        if self.gpus:
            return sum((Fraction(one.gpu_hours) for one in of), Fraction(0)) / self.gpus
        return sum((Fraction(one.cpu_core_hours) for one in of), Fraction(0)) / Fraction(self.cpu)


@dataclass(frozen=True)
class ServiceFacts:
    """A service's environment, and its model and accelerator from the plan in the repository.

    `resource`: the extended resource of the accelerator; "" for CPU serving. `estimate`: None if it is not known.
    """

    environment: str
    model: str
    accelerator: str
    resource: str = COUNTED
    estimate: Estimate | None = None


Named = tuple[str, str, str]
"""Environment, namespace and name of a service."""

Facts = Mapping[ServiceKey, ServiceFacts]


@dataclass(frozen=True)
class Planned:
    """What a plan estimated for a service in `window`, a part of the time."""

    window: Window
    estimate: Estimate


@dataclass(frozen=True)
class Promise:
    """The plans of a service in a window, without the times in which it had none.

    `changes`: what was merged or removed within the window, a phrase each, such as `merged on 2026-11-06 10:00 UTC`.
    """

    plans: tuple[Planned, ...]
    changes: tuple[str, ...] = ()


def key_of(one: Metered) -> ServiceKey:
    """The service that a cost belongs to; its name is "" if the cost does not belong to a service."""
    return one.place.cluster, one.place.namespace, one.place.service, one.part


def service_facts(meter: Meter, history: PlanHistory, environments: Iterable[str]) -> dict[ServiceKey, ServiceFacts]:
    """The facts of each metered service that had a plan in the repository.

    A cluster whose name in OpenCost is one of `environments` is that environment. A service in a cluster of another
    name is searched in all environments, and is known if exactly one had it in the same namespace. In each part of the
    meter, the plan of its middle counts; if there was none then, the one before it, or else the one after it.
    """
    names = tuple(environments)
    parts = meter.parts
    found: dict[ServiceKey, ServiceFacts] = {}
    for key in {key_of(one) for one in meter.metered if one.place.service}:
        cluster, namespace, service, part = key
        middle = parts[part].start + (parts[part].end - parts[part].start) / 2
        places = (cluster,) if cluster in names else names
        plans = [
            (place, plan)
            for place in places
            if (plan := _at(history.versions(ServicePath(place, service)), namespace, middle)) is not None
        ]
        if len(plans) == 1:
            ((environment, plan),) = plans
            resource = plan.resources.accelerator_resource
            found[key] = ServiceFacts(environment, plan.model, plan.accelerator, resource, estimate_of(plan))
    return found


def promises(history: PlanHistory, environments: Iterable[str]) -> dict[Named, Promise]:
    """What the plans of all services in these environments estimated, and how they changed, in the history's window."""
    found: dict[Named, Promise] = {}
    for path in history.services(environments):
        versions = history.versions(path)
        for namespace in {one.plan.tenancy.namespace: None for one in versions if one.plan is not None}:
            of = [_in(namespace, one) for one in versions]
            plans = tuple(Planned(window, estimate_of(plan)) for window, plan in of if plan is not None)
            found[path.environment, namespace, path.service] = Promise(plans, _changes(of))
    return found


def compared_environments(metered: Iterable[Metered], facts: Facts, environments: Iterable[str]) -> tuple[str, ...]:
    """The environments that an OpenCost meters: those named like its clusters, and those of its known services."""
    seen = {one.place.cluster for one in metered} | {known.environment for known in facts.values()}
    return tuple(name for name in environments if name in seen)


def estimate_of(plan: Plan) -> Estimate:
    """The estimate in a plan."""
    counts = plan.resources.accelerator_resource == COUNTED
    priced = plan.cost.hourly is not None and plan.replicas.min > 0
    return Estimate(
        hourly=plan.cost.hourly / plan.replicas.min if priced and plan.cost.hourly is not None else None,
        replicas=plan.replicas.min,
        gpus=plan.accelerator_count if counts else 0,
        cpu=Decimal(plan.resources.cpu),
    )


def _at(versions: Sequence[Version], namespace: str, moment: datetime) -> Plan | None:
    """The plan in a namespace at a moment, or the last one before it, or the first one after it."""
    before, after = None, None
    for window, plan in (_in(namespace, one) for one in versions):
        if plan is not None and window.start <= moment:
            before = plan
        elif plan is not None and after is None:
            after = plan
    return before or after


def _in(namespace: str, version: Version) -> tuple[Window, Plan | None]:
    """A version without its plan if that is for another namespace."""
    plan = version.plan
    return version.window, plan if plan is not None and plan.tenancy.namespace == namespace else None


def _changes(versions: Sequence[tuple[Window, Plan | None]]) -> tuple[str, ...]:
    """What became of a service's plans, a phrase for each change."""
    told = []
    for (_, before), (window, after) in itertools.pairwise(versions):
        when = f"on {window.start:%Y-%m-%d %H:%M} UTC"
        if before is None and after is not None:
            told.append(f"merged {when}")
        elif before is not None and after is None:
            told.append(f"removed {when}")
        elif before is not None and after is not None and (parts := _differences(before, after)):
            told.append(f"changed {when} ({', '.join(parts)})")
    return tuple(told)


def _differences(before: Plan, after: Plan) -> list[str]:
    """What differs between two plans of a service that its cost depends on."""

    def priced_by(plan: Plan) -> tuple[str, ...]:
        hourly = estimate_of(plan).hourly
        price = "no price" if hourly is None else f"{usd(hourly)} an hour of a replica"
        return plan.model, accelerators(plan), counted(plan.replicas.min, "replica"), price

    return [f"{old} to {new}" for old, new in zip(priced_by(before), priced_by(after), strict=True) if old != new]


_WHOLE = Fraction(3, 4)
"""The share of a plan's hourly price from which on the CPU and memory of a replica must hold its accelerator's price.

Some price lists give a node one price for CPU and memory together, of which a replica pays what it requests of both.
"""
_ROUNDED = Decimal("0.00002")  # US dollars: OpenCost rounds costs to five decimals, and hours, too
_CLOSE = Decimal("0.0002")
_LEAST = Decimal("0.002")  # US dollars, below which rounding hides what the price is

_UNITS: Final = {"GPU": "a GPU", "CPU": "a CPU core", "RAM": "a GiB of memory"}


def without_accelerator(one: Metered, known: ServiceFacts) -> bool:
    """Whether OpenCost charges a service's pods without the accelerator in its plan.

    OpenCost 1.108 counts hours of `nvidia.com/gpu` alone. What holds a TPU, an AMD GPU or a part of a GPU (MIG) has no
    hours, so its cost is that of CPU and memory, which rarely hold the accelerator's price.
    """
    if one.kind != "pods" or not known.resource or one.gpu_hours > 0:
        return False
    plan = known.estimate
    if plan is None or plan.hourly is None or one.cpu_core_hours <= 0:
        return True
    replica_hours = Fraction(one.cpu_core_hours) / Fraction(plan.cpu)
    return Fraction(one.total) < _WHOLE * Fraction(plan.hourly) * replica_hours


def costs_nothing(one: Metered) -> bool:
    """Whether OpenCost charges nothing for the accelerators or the CPU of pods, whose node then has no price."""
    return (one.gpu_hours > 0 and one.gpu <= 0) or (one.cpu_core_hours > 0 and one.cpu <= 0 and one.total <= 0)


def placeholders(one: Metered) -> tuple[str, ...]:
    """The parts (GPU, CPU, RAM) of pods for which OpenCost charges its placeholder."""
    parts = (
        ("GPU", one.gpu, one.gpu_hours),
        ("CPU", one.cpu, one.cpu_core_hours),
        ("RAM", one.memory, one.memory_gib_hours),
    )
    return tuple(part for part, cost, hours in parts if _is_placeholder(cost, OPENCOST_DEFAULTS[part] * hours))


def at_placeholders_alone(one: Metered) -> bool:
    """Whether no accelerator with a price of its own stands beside the placeholders that pods are charged by."""
    found = placeholders(one)
    return "GPU" in found or (bool(found) and one.gpu <= 0)


def why_unpriced(costs: Iterable[tuple[Metered, ServiceFacts | None]]) -> str:
    """Why the costs of a service, with what is known of it, are not those of its machines; "" if they may be."""
    found = list(costs)
    bare = sorted({known.resource for one, known in found if known is not None and without_accelerator(one, known)})
    if bare:
        return f"OpenCost counts no hours of {', '.join(bare)}, and charges CPU and memory without the accelerator"
    if any(at_placeholders_alone(one) for one, _ in found):
        return "OpenCost charges its placeholder prices for it"
    return "OpenCost charges nothing for a part of it" if any(costs_nothing(one) for one, _ in found) else ""


def shown(part: str) -> str:
    """`0.95 USD for an hour of a GPU`."""
    return f"{usd(OPENCOST_DEFAULTS[part])} for an hour of {_UNITS[part]}"


def _is_placeholder(cost: Decimal, expected: Decimal) -> bool:
    return expected > _LEAST and abs(cost - expected) <= _ROUNDED + _CLOSE * expected

"""Finds the repository's facts about metered services: each cost by the plan that its service had at that time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

from neuroscale.core.plurals import counted
from neuroscale.metering.allocation import Meter, Metered
from neuroscale.metering.plan_history import PlanHistory, Version
from neuroscale.metering.window import Window
from neuroscale.planning.plan import Plan
from neuroscale.repo.layout import ServicePath

COUNTED: Final = "nvidia.com/gpu"
"""The one extended resource whose hours OpenCost 1.108 counts."""

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

    def devices(plan: Plan) -> str:
        return f"{plan.accelerator_count} x {plan.accelerator}"

    def price(plan: Plan) -> str:
        hourly = estimate_of(plan).hourly
        return "no price" if hourly is None else f"{hourly.normalize():f} USD an hour of a replica"

    def replicas(plan: Plan) -> str:
        return counted(plan.replicas.min, "replica")

    shown = (lambda plan: plan.model, devices, replicas, price)
    return [f"{of(before)} to {of(after)}" for of in shown if of(before) != of(after)]

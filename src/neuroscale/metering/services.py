"""Reads the repository's facts about metered services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import decode
from neuroscale.metering.allocation import Metered
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE, ServicePath
from neuroscale.repo.snapshot import Snapshot

_COUNTED = "nvidia.com/gpu"  # the one extended resource whose hours OpenCost counts

ServiceKey = tuple[str, str, str]
"""The cluster as OpenCost names it, the namespace and the name of a service."""


@dataclass(frozen=True)
class ServiceFacts:
    """A service's environment, and its model and accelerator from the plan in the repository."""

    environment: str
    model: str
    accelerator: str


Named = tuple[str, str, str]
"""Environment, namespace and name of a service."""

Facts = Mapping[ServiceKey, ServiceFacts]


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


def key_of(one: Metered) -> ServiceKey:
    """The service that a cost belongs to; its name is "" if the cost does not belong to a service."""
    return one.place.cluster, one.place.namespace, one.place.service


def service_facts(
    metered: Iterable[Metered], snapshot: Snapshot, environments: Iterable[str]
) -> dict[ServiceKey, ServiceFacts]:
    """The facts of each metered service that has a plan in the repository.

    A cluster whose name in OpenCost is one of `environments` is that environment. A service in a cluster of another
    name is searched in all environments, and is known if exactly one has it in the same namespace.
    """
    names = tuple(environments)
    found: dict[ServiceKey, ServiceFacts] = {}
    for key in {key_of(one) for one in metered if one.place.service}:
        cluster, namespace, service = key
        places = (cluster,) if cluster in names else names
        plans = [(place, plan) for place in places if (plan := _plan(snapshot, place, service)) is not None]
        same = [(place, plan) for place, plan in plans if plan.tenancy.namespace == namespace]
        if len(same) == 1:
            ((environment, plan),) = same
            found[key] = ServiceFacts(environment, plan.model, plan.accelerator)
    return found


def estimates(snapshot: Snapshot, environments: Iterable[str]) -> dict[Named, Estimate]:
    """The estimates in the plans of all services in these environments."""
    found: dict[Named, Estimate] = {}
    for environment in environments:
        entries = snapshot.entries(f"{MANIFESTS}/{environment}")
        for service in sorted({path for entry in entries if (path := ServicePath.of(entry.path)) is not None}, key=str):
            plan = _plan(snapshot, environment, service.service)
            if plan is not None:
                found[environment, plan.tenancy.namespace, service.service] = _estimate(plan)
    return found


def compared_environments(metered: Iterable[Metered], facts: Facts, environments: Iterable[str]) -> tuple[str, ...]:
    """The environments that an OpenCost meters: those named like its clusters, and those of its known services."""
    seen = {one.place.cluster for one in metered} | {known.environment for known in facts.values()}
    return tuple(name for name in environments if name in seen)


def _estimate(plan: Plan) -> Estimate:
    counted = plan.resources.accelerator_resource == _COUNTED
    return Estimate(
        hourly=None if plan.cost.hourly is None else plan.cost.hourly / plan.replicas.min,
        replicas=plan.replicas.min,
        gpus=plan.accelerator_count if counted else 0,
        cpu=Decimal(plan.resources.cpu),
    )


def _plan(snapshot: Snapshot, environment: str, service: str) -> Plan | None:
    path = f"{ServicePath(environment, service).folder}/{PLAN_FILE}"
    try:
        data = snapshot.read(path)
        return None if data is None else load_plan(decode(data, path), path)
    except InputError:
        return None

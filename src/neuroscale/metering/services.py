"""What the repository knows of the services that were metered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import decode
from neuroscale.metering.allocation import Metered
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.repo.layout import PLAN_FILE, ServicePath
from neuroscale.repo.snapshot import Snapshot

ServiceKey = tuple[str, str, str]
"""The cluster as OpenCost names it, the namespace and the name of a service."""


@dataclass(frozen=True)
class ServiceFacts:
    """A service's environment, and its model and accelerator by the plan in the repository."""

    environment: str
    model: str
    accelerator: str


Facts = Mapping[ServiceKey, ServiceFacts]


def key_of(one: Metered) -> ServiceKey:
    """The service that a cost belongs to; its name is "" where it belongs to none."""
    return one.place.cluster, one.place.namespace, one.place.service


def service_facts(
    metered: Iterable[Metered], snapshot: Snapshot, environments: Iterable[str]
) -> dict[ServiceKey, ServiceFacts]:
    """The facts of each metered service that has a plan in the repository.

    A cluster whose name in OpenCost is one of `environments` is that environment. In a cluster of another name, a
    service is looked for in all of them, and is known where exactly one has it in the same namespace.
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


def _plan(snapshot: Snapshot, environment: str, service: str) -> Plan | None:
    path = f"{ServicePath(environment, service).folder}/{PLAN_FILE}"
    try:
        data = snapshot.read(path)
        return None if data is None else load_plan(decode(data, path), path)
    except InputError:
        return None

"""The one service that a command asks for: its name, environment and namespace, from the cluster or this clone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.core.errors import InputError, Problem


@dataclass(frozen=True)
class Service:
    """A service of a cluster. `live`: whether its InferenceService is there."""

    name: str
    namespace: str
    environment: str
    live: bool


def one_service(found: Sequence[ServiceStatus], name: str) -> Service:
    """The one of them. Raises InputError where there is none, or several of the name."""
    there = [one for one in found if one.namespace]
    if len(there) > 1:
        places = ", ".join(sorted(f"{one.environment or '?'}/{one.name} (namespace {one.namespace})" for one in there))
        raise InputError(Problem("the command line", "SERVICE", f"{name!r} is several: {places}", "Add --environment."))
    if not there:
        fix = next((one.next for one in found if one.next), "Ask for it: neuroscale request --interactive")
        raise InputError(Problem("the command line", "SERVICE", f"{name!r} is no service of this cluster", fix))
    (one,) = there
    return Service(one.name, one.namespace, one.environment, one.generation is not None)

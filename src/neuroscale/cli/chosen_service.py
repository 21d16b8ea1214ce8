"""Reads from the command line which services to ask a cluster about, and finds the one that is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.cluster.service_status_reader import Question
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.repo.layout import MANIFESTS, REQUEST_FILE


@dataclass(frozen=True)
class Service:
    """A service of a cluster. `live`: whether its InferenceService exists there."""

    name: str
    namespace: str
    environment: str
    live: bool


def services_asked(service: str, environment: str, inputs: PlanningInputs) -> Question:
    """The services to ask about: `service` is a name, ENVIRONMENT/NAME, a service's folder, or "" for all.

    Raises InputError if the environment is not one of the settings, or is named twice.
    """
    parts = PurePosixPath(service).parts
    if parts[:1] == (MANIFESTS,):
        parts = parts[1:]
    if len(parts) > 2 or (service and not parts):
        raise InputError(
            Problem(
                "the command line",
                "SERVICE",
                f"{service!r} does not name a service",
                "Name it, or ENVIRONMENT/SERVICE.",
            )
        )
    if len(parts) == 2:
        if environment not in ("", parts[0]):
            message = f"{service!r} is not in the environment {environment!r}"
            raise InputError(Problem("the command line", "SERVICE", message, "Name the environment once."))
        environment = parts[0]
    if environment and environment not in inputs.settings.environments:
        message = f"{environment!r} is not an environment of the settings"
        fix = suggest(environment, inputs.settings.environments)
        raise InputError(Problem("the command line", "--environment", message, fix))
    namespaces = sorted({team.namespace for team in inputs.catalog.teams.values()})
    return Question(tuple(namespaces), environment, parts[-1] if parts else "")


def environment_of(asked: Question, root: Path) -> str:
    """The environment of the service that is asked about: the named one, else the only one in which this checkout holds
    a service of its name; "" if there is none, or more than one.
    """
    if asked.environment or not asked.name:
        return asked.environment
    holding = [path.parent.parent.name for path in root.glob(f"{MANIFESTS}/*/{asked.name}/{REQUEST_FILE}")]
    return holding[0] if len(holding) == 1 else ""


def one_service(found: Sequence[ServiceStatus], name: str) -> Service:
    """The only service of the name. Raises InputError if there is none, or more than one."""
    there = [one for one in found if one.namespace]
    if len(there) > 1:
        places = ", ".join(sorted(f"{one.environment or '?'}/{one.name} (namespace {one.namespace})" for one in there))
        raise InputError(
            Problem(
                "the command line",
                "SERVICE",
                f"{name!r} is the name of several services: {places}",
                "Add --environment.",
            )
        )
    if not there:
        fix = next((one.next for one in found if one.next), "Ask for it: neuroscale request --interactive")
        raise InputError(Problem("the command line", "SERVICE", f"{name!r} is not a service of this cluster", fix))
    (one,) = there
    return Service(one.name, one.namespace, one.environment, one.generation is not None)

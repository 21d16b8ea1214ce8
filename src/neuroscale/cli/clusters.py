"""Which cluster a command asks, and which services of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from neuroscale.cli.context import Context
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.kube.client import Cluster
from neuroscale.repo.layout import MANIFESTS

if TYPE_CHECKING:
    from neuroscale.cluster.service_status_reader import Question
    from neuroscale.local.state import State


@dataclass(frozen=True)
class Where:
    """The cluster to ask: a local platform's, or a context of a kubeconfig (None: the usual ones)."""

    context: str | None = None
    kubeconfig: Path | None = None
    state: Path | None = None


def local_state(where: Where) -> State | None:
    """The local platform that is asked; None for another cluster. Raises InputError where it holds no cluster."""
    if where.state is None:
        return None
    from neuroscale.local.state import State

    if where.kubeconfig is not None or where.context is not None:
        message = "names two clusters"
        raise InputError(
            Problem("the command line", "--state", message, "Give --state, or --context and --kubeconfig.")
        )
    found = State.read(where.state)
    if found is None or not found.instance.cluster or not found.instance.ports:
        raise _no_cluster(where.state)
    return found


def open_cluster(where: Where) -> Cluster:
    """The cluster, which the caller closes. Raises InputError where there is none."""
    state = local_state(where)
    if state is None:
        return Cluster.of_kubeconfig(where.kubeconfig, where.context)
    from neuroscale.local.control_plane import kubeconfig

    path = kubeconfig(state)
    if not path.exists():
        raise _no_cluster(state.folder)
    return Cluster.of_kubeconfig(path, None)


def question(service: str, environment: str, context: Context) -> Question:
    """Which services are asked about: `service` is a name, ENVIRONMENT/NAME, a service's folder, or "" for all.

    Raises InputError where the environment is none of the settings', or named twice.
    """
    from neuroscale.cluster.service_status_reader import Question

    parts = PurePosixPath(service).parts
    if parts[:1] == (MANIFESTS,):
        parts = parts[1:]
    if len(parts) > 2 or (service and not parts):
        raise InputError(
            Problem("the command line", "SERVICE", f"{service!r} names no service", "Name it, or ENVIRONMENT/SERVICE.")
        )
    if len(parts) == 2:
        if environment not in ("", parts[0]):
            message = f"{service!r} is not in the environment {environment!r}"
            raise InputError(Problem("the command line", "SERVICE", message, "Name the environment once."))
        environment = parts[0]
    if environment and environment not in context.settings.environments:
        message = f"{environment!r} is not an environment of the settings"
        fix = suggest(environment, context.settings.environments)
        raise InputError(Problem("the command line", "--environment", message, fix))
    namespaces = sorted({team.namespace for team in context.catalog.teams.values()})
    return Question(tuple(namespaces), environment, parts[-1] if parts else "")


def _no_cluster(folder: Path) -> InputError:
    return InputError(Problem(str(folder), "", "holds no cluster", "Start one: neuroscale local up --cluster"))

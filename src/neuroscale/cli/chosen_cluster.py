"""Opens the cluster that a command's options choose: a context of a kubeconfig, or a local platform's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from neuroscale.core.errors import InputError, Problem

if TYPE_CHECKING:
    from neuroscale.catalog.settings import Environment, Settings
    from neuroscale.cluster.endpoint.curl import Way
    from neuroscale.kube.client import Cluster
    from neuroscale.local.state import State

_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Where:
    """The cluster to ask: a local platform's, or a context of a kubeconfig (None: the defaults)."""

    context: str | None = None
    kubeconfig: Path | None = None
    state: Path | None = None

    @property
    def options(self) -> list[str]:
        """The options that name it, for a command that a user pastes."""
        named = {
            "--state": self.state and self.state.absolute(),
            "--kubeconfig": self.kubeconfig and self.kubeconfig.absolute(),
            "--context": self.context,
        }
        return [f"{name}={value}" for name, value in named.items() if value]


def local_state(where: Where) -> State | None:
    """The chosen local platform; None for another cluster. Raises InputError if the platform has no cluster."""
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


def gateway_way(state: State) -> Way | None:
    """The way to the hosts of a local platform's services; None without a gateway."""
    from neuroscale.cluster.endpoint.curl import Way
    from neuroscale.local.control_plane import control_plane
    from neuroscale.local.gateway import NAME, REDIRECT

    ports = state.instance.ports
    return Way(control_plane(state).authority_file, ports[NAME], ports.get(REDIRECT, 0)) if NAME in ports else None


def open_cluster(where: Where) -> Cluster:
    """The cluster, which the caller closes. Raises InputError if there is none."""
    from neuroscale.kube.client import Cluster

    state = local_state(where)
    if state is None:
        return Cluster.of_kubeconfig(where.kubeconfig, where.context)
    from neuroscale.local.control_plane import kubeconfig

    path = kubeconfig(state)
    if not path.exists():
        raise _no_cluster(state.folder)
    cluster = Cluster.of_kubeconfig(path, None)
    cluster.own_options = (f"--state={state.folder}",)
    return cluster


def configured(
    environment: str, settings: Settings, of: Callable[[Environment], _Part], program: str, ambiguous: Problem
) -> tuple[str, _Part]:
    """The environment whose `program` is asked ("": the one that all clusters share), and where its settings name it.

    Raises InputError, with the field and the fix of `ambiguous`, where none is named and the environments differ.
    """
    if environment:
        return environment, of(settings.environments[environment])
    known = {name: of(one) for name, one in settings.environments.items() if one.cluster != "local"}
    if len(set(known.values())) > 1:
        raise InputError(replace(ambiguous, message=f"the environments have different {program} Services"))
    first = next(iter(settings.environments))
    return next(iter(known.items()), (first, of(settings.environments[first])))


def _no_cluster(folder: Path) -> InputError:
    return InputError(Problem(str(folder), "", "does not hold a cluster", "Start one: neuroscale local up --cluster"))

"""Opens the cluster that a command's options choose: a context of a kubeconfig, or a local platform's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.core.errors import InputError, Problem

if TYPE_CHECKING:
    from neuroscale.kube.client import Cluster
    from neuroscale.local.state import State


@dataclass(frozen=True)
class Where:
    """The cluster to ask: a local platform's, or a context of a kubeconfig (None: the defaults)."""

    context: str | None = None
    kubeconfig: Path | None = None
    state: Path | None = None


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
    return Cluster.of_kubeconfig(path, None)


def _no_cluster(folder: Path) -> InputError:
    return InputError(Problem(str(folder), "", "does not hold a cluster", "Start one: neuroscale local up --cluster"))

"""What the local platform consists of: the one list of its processes."""

from __future__ import annotations

from pathlib import Path

from neuroscale.catalog import load_catalog
from neuroscale.errors import InputError, Problem
from neuroscale.local import control_plane
from neuroscale.local import kwok as kwok_module
from neuroscale.local.gitea import NAME as GITEA
from neuroscale.local.gitea import Gitea
from neuroscale.local.kwok import Kwok
from neuroscale.local.nodes import simulated_nodes
from neuroscale.local.process import Process
from neuroscale.local.runner import NAME as RUNNER
from neuroscale.local.runner import Runner
from neuroscale.local.state import State
from neuroscale.settings import load_settings
from neuroscale.snapshot import FolderSnapshot
from neuroscale.toolcache import REPOSITORY
from neuroscale.validation import suggest

_FORGE_PORTS = (GITEA, RUNNER)
_CLUSTER_PORTS = (*control_plane.PORTS, *kwok_module.PORTS)


def ports(state: State) -> tuple[str, ...]:
    """The names of the ports that must be chosen before anything else here is asked."""
    return (*_FORGE_PORTS, *(_CLUSTER_PORTS if state.instance.cluster else ()))


def prepare(state: State, checkout: Path | None) -> None:
    """Write what the processes need before they start. Raises InputError, LocalError or UntrustedError.

    `checkout`: whose settings and catalog say which nodes the cluster gets (None: this package's repository).
    """
    if state.instance.cluster:
        nodes = _nodes(state, FolderSnapshot(checkout or REPOSITORY))
        control_plane.prepare(state)
        Kwok(state).prepare(nodes)
    Gitea(state).prepare()
    Runner(state).prepare()


def processes(state: State) -> list[Process]:
    """Every process of the local platform."""
    forge = [Gitea(state).process(), Runner(state).process()]
    if not state.instance.cluster:
        return forge
    return [*forge, *control_plane.processes(state), Kwok(state).process()]


def forge_url(state: State) -> str:
    """Where the forge answers."""
    return Gitea(state).url


def _nodes(state: State, snapshot: FolderSnapshot) -> list[dict[str, object]]:
    settings = load_settings(snapshot)
    for name in state.instance.environments:
        if name not in settings.environments:
            fix = suggest(name, settings.environments)
            raise InputError(Problem("the command line", "--environment", f"{name!r} is not in the settings", fix))
    return simulated_nodes(settings, load_catalog(snapshot), state.instance.environments)

"""What the local platform consists of: the one list of its processes."""

from __future__ import annotations

from neuroscale.local.gitea import NAME as GITEA
from neuroscale.local.gitea import Gitea
from neuroscale.local.process import Process
from neuroscale.local.runner import NAME as RUNNER
from neuroscale.local.runner import Runner
from neuroscale.local.state import State

PORTS = (GITEA, RUNNER)
"""The names of the ports that must be chosen before anything else here is asked."""


def prepare(state: State) -> None:
    """Write what the processes need before they start. Raises InputError, LocalError or UntrustedError."""
    for part in (Gitea(state), Runner(state)):
        part.prepare()


def processes(state: State) -> list[Process]:
    """Every process of the local platform."""
    return [Gitea(state).process(), Runner(state).process()]


def forge_url(state: State) -> str:
    """Where the forge answers."""
    return Gitea(state).url

"""Sets the node up as a part of the local platform: its user, its rights, its process."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Object
from neuroscale.local.cluster_parts import rights
from neuroscale.local.control_plane import API_SERVER, cluster, control_plane
from neuroscale.local.kwok import GROUP, RESOURCES
from neuroscale.local.kwok import NAME as KWOK
from neuroscale.local.node import read_only_root
from neuroscale.local.node.agent import Agent, Health
from neuroscale.local.node.container import Keeper
from neuroscale.local.node.copied_vllm import installed_vllm, pinned_version, usable_by_user
from neuroscale.local.node.events import Events
from neuroscale.local.node.launch import LocalVllm
from neuroscale.local.node.probes import Prober
from neuroscale.local.node.registration import Capacity, Machine, Registration
from neuroscale.local.process import PODS, Process, answers
from neuroscale.local.state import PASSABLE, LocalError, State
from neuroscale.local.users import User

NAME: Final = "node"
PORTS = (NAME,)
NODE: Final = "this-machine"
"""The node's name in the cluster."""

_USER: Final = f"system:node:{NODE}"
_ROLE = "neuroscale:node"
_LOOK_AGAIN = 5.0  # seconds until the next search for a missing vLLM
_VARIABLES = ("HOME", "NEUROSCALE_CACHE", "XDG_CACHE_HOME")


@dataclass(frozen=True)
class Node:
    """The node of a local platform. The ports must have been chosen."""

    state: State

    @property
    def folder(self) -> Path:
        return self.state.run / NAME

    def prepare(self) -> None:
        """Make its folders, its account and the account of model servers."""
        for folder in (self.folder, self.folder / PODS, self.folder / "programs"):
            self.state.make_folder(folder, None, PASSABLE)
        control_plane(self.state).add_user(NAME, _USER, ("system:nodes",))

    def process(self) -> Process:
        """The process for the supervisor. Like a kubelet, it runs as the user who started the platform, and pods as
        another user."""
        port = self.state.instance.ports[NAME]
        vllm = installed_vllm()
        return Process(
            name=NAME,
            argv=(sys.executable, "-P", "-m", "neuroscale.local.node", str(self.state.folder)),
            environment={
                "PATH": os.defpath,
                "LANG": "C.UTF-8",
                **{name: os.environ[name] for name in _VARIABLES if name in os.environ},
            },
            folder=self.folder,
            user=None,
            ready=lambda: answers(f"http://{LOOPBACK}:{port}/healthz"),
            port=port,
            needs=(API_SERVER, KWOK),
            # A new vLLM means a new agent; the processes of pods go on.
            settings=vllm if isinstance(vllm, str) else f"{vllm.environment.name} {vllm.models.name}",
            prepare=self._apply,
        )

    def notes(self) -> tuple[str, ...]:
        """The faults of this machine that affect models, in sentences."""
        vllm = installed_vllm()
        notes = [f"No model can be served here, and pods of services wait. {vllm}"] if isinstance(vllm, str) else []
        if self.state.model_user is None:
            notes.append("Model servers run as the user who started them, so they can read its files.")
        if problem := read_only_root.problem():
            notes.append(f"Pods that ask for a read-only root file system get a writable one here. {problem}")
        return tuple(notes)

    def _apply(self) -> None:
        """Apply the rights that this node needs beyond those of every node."""
        with cluster(self.state) as found:
            apply_all(found, access(_USER, _ROLE))


def run(state: State, say: Callable[[str], None]) -> tuple[Agent, Health]:
    """Run the agent, and the address that answers for its health."""
    node, live = Node(state), cluster(state, NAME)
    capacity = Capacity.of_this_machine(node.folder)
    log_reader = state.cluster_user
    finder = _Finder(node.folder / "programs", state.model_user, say)
    machine = Machine(
        name=NODE,
        host=LOOPBACK,
        cpu=capacity.cores,
        memory=capacity.memory,
        folder=node.folder / PODS,
        cluster=live,
        keeper=Keeper(state.instance.id, state.model_user, log_reader.gid if log_reader else None),
        server=finder,
        events=Events(live, NODE),
        prober=Prober(),
        say=say,
        root_problem=read_only_root.problem(),
    )
    registration = Registration(live, NODE, state.instance.ports[KWOK], capacity, finder().version)
    agent = Agent(machine, registration)
    return agent, Health(state.instance.ports[NAME], agent.problem)


@dataclass
class _Finder:
    """Finds vLLM on this machine; while it is missing, it searches again and again."""

    folder: Path
    user: User | None
    say: Callable[[str], None]
    _found: LocalVllm | None = None
    _looked: float = -float("inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> LocalVllm:
        with self._lock:
            usable = self._found is not None and self._found.problem is None
            if self._found is None or (not usable and time.monotonic() - self._looked > _LOOK_AGAIN):
                found = self._look()
                if self._found is None or found.problem != self._found.problem:
                    self.say(found.problem or f"vLLM {found.version} runs with {found.python}")
                self._found, self._looked = found, time.monotonic()
            return self._found

    def _look(self) -> LocalVllm:
        vllm = installed_vllm()
        if isinstance(vllm, str):
            return LocalVllm(Path(), pinned_version(), Path(), vllm)
        try:
            return usable_by_user(vllm, self.folder, self.user)
        except LocalError as error:
            return LocalVllm(Path(), vllm.version, Path(), str(error))


def access(user: str, role: str) -> list[Object]:
    """The objects that let a node's user write the objects that KWOK reads for its pods."""
    rule = {"apiGroups": [GROUP], "resources": list(RESOURCES), "verbs": ["get", "create", "patch", "delete"]}
    return rights(user, role, [rule])

"""A node's agent on a real API server, with a small program in vLLM's place."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

import model_server_stand_in
from api_server import ApiServer
from folder_in_memory import ON_DISK
from neuroscale.core.tool_cache import find_tool
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.local.kwok import KINDS
from neuroscale.local.node import read_only_root
from neuroscale.local.node.agent import Agent
from neuroscale.local.node.container import Keeper
from neuroscale.local.node.events import Events
from neuroscale.local.node.launch import LocalVllm
from neuroscale.local.node.probes import Prober
from neuroscale.local.node.registration import Capacity, Machine, Registration
from neuroscale.local.node.service import access
from neuroscale.local.process import PODS, belonging, end
from roots import CHECKOUT

VERSION = "9.9.9"
IMAGE = f"vllm/vllm-openai-cpu:v{VERSION}"
WITHIN = 60.0
_numbers = itertools.count()


class NodeLab:
    """A node of its own in a namespace of its own."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        number = next(_numbers)
        self.name = f"node-{os.getpid()}-{number}"
        self.namespace = f"pods-{os.getpid()}-{number}"
        self.folder = folder
        self.cluster = server.cluster
        self.instance = secrets.token_hex(8)
        user = f"system:node:{self.name}"
        server.plane.add_user(self.name, user, ("system:nodes",))
        self.own = Cluster.of_control_plane(server.plane, self.name)
        folder_of_kinds = find_tool("kwok").files / "kustomize" / "crd" / "bases"
        found = [yaml.safe_load(path.read_text()) for path in folder_of_kinds.glob("*.yaml")]
        names = ("default", self.namespace, "kube-node-lease")
        namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]
        kinds = [one for one in found if one["spec"]["names"]["kind"] in KINDS]
        apply_all(self.cluster, [*kinds, *namespaces, *access(user, f"test:{self.name}")])
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{model_server_stand_in.__file__}" "$@"\n')
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        self.problem: str | None = None
        self.root_problem = read_only_root.problem()
        self.said: list[str] = []
        self.prober = Prober()
        (folder / PODS).mkdir()
        (folder / "cache" / "modelinfos").mkdir(parents=True)
        (folder / "cache" / "modelinfos" / "model.json").write_text("{}")
        self.agent = self._start()

    def _start(self) -> Agent:
        machine = Machine(
            name=self.name,
            host="127.0.0.1",
            cpu=2,
            memory=2**33,
            folder=self.folder / PODS,
            cluster=self.own,
            keeper=Keeper(self.instance, None, None),
            server=lambda: LocalVllm(
                self.folder / "python",
                VERSION,
                self.folder,
                self.problem,
                libraries=CHECKOUT,  # with the stand-in, which a server with a folder at /tmp must see, too
                cache=self.folder / "cache",
            ),
            events=Events(self.own, self.name),
            prober=self.prober,
            say=self.said.append,
            root_problem=self.root_problem,
        )
        capacity = Capacity(2, 2**33, 2**36)
        agent = Agent(machine, Registration(self.own, self.name, 1, capacity, VERSION))
        self._thread = threading.Thread(target=agent.run)
        self._thread.start()
        self.wait(lambda: agent.problem() is None, "the node is there")
        return agent

    def leave(self) -> None:
        """End the agent alone."""
        self.agent.stop()
        self._thread.join(20)

    def start_again(self) -> None:
        """Start an agent that knows only the files in the node's folder."""
        self.agent = self._start()

    def close(self) -> None:
        """End everything."""
        self.leave()
        end(lambda: belonging(self.instance), patience=0.0)
        for pod in self.cluster.list("v1", "Pod", self.namespace):
            path = self.cluster.path("v1", "Pod", self.namespace, pod["metadata"]["name"])
            self.cluster.request("DELETE", path, {"gracePeriodSeconds": "0"})
        self.cluster.delete(Identity("v1", "Node", "", self.name))
        self.prober.close()
        self.own.close()

    # ------------------------------------------------------------ pods

    def run(self, name: str, behaviour: str = "ok", *, container: Any = None, **spec: Any) -> Object:
        """Create a pod that is bound to the node."""
        main = {
            "name": "main",
            "image": IMAGE,
            "command": ["vllm", "serve"],
            "args": ["--port=8080", f"--served-model-name={behaviour}"],
            "ports": [{"containerPort": 8080}],
            "startupProbe": probe(failureThreshold=60),
            "readinessProbe": probe(),
            "livenessProbe": probe(failureThreshold=2),
            **(container or {}),
        }
        return self.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "nodeName": self.name,
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": False,
                    "containers": [main],
                    **spec,
                },
            }
        )

    def pod(self, name: str) -> Object | None:
        return self.cluster.get("v1", "Pod", name, self.namespace)

    def status(self, name: str) -> Object:
        """The status of the pod's container; empty before it exists."""
        statuses = ((self.pod(name) or {}).get("status") or {}).get("containerStatuses") or [{}]
        return dict(statuses[0])

    def state(self, name: str) -> Object:
        return dict(self.status(name).get("state") or {})

    def reason(self, name: str) -> str:
        """Why the container waits."""
        return str((self.state(name).get("waiting") or {}).get("reason", ""))

    def condition(self, name: str, kind: str = "Ready") -> str:
        status = (self.pod(name) or {}).get("status") or {}
        return next((one["status"] for one in status.get("conditions") or () if one["type"] == kind), "")

    def is_ready(self, name: str) -> bool:
        return self.condition(name) == "True"

    def delete(self, name: str, grace: int | None = None) -> None:
        path = self.cluster.path("v1", "Pod", self.namespace, name)
        self.cluster.request("DELETE", path, {} if grace is None else {"gracePeriodSeconds": str(grace)})

    def messages(self, name: str, reason: str) -> list[str]:
        """The messages of the pod's events of a reason."""
        found = self.cluster.list("v1", "Event", self.namespace)
        return [one["message"] for one in found if (one["involvedObject"]["name"], one["reason"]) == (name, reason)]

    def events(self, name: str) -> list[str]:
        """The reasons of the pod's events."""
        found = self.cluster.list("v1", "Event", self.namespace)
        return [one["reason"] for one in found if one["involvedObject"]["name"] == name]

    def log(self, name: str, which: str = "current") -> str:
        """The container's log, in the format that the node writes."""
        pod = self.pod(name)
        assert pod is not None
        return self.log_of(pod["metadata"]["uid"], which)

    def log_of(self, uid: str, which: str = "current") -> str:
        return (self.folder / PODS / uid / "logs" / "main" / f"{which}.log").read_text()

    def process(self, name: str) -> int:
        """The process of the pod's container."""
        words = self.log(name).split("I am process ")[-1]
        return int(words.split()[0])

    def running(self) -> int:
        """How many processes pods have."""
        return len(list(belonging(self.instance)))

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = WITHIN) -> None:
        ends = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > ends:
                pods = [one.get("status") for one in self.cluster.list("v1", "Pod", self.namespace)]
                raise AssertionError(f"after {seconds:g} s: {what}\n{pods}\n" + "\n".join(self.said[-20:]))
            time.sleep(0.1)

    def wait_ready(self, name: str) -> None:
        self.wait(lambda: self.is_ready(name), f"{name} is ready")


def probe(**changes: Any) -> Object:
    return {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5, **changes}


@contextmanager
def node_lab(server: ApiServer) -> Iterator[NodeLab]:
    """A node, which ends with all its processes."""
    folder = Path(tempfile.mkdtemp(prefix="neuroscale-node-", dir=ON_DISK))
    try:
        lab = NodeLab(server, folder)
        try:
            yield lab
        finally:
            lab.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def exists(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

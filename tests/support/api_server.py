"""A real Kubernetes API server for tests: etcd and kube-apiserver, with certificates, in a folder of its own.

It has no controllers: nothing makes service accounts, ReplicaSets or pods, and an object stays as it was applied.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from neuroscale.kube.client import Cluster
from neuroscale.kube.control_plane import ControlPlane, Ports

_STARTS_WITHIN = 120.0  # seconds; four on an idle machine
_STOPS_WITHIN = 15.0


@dataclass(frozen=True)
class ApiServer:
    """The running server. `cluster` speaks to it as its administrator; tests share it, so each uses namespaces of its
    own."""

    plane: ControlPlane
    cluster: Cluster

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; its only context is `context`."""
        return self.plane.kubeconfig

    @property
    def context(self) -> str:
        return "neuroscale-local"

    def kubeconfig_of(self, user: str, groups: Sequence[str] = ()) -> Path:
        """The kubeconfig of a user who may do what roles bound to the user or the groups say."""
        return self.plane.add_user(user, user, groups)


@contextlib.contextmanager
def running_api_server() -> Iterator[ApiServer]:
    """Start a server, and end it with all its objects. A failure to start shows the process's output."""
    # A short path outside the tests' folders, whose names may be long and which pytest keeps.
    folder = Path(tempfile.mkdtemp(prefix="neuroscale-api-"))
    plane = ControlPlane(folder / "control-plane", Ports.free(), nodes=True)
    try:
        plane.prepare()
        with ExitStack() as running:
            running.enter_context(_process("etcd", plane.etcd_argv(), plane.etcd_problem, folder))
            running.enter_context(_process("kube-apiserver", plane.api_server_argv(), plane.api_server_problem, folder))
            cluster = running.enter_context(Cluster.of_control_plane(plane))
            yield ApiServer(plane, cluster)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _process(name: str, argv: Sequence[str], problem: Callable[[], str | None], folder: Path) -> Iterator[None]:
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        ends = time.monotonic() + _STARTS_WITHIN
        while (why := problem()) is not None:
            said = log.read_text(errors="replace")[-3000:]
            assert process.poll() is None, f"{name} ended with exit status {process.returncode}:\n{said}"
            assert time.monotonic() < ends, f"{name} is not ready after {_STARTS_WITHIN:g} s: {why}\n{said}"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOPS_WITHIN)

"""Keeps a way to a pod open from this machine: kubectl's port-forward through the API server.

kubectl ends when a connection is refused, as while a server restarts: it is then started again on the same port.

Reaches a program in a cluster from outside: by a port-forward to a pod of its Service.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from neuroscale.catalog.cluster_settings import OpenCost, Prometheus
from neuroscale.cluster.command_lines import command_lines, kubectl_program
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.pod_state import is_ending, look
from neuroscale.core.errors import InputError
from neuroscale.core.printable import one_line
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Cluster, Object
from neuroscale.repo.layout import SETTINGS

_STARTS_WITHIN = 30.0
_STOPS_WITHIN = 5.0
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_LISTENS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> ")
# This program becomes kubectl. The kernel ends it with the thread that started it, so also when we are killed.
_ENDS_WITH_US = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_kubectl() -> Path:
    """The program: on PATH, or beside this Python. Raises InputError."""
    found = kubectl_program()
    if found is None:
        raise InputError.at(
            "kubectl",
            "",
            "is not on PATH, and a pod can be reached only by its port-forward",
            "Install kubectl, or name the endpoint's address with --base-url.",
        )
    return Path(shutil.which(found) or found)


@contextlib.contextmanager
def port_forward(cluster: Cluster, namespace: str, pod: str, port: int) -> Iterator[int]:
    """The loopback port that leads to a pod's port, as long as the context lasts.

    Raises InputError if kubectl is missing, EndpointError if it does not begin to listen.
    """
    forward = _Forward(cluster, namespace, pod, port)
    forward.start()
    try:
        yield forward.wait()
    finally:
        forward.stop()


class _Forward:
    def __init__(self, cluster: Cluster, namespace: str, pod: str, port: int) -> None:
        options = [*cluster.options, f"--namespace={namespace}"]
        self._lines = command_lines(cluster)
        self._command = [str(find_kubectl()), *options, "port-forward", "--address=127.0.0.1", f"pod/{pod}"]
        self._what = f"{namespace}/{pod}"
        self._pod_port = port
        self._port: int | None = None
        self._said: collections.deque[str] = collections.deque(maxlen=20)
        self._known = threading.Event()  # set when it listens, or when it never will
        self._stopping = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name=f"port-forward {self._what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> int:
        self._known.wait(_STARTS_WITHIN)
        if self._port is None:
            said = one_line(" ".join(self._said), 400) or f"nothing within {_STARTS_WITHIN:g} s"
            raise EndpointError(
                f"The port-forward to the pod {self._what} does not begin: {said}. Check your right to forward "
                f"ports there: "
                f"{self._lines.kubectl} auth can-i create pods/portforward -n {self._what.partition('/')[0]}",
                way="forward",
            )
        return self._port

    def stop(self) -> None:
        with self._lock:
            self._stopping.set()
            process = self._process
            if process is not None:
                process.terminate()
        self._thread.join(_STOPS_WITHIN)
        if process is not None and self._thread.is_alive():
            process.kill()
            self._thread.join(_STOPS_WITHIN)

    def _watch(self) -> None:
        """Run kubectl until it must stop; this thread lives as long as kubectl does."""
        pause = _PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._run()
            except OSError as error:
                self._said.append(f"kubectl cannot be started: {error.strerror}")
            if self._port is None:
                break
            # One that had lasted was broken from outside, and may be started again at once.
            pause = _PAUSE if time.monotonic() - began > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
            self._stopping.wait(pause)
        self._known.set()

    def _run(self) -> None:
        ports = f"{self._port or ''}:{self._pod_port}"
        launcher = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_US, str(os.getpid())]
        with self._lock:
            if self._stopping.is_set():
                return
            self._process = subprocess.Popen(
                [*launcher, *self._command, ports],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        with self._process as process:
            output: IO[str] | None = process.stdout
            for line in output or ():
                if found := _LISTENS.match(line):
                    self._port = int(found[1])
                    self._known.set()
                elif not line.startswith("Handling connection"):
                    self._said.append(line.strip())


@contextlib.contextmanager
def forwarded(cluster: Cluster, wanted: Prometheus | OpenCost, field: str, fix: str) -> Iterator[tuple[str, str]]:
    """An address on this machine that leads to a ready pod of the Service that the settings name in `field`, and how
    people call the place. `fix`: what to do where the cluster lacks it.

    Raises InputError where the cluster has no such pod, KubernetesError, EndpointError.
    """
    pod, port = _pod(cluster, wanted, field, fix)
    with port_forward(cluster, wanted.namespace, pod, port) as local:
        yield f"http://127.0.0.1:{local}", f"{wanted.namespace}/{wanted.service}:{wanted.port} of {cluster.name}"


def _pod(cluster: Cluster, wanted: Prometheus | OpenCost, field: str, fix: str) -> tuple[str, int]:
    """A ready pod behind the Service, and the pod's port that the Service's port leads to."""
    service = cluster.get("v1", "Service", wanted.service, wanted.namespace)
    name = f"the Service {wanted.namespace}/{wanted.service}"

    def missing(what: str) -> InputError:
        return InputError.at(SETTINGS, field, f"{name} {what}", fix)

    if service is None:
        raise missing(f"is not in the cluster {cluster.name}")
    port = next((one for one in items(service, "spec", "ports") if one.get("port") == wanted.port), None)
    chosen = part(service, "spec", "selector")
    if port is None or not chosen:
        raise missing(f"has no port {wanted.port} that leads to pods")
    labels = ",".join(f"{key}={value}" for key, value in chosen.items())
    now = datetime.now(UTC)
    pods = cluster.list("v1", "Pod", wanted.namespace, labels)
    ready = [pod for pod in pods if look(pod, now).state == "ready" and not is_ending(pod)]
    if not ready:
        told = "; ".join(f"{state.name}: {state.told}" for state in (look(pod, now) for pod in pods[:3]))
        raise missing(f"has no pod that is ready ({told or 'it has none'})")
    return str(part(ready[0], "metadata").get("name")), _port(ready[0], port.get("targetPort"), wanted.port)


def _port(pod: Object, target: Any, otherwise: int) -> int:
    """The number of a port that a Service names by number or by name."""
    if isinstance(target, int):
        return target
    ports = [one for container in items(pod, "spec", "containers") for one in items(container, "ports")]
    named = (one.get("containerPort") for one in ports if one.get("name") == target)
    return next((number for number in named if isinstance(number, int)), otherwise)

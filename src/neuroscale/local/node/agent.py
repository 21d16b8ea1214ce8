"""Runs the node's agent: it watches the pods that are bound to the node, and keeps a worker for each."""

from __future__ import annotations

import contextlib
import http.server
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import KubernetesError, Object
from neuroscale.local.node.addresses import address_of, is_address
from neuroscale.local.node.pod import PodWorker
from neuroscale.local.node.registration import LEASE_SECONDS, Machine, Registration
from neuroscale.local.process import end

_HEARTBEAT = 10.0
_STATUS_EVERY = 60.0
_WATCH_SECONDS = 240.0
_PAUSE = 1.0
_NO_POD_WITHIN = 10.0  # seconds in which the processes of deleted pods must end


class Agent:
    """Runs until `stop`. Processes of pods go on without it."""

    def __init__(self, machine: Machine, registration: Registration) -> None:
        self._machine = machine
        self._registration = registration
        self._workers: dict[str, PodWorker] = {}
        self._stopping = threading.Event()
        self._alive_at = -float("inf")
        self._listed = False

    def stop(self) -> None:
        """Request the end; safe in a signal handler."""
        self._stopping.set()

    def problem(self) -> str | None:
        """Why the node cannot be relied on, or None."""
        age = time.monotonic() - self._alive_at
        if age > LEASE_SECONDS:
            return "the cluster did not accept the node's heartbeat"
        return None if self._listed else "the node's pods are not known yet"

    def run(self) -> None:
        """Work until stopped."""
        # A watch may be silent for minutes, so neither thread is joined.
        for name, target in (("heartbeat", self._beat), ("watch", self._keep_following)):
            threading.Thread(target=target, name=name, daemon=True).start()
        self._stopping.wait()
        for worker in list(self._workers.values()):
            worker.leave()

    def _keep_following(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except KubernetesError as error:
                self._machine.say(f"the pods cannot be watched: {error}")
                self._stopping.wait(_PAUSE)
            except Exception as error:  # a defect must not leave the pods unattended and unseen
                self._listed = False
                self._machine.say(f"a defect of this program: {type(error).__name__}: {error}")
                self._stopping.wait(_PAUSE)

    # ------------------------------------------------------------ pods

    def _follow(self) -> None:
        """List the node's pods, and follow their changes until the watch breaks."""
        cluster, fields = self._machine.cluster, f"spec.nodeName={self._machine.name}"
        listed = cluster.request("GET", cluster.path("v1", "Pod"), {"fieldSelector": fields})
        self._replace(listed["items"])
        self._listed = True
        version = listed["metadata"]["resourceVersion"]
        for kind, pod in cluster.watch("v1", "Pod", seconds=_WATCH_SECONDS, since=version, fields=fields):
            if self._stopping.is_set():
                return
            if kind == "DELETED":
                self._remove(pod["metadata"]["uid"])
            else:
                self._take(pod)

    def _replace(self, pods: Iterable[Object]) -> None:
        """Take over the changes that no watch reported: new, changed and deleted pods."""
        there = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid in set(self._workers) - set(there):
            self._remove(uid)
        # Pods that have an address already take it first.
        for pod in sorted(there.values(), key=lambda pod: not (pod.get("status") or {}).get("podIP")):
            self._take(pod)
        for uid in self._machine.keeper.pods() - set(self._workers):
            self._machine.say(f"ending the processes of a pod that is gone: {uid}")
            end(lambda uid=uid: self._machine.keeper.marked(uid), patience=_NO_POD_WITHIN)  # type: ignore[misc]
        for folder in self._machine.folder.iterdir():
            if folder.name not in there and folder.name not in self._workers:
                shutil.rmtree(folder, ignore_errors=True)

    def _take(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._workers = {key: worker for key, worker in self._workers.items() if not worker.done}
        if uid in self._workers:
            self._workers[uid].update(pod)
            return
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") and not pod["metadata"].get(
            "deletionTimestamp"
        ):
            return
        taken = {worker.address for worker in self._workers.values()}
        known = (pod.get("status") or {}).get("podIP") or ""
        address = known if is_address(known) and known not in taken else address_of(uid, taken)
        worker = self._workers[uid] = PodWorker(self._machine, pod, address)
        worker.start()

    def _remove(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            worker.forget()

    # ------------------------------------------------------------ heartbeat

    def _beat(self) -> None:
        registered, told_at = False, -float("inf")
        while not self._stopping.is_set():
            try:
                if not registered:
                    self._registration.register()
                    registered, told_at = True, time.monotonic()
                    self._machine.say(f"registered as node {self._machine.name}")
                self._registration.renew()
                if time.monotonic() - told_at > _STATUS_EVERY:
                    self._registration.tell()
                    told_at = time.monotonic()
                self._alive_at = time.monotonic()
                self._stopping.wait(_HEARTBEAT)
            except KubernetesError as error:
                self._machine.say(f"the heartbeat failed: {error}")
                self._stopping.wait(_PAUSE)


@dataclass(frozen=True)
class Health:
    """Answers `GET /healthz` on a loopback port: 200, or 503 with the reason."""

    port: int
    problem: Callable[[], str | None]

    def serve(self) -> contextlib.AbstractContextManager[object]:
        """Answer in a thread of its own until the returned context ends."""
        problem = self.problem

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                why = problem() if self.path == "/healthz" else "not found"
                body = (why or "ok").encode()
                self.send_response(404 if self.path != "/healthz" else 503 if why else 200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Do not log probes: one comes every few seconds."""

        stack = contextlib.ExitStack()
        server = stack.enter_context(http.server.ThreadingHTTPServer((LOOPBACK, self.port), Handler))
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
        stack.callback(server.shutdown)
        return stack

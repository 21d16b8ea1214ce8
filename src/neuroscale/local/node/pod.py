"""Runs one pod in a thread of its own: its containers from their start to the pod's end, by a kubelet's rules."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import Future
from typing import Any

from neuroscale.kube.client import Identity, KubernetesError, Object, RefusedError
from neuroscale.local.node.addresses import loopback
from neuroscale.local.node.container import Container, Terminated, Waits, make_volumes
from neuroscale.local.node.events import name_of, seconds_of
from neuroscale.local.node.launch import asks_for_read_only_root, plan_process
from neuroscale.local.node.pod_status import Seen, Whereabouts, content, initializing, pod_status
from neuroscale.local.node.probes import Kind, Probe, probes_of
from neuroscale.local.node.registration import Machine
from neuroscale.local.node.streams import remove_streams, write_streams
from neuroscale.local.node.variables import Place, read_sources
from neuroscale.local.node.waiting import CREATION, PULL_BACK_OFF, PULL_FAILED, BackOff, WaitingError

_TICK = 0.1
_RETRY = 2.0  # seconds until the next look for a pod's missing parts
_FORCED_GRACE = 2.0  # seconds in which the processes of a pod without an object must end
_API_PAUSE = 1.0  # seconds until a status that the API server refused is written again


class PodWorker:
    """Runs one pod. Any thread may call `update` and `forget`; `done` says that no process of it is left."""

    def __init__(self, machine: Machine, pod: Object, address: str) -> None:
        self.uid: str = pod["metadata"]["uid"]
        self.address = address
        self._machine = machine
        self._pod = pod
        self._root = machine.folder / self.uid
        spec = pod["spec"]
        self._first = [self._container(one) for one in spec.get("initContainers") or ()]
        self._main = [self._container(one) for one in spec["containers"]]
        self._gone = False
        self._stopping = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._asked: dict[tuple[str, Kind], Future[str]] = {}
        self._sent: dict[str, Any] = {}
        self._quiet_until = 0.0
        self._ended_from = ""
        self._streams_written = False
        self._since = time.time()
        self._thread = threading.Thread(target=self._run, name=f"pod-{self.uid}", daemon=True)

    def start(self) -> None:
        """Begin, or continue from the state of an earlier agent."""
        self._thread.start()

    def update(self, pod: Object) -> None:
        """Take a new version of the pod's object."""
        with self._lock:
            self._take(pod)
        self._wake.set()

    def forget(self) -> None:
        """End the processes: the pod's object is gone."""
        self._gone = True
        self._wake.set()

    def leave(self) -> None:
        """End the thread, and leave the processes to the next agent."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout=10.0)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        with self._lock:
            status = self._pod.get("status") or {}
        told = [one for key in ("initContainerStatuses", "containerStatuses") for one in status.get(key) or ()]
        by_name: dict[str, Object] = {one["name"]: one for one in told}
        for one in (*self._first, *self._main):
            one.recover(lambda one=one: self._probes(one), by_name.get(one.name, {}))  # type: ignore[misc]
            if one.runs:
                self._say(f"{one.name} still runs, from an agent before this one")
        while not self._stopping:
            try:
                if self._step():
                    break
            except KubernetesError as error:
                self._machine.say(f"{name_of(self._pod)}: {error}")
                self._wake.wait(_API_PAUSE)
            except Exception as error:  # a defect must not leave a pod unattended and unseen
                self._machine.say(f"{name_of(self._pod)}: a defect of this program: {type(error).__name__}: {error}")
                self._wake.wait(_API_PAUSE)
            self._wake.wait(_TICK)
            self._wake.clear()
        if not self._stopping:
            shutil.rmtree(self._root, ignore_errors=True)

    def _step(self) -> bool:
        """Take the steps that are due. Returns whether the pod has ended and is gone."""
        for one in (*self._first, *self._main):
            if one.look():
                self._forget_probes(one)
                state = one.state
                if isinstance(state, Terminated):
                    self._say(f"{one.name} ended with exit code {state.code} ({state.reason})")
            one.go_on_ending()
        self._collect_probes()
        leaving = self._gone or "deletionTimestamp" in self._pod["metadata"]
        if leaving:
            over = self._end()
        else:
            over = False
            if (self._pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                self._keep_running()
        if self._gone:
            if over:
                remove_streams(self._machine.cluster, self._pod)
            return over
        self._tell()
        return over and self._delete()

    def _keep_running(self) -> None:
        if not self._streams_written:
            write_streams(self._machine.cluster, self._pod, self.address, [*self._first, *self._main])
            self._streams_written = True
        for one in self._first:
            self._advance(one)
            started = one.runs and one.results is not None and one.results.started
            ended_well = isinstance(one.state, Terminated) and one.state.code == 0
            if not (started if _is_sidecar(one) else ended_well):
                return
        for one in self._main:
            self._advance(one)

    def _advance(self, one: Container) -> None:
        """Start a container that should run but does not; probe one that runs."""
        if one.runs:
            self._probe(one)
            return
        now = time.monotonic()
        state = one.state
        if isinstance(state, Terminated):
            if not self._restarts(one, state):
                return
            left = one.crashes.left(now)
            if left > 0:
                seconds = f"{one.crashes.seconds:.0f}s"
                told = f"back-off {seconds} restarting failed container={one.name} pod={name_of(self._pod)}"
                one.last, one.state = state, Waits("CrashLoopBackOff", told)
                one.retry_at = now + left
                self._event(
                    "BackOff", f"Back-off restarting failed container {one.name} in pod {name_of(self._pod)}", one
                )
                return
            one.last = state
        elif now < one.retry_at:
            return
        try:
            self._start(one)
        except WaitingError as error:
            self._wait(one, error, now)
        except OSError as error:
            self._wait(one, WaitingError(CREATION, f"its folders cannot be made: {error}"), now)

    def _start(self, one: Container) -> None:
        machine = self._machine
        place = Place(machine.name, loopback(self.address), machine.host, machine.cpu, machine.memory)
        server = machine.server()
        probes = probes_of(one.spec)
        sources = read_sources(machine.cluster, one.spec, self._pod["metadata"]["namespace"])
        can = not machine.root_problem
        launch = plan_process(self._pod, one.spec, sources, server, place, self._root, read_only_roots=can)
        make_volumes(self._root, launch, server.cache, machine.keeper.user)
        write = f'vLLM {server.version} of this machine stands in for image "{one.spec["image"]}"'
        self._event("Pulled", write, one)
        note = ""
        if machine.root_problem and asks_for_read_only_root(one.spec):
            note = f"This node does not make the container's root file system read-only. {machine.root_problem}"
            self._event("RootFileSystemWritable", note, one)
        one.start(launch, probes, note)
        one.pulls = BackOff()
        self._say(f"{one.name} started, run {one.restarts + 1}")
        self._event("Started", f"Started container {one.name}", one)

    def _wait(self, one: Container, error: WaitingError, now: float) -> None:
        """Report that it cannot be started, and try again later, as a kubelet does."""
        reason, message = error.reason, error.message
        if isinstance(one.state, Terminated):
            one.last = one.state
        if reason == PULL_FAILED:
            before = one.state
            if isinstance(before, Waits) and before.reason == PULL_FAILED:
                one.state = Waits(PULL_BACK_OFF, f'Back-off pulling image "{one.spec["image"]}": {reason}: {message}')
                one.retry_at = now + one.pulls.left(now)
                return
            one.pulls.failed(now)
            one.pulls.seconds = one.pulls.seconds or 10.0
            one.retry_at = now + _RETRY
        else:
            one.retry_at = now + _RETRY
        if one.state != Waits(reason, message):
            self._say(f"{one.name} waits: {reason}: {message}")
            self._event("Failed", f"Error: {message}", one)
        one.state = Waits(reason, message)

    def _restarts(self, one: Container, ended: Terminated) -> bool:
        if _is_sidecar(one):
            return True
        policy = self._pod["spec"].get("restartPolicy") or "Always"
        if one in self._first:
            return ended.code != 0 and policy != "Never"
        return policy == "Always" or (policy == "OnFailure" and ended.code != 0)

    # ------------------------------------------------------------ the end

    def _end(self) -> bool:
        """End the containers. Returns whether all have ended."""
        metadata = self._pod["metadata"]
        grace = _FORCED_GRACE if self._gone else float(metadata.get("deletionGracePeriodSeconds") or 0)
        why = "gone" if self._gone else f"deleted:{grace:g}"
        # A second deletion may shorten the grace period.
        if self._ended_from != why:
            self._ended_from = why
            for one in (*self._main, *self._first):
                if one.runs:
                    self._kill(one, grace, f"Stopping container {one.name}")
        return not any(one.runs for one in (*self._first, *self._main))

    def _kill(self, one: Container, grace: float, message: str) -> None:
        before = 0.0 if self._gone else _sleep_before(one.spec)
        one.end(before, grace)
        if not self._gone:
            self._event("Killing", message, one)

    def _delete(self) -> bool:
        """Tell the API server that the pod has ended. Returns whether it accepted that."""
        metadata = self._pod["metadata"]
        remove_streams(self._machine.cluster, self._pod)
        path = self._machine.cluster.path("v1", "Pod", metadata["namespace"], metadata["name"])
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": self.uid},
        }
        try:
            self._machine.cluster.request("DELETE", path, None, body)
        except RefusedError as error:
            if error.code not in (404, 409):
                raise
        self._say("gone")
        return True

    # ------------------------------------------------------------ probes

    def _probes(self, one: Container) -> list[Probe]:
        try:
            return probes_of(one.spec)
        except WaitingError:
            return []

    def _probe(self, one: Container) -> None:
        if one.results is None or one.stop is not None:
            return
        now = time.monotonic()
        for probe in one.results.due(now):
            one.results.asked(probe.kind, now)
            self._asked[one.name, probe.kind] = self._machine.prober.start(probe, loopback(self.address))

    def _collect_probes(self) -> None:
        for (name, kind), future in list(self._asked.items()):
            if not future.done():
                continue
            del self._asked[name, kind]
            one = next(one for one in (*self._first, *self._main) if one.name == name)
            if one.results is None:
                continue
            problem = future.result()
            one.results.record(kind, ok=not problem)
            if problem and one.stop is None:
                self._event("Unhealthy", f"{kind.capitalize()} probe failed: {problem}", one)
            failed = one.results.failed
            if failed is not None and one.stop is None:
                grace = failed.grace
                if grace is None:
                    grace = self._pod["spec"].get("terminationGracePeriodSeconds", 30)
                told = f"Container {one.name} failed {failed.kind} probe, will be restarted"
                self._say(told)
                self._kill(one, float(grace), told)

    def _forget_probes(self, one: Container) -> None:
        for name, kind in list(self._asked):
            if name == one.name:
                del self._asked[name, kind]

    # ------------------------------------------------------------ needs and status

    def _tell(self) -> None:
        """Write the pod's status if it is out of date."""
        now = time.monotonic()
        if now < self._quiet_until:
            return
        with self._lock:
            pod = self._pod
        there = pod.get("status") or {}
        if there.get("startTime"):
            self._since = seconds_of(there["startTime"])
        where = Whereabouts(self.address, self._machine.host, self._since, self._machine.server().version)
        first, main = ([self._seen(one) for one in group] for group in (self._first, self._main))
        if not self._initialized():
            main = [initializing(one) for one in main]
        wanted = pod_status(pod, first, main, where, time.time())
        if wanted == self._sent and content(there) == content(wanted):
            return
        metadata = pod["metadata"]
        identity = Identity("v1", "Pod", metadata["namespace"], metadata["name"])
        try:
            answer = self._machine.cluster.merge(identity, {"metadata": {"uid": self.uid}, "status": wanted}, "status")
        except RefusedError as error:
            if error.code in (404, 409):
                self._quiet_until = now + _API_PAUSE
                return
            raise
        self._sent = wanted
        with self._lock:
            self._take(answer)

    def _take(self, pod: Object) -> None:
        """The newer of two versions of the object."""
        if int(pod["metadata"]["resourceVersion"]) >= int(self._pod["metadata"]["resourceVersion"]):
            self._pod = pod

    def _initialized(self) -> bool:
        return all(
            (one.runs and one.results is not None and one.results.started)
            if _is_sidecar(one)
            else isinstance(one.state, Terminated) and one.state.code == 0
            for one in self._first
        )

    def _seen(self, one: Container) -> Seen:
        results = one.results if one.runs else None
        identifier = f"{self.uid}/{one.name}/{one.restarts}" if one.runs or isinstance(one.state, Terminated) else ""
        done = isinstance(one.state, Terminated) and one.state.code == 0 and one in self._first
        return Seen(
            name=one.name,
            image=one.spec["image"],
            state=one.state,
            last=one.last,
            restarts=one.restarts,
            started=results is not None and results.started,
            ready=(results is not None and results.ready) or (done and not _is_sidecar(one)),
            identifier=identifier,
            sidecar=_is_sidecar(one),
        )

    def _container(self, spec: Object) -> Container:
        return Container(self._machine.keeper, self.uid, spec, self._root)

    def _event(self, reason: str, message: str, one: Container) -> None:
        self._machine.events.tell(self._pod, reason, message, time.time(), container=one.name)

    def _say(self, text: str) -> None:
        self._machine.say(f"{name_of(self._pod)}: {text}")


def _is_sidecar(one: Container) -> bool:
    return one.spec.get("restartPolicy") == "Always"


def _sleep_before(spec: Object) -> float:
    """The seconds of a preStop hook that sleeps, the only kind that this node supports."""
    hook = (spec.get("lifecycle") or {}).get("preStop") or {}
    return float((hook.get("sleep") or {}).get("seconds") or 0)

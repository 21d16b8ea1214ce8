"""Says in words what a pod of a service does: details that KServe's conditions and Argo CD's health leave out.

Reads the warnings among a namespace's events.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from neuroscale.catalog.settings import NODE_WAIT_MINUTES
from neuroscale.cluster.object_fields import condition, seconds_since, sentence
from neuroscale.core.money_and_time import duration
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Object
from neuroscale.manifests.objects import SERVICE
from neuroscale.planning.startup import PROGRESS_DEADLINE, probe_window
from neuroscale.rendering import object_names


def last_warnings(found: tuple[Object, ...], now: datetime) -> tuple[str, ...]:
    """The last ten warnings in words with their age, the newest last."""
    rows = []
    for one in warnings(found):
        last = last_seen(one)
        told = sentence(part(one, "involvedObject").get("name"), one.get("reason"), one.get("message"))
        if (age := seconds_since(last, now)) is not None:
            told = f"{duration(age if age < 120 else age // 60 * 60)} ago: {told}"
        rows.append((last, told))
    return tuple(told for _, told in sorted(rows))[-10:]


def last_seen(event: Object) -> str:
    """When an event was seen last, as the API writes times; "" if it does not say that."""
    series = part(event, "series").get("lastObservedTime")
    return str(series or event.get("lastTimestamp") or event.get("eventTime") or "")


def _makes_node(event: Object) -> bool | None:
    """Whether an autoscaler says by this event of a pod that it makes a node, or that it makes none; None: neither.

    The reasons are those of Kubernetes' cluster autoscaler (TriggeredScaleUp, NotTriggerScaleUp), of GKE
    (FailedScaleUp) and of Karpenter (Nominated; FailedScheduling, which the scheduler writes as well).
    """
    reason = event.get("reason")
    if reason in ("TriggeredScaleUp", "Nominated"):
        return True
    component = str(event.get("reportingComponent") or part(event, "source").get("component") or "")
    karpenter = component.startswith(("karpenter", "eks-auto-mode"))
    refuses = reason in ("NotTriggerScaleUp", "FailedScaleUp") or (reason == "FailedScheduling" and karpenter)
    return False if refuses else None


def warnings(found: tuple[Object, ...]) -> list[Object]:
    """Warnings, without those of a write that its controller repeats at once."""
    last: dict[tuple[Any, ...], Object] = {}
    for one in found:
        if one.get("type") == "Warning" and "the object has been modified" not in str(one.get("message")):
            last[part(one, "involvedObject").get("name"), one.get("reason"), one.get("message")] = one
    return list(last.values())


ACCELERATOR = "an accelerator"
"""What a pod waits for that asks for more of them than are free."""
SERVER = "kserve-container"
"""The label by which KServe marks the objects that it makes for a service."""


def server_container(pod: Object) -> Object:
    """The container of the model's server in a pod, or in a pod's template; empty if there is none."""
    return next((one for one in items(pod, "spec", "containers") if one.get("name") == SERVER), {})


# The reasons for which a container waits that are not failures.
_USUAL = ("", "ContainerCreating", "PodInitializing")
_LOST = ("NodeLost", "NodeNotReady", "NodeStatusUnknown")
# The kubelet's messages for a missing Secret, and for a Secret without the key.
_NO_SECRET = re.compile(r'secret "(?P<missing>[^"]+)" not found|find key \S+ in Secret [^/\s]+/(?P<lacking>\S+)')

State = Literal["ready", "starting", "failed", "ended"]


@dataclass(frozen=True)
class PodState:
    """One pod: it has used `used_seconds` of the `budget_seconds` that it has to answer; None if no limit counts.

    `told` says in words what it does. `ended`: it has ended, and the ReplicaSet replaces it. `waiting`: Kubernetes'
    reason for a container that waits because of a fault; `secret`: the Secret that it waits for; `container`: the one
    that has the fault. `waits_for`: what no node has for it, in words; `node_is_made`: an autoscaler makes a node.
    `old`: it is of an earlier generation.
    """

    name: str
    node: str
    state: State
    told: str
    restarts: int = 0
    used_seconds: int | None = None
    budget_seconds: int | None = None
    waiting: str = ""
    secret: str = ""
    container: str = ""
    waits_for: str = ""
    node_is_made: bool = False
    old: bool = False


def is_ending(pod: Object) -> bool:
    """Whether somebody has deleted the pod, which may still run."""
    return bool(part(pod, "metadata").get("deletionTimestamp"))


def look(
    pod: Object, now: datetime, events: tuple[Object, ...] = (), node_wait: int = NODE_WAIT_MINUTES * 60
) -> PodState:
    """The state of a pod, read from its API object and from its own events among `events`.

    `node_wait`: seconds for which it may wait for a node.
    """
    uid = part(pod, "metadata").get("uid")
    own = [one for one in events if part(one, "involvedObject").get("uid") == uid]
    return _Look(pod, now, own, node_wait).state()


class _Look:
    def __init__(self, pod: Object, now: datetime, events: list[Object], node_wait: int) -> None:
        self.pod = pod
        self.now = now
        self.events = events
        self.node_wait = node_wait
        self.name = str(part(pod, "metadata").get("name", ""))
        self.node = str(part(pod, "spec").get("nodeName") or "")
        self.containers = items(pod, "status", "containerStatuses")
        self.restarts = sum(count for status in self.containers if isinstance(count := status.get("restartCount"), int))
        self.budget = startup_budget(pod)

    def state(self) -> PodState:
        phase = part(self.pod, "status").get("phase")
        if phase in ("Failed", "Succeeded"):
            status = part(self.pod, "status")
            return self._is("ended", sentence(f"has ended ({phase})", status.get("reason"), status.get("message")))
        if not self.node:
            return self._unscheduled()
        ready = condition(self.pod, "Ready")
        if ready.get("reason") in _LOST:
            told = f"its node {self.node} does not report"
            return self._is("failed", sentence(told, ready.get("message")))
        if phase == "Running" and ready.get("status") == "True":
            return self._is("ready", "answers")
        return self._init() or self._main()

    def _is(self, state: State, told: str, used: int | None = None) -> PodState:
        budget = None if used is None else self.budget
        return PodState(self.name, self.node, state, told, self.restarts, used, budget)

    def _troubled(self, told: str, status: Mapping[str, Any]) -> PodState:
        """Failed, unless it waits for the key of its endpoint, which is made once the service is there."""
        waiting = part(status, "state", "waiting")
        reason = str(waiting.get("reason") or "")
        match = _NO_SECRET.search(str(waiting.get("message") or ""))
        secret = (match["missing"] or match["lacking"]) if match and reason == "CreateContainerConfigError" else ""
        labels = part(self.pod, "metadata", "labels")
        container = str(status.get("name") or "")
        found = replace(self._is("failed", told), waiting=reason, secret=secret, container=container)
        if not secret or secret != object_names.secret_name(str(labels.get(SERVICE) or "")):
            return found
        used = seconds_since(condition(self.pod, "PodScheduled").get("lastTransitionTime"), self.now)
        late = used is not None and used > PROGRESS_DEADLINE
        return replace(found, state="failed" if late else "starting", told=f"waits for its Secret {secret}")

    def _within(self, told: str, used: int | None) -> PodState:
        """`starting` as long as its budget lasts, `failed` afterwards."""
        if used is None:
            return self._is("starting", told)
        budget, so_far = duration(self.budget), duration(used)
        if used <= self.budget:
            left = duration(self.budget - used)
            return self._is("starting", f"{told}; {so_far} of {budget} used, {left} left", used)
        return self._is("failed", f"{told}; its {budget} are used up ({so_far})", used)

    def _unscheduled(self) -> PodState:
        scheduled = condition(self.pod, "PodScheduled")
        since = scheduled.get("lastTransitionTime") or part(self.pod, "metadata").get("creationTimestamp")
        used = seconds_since(since, self.now)
        refused = scheduled.get("status") == "False"
        message = str(scheduled.get("message") or scheduled.get("reason") or "")
        told = sentence("no node takes it" if refused else "waits for the scheduler", message)
        made, more = self._autoscaler()
        late = used is not None and used > self.node_wait and not made
        return PodState(
            self.name,
            "",
            "failed" if late else "starting",
            f"{told}; {more}" if more else told,
            self.restarts,
            used,
            None if used is None else self.node_wait,
            waits_for=self._lacking(message) if refused else "",
            node_is_made=made,
        )

    def _lacking(self, message: str) -> str:
        """What it waits for by the scheduler's message: an accelerator if it asks for one, and nothing else is named
        as short."""
        asked = [
            str(resource)
            for container in items(self.pod, "spec", "containers")
            for resource in part(container, "resources", "limits")
            if "/" in str(resource)
        ]
        short = "Insufficient " in message
        return ACCELERATOR if asked and (not short or any(one in message for one in asked)) else "a node"

    def _autoscaler(self) -> tuple[bool, str]:
        """Whether an autoscaler makes a node for it now, and its newest event in words."""
        rows = [(last_seen(one), _makes_node(one), one) for one in self.events if _makes_node(one) is not None]
        if not rows:
            return False, ""
        last, makes, newest = max(rows, key=lambda row: row[:2])
        age = seconds_since(last, self.now)
        told = sentence(newest.get("reason"), newest.get("message"))
        if not makes:
            return False, f"no node is made for it ({told})"
        if age is None or age > NODE_WAIT_MINUTES * 60:
            return False, f"a node was to be made for it, and has not come ({told})"
        return True, f"a node is being made for it since {duration(age)} ({told})"

    def _init(self) -> PodState | None:
        """The state of its first unfinished init container, in words."""
        for status in items(self.pod, "status", "initContainerStatuses"):
            running, ended = part(status, "state", "running"), part(status, "state", "terminated")
            if (ended and ended.get("exitCode") == 0) or (running and status.get("started") and status.get("ready")):
                continue
            if trouble := _trouble(status):
                return self._troubled(trouble, status)
            if running:
                used = seconds_since(running.get("startedAt"), self.now)
                return self._within(f"{status.get('name')} runs before the server", used)
            return self._creating()
        return None

    def _main(self) -> PodState:
        for status in self.containers:
            if trouble := _trouble(status):
                return self._troubled(trouble, status)
        waiting = [status for status in self.containers if not status.get("ready")]
        # The server comes last: the other containers run before it starts.
        waiting.sort(key=lambda status: status.get("name") == SERVER)
        for status in waiting:
            running = part(status, "state", "running")
            if not running:
                return self._creating()
            used = seconds_since(running.get("startedAt"), self.now)
            told = (
                "answers, but its readiness probe fails" if status.get("started") else "loads, and does not answer yet"
            )
            last = part(status, "lastState", "terminated")
            if last and last.get("exitCode") != 0:
                again = "" if used is None else f"; started again {duration(used)} ago"
                return self._is("failed", _ended(status, last) + again, used)
            return self._within(told, used)
        return self._creating()

    def _creating(self) -> PodState:
        since = condition(self.pod, "PodScheduled").get("lastTransitionTime")
        since = since or part(self.pod, "metadata").get("creationTimestamp")
        return self._within("its containers are being made", seconds_since(since, self.now))


def _trouble(status: Mapping[str, Any]) -> str:
    """The fault of a container that does not run; empty if it has none."""
    waiting, ended = part(status, "state", "waiting"), part(status, "state", "terminated")
    reason = str(waiting.get("reason") or "")
    if reason and reason not in _USUAL:
        last = part(status, "lastState", "terminated")
        told = _ended(status, last) if last else ""
        return sentence(f"{status.get('name')}: {reason}", told or waiting.get("message"))
    return _ended(status, ended) if ended else ""


def _ended(status: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    reason = ended.get("reason")
    told = f"{status.get('name')} ended with exit code {ended.get('exitCode', 'unknown')}"
    if reason == "OOMKilled":
        told = f"{status.get('name')} needed more memory than its limit (OOMKilled)"
        reason = None
    elif reason in ("Error", "Completed"):
        reason = None
    return sentence(told, reason, ended.get("message"))


def startup_budget(pod: Object) -> int:
    """Seconds that the server's startup probe allows; without a probe, Kubernetes' own progress deadline."""
    for container in items(pod, "spec", "containers"):
        probe = part(container, "startupProbe")
        if container.get("name") == SERVER and probe:
            with contextlib.suppress(ValueError):
                return probe_window(probe)[1]
    return PROGRESS_DEADLINE

"""Reads what tells why a service's server does not run: its log, the log of its container before that, and its pod's
state in words, in the order of time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from neuroscale.cluster.object_fields import condition, sentence
from neuroscale.cluster.pod_state import SERVER, is_ending, last_seen, look
from neuroscale.core.printable import one_line
from neuroscale.core.validation import items, part
from neuroscale.explain import LogLine, diagnose, load_causes, read_lines
from neuroscale.kube.client import Cluster, KubernetesError, Object, RefusedError
from neuroscale.manifests.objects import SERVICE

POD = "pod"
"""The process of a line that tells the pod's state, whose number is 0."""
_MOST_BYTES = 2 << 20  # of a log
_MOST_OF_POD = 6 << 20  # bytes of all logs of a pod
_MOST_SECONDS = 30.0  # in which the logs of a pod are read
_LAST_LINES = ("3000", "300")  # that are read of a longer log, and of one whose lines are long, too
_SHOWN = 300  # characters of a line of a log in a verdict
_PROBE_FAILED = "Unhealthy"
_ENDING_EVENTS = ("Killing", "Evicted", "Preempted")
_SCHEDULING_EVENTS = ("FailedScheduling", "NotTriggerScaleUp", "FailedScaleUp")


def service_lines(cluster: Cluster, namespace: str, service: str) -> tuple[str, list[LogLine]]:
    """As `server_lines`, of a service's pods; no pod's name, and no lines, if it has none."""
    pods = cluster.list("v1", "Pod", namespace, f"{SERVICE}={service}")
    return server_lines(cluster, namespace, pods, cluster.list("v1", "Event", namespace) if pods else ())


def seen_cause(cluster: Cluster, namespace: str, pods: Sequence[Object], events: Sequence[Object]) -> str:
    """Why a service's server ended, in words with the line that says so, as far as its logs tell; "" if they do not,
    or may not be read."""
    try:
        _, lines = server_lines(cluster, namespace, pods, events)
    except KubernetesError:
        return ""
    found = diagnose(lines, load_causes())
    if found.verdict == "not_judged":
        return found.sentence
    shown = next((one.text for one in found.evidence if one.line or one.text.startswith(_ENDING_EVENTS)), "")
    if found.cause is None or not shown:  # what its container's state says is told already
        return ""
    return f"{found.cause.title} ({found.cause.name}): {one_line(shown, _SHOWN)}"


def server_lines(
    cluster: Cluster, namespace: str, pods: Sequence[Object], events: Sequence[Object]
) -> tuple[str, list[LogLine]]:
    """The name of the pod that says most about its service ("": there is none), and the lines of its logs and its
    state.

    Raises RefusedError for logs that may not be read.
    """
    pods = [pod for pod in pods if not is_ending(pod)]
    if not pods:
        return "", []
    pod = _telling(pods, events)
    name = str(part(pod, "metadata").get("name"))
    first = items(pod, "status", "initContainerStatuses")
    logs = _Logs(cluster, namespace, name)
    lines: list[LogLine] = []
    for status in (*first, *items(pod, "status", "containerStatuses")):
        container = str(status.get("name") or "")
        who = f"{container}, which runs before the server," if status in first else container
        state, last = part(status, "state"), part(status, "lastState", "terminated")
        if last:
            lines += logs.read(container, previous=True, first=len(lines) + 1)
            lines += _told(f"{who} ended", last)
        if "running" in state or "terminated" in state:
            lines += logs.read(container, previous=False, first=len(lines) + 1)
        if ended := part(state, "terminated"):
            lines += _told(f"{who} ended", ended)
        if waiting := part(state, "waiting"):
            lines += _told(f"{who} waits", waiting)
    if condition(pod, "Ready").get("status") != "True":
        lines += _of_pod(pod, events)
    return name, lines


def _telling(pods: Sequence[Object], events: Sequence[Object]) -> Object:
    """The newest pod that does not run as it should, else the newest."""
    now = datetime.now(UTC)
    order = {"failed": 0, "ended": 1, "starting": 2, "ready": 3}
    newest = sorted(pods, key=lambda pod: str(part(pod, "metadata").get("creationTimestamp")), reverse=True)
    return min(newest, key=lambda pod: order[look(pod, now, tuple(events)).state])


class _Logs:
    """The logs of a pod, which together are no more than so many bytes and seconds."""

    def __init__(self, cluster: Cluster, namespace: str, pod: str) -> None:
        self._cluster, self._namespace, self._pod = cluster, namespace, pod
        self._left = _MOST_OF_POD
        self._until = time.monotonic() + _MOST_SECONDS

    def read(self, container: str, *, previous: bool, first: int) -> list[LogLine]:
        """The log of a container: all of a short one, and the last lines of a longer one."""
        of_previous = {"previous": "true"} if previous else {}
        most = min(_MOST_BYTES, self._left)
        held = ""
        for bounds in ({}, *({"tailLines": count} for count in _LAST_LINES)):
            if most <= 0 or time.monotonic() > self._until:
                break
            try:
                held = self._cluster.log(
                    self._namespace, self._pod, container, {**of_previous, **bounds}, most, self._until
                )
            except RefusedError as error:
                if error.code in (401, 403):
                    raise
                return []  # the container has left none
            if len(held.encode()) < most:
                break
        self._left -= len(held.encode())
        return read_lines(held, "" if container == SERVER else container, first)


def _told(who: str, state: Mapping[str, Any]) -> list[LogLine]:
    """The state of a container in words; nothing for one that ended well or is being made."""
    reason = str(state.get("reason") or "")
    code = state.get("exitCode")
    if code == 0 or reason in ("ContainerCreating", "PodInitializing"):
        return []
    with_code = f"exit code {code}" if code is not None else ""
    text = sentence(who, sentence(reason, with_code), state.get("message"))
    return [LogLine(0, POD, line.text) for line in read_lines(text)]


def _of_pod(pod: Object, events: Sequence[Object]) -> list[LogLine]:
    """Why no node takes the pod, and the events that tell of trouble, the newest last. That a probe fails is none
    while the first run of a container goes on: it is starting."""
    scheduled = condition(pod, "PodScheduled")
    statuses = items(pod, "status", "containerStatuses")
    ended = any(part(one, state, "terminated") for one in statuses for state in ("state", "lastState"))
    texts = []
    if scheduled.get("status") == "False":
        texts.append(sentence(scheduled.get("reason"), scheduled.get("message")))
    uid = part(pod, "metadata").get("uid")
    own = [one for one in events if part(one, "involvedObject").get("uid") == uid]
    for one in sorted(own, key=last_seen):
        if one.get("reason") == _PROBE_FAILED and not ended:
            continue
        if one.get("reason") in _SCHEDULING_EVENTS and scheduled.get("status") == "True":
            continue  # it waited for a node, and has one
        if one.get("type") == "Warning" or one.get("reason") in _ENDING_EVENTS:
            texts.append(sentence(one.get("reason"), one.get("message")))
    status = part(pod, "status")
    if status.get("phase") == "Failed":
        texts.append(sentence("the pod has ended", status.get("reason"), status.get("message")))
    return [LogLine(0, POD, line.text) for text in texts for line in read_lines(text)]

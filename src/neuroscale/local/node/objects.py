"""Holds what several parts of the node share: times and events of objects, addresses of pods, waits.

A pod has `10.127.A.B`; its process listens on the loopback address `127.127.A.B`. Kubernetes does not accept a loopback
address for a pod, and a process of this machine cannot have another of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import threading
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from neuroscale.kube.client import Cluster, Identity, KubernetesError, Object
from neuroscale.manifests.pod_resources import quantity

FIRST, LONGEST = 10.0, 300.0
"""Seconds. Source: kubelet's MaxContainerBackOff and its first back-off period."""


@dataclass
class BackOff:
    """A first failure is repeated at once, the second after 10 s, and each further one after twice the time.

    After ten minutes without a failure the count starts again. Times are seconds of one clock.
    """

    seconds: float = 0.0
    _failed: float = 0.0

    def failed(self, now: float) -> None:
        """Note a failure at `now`."""
        if self._failed and now - self._failed > 2 * LONGEST:
            self.seconds = 0.0
        elif self._failed:
            self.seconds = min(LONGEST, self.seconds * 2) if self.seconds else FIRST
        self._failed = now

    def left(self, now: float) -> float:
        """Seconds until the next attempt is allowed."""
        return max(0.0, self._failed + self.seconds - now) if self._failed else 0.0


def timestamp(seconds: float) -> str:
    """Seconds since 1970 in the API's format of a time, such as `2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """The reverse of `timestamp`: seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def now_precisely() -> str:
    """The time in the API's format for leases and events, with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def name_of(pod: Object) -> str:
    """`name_namespace(uid)`, as a kubelet names a pod in messages."""
    metadata = pod["metadata"]
    return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"


def amount(container: Object, kind: str, resource: str) -> Decimal | None:
    """The amount that a container requests (`requests`) or may use (`limits`): cores, or bytes. None if it is not
    set."""
    text = ((container.get("resources") or {}).get(kind) or {}).get(resource)
    return None if text is None else quantity(text)


def rounded_up(value: Decimal) -> int:
    """The smallest whole number that is not less."""
    return math.ceil(value)


COMPONENT = "kubelet"
_REMEMBERED = 200


class Events:
    """Writes events. A repeated event is counted, not written again; one that cannot be written is dropped."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster = cluster
        self._node = node
        self._known: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._lock = threading.Lock()

    def tell(self, pod: Object, reason: str, message: str, now: float, *, container: str = "") -> None:
        """Write an event. `reason` is the kubelet's; an unusual one becomes a warning. `now` in seconds since 1970."""
        metadata = pod["metadata"]
        key = (metadata["uid"], reason, message)
        with self._lock:
            name, count = self._known.get(key, ("", 0))
        moment = timestamp(now)
        with contextlib.suppress(KubernetesError):
            if name:
                identity = Identity("v1", "Event", metadata["namespace"], name)
                self._cluster.merge(identity, {"count": count + 1, "lastTimestamp": moment})
            else:
                name = f"{metadata['name']}.{secrets.token_hex(8)}"
                self._cluster.create(self._event(pod, name, reason, message, moment, container))
            with self._lock:
                while len(self._known) >= _REMEMBERED:
                    del self._known[next(iter(self._known))]
                self._known[key] = name, count + 1

    def _event(self, pod: Object, name: str, reason: str, message: str, moment: str, container: str) -> Object:
        metadata = pod["metadata"]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                **({"fieldPath": f"spec.containers{{{container}}}"} if container else {}),
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Normal" if reason in _USUAL else "Warning",
            "source": {"component": COMPONENT, "host": self._node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }


_USUAL = frozenset(("Pulled", "Created", "Started", "Killing"))


PULL_FAILED, PULL_BACK_OFF = "ErrImagePull", "ImagePullBackOff"
CONFIGURATION, CREATION = "CreateContainerConfigError", "CreateContainerError"


class WaitingError(Exception):
    """A container cannot be started now. `reason` is the kubelet's, `message` a sentence or more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


_POD, _LOOPBACK = "10.127.", "127.127."
_LAST = 254


def address_of(uid: str, taken: Collection[str]) -> str:
    """The address of a pod: the same one as long as no other pod has it."""
    number = int(hashlib.sha256(uid.encode()).hexdigest(), 16) % (_LAST * _LAST)
    for offset in range(_LAST * _LAST):
        third, fourth = divmod((number + offset) % (_LAST * _LAST), _LAST)
        found = f"{_POD}{third + 1}.{fourth + 1}"
        if found not in taken:
            return found
    raise RuntimeError("every address of a pod is taken")


def is_address(text: str) -> bool:
    """Whether the text is the address of a pod."""
    return text.startswith(_POD)


def loopback(address: str) -> str:
    """The address on which the process of the pod with that address listens."""
    return _LOOPBACK + address.removeprefix(_POD)

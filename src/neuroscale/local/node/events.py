"""Writes the events of the node's pods, with times and names as a kubelet writes them."""

from __future__ import annotations

import contextlib
import secrets
import threading
from datetime import UTC, datetime

from neuroscale.kube.client import Cluster, Identity, KubernetesError, Object

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

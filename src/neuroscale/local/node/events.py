"""Writes the node's events about a pod, which `kubectl describe` shows."""

from __future__ import annotations

import contextlib
import secrets
import threading

from neuroscale.kube.client import Cluster, Identity, KubernetesError, Object
from neuroscale.local.node.objects import timestamp

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

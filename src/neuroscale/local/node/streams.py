"""Lets `kubectl port-forward` and `kubectl logs` reach a pod of this node through KWOK, which answers as its kubelet.

KWOK reads the places of a pod's ports and logs from two objects of its own for each pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.local.kwok import KINDS, VERSION
from neuroscale.local.node.addresses import loopback
from neuroscale.local.node.container import Container


def write_streams(cluster: Cluster, pod: Object, address: str, containers: Sequence[Container]) -> None:
    """Make the pod's two objects; safe to repeat. They are deleted with the pod. Raises KubernetesError."""
    ports = sorted({port["containerPort"] for one in containers for port in one.spec.get("ports") or ()})
    forwards = [{"ports": [port], "target": {"address": loopback(address), "port": port}} for port in ports]
    logs = [
        {"containers": [one.name], "logsFile": str(one.log), "previousLogsFile": str(one.previous_log), "follow": True}
        for one in containers
    ]
    for kind, spec in zip(KINDS, ({"forwards": forwards}, {"logs": logs}), strict=True):
        cluster.apply({"apiVersion": VERSION, "kind": kind, "metadata": _metadata(pod), "spec": spec})


def remove_streams(cluster: Cluster, pod: Object) -> None:
    """Remove them if they exist; those of a later pod of the same name stay. Raises KubernetesError."""
    metadata = pod["metadata"]
    for kind in KINDS:
        found = cluster.get(VERSION, kind, metadata["name"], metadata["namespace"])
        if found is not None and found["metadata"].get("ownerReferences") == _metadata(pod)["ownerReferences"]:
            cluster.delete(Identity(VERSION, kind, metadata["namespace"], metadata["name"]))


def _metadata(pod: Object) -> Object:
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {"name": metadata["name"], "namespace": metadata["namespace"], "ownerReferences": [owner]}

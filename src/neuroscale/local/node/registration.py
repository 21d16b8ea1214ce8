"""Registers the node as an object of the cluster, and keeps up its heartbeat.

Holds the facts that all pods of the local node share.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.local.node.container import Keeper
from neuroscale.local.node.events import Events, now_precisely, timestamp
from neuroscale.local.node.launch import LocalVllm
from neuroscale.local.node.probes import Prober


@dataclass(frozen=True)
class Machine:
    """The facts that all pods of the node share. `folder` holds one folder for each pod; `cpu` in cores, `memory` in
    bytes. `root_problem`: why no process here gets a read-only root file system, "" if it can have one."""

    name: str
    host: str
    cpu: int
    memory: int
    folder: Path
    cluster: Cluster
    keeper: Keeper
    server: Callable[[], LocalVllm]
    events: Events
    prober: Prober
    say: Callable[[str], None]
    root_problem: str = ""


LEASE_SECONDS = 40
_LEASES = "kube-node-lease"
_PODS = 32
# The least allocatable cores, and the factor over the real ones: a service's new pod fits beside the one that it
# replaces, and so does another service. They share the cores; memory is as real as it is scarce.
_LEAST_CORES, _TIMES_CORES = 8, 4


@dataclass(frozen=True)
class Capacity:
    """The machine's resources: cores, bytes of memory and of disk."""

    cores: int
    memory: int
    disk: int

    @classmethod
    def of_this_machine(cls, folder: Path) -> Capacity:
        """The resources that this process sees; `folder` is where pods write."""
        return cls(len(os.sched_getaffinity(0)), psutil.virtual_memory().total, shutil.disk_usage(folder).total)

    def capacity(self) -> dict[str, str]:
        """The resources in the form of a node's `capacity`."""
        return self._told(self.cores)

    def allocatable(self) -> dict[str, str]:
        """The resources that pods may request: more cores than exist."""
        return self._told(max(_LEAST_CORES, _TIMES_CORES * self.cores))

    def _told(self, cores: int) -> dict[str, str]:
        return {
            "cpu": str(cores),
            "memory": f"{self.memory // 1024}Ki",
            "ephemeral-storage": f"{self.disk // 1024}Ki",
            "pods": str(_PODS),
        }


@dataclass(frozen=True)
class Registration:
    """Keeps the node's object and its lease. `port`: that of KWOK, which answers the requests to its kubelet."""

    cluster: Cluster
    name: str
    port: int
    capacity: Capacity
    version: str

    def register(self) -> None:
        """Make the object if it is missing, and bring it up to date. Raises KubernetesError."""
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            "node.kubernetes.io/instance-type": self.name,
        }
        spec = {"providerID": f"process://{self.name}"}
        metadata = {"name": self.name, "labels": labels}
        node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
        try:
            self.cluster.create(node)
        except RefusedError as error:
            if error.reason != "AlreadyExists":
                raise
            self.cluster.merge(Identity.of(node), {"metadata": {"labels": labels}, "spec": spec})
        self.tell()

    def tell(self) -> None:
        """Write the node's status. Raises KubernetesError."""
        there = self.cluster.get("v1", "Node", self.name) or {}
        self.cluster.merge(Identity("v1", "Node", "", self.name), {"status": self._status(there)}, "status")

    def renew(self) -> None:
        """Renew the lease, which shows that the node is alive. Raises KubernetesError."""
        node = self.cluster.get("v1", "Node", self.name)
        if node is None:
            self.register()
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": node["metadata"]["uid"]}
        self.cluster.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": _LEASES, "ownerReferences": [owner]},
                "spec": {
                    "holderIdentity": self.name,
                    "leaseDurationSeconds": LEASE_SECONDS,
                    "renewTime": now_precisely(),
                },
            }
        )

    def _status(self, there: Object) -> dict[str, Any]:
        moment = timestamp(time.time())
        old = {one["type"]: one for one in (there.get("status") or {}).get("conditions") or ()}
        wanted = {
            "MemoryPressure": ("False", "KubeletHasSufficientMemory", "this node does not measure it"),
            "DiskPressure": ("False", "KubeletHasNoDiskPressure", "this node does not measure it"),
            "PIDPressure": ("False", "KubeletHasSufficientPID", "this node does not measure it"),
            "Ready": ("True", "KubeletReady", "runs vLLM servers as processes of this machine"),
        }
        conditions = []
        for kind, (status, reason, message) in wanted.items():
            before = old.get(kind, {})
            since = before.get("lastTransitionTime") if before.get("status") == status else None
            conditions.append(
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": moment,
                    "lastTransitionTime": since or moment,
                }
            )
        return {
            "capacity": self.capacity.capacity(),
            "allocatable": self.capacity.allocatable(),
            # No host name: the API server would resolve it.
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "conditions": [*conditions, *(one for kind, one in old.items() if kind not in wanted)],
            "nodeInfo": {
                "architecture": platform.machine(),
                "bootID": "",
                "containerRuntimeVersion": f"process://vllm-{self.version}",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": "",
                "kubeletVersion": "neuroscale",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": platform.platform(terse=True),
                "systemUUID": "",
            },
        }

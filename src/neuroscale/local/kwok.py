"""Runs KWOK, which answers for simulated nodes and the pods on them.

In place of a kubelet's server, it also answers requests for the log or a port of a pod on this machine's own node.

Makes the simulated nodes of the local cluster: some for each accelerator that an environment may use, in two zones.

No simulated node lacks accelerators: pods without an accelerator run on this machine's node, or wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from neuroscale.catalog import Catalog
from neuroscale.catalog.entries import Accelerator
from neuroscale.catalog.settings import Settings
from neuroscale.core.files import write_public
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.kube.control_plane import ADMINISTRATOR, ADMINISTRATORS
from neuroscale.local.control_plane import API_SERVER, cluster, control_plane, environment
from neuroscale.local.copied_programs import copied_files, copy_tool
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PASSABLE, State, read_json

SIMULATED = "neuroscale.dev/simulated"
"""The label of a simulated node."""
MANAGED = "kwok.x-k8s.io/node"
"""The annotation of the nodes for which KWOK answers."""

_ZONES = ("simulated-a", "simulated-b")
_PODS = "110"


def simulated_nodes(
    settings: Settings, catalog: Catalog, environments: Iterable[str], each: int = 2
) -> list[dict[str, Any]]:
    """Node objects with their capacity: each has as many accelerators as the catalog's largest machine.

    `each`: the number of nodes for each accelerator.
    """
    names = sorted({name for environment in environments for name in settings.environments[environment].accelerators})
    return [
        _node(catalog.accelerators[name], _ZONES[number % len(_ZONES)], number + 1)
        for name in names
        if catalog.accelerators[name].resource
        for number in range(each)
    ]


def _node(accelerator: Accelerator, zone: str, number: int) -> dict[str, Any]:
    name = f"simulated-{accelerator.name}-{number}"
    resource = accelerator.resource
    devices = {resource: str(max(accelerator.counts))}
    capacity = {"cpu": "224", "memory": "2Ti", "ephemeral-storage": "8Ti", "pods": _PODS, **devices}
    taints = [{"key": resource, "value": "present", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {MANAGED: "fake"},
            "labels": {
                **accelerator.node_selector,
                SIMULATED: "true",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                # OpenCost charges no accelerators of a node without a type and a provider's identity.
                "node.kubernetes.io/instance-type": f"simulated-{accelerator.name}",
                "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": "simulated",
            },
        },
        "spec": {"taints": taints, "providerID": f"simulated://{name}"},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


# The two objects of a pod from which KWOK reads the places of its ports and logs.
GROUP: Final = "kwok.x-k8s.io"
VERSION: Final = f"{GROUP}/v1alpha1"
KINDS: Final = ("PortForward", "Logs")
RESOURCES: Final = ("portforwards", "logs")

NAME: Final = "kwok"
PORTS = (NAME,)

# Upstream's stages: a node becomes and stays ready; a pod becomes ready, completes and is removed.
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
# Upstream's stage makes a pod ready once. When a node sent no heartbeat for a while, because the machine slept or KWOK
# was dead, the node controller marks its pods as not ready; a kubelet would mark them as ready again.
_READY_AGAIN: Final = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "pod-ready-again"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                {"key": ".status.phase", "operator": "In", "values": ["Running"]},
                {
                    "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
                    "operator": "NotIn",
                    "values": ["True"],
                },
            ]
        },
        "next": {
            "statusTemplate": ('conditions:\n- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}\n')
        },
    },
}


@dataclass(frozen=True)
class Kwok:
    """KWOK of a local platform: its files and its process. The ports must have been chosen."""

    state: State

    @property
    def folder(self) -> Path:
        return self.state.run / NAME

    @property
    def nodes(self) -> Path:
        return self.folder / "nodes.json"

    @property
    def ready_again(self) -> Path:
        return self.folder / "pod-ready-again.json"

    def prepare(self, nodes: list[dict[str, Any]]) -> None:
        """Write its program, certificate and the nodes that it makes."""
        copy_tool(self.state, NAME)
        self.state.make_folder(self.folder, None, PASSABLE)
        write_public(self.nodes, json.dumps({"items": nodes}, indent=2) + "\n")
        write_public(self.ready_again, json.dumps(_READY_AGAIN, indent=2) + "\n")
        plane = control_plane(self.state)
        plane.add_user(NAME, "neuroscale:kwok", (ADMINISTRATORS,))
        plane.server_certificate(f"{NAME}-server")

    def process(self) -> Process:
        """The process for the supervisor."""
        plane, port = control_plane(self.state), self.state.instance.ports[NAME]
        certificate, key = plane.server_certificate(f"{NAME}-server")
        stages = copied_files(self.state, NAME) / "kustomize" / "stage"
        return Process(
            name=NAME,
            argv=(
                str(plane.program(NAME)),
                f"--kubeconfig={plane.kubeconfig_of(NAME)}",
                *(f"--config={stages / stage}" for stage in STAGES),
                f"--config={self.ready_again}",
                f"--manage-nodes-with-annotation-selector={MANAGED}=fake",
                f"--node-ip={LOOPBACK}",
                f"--node-port={port}",
                f"--server-address={LOOPBACK}:{port}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                "--node-lease-duration-seconds=40",
                f"--enable-crds={','.join(KINDS)}",
            ),
            environment=environment(plane.folder),
            folder=plane.folder,
            user=self.state.cluster_user,
            ready=lambda: answers(f"https://{LOOPBACK}:{port}/healthz", plane.client_context(ADMINISTRATOR)),
            port=port,
            needs=(API_SERVER,),
            settings="".join(
                path.read_text(encoding="utf-8") for path in (self.nodes, self.ready_again) if path.exists()
            ),
            prepare=self._apply,
        )

    def _apply(self) -> None:
        """Bring the nodes up to date, and remove those that are no longer wanted."""
        wanted: Any = read_json(self.nodes).get("items", [])
        with cluster(self.state) as found:
            apply_all(found, self.definitions())
            names = {node["metadata"]["name"] for node in wanted}
            for node in found.list("v1", "Node"):
                if node["metadata"].get("annotations", {}).get(MANAGED) and node["metadata"]["name"] not in names:
                    found.delete(Identity.of(node))
            for node in wanted:
                _apply_node(found, node)

    def definitions(self) -> list[Object]:
        """The kinds of which it reads objects, from upstream's own files."""
        folder = copied_files(self.state, NAME) / "kustomize" / "crd" / "bases"
        found = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))]
        return [one for one in found if one["spec"]["names"]["kind"] in KINDS]


def _apply_node(found: Cluster, node: dict[str, Any]) -> None:
    status = node["status"]
    found.apply({key: value for key, value in node.items() if key != "status"})
    # Capacity belongs to the status, which a change of the object itself ignores.
    found.merge(Identity.of(node), {"status": status}, "status")

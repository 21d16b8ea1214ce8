"""Makes the simulated nodes of the local cluster: some for each accelerator that an environment may use, in two zones.

No simulated node lacks accelerators: pods without an accelerator run on this machine's node, or wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from neuroscale.catalog import Catalog
from neuroscale.catalog.entries import Accelerator
from neuroscale.catalog.settings import Settings

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

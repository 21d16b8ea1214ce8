"""Runs a cluster with one accelerator on the API server of a lesson's program: KServe, Kubernetes' own Deployments and
scheduler, and a node for which KWOK answers, so that pods on it become ready and leave as on a real one."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator

import yaml

from lesson_tools.kserve import kserve
from lesson_tools.program import Program
from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.waiting import attempts
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.local.kwok import MANAGED, NAME, STAGES, simulated_nodes
from neuroscale.local.start_and_stop import last_lines
from neuroscale.manifests.objects import SERVICE
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.repo.layout import RUNTIMES
from neuroscale.repo.snapshot import FolderSnapshot

_SECONDS = 120.0  # until the programs have acted; ten on an idle core


class FullPool:
    """A running cluster whose only accelerator the first pod takes."""

    def __init__(self, program: Program, cluster: Cluster) -> None:
        self._program = program
        self._cluster = cluster

    def pods(self, name: str) -> list[tuple[int, str, str]]:
        """The generation, the phase and the scheduler's message ("" for a pod on a node) of each pod of a service, by
        generation."""
        found = []
        for pod in self._cluster.list("v1", "Pod"):
            if pod["metadata"].get("labels", {}).get(SERVICE) != name or pod["metadata"].get("deletionTimestamp"):
                continue
            conditions = {one["type"]: one for one in pod.get("status", {}).get("conditions", ())}
            message = "" if pod["spec"].get("nodeName") else conditions.get("PodScheduled", {}).get("message", "")
            found.append((self._generation(pod), pod.get("status", {}).get("phase", ""), message))
        return sorted(found)

    def wait(self, name: str, enough: Callable[[list[tuple[int, str, str]]], bool]) -> list[tuple[int, str, str]]:
        """The pods of a service once they are `enough`. Raises UntrustedError if they never are."""
        found: list[tuple[int, str, str]] = []
        for _ in attempts(_SECONDS, pause=0.2):
            found = self.pods(name)
            if enough(found):
                return found
        logs = (self._program.folder / f"{one}.log" for one in (*_PROGRAMS, "kserve"))
        said = " / ".join(line for log in logs for line in last_lines(log, 2))
        raise UntrustedError(f"The pods of {name} are {found}. The programs printed: {said[-1500:]}")

    def _generation(self, pod: Object) -> int:
        """The revision that the Deployment gave to the pod's ReplicaSet."""
        (owner,) = pod["metadata"]["ownerReferences"]
        namespace = pod["metadata"]["namespace"]
        replicas = self._cluster.get("apps/v1", "ReplicaSet", owner["name"], namespace) or {"metadata": {}}
        return int(replicas["metadata"].get("annotations", {}).get("deployment.kubernetes.io/revision", 0))


_PROGRAMS: tuple[tool_cache.ToolName, ...] = ("kube-controller-manager", "kube-scheduler", NAME)


@contextlib.contextmanager
def full_pool(program: Program, cluster: Cluster, accelerator: str) -> Iterator[FullPool]:
    """Run the programs on `cluster` of `program`, with a node that has one accelerator of this name of the catalog."""
    inputs = read_planning_inputs(FolderSnapshot(program.repository))
    (node,) = [
        one
        for one in simulated_nodes(inputs.settings, inputs.catalog, ["dev"], each=1)
        if one["metadata"]["name"] == f"simulated-{accelerator}-1"
    ]
    resource = inputs.catalog.accelerators[accelerator].resource
    capacity = {**node["status"]["capacity"], resource: "1"}
    runtimes = [yaml.safe_load(path.read_text()) for path in sorted((program.repository / RUNTIMES).glob("*.yaml"))]
    with contextlib.ExitStack() as running:
        running.enter_context(kserve(program, cluster))
        apply_all(cluster, [*runtimes, node])
        cluster.merge(Identity.of(node), {"status": {"capacity": capacity, "allocatable": capacity}}, "status")
        # The API server taints a new node as not ready, and its controller is not here to take that away.
        cluster.merge(Identity.of(node), {"spec": {"taints": node["spec"]["taints"]}})
        for name, arguments in zip(_PROGRAMS, _arguments(), strict=True):
            running.enter_context(_running(program, name, arguments))
        yield FullPool(program, cluster)


def _arguments() -> list[list[str]]:
    alone = ["--leader-elect=false", "--secure-port=0"]
    stages = tool_cache.find_tool(NAME).files / "kustomize" / "stage"
    return [
        [*alone, "--controllers=deployment-controller,replicaset-controller"],
        alone,
        [f"--manage-nodes-with-annotation-selector={MANAGED}=fake", *(f"--config={stages / one}" for one in STAGES)],
    ]


@contextlib.contextmanager
def _running(program: Program, name: tool_cache.ToolName, arguments: list[str]) -> Iterator[None]:
    with (program.folder / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            [str(tool_cache.find(name)), f"--kubeconfig={program.kubeconfig}", *arguments],
            cwd=program.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()

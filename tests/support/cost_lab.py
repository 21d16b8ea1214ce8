"""A cluster of simulated nodes that a real OpenCost meters: control plane, KWOK, Prometheus, kube-state-metrics."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from local_processes import Running, local_state, running
from neuroscale.core.tool_cache import find_tool
from neuroscale.kube.client import Cluster
from neuroscale.local import control_plane, kwok, opencost, prometheus
from neuroscale.local.kwok import Kwok, simulated_nodes
from neuroscale.local.opencost import Cost
from neuroscale.local.prometheus import Prometheus
from neuroscale.rendering.platform import monitoring
from platform_repository import CATALOG, SETTINGS
from roots import ROOT

PRICES = ("google-cloud",)
ENVIRONMENTS = ("dev", "prod")
STEP = timedelta(seconds=30)
_METERED = '{__name__=~"(kube|node|container|kubecost)_.+"}'


@dataclass
class CostLab:
    """The running cluster, and the address of its OpenCost."""

    running: Running
    cluster: Cluster
    url: str
    prometheus: Prometheus

    def serve(self, name: str, center: str, accelerator: str, devices: int, ratio: str = "1") -> None:
        """A pod with a service's labels that holds so many accelerators of a simulated node."""
        found = CATALOG.accelerators[accelerator]
        quantities = {"cpu": "4", "memory": "16Gi", found.resource: str(devices)}
        labels = {
            "cost-center": center,
            "app.kubernetes.io/owner": f"owner-of-{center}",
            "serving.kserve.io/inferenceservice": name,
            "active-param-ratio": ratio,
        }
        container: dict[str, Any] = {
            "name": "kserve-container",
            "image": "registry.example.com/nothing:1",
            "resources": {"requests": quantities, "limits": quantities},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-predictor-1", "namespace": center, "labels": labels},
            "spec": {
                "automountServiceAccountToken": False,
                "nodeSelector": found.node_selector,
                "tolerations": [{"key": found.resource, "operator": "Exists"}],
                "containers": [container],
            },
        }
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": center}})
        self._until(lambda: self.cluster.get("v1", "ServiceAccount", "default", center) is not None)
        self.cluster.apply(pod)
        self._until(lambda: self._runs(f"{name}-predictor-1", center))

    def scraped(self, query: str = _METERED) -> list[dict[str, Any]]:
        """What Prometheus answers now."""
        answer = httpx.get(f"{self.prometheus.url}/api/v1/query", params={"query": query}, timeout=20)
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def write_history(self, since: dict[str, timedelta], length: timedelta) -> None:
        """Give Prometheus the series that it scraped now for a time before now, and start it anew.

        `since`: how long ago the pods of a service began; the others began with `length`.
        """
        now = datetime.now(UTC)
        lines = []
        for series in self.scraped():
            labels = dict(series["metric"])
            name = labels.pop("__name__")
            written = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
            pod = labels.get("pod", "").removesuffix("-predictor-1")
            begins = now - since.get(pod, length)
            moment = now
            while moment >= begins:
                lines.append((name, written, moment.timestamp(), series["value"][1]))
                moment -= STEP
        lines.sort()
        text = "".join(f"{name}{{{labels}}} {value} {at:.3f}\n" for name, labels, at, value in lines)
        history = self.prometheus.folder / "history.txt"
        history.write_text(f"{text}# EOF\n")
        self.running.kill(prometheus.NAME)
        command: list[str | Path] = [find_tool("promtool").binary, "tsdb", "create-blocks-from", "openmetrics", history]
        subprocess.run([*command, self.prometheus.folder], check=True, capture_output=True)
        user = self.running.state.cluster_user
        if user is not None:
            subprocess.run(["chown", "-R", f"{user.uid}:{user.gid}", self.prometheus.folder], check=True)
        self.running.start(self.prometheus.process())

    def start_meter(self) -> None:
        """Start kube-state-metrics and OpenCost, and wait until Prometheus has samples of the pods and of prices."""
        for process in Cost(self.running.state).processes():
            self.running.start(process)
        pods = len(self.cluster.list("v1", "Pod"))
        wanted = ("kube_pod_container_status_running", "kube_pod_labels", "container_gpu_allocation")
        for query in (*wanted, 'kube_pod_container_resource_requests{resource="nvidia_com_gpu"}'):
            self._until(lambda query=query: len(self.scraped(query)) >= pods, 150.0)  # type: ignore[misc]
        nodes = len(self.cluster.list("v1", "Node"))
        self._until(lambda: len(self.scraped("node_total_hourly_cost")) == nodes)

    def _runs(self, name: str, namespace: str) -> bool:
        pod = self.cluster.get("v1", "Pod", name, namespace) or {}
        return bool(pod.get("status", {}).get("phase") == "Running")

    @staticmethod
    def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
        ends = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends, "the cluster did not settle"
            time.sleep(0.2)


@contextlib.contextmanager
def cost_lab() -> Iterator[CostLab]:
    """Start the cluster and Prometheus; `start_meter` starts the rest, after the pods are there."""
    parts = (control_plane, kwok, prometheus, opencost)
    with local_state([port for part in parts for port in part.PORTS]) as state:
        state.update(cost=True)
        nodes = simulated_nodes(SETTINGS, CATALOG, ENVIRONMENTS, each=1)
        control_plane.prepare(state)
        Kwok(state).prepare(nodes)
        meter = Cost(state)
        meter.prepare(nodes, CATALOG, PRICES, ROOT / opencost.VALUES)
        samples = Prometheus(state)
        samples.prepare(ROOT / monitoring.SCRAPE, (), meter.scrape(ROOT / opencost.SCRAPE))
        with running(state) as started:
            for process in (*control_plane.processes(state), Kwok(state).process(), samples.process()):
                started.start(process)
            with contextlib.closing(control_plane.cluster(state)) as cluster:
                yield CostLab(started, cluster, meter.url, samples)

"""Runs Kubernetes' own horizontal autoscaler on the API server of a lesson's program.

It reads utilisation from the resource metrics API (metrics.k8s.io), which on a cluster a metrics server answers. Here
that API is a custom resource, so a program writes the utilisation that the autoscaler then reads. No pod runs.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from lesson_tools.program import Program
from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.waiting import attempts
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Cluster, Identity, Object

NAMESPACE = "default"
_SECONDS = 60.0  # until the autoscaler has looked at new figures; two on an idle core
_REQUESTED = 1000  # thousandths of a CPU that each pod asks for
_METRICS = "metrics.k8s.io"
_DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"pods.{_METRICS}",
        # The API server demands a word on every definition in a group of Kubernetes' own.
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a lesson"},
    },
    "spec": {
        "group": _METRICS,
        "names": {"kind": "PodMetrics", "plural": "pods"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class Autoscaler:
    """A running autoscaler, and the deployment that it scales."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    def wanted(self, replicas: int, utilisation: int) -> int:
        """The replicas that it asks for when so many ready pods use this share of their CPU, in per cent.

        Raises UntrustedError if it does not decide.
        """
        scaler = Identity("autoscaling/v2", "HorizontalPodAutoscaler", NAMESPACE, self._name)
        self._write(replicas, utilisation)
        status: dict[str, Any] = {}
        for _ in attempts(_SECONDS, pause=0.2):
            found = self._cluster.get(scaler.group_version, scaler.kind, scaler.name, NAMESPACE) or {}
            status = found.get("status") or {}
            seen = [one["resource"]["current"]["averageUtilization"] for one in status.get("currentMetrics") or ()]
            if seen == [utilisation] and status.get("currentReplicas") == replicas:
                return int(status["desiredReplicas"])
        raise UntrustedError(f"The autoscaler does not decide: {status.get('conditions')}")

    def _write(self, replicas: int, utilisation: int) -> None:
        """Make the deployment have so many ready pods, each of which uses this share of its CPU."""
        for group_version, kind in ((f"{_METRICS}/v1beta1", "PodMetrics"), ("v1", "Pod")):
            for one in self._cluster.list(group_version, kind, NAMESPACE):
                self._cluster.delete(Identity(group_version, kind, NAMESPACE, one["metadata"]["name"]))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for number in range(replicas):
            name = f"{self._name}-{number}"
            labels = {"app": self._name}
            used = {"cpu": f"{_REQUESTED * utilisation // 100}m", "memory": "1Gi"}
            apply_all(
                self._cluster,
                [
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
                        "spec": _pod_spec(),
                    },
                    {
                        "apiVersion": f"{_METRICS}/v1beta1",
                        "kind": "PodMetrics",
                        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
                        "timestamp": now,
                        "window": "30s",
                        "containers": [{"name": "main", "usage": used}],
                    },
                ],
            )
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:10:00Z"}
            status = {"phase": "Running", "startTime": "2020-01-01T00:00:00Z", "conditions": [ready]}
            self._cluster.merge(Identity("v1", "Pod", NAMESPACE, name), {"status": status}, "status")
        # Last: until then the autoscaler's status shows another number of replicas.
        apps = Identity("apps/v1", "Deployment", NAMESPACE, self._name)
        self._cluster.merge(apps, {"status": {"replicas": replicas, "readyReplicas": replicas}}, "status")
        self._cluster.merge(apps, {"spec": {"replicas": replicas}})


@contextlib.contextmanager
def autoscaler(program: Program, cluster: Cluster, manifest: Object) -> Iterator[Autoscaler]:
    """Run Kubernetes' controller manager with the autoscaler alone, on `cluster` of `program`.

    `manifest`: a HorizontalPodAutoscaler of NAMESPACE and of the name of its Deployment, which is made as well.
    """
    name = manifest["metadata"]["name"]
    labels = {"app": name}
    deployment: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec()},
        },
    }
    apply_all(cluster, [_DEFINITION, deployment, manifest])
    log = program.folder / "controller-manager.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _argv(program),
            cwd=program.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Autoscaler(cluster, name)
    finally:
        process.terminate()
        process.wait()


def _argv(program: Program) -> Sequence[str]:
    return [
        str(tool_cache.find("kube-controller-manager")),
        f"--kubeconfig={program.kubeconfig}",
        "--controllers=horizontal-pod-autoscaler-controller",
        "--leader-elect=false",
        "--secure-port=0",
        "--horizontal-pod-autoscaler-sync-period=1s",
        # A custom resource speaks JSON alone.
        "--kube-api-content-type=application/json",
    ]


def _pod_spec() -> dict[str, Any]:
    requests = {"cpu": f"{_REQUESTED}m"}
    return {
        "containers": [{"name": "main", "image": "registry.example.org/chat:1", "resources": {"requests": requests}}]
    }

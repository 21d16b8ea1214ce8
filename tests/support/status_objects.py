"""The objects of a service in a cluster, as Argo CD, KServe 0.20 and Kubernetes leave them when all is well."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from neuroscale.cluster.service_status import Observed, ServiceStatus
from neuroscale.cluster.service_verdict import judge_service

NOW = datetime(2026, 9, 1, 12, 0, 0, tzinfo=UTC)
NAMESPACE = "team-alpha"
NAME = "support-chat"
ENVIRONMENT = "dev"
REVISION = "0" * 39 + "1"
BUDGET = 1560
"""Seconds that the startup probe allows."""

Object = dict[str, Any]


def ago(seconds: float) -> str:
    """A time of the API so many seconds before NOW."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def predictor(replicas: int = 1) -> Object:
    """The predictor as the template renders it, with the fields that matter here."""
    return {
        "minReplicas": replicas,
        "maxReplicas": replicas + 1,
        "automountServiceAccountToken": False,
        "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "model": {
            "modelFormat": {"name": "vLLM"},
            "runtime": "neuroscale-vllm",
            "image": "vllm/vllm-openai:v0.32.0",
            "command": ["vllm", "serve", "--port=8080"],
            "args": ["--model=google/gemma-4-26B-A4B-it-qat-w4a16-ct", "--tensor-parallel-size=1"],
            "env": [{"name": "HOME", "value": "/home/vllm"}],
            "resources": {
                "requests": {"cpu": 4, "memory": "32Gi", "nvidia.com/gpu": 1},
                "limits": {"cpu": 4, "memory": "32Gi", "nvidia.com/gpu": 1},
            },
            "startupProbe": {
                "httpGet": {"path": "/health", "port": 8080},
                "periodSeconds": 10,
                "failureThreshold": 156,
            },
        },
    }


def pod_spec(found: Object) -> Object:
    """The pod spec that KServe makes of a predictor."""
    model = found["model"]
    keys = ("image", "command", "args", "env", "resources", "startupProbe")
    container = {key: copy.deepcopy(model[key]) for key in keys}
    container["name"] = "kserve-container"
    container["env"].append({"name": "INFERENCE_SERVICE_NAME", "value": NAME})
    for amounts in container["resources"].values():
        amounts.update({"cpu": "4", "nvidia.com/gpu": "1"})
    return {
        "containers": [container],
        "nodeSelector": dict(found["nodeSelector"]),
        "tolerations": copy.deepcopy(found["tolerations"]),
        "automountServiceAccountToken": False,
        "restartPolicy": "Always",
    }


def true(*types: str) -> list[Object]:
    return [{"type": kind, "status": "True", "lastTransitionTime": ago(100)} for kind in types]


@dataclass
class World:
    """One service with all its objects. A test changes some of them, and asks for the verdict."""

    replicas: int = 1
    service: Object | None = field(init=False)
    deployment: Object | None = field(init=False)
    replica_sets: list[Object] = field(init=False)
    pods: list[Object] = field(init=False)
    application: Object | None = field(init=False)
    wanted: Object | None = None
    contains: bool | None = True
    events: list[Object] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = {"predictor": predictor(self.replicas)}
        labels = {"serving.kserve.io/inferenceservice": NAME}
        self.service = {
            "metadata": {
                "name": NAME,
                "namespace": NAMESPACE,
                "uid": "service-1",
                "generation": 5,
                "creationTimestamp": ago(9000),
                "annotations": {
                    "serving.kserve.io/deploymentMode": "Standard",
                    "serving.kserve.io/autoscalerClass": "none",
                },
                "managedFields": [{"manager": "argocd", "time": ago(5000), "fieldsV1": {"f:spec": {}}}],
            },
            "spec": spec,
            "status": {
                "observedGeneration": 2,
                "deploymentMode": "Standard",
                "conditions": [
                    *true("IngressReady", "PredictorReady", "Ready"),
                    {"type": "Stopped", "status": "False"},
                ],
                "modelStatus": {
                    "transitionStatus": "UpToDate",
                    "states": {"activeModelState": "Loaded", "targetModelState": "Loaded"},
                },
                "url": "http://support-chat.team-alpha.example.com",
                "address": {"url": "http://support-chat-predictor.team-alpha.svc.cluster.local"},
            },
        }
        template = {"metadata": {"labels": labels}, "spec": pod_spec(spec["predictor"])}
        self.deployment = {
            "metadata": {
                "name": f"{NAME}-predictor",
                "uid": "deployment-1",
                "generation": 2,
                "ownerReferences": [{"uid": "service-1"}],
                "annotations": {"deployment.kubernetes.io/revision": "2"},
                "managedFields": [{"manager": "manager", "time": ago(4990), "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {"replicas": self.replicas, "template": template, "progressDeadlineSeconds": 600},
            "status": {"observedGeneration": 2, "conditions": true("Available", "Progressing")},
        }
        self.replica_sets = [self.replica_set("new", "2"), self.replica_set("old", "1")]
        self.pods = [self.pod(f"new-{index}") for index in range(self.replicas)]
        self.application = {
            "metadata": {"name": f"{NAME}.{ENVIRONMENT}", "labels": {"neuroscale.dev/environment": ENVIRONMENT}},
            "spec": {"source": {"repoURL": "https://forge.example.com/platform"}},
            "status": {
                "sync": {"status": "Synced", "revision": REVISION},
                "health": {"status": "Healthy"},
                "resources": [
                    {"kind": "InferenceService", "namespace": NAMESPACE, "name": NAME, "status": "Synced"},
                ],
                "operationState": {"phase": "Succeeded", "message": "successfully synced"},
            },
        }

    def replica_set(self, uid: str, revision: str) -> Object:
        assert self.deployment is not None
        return {
            "metadata": {
                "name": f"{NAME}-predictor-{uid}",
                "uid": uid,
                "ownerReferences": [{"uid": "deployment-1"}],
                "annotations": {"deployment.kubernetes.io/revision": revision},
            },
            "spec": {"template": copy.deepcopy(self.deployment["spec"]["template"])},
        }

    def pod(self, name: str, owner: str = "new") -> Object:
        """A pod that answers."""
        assert self.deployment is not None
        return {
            "metadata": {
                "name": name,
                "uid": name,
                "labels": {"serving.kserve.io/inferenceservice": NAME},
                "ownerReferences": [{"uid": owner}],
                "creationTimestamp": ago(4000),
            },
            "spec": {**copy.deepcopy(self.deployment["spec"]["template"]["spec"]), "nodeName": "node-1"},
            "status": {
                "phase": "Running",
                "conditions": true("PodScheduled", "Initialized", "ContainersReady", "Ready"),
                "containerStatuses": [
                    {
                        "name": "kserve-container",
                        "ready": True,
                        "started": True,
                        "restartCount": 0,
                        "state": {"running": {"startedAt": ago(4000)}},
                    }
                ],
            },
        }

    def loading(self, name: str, seconds: float, owner: str = "new") -> Object:
        """A pod whose server started so many seconds ago and does not answer yet."""
        found = self.pod(name, owner)
        condition_of(found, "Ready").update(status="False", lastTransitionTime=ago(seconds))
        found["status"]["containerStatuses"][0].update(
            ready=False, started=False, state={"running": {"startedAt": ago(seconds)}}
        )
        return found

    def not_ready(self, reason: str = "MinimumReplicasUnavailable", message: str = "") -> None:
        """Set the statuses of KServe and Argo CD while too few pods answer."""
        assert self.service is not None
        assert self.application is not None
        for kind in ("PredictorReady", "Ready"):
            condition_of(self.service, kind).update(status="False", reason=reason, message=message)
        self.service["status"]["modelStatus"] = {
            "transitionStatus": "InProgress",
            "states": {"activeModelState": "", "targetModelState": "Pending"},
        }
        self.application["status"]["health"]["status"] = "Progressing"

    def observed(self) -> Observed:
        return Observed(
            NAME,
            NAMESPACE,
            ENVIRONMENT,
            wanted=self.wanted,
            application=self.application,
            contains=self.contains,
            service=self.service,
            deployment=self.deployment,
            replica_sets=tuple(self.replica_sets),
            pods=tuple(self.pods),
            events=tuple(self.events),
            unreadable=self.unreadable,
        )

    def status(self) -> ServiceStatus:
        return judge_service(self.observed(), NOW)


def condition_of(found: Any, kind: str) -> Object:
    """A condition, for a change."""
    rows: list[Object] = found["status"]["conditions"]
    return next(row for row in rows if row["type"] == kind)

"""Lists where objects hold pods and containers, by the definitions of Kubernetes and KServe, not by the policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neuroscale.core.yaml_io import Path

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
MODEL_FIELDS = (
    *("model", "huggingface", "lightgbm", "onnx", "paddle", "pmml", "pytorch"),
    *("sklearn", "tensorflow", "triton", "xgboost", "art"),
)

SERVER = {
    "name": "server",
    "image": "docker.io/vllm/vllm-openai:v0.32.0",
    "command": ["vllm", "serve"],
    "args": ["--served-model-name=chat", "--port=8080"],
    "ports": [{"containerPort": 8080}],
}
"""A container that everybody recognises as a vLLM server."""

_TEMPLATE: tuple[Path, ...] = (("spec", "template", "spec"),)
POD_PLACES: dict[str, tuple[Path, ...]] = {
    "InferenceService": (
        ("spec", "predictor"),
        ("spec", "predictor", "workerSpec"),
        ("spec", "transformer"),
        ("spec", "explainer"),
        ("spec", "canary", 0, "predictor"),
    ),
    "LLMInferenceService": (
        ("spec", "template"),
        ("spec", "worker"),
        ("spec", "prefill", "template"),
        ("spec", "prefill", "worker"),
        ("spec", "router", "scheduler", "template"),
    ),
    "ServingRuntime": (("spec",), ("spec", "workerSpec")),
    "ClusterServingRuntime": (("spec",), ("spec", "workerSpec")),
    "Pod": (("spec",),),
    "CronJob": (("spec", "jobTemplate", "spec", "template", "spec"),),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"), _TEMPLATE
    ),
}
"""The paths of the pods of each kind."""


def list_positions(pod: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Each position for one more container in a pod: what it is called, its list, and its index there."""
    yield "first container", "containers", 0
    yield "last container", "containers", len(pod.get("containers") or ())
    yield "init container", "initContainers", len(pod.get("initContainers") or ())
    yield "sidecar", "initContainers", 0
    yield "ephemeral container", "ephemeralContainers", len(pod.get("ephemeralContainers") or ())

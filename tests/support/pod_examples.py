"""Objects of each kind that makes pods, with the pods that a person expects of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cost_examples import autoscaler

Object = dict[str, Any]
Asked = Mapping[str, tuple[int, int, int]]
"""Cores, GiB of memory and accelerators, by the container's name."""

NAMESPACE = "team-alpha"
VLLM = "vllm/vllm-openai:v0.32.0"
NODES = {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"}}
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Pods:
    """Pods that come and go together. `part` of the object; `pods` of one replica, each with how many of it there are.

    `replicas` are the fewest and the most, None if unknown. `priced`: they run all the time. `deployment`: the
    Deployment that KServe makes of them.
    """

    part: str
    replicas: tuple[int, int] | None
    pods: tuple[tuple[int, Asked], ...]
    priced: bool = True
    deployment: str = ""


@dataclass(frozen=True)
class Example:
    """An object, others that belong to it, and its pods. `live`: a cluster without Knative makes pods of it."""

    name: str
    value: Object
    expected: tuple[Pods, ...]
    others: tuple[Object, ...] = ()
    live: bool = False


def resources(cpu: int, memory: int, gpus: int = 0) -> Object:
    amounts: Object = {"cpu": str(cpu), "memory": f"{memory}Gi"} | ({_GPU: str(gpus)} if gpus else {})
    return {"requests": dict(amounts), "limits": dict(amounts)}


def vllm(name: str = "server", cpu: int = 4, memory: int = 16, gpus: int = 1, **more: Any) -> Object:
    """A container that runs vLLM."""
    command = {"image": VLLM, "command": ["vllm", "serve"], "args": ["--model=/mnt/models"]}
    return {"name": name, **command, "resources": resources(cpu, memory, gpus), **more}


def helper(name: str = "agent") -> Object:
    """A container that does something else."""
    return {"name": name, "image": "docker.io/library/busybox:1.37.0", "resources": resources(1, 1)}


def spec(*containers: Object) -> Object:
    return {**NODES, "containers": list(containers or (vllm(),))}


def workload(api_version: str, kind: str, **described: Any) -> Object:
    metadata: Object = {"name": f"a-{kind.lower()}", "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": described}


def selected(*containers: Object) -> Object:
    """A template, and the selector of its pods."""
    return {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": spec(*containers)},
    }


def service(name: str, scaler: str, predictor: Object, **parts: Any) -> Object:
    """An InferenceService in the mode Standard; `scaler` is the class of its autoscaler, "" for KServe's own choice."""
    annotations = {"serving.kserve.io/deploymentMode": "Standard"}
    annotations |= {"serving.kserve.io/autoscalerClass": scaler} if scaler else {}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {"predictor": predictor, **parts},
    }


def modelled(runtime: str, **model: Any) -> Object:
    """A predictor whose runtime brings its container."""
    described = {"modelFormat": {"name": "huggingface"}, "runtime": runtime, "storageUri": "pvc://weights/model"}
    return {"model": {**described, **model}}


def runtime(name: str, *more: Object, kind: str = "ClusterServingRuntime", **described: Any) -> Object:
    """A serving runtime whose container asks for 4 cores, 16 GiB and an accelerator."""
    metadata = {"name": name} | ({"namespace": NAMESPACE} if kind == "ServingRuntime" else {})
    serving = vllm("kserve-container", args=["--model=/mnt/models", "--served-model-name={{.Name}}"])
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            **NODES,
            "supportedModelFormats": [{"name": "huggingface", "version": "1", "autoSelect": False}],
            "containers": [serving, *more],
            **described,
        },
    }


SERVER: Asked = {"server": (4, 16, 1)}
SERVING: Asked = {"kserve-container": (4, 16, 1)}
_MODEL = modelled("plain")
_LLM = {"model": {"uri": "hf://org/model"}, "replicas": 2, "template": spec(vllm("main"))}
_GRAPH = {"nodes": {"root": {"routerType": "Sequence", "steps": [{"serviceName": "chat"}]}}}

EXAMPLES = (
    Example("pod", workload("v1", "Pod", **spec()), (Pods("", (1, 1), ((1, SERVER),)),)),
    Example(
        "deployment",
        workload("apps/v1", "Deployment", replicas=4, **selected(vllm(), helper())),
        (Pods("", (2, 6), ((1, {**SERVER, "agent": (1, 1, 0)}),)),),
        (autoscaler("HorizontalPodAutoscaler", "a-deployment", minReplicas=2, maxReplicas=6),),
    ),
    Example(
        "stateful-set",
        workload("apps/v1", "StatefulSet", replicas=3, serviceName="a", **selected()),
        (Pods("", (3, 3), ((1, SERVER),)),),
    ),
    Example(
        "daemon-set",
        workload("apps/v1", "DaemonSet", **selected()),
        (Pods("", None, ((1, SERVER),), priced=False),),
    ),
    Example(
        "job",
        workload("batch/v1", "Job", parallelism=2, template={"spec": spec()}),
        (Pods("", (2, 2), ((1, SERVER),), priced=False),),
    ),
    Example(
        "cron-job",
        workload("batch/v1", "CronJob", schedule="0 1 * * *", jobTemplate={"spec": {"template": {"spec": spec()}}}),
        (Pods("", (1, 1), ((1, SERVER),), priced=False),),
    ),
    Example(
        "leaders-and-workers",
        workload(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            replicas=2,
            leaderWorkerTemplate={
                "size": 3,
                "leaderTemplate": {"spec": spec()},
                "workerTemplate": {"spec": spec(vllm("worker", gpus=1, cpu=2))},
            },
        ),
        (Pods("", (2, 2), ((1, SERVER), (2, {"worker": (2, 16, 1)}))),),
    ),
    Example(
        "knative",
        workload(
            "serving.knative.dev/v1",
            "Service",
            template={
                "metadata": {
                    "annotations": {"autoscaling.knative.dev/min-scale": "1", "autoscaling.knative.dev/max-scale": "3"}
                },
                "spec": spec(),
            },
        ),
        (Pods("", (1, 3), ((1, SERVER),)),),
    ),
    Example(
        "llm",
        workload(
            "serving.kserve.io/v1alpha2",
            "LLMInferenceService",
            **_LLM,
            prefill={"replicas": 3, "template": spec(vllm("main", cpu=8))},
            router={"scheduler": {"template": {"containers": [helper("scheduler")]}}},
        ),
        (
            Pods("", (2, 2), ((1, {"main": (4, 16, 1)}),)),
            Pods("prefill", (3, 3), ((1, {"main": (8, 16, 1)}),)),
            Pods("scheduler", (1, 1), ((1, {"scheduler": (1, 1, 0)}),)),
        ),
    ),
    Example(
        "graph",
        service("steps", "none", {})
        | {"apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph"}
        | {"spec": {**_GRAPH, "minReplicas": 2, "maxReplicas": 3, "resources": resources(1, 1)}},
        (Pods("", (2, 2), ((1, {"steps": (1, 1, 0)}),)),),
    ),
    Example(
        "its-own-container",
        service("own", "none", {**spec(vllm("any")), "minReplicas": 2, "maxReplicas": 5}),
        (Pods("predictor", (2, 2), ((1, SERVING),), deployment="own-predictor"),),
        live=True,
    ),
    Example(
        "a-runtimes-container",
        service("brought", "none", modelled("beside")),
        (Pods("predictor", (1, 1), ((1, {**SERVING, "agent": (1, 1, 0)}),), deployment="brought-predictor"),),
        (runtime("beside", helper()),),
        live=True,
    ),
    Example(
        "on-top-of-a-namespaces-runtime",
        service(
            "topped",
            "",
            {
                **modelled(
                    "plain",
                    args=["--max-model-len=8192"],
                    resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "32Gi"}},
                    env=[{"name": "HOME", "value": "/tmp"}],
                ),
                "minReplicas": 0,
                "maxReplicas": 3,
            },
        ),
        (Pods("predictor", (1, 3), ((1, {"kserve-container": (2, 16, 1)}),), deployment="topped-predictor"),),
        (runtime("plain"), runtime("plain", kind="ServingRuntime")),
        live=True,
    ),
    Example(
        "canary",
        service(
            "split",
            "none",
            {**_MODEL, "minReplicas": 4, "maxReplicas": 6},
            canary=[
                {
                    "trafficPercent": 30,
                    "predictor": {
                        "name": "next",
                        **modelled("plain", args=["--max-num-seqs=8"], resources=resources(8, 32, 1)),
                    },
                }
            ],
        ),
        (
            Pods("predictor", (2, 2), ((1, SERVING),), deployment="split-predictor"),
            Pods("canary next", (2, 2), ((1, {"kserve-container": (8, 32, 1)}),), deployment="split-next-predictor"),
        ),
        (runtime("plain"),),
        live=True,
    ),
    Example(
        "several-nodes",
        service(
            "wide",
            "none",
            {**modelled("wide", resources=resources(4, 16, 2)), "workerSpec": {"pipelineParallelSize": 3}},
        ),
        (
            Pods("predictor", (1, 1), ((1, {"kserve-container": (4, 16, 2)}),), deployment="wide-predictor"),
            Pods(
                "predictor workers", (2, 2), ((1, {"worker-container": (2, 8, 2)}),), deployment="wide-predictor-worker"
            ),
        ),
        (
            runtime(
                "wide",
                workerSpec={
                    "tensorParallelSize": 2,
                    "pipelineParallelSize": 2,
                    **NODES,
                    "containers": [{**helper("worker-container"), "resources": resources(2, 8, 2)}],
                },
            ),
        ),
        live=True,
    ),
    Example(
        "transformer",
        service("changed", "none", _MODEL, transformer={"minReplicas": 2, "containers": [helper("change")]}),
        (
            Pods("predictor", (1, 1), ((1, SERVING),), deployment="changed-predictor"),
            Pods("transformer", (2, 2), ((1, {"kserve-container": (1, 1, 0)}),), deployment="changed-transformer"),
        ),
        (runtime("plain"),),
        live=True,
    ),
    Example(
        "scaled-by-others",
        service("others", "external", {**_MODEL, "minReplicas": 2, "maxReplicas": 5}),
        (Pods("predictor", (1, 1), ((1, SERVING),), deployment="others-predictor"),),
        (runtime("plain"),),
        live=True,
    ),
)

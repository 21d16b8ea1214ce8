"""Reads the pods and replicas of KServe's own kinds, by the rules of its controllers (release 0.20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from math import ceil
from typing import Any

from neuroscale.core.validation import mapping, sequence
from neuroscale.manifests.pod_resources import Pod, quantity, read_pod
from neuroscale.manifests.pod_sets import STOPPED, Bounds, annotations_of, between, fixed, knative, optional, texts

_PREFIX = "serving.kserve.io/"
STOP = f"{_PREFIX}stop"
"""The annotation of an InferenceService or LLMInferenceService whose value `true` stops it."""
_CLASS = f"{_PREFIX}autoscalerClass"
_STANDARD = ("Standard", "RawDeployment")


def stopped(value: Mapping[str, Any]) -> bool:
    """Whether an annotation tells KServe to stop the object's pods."""
    return annotations_of(value).get(STOP, "").lower() == "true"


def is_standard(value: Mapping[str, Any]) -> bool:
    """Whether KServe runs a service's pods in a Deployment, without Knative."""
    return _mode(value) in _STANDARD


def _mode(value: Mapping[str, Any]) -> str:
    return annotations_of(value).get(f"{_PREFIX}deploymentMode", "Knative")  # only the service's own decide


def component_bounds(
    value: Mapping[str, Any], component: Mapping[str, Any], under: Mapping[str, Any] | None = None
) -> Bounds:
    """The replicas of a component. `under`: annotations of its runtime; the component's and the service's win.

    Without Knative the autoscaler's class decides, as in KServe's `createRawDefaultDeployment`
    (`reconcilers/deployment/deployment_reconciler.go`), `createHPA` (`reconcilers/hpa/hpa_reconciler.go`) and
    `createKedaScaledObject` (`reconcilers/keda/keda_reconciler.go`). With `none` KServe writes minReplicas into the
    Deployment and nothing scales it. With `external` it writes no number, so there is one pod until somebody else
    scales it, and neither minReplicas nor maxReplicas is a limit. Raises ValueError for a mode in which the pods are
    not the service's own, and for a class that KServe refuses.
    """
    if stopped(value):
        return STOPPED
    given = _annotations(value, component, under)
    mode = _mode(value)
    if mode.startswith("ModelMesh"):
        raise ValueError("it runs in ModelMesh, whose pods serve several services")
    fewest, most = optional(component, "minReplicas", 1), optional(component, "maxReplicas", 0)
    if mode not in _STANDARD:
        annotated = knative(given)
        if not most and annotated.unlimited:
            return Bounds(fewest, fewest, unlimited=True)
        return between(fewest, most or annotated.most)
    scaler = given.get(_CLASS, "hpa")
    if scaler == "none":
        return Bounds(fewest, fewest)
    if scaler == "external":
        return Bounds(1, 1, unlimited=True)
    if scaler not in ("hpa", "keda"):
        raise ValueError(f"its autoscaler class {scaler!r:.60} is not one of KServe's, which makes no pods then")
    return between(max(fewest, 1) if scaler == "hpa" else fewest, most)


def nothing_scales(
    value: Mapping[str, Any], component: Mapping[str, Any], under: Mapping[str, Any] | None = None
) -> bool:
    """Whether KServe writes minReplicas of a component in Standard mode into its Deployment, and nothing scales it."""
    return _annotations(value, component, under).get(_CLASS) == "none"


def _annotations(
    value: Mapping[str, Any], component: Mapping[str, Any], under: Mapping[str, Any] | None
) -> dict[str, str]:
    own = texts(component.get("annotations"), "annotations")
    return texts(under, "annotations") | annotations_of(value) | own


def llm_bounds(value: Mapping[str, Any], part: Mapping[str, Any]) -> Bounds:
    """The replicas of a part. Raises ValueError if it scales without an upper bound."""
    if stopped(value):
        return STOPPED
    if part.get("scaling") is None:
        return fixed(part)
    scaling = mapping(part["scaling"], "scaling")
    if scaling.get("maxReplicas") is None:
        raise ValueError("scaling has no maxReplicas")
    bounds = between(optional(scaling, "minReplicas", 1), optional(scaling, "maxReplicas", 1))
    keda = mapping(mapping(scaling.get("wva"), "wva").get("keda"), "keda")
    return Bounds(min(bounds.fewest, optional(keda, "idleReplicaCount", bounds.fewest)), bounds.most)


COMPONENTS = ("predictor", "transformer", "explainer")

SERVERS = (
    *("model", "sklearn", "xgboost", "tensorflow", "pytorch", "triton", "onnx", "huggingface", "pmml"),
    *("lightgbm", "paddle", "art"),
)
"""The keys under which a component may describe its one serving container."""
_DEFAULT_GPU = "nvidia.com/gpu"


def component_spec(component: Mapping[str, Any]) -> dict[str, Any]:
    """The pod's spec of a component without a runtime. Raises ValueError if it has no containers."""
    servers = [mapping(component[key], key) for key in SERVERS if component.get(key) is not None]
    containers = servers + [mapping(one, "a container") for one in sequence(component.get("containers"), "containers")]
    if not containers:
        raise ValueError("it has no containers of its own: its runtime brings them")
    return {**component, "containers": containers}


def with_workers(head: Pod, worker_spec: Mapping[str, Any], *, staged: bool = False) -> tuple[Pod, Pod, int]:
    """Head pod, worker pod and the number of workers of a predictor on several nodes. The accelerators of all nodes
    together are tensor times pipeline parallel size. `staged`: each node is a stage of the pipeline. Raises ValueError
    if the manifest does not give the sizes: a runtime may then set others."""
    sizes = [worker_spec.get("tensorParallelSize"), worker_spec.get("pipelineParallelSize")]
    if None in sizes:
        raise ValueError("its runtime sets tensorParallelSize or pipelineParallelSize")
    tensor, stages = (optional(worker_spec, f"{name}ParallelSize", 1) for name in ("tensor", "pipeline"))
    total = tensor * stages
    if not sequence(worker_spec.get("containers"), "containers"):
        raise ValueError("its workers have no containers of their own: its runtime brings them")
    worker = read_pod(worker_spec)
    resource = next(iter([*worker.devices, *head.devices]), _DEFAULT_GPU)
    on_head, on_worker = (int(pod.devices.get(resource, Decimal(0))) for pod in (head, worker))
    if staged:
        nodes, on_head, on_worker = stages, tensor, tensor
    elif on_worker:
        nodes = ceil(Decimal(total) / on_worker)
        if on_head >= total:
            nodes = 1
        on_head = total if nodes == 1 else on_head or total - on_worker * (nodes - 1)
    elif on_head:
        nodes, on_worker = max(total - on_head, 0) + 1, 1
    else:
        nodes, on_head, on_worker = total, 1, 1
    return _holding(head, resource, on_head), _holding(worker, resource, on_worker), nodes - 1


def _holding(pod: Pod, resource: str, count: int) -> Pod:
    devices = {**pod.devices, resource: quantity(count)}
    return Pod(pod.cpu, pod.memory, devices, pod.nodes, pod.missing, pod.claims)


def llm_parts(spec: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts of an LLMInferenceService that have pods of their own: `` (all, or decoding alone) and `prefill`."""
    yield "", dict(spec)
    if spec.get("prefill") is not None:
        yield "prefill", mapping(spec["prefill"], "prefill")


def llm_specs(part: Mapping[str, Any]) -> tuple[tuple[dict[str, Any], int], ...]:
    """The pods' specs of one replica, each with its number of pods. Raises ValueError if the object lacks them."""
    template, worker = part.get("template"), part.get("worker")
    if template is None and worker is None:
        raise ValueError("its pods come from an LLMInferenceServiceConfig")
    if worker is None:
        return ((mapping(template, "the pod's spec"), 1),)
    size = _group_size(mapping(part.get("parallelism"), "parallelism"))
    # Without a template of its own the leader is one of the workers.
    leader, follower = (mapping(one, "the pod's spec") for one in (worker if template is None else template, worker))
    return ((leader, 1), (follower, size - 1))


def _group_size(parallelism: Mapping[str, Any]) -> int:
    data, local = optional(parallelism, "data", 0), optional(parallelism, "dataLocal", 0)
    if data or local:
        return max(max(data, 1) // max(local, 1), 1)
    return max(optional(parallelism, "pipeline", 0), 1)

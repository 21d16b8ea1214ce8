"""Merges a predictor with its serving runtime into a pod, and reads canaries, as KServe does (release 0.20).

The rules are those of `MergeRuntimeContainers`, `MergePodSpec` and `UpdateImageTag` in KServe's
`pkg/controller/v1beta1/inferenceservice/utils/utils.go`, and of `buildPodSpec`, `buildCanaryPredictor` and
`canaryReplicaCount` in `components/predictor.go` beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from neuroscale.core.validation import mapping, sequence
from neuroscale.manifests.kserve_pods import SERVERS
from neuroscale.manifests.pod_sets import annotations_of, optional
from neuroscale.manifests.serving_runtimes import SERVER_TYPE, SERVING

Place = tuple[str | int, ...]

_TRANSFORMER = "transformer-container"
_WORKER = "worker-container"
_SIZES = ("tensorParallelSize", "pipelineParallelSize")
_BACKEND = "multinode/executor-backend"
_OF_A_RUNTIME = ("nodeSelector", "affinity", "tolerations", "volumes", "imagePullSecrets", "schedulerName")
"""The fields of a runtime that a pod takes beside the containers."""
_NOT_OF_A_CONTAINER = (
    *("modelFormat", "runtime", "runtimeVersion", "storageUri", "storageUris", "storage", "protocolVersion"),
    "confidential",
)
"""The fields of a predictor's `model` that are not a container's."""
_KEYS = {
    "env": "name",
    "imagePullSecrets": "name",
    "ports": "containerPort",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""The field by which a strategic merge patch identifies the items of a list; other lists are replaced as a whole."""
_PLACEHOLDER = re.compile(r"\{\{-?\s*\.(Name|Namespace)\s*-?\}\}")
_TAG = re.compile(r":[\w.\-]*$")
_VLLM = "vllmserver"
_GPU_TAGGED = ("tensorflow-serving", "torchserve", "huggingfaceserver")
_SERVER_TYPES = {
    "kserve-huggingfaceserver": "huggingfaceserver",
    "kserve-tensorflow-serving": "tensorflow-serving",
    "kserve-torchserve": "torchserve",
    "kserve-vllmserver": _VLLM,
}
"""The server types of KServe's own runtimes by their names, used if no annotation gives the type."""


def models_of(predictor: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The keys under which a predictor describes its model, each with the model that KServe reads from it. The first is
    the one that runs: KServe's `setPredictorModelDefaults` (`pkg/apis/serving/v1beta1/ inference_service_defaults.go`)
    writes a format's own description over `model`."""
    for key in sorted(SERVERS, key=lambda one: one == "model"):
        if predictor.get(key) is not None:
            model = mapping(predictor[key], key)
            yield key, model if key == "model" else {**model, "modelFormat": {"name": key}, "runtime": None}


def model_of(predictor: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The first of `models_of`; None for a predictor with custom containers."""
    return next(models_of(predictor), None)


def merged_pod(
    predictor: Mapping[str, Any], model: Mapping[str, Any], runtime: Mapping[str, Any] | None, service: tuple[str, str]
) -> dict[str, Any]:
    """The pod's spec, its serving container first. `service`: name and namespace. Raises ValueError. Without a
    `runtime`, which is then not known, it has only the service's own fields."""
    described = mapping(mapping(runtime or {}, "the runtime").get("spec"), "spec")
    theirs, ours = (_containers(one) for one in (described, predictor))
    serving = merged_container(serving_container(runtime) if runtime is not None else {"name": SERVING}, model)
    serving = filled(serving, *service)
    if image := _image(serving, model, runtime or {}):
        serving["image"] = image
    containers = [serving]
    transformers = [one for side in (theirs, ours) for one in side if one.get("name") == _TRANSFORMER][:2]
    if transformers:
        both = len(transformers) == 2
        containers.append(filled(merged_container(*transformers) if both else transformers[0], *service))
    containers += [one for one in theirs if one.get("name") not in (SERVING, _TRANSFORMER)]
    containers += [one for one in ours if one.get("name") != _TRANSFORMER]
    own = {name: value for name, value in predictor.items() if name not in (*SERVERS, "containers")}
    return {**merged_spec(described, own), "containers": containers}


def serving_container(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """The container of a runtime that a service's `model` is merged into. Raises ValueError if it has none."""
    return _containers(mapping(runtime.get("spec"), "spec"))[serving_index(runtime)]


def serving_index(runtime: Mapping[str, Any]) -> int:
    """The index of that container in the runtime. Raises ValueError if the runtime has none."""
    for index, container in enumerate(_containers(mapping(runtime.get("spec"), "spec"))):
        if container.get("name") == SERVING:
            return index
    name = mapping(runtime.get("metadata"), "metadata").get("name")
    raise ValueError(f"the runtime {name} has no container with the name {SERVING}")


def runtime_annotations(runtime: Mapping[str, Any] | None) -> dict[str, Any]:
    """The annotations that a runtime gives to its pods; those of the service and the predictor override them."""
    spec = mapping((runtime or {}).get("spec"), "spec")
    return mapping(spec.get("annotations"), "annotations")


def merged_worker(workers: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> tuple[dict[str, Any], bool]:
    """The worker's spec of a predictor on several nodes with both sizes, and whether each node is a pipeline stage. If
    the runtime is unknown, or describes no workers (KServe makes none then), the spec is the service's own. Raises
    ValueError."""
    described = mapping(mapping((runtime or {}).get("spec"), "spec").get("workerSpec"), "workerSpec")
    if not described:
        return dict(workers), False
    base = next((one for one in _containers(described) if one.get("name") == _WORKER), None)
    if base is None:
        raise ValueError(f"its runtime has no container with the name {_WORKER} for its workers")
    own = next(iter(_containers(workers)), {})
    spec = {
        **merged_spec(described, {key: value for key, value in workers.items() if key != "containers"}),
        "containers": [merged_container(base, own)],
    }
    for size in _SIZES:
        spec[size] = next((one[size] for one in (workers, described) if one.get(size) is not None), 1)
    return spec, runtime_annotations(runtime).get(_BACKEND) == "mp"


def merged_container(runtime: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The runtime's container with the service's fields on top, and the arguments of both. Raises ValueError."""
    own = {key: value for key, value in own.items() if key not in _NOT_OF_A_CONTAINER}
    merged = _patched(runtime, own)
    merged["args"] = [*sequence(runtime.get("args"), "args"), *sequence(own.get("args"), "args")]
    merged["env"] = [dict(_variables(item, own)) for item in sequence(merged.get("env"), "env")]
    return merged


def merged_spec(runtime: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The pod's other fields: the service's on top of those that a pod takes from its runtime."""
    return _patched({key: runtime[key] for key in _OF_A_RUNTIME if runtime.get(key) is not None}, own)


def parts_of_runtime(runtime: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[tuple[Place, Place]]:
    """The words and the image of a merged container that come from the runtime, each with its place in the runtime."""
    for index in range(len(sequence(runtime.get("args"), "args"))):
        yield ("args", index), ("args", index)
    if not own.get("command"):
        for index in range(len(sequence(runtime.get("command"), "command"))):
            yield ("command", index), ("command", index)
    if not own.get("image"):
        yield ("image",), ("image",)


def filled(container: Mapping[str, Any], name: str = "name", namespace: str = "namespace") -> dict[str, Any]:
    """The container with KServe's placeholders for the service's name and namespace filled in everywhere."""
    known = {"Name": name, "Namespace": namespace}

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return _PLACEHOLDER.sub(lambda found: known[found[1]], value)
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        return [fill(item) for item in value] if isinstance(value, list) else value

    return {key: fill(value) for key, value in container.items()}


def _containers(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [mapping(item, "a container") for item in sequence(spec.get("containers"), "containers")]


def _patched(under: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A strategic merge patch; fields that are empty in `own` are not part of it, and so change nothing."""
    merged = dict(under)
    for key, value in own.items():
        if value is None or value in ("", []):
            continue
        there = merged.get(key)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            merged[key] = _patched(there, value)
        elif key in _KEYS and isinstance(there, list) and isinstance(value, list):
            merged[key] = _patched_list(there, value, _KEYS[key])
        else:
            merged[key] = value
    return merged


def _patched_list(under: list[Any], own: list[Any], key: str) -> list[Any]:
    merged: dict[Any, Any] = {str(mapping(item, "an item").get(key)): item for item in under}
    for item in own:
        name = str(mapping(item, "an item").get(key))
        merged[name] = _patched(merged.get(name, {}), item)
    return list(merged.values())


def _variables(variable: Any, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """A variable with one source: if the merge left two, the service's."""
    item: dict[str, Any] = mapping(variable, "a variable")
    if item.get("value") in (None, "") or item.get("valueFrom") is None:
        return item
    for ours in sequence(own.get("env"), "env"):
        if mapping(ours, "a variable").get("name") == item.get("name"):
            dropped = "value" if ours.get("valueFrom") is not None else "valueFrom"
            return {key: value for key, value in item.items() if key != dropped}
    return item


def _image(container: Mapping[str, Any], model: Mapping[str, Any], runtime: Mapping[str, Any]) -> str:
    """The image with the tag or the repository that KServe takes for a version, or without a GPU."""
    image = str(container.get("image") or "")
    if "@sha256:" in image:
        return image
    if model.get("runtimeVersion") is not None:
        version = f":{model['runtimeVersion']}"
        return _TAG.sub(lambda _: version, image) if _TAG.search(image) else f"{image}{version}"
    name = str(mapping(runtime.get("metadata"), "metadata").get("name") or model.get("runtime"))
    server = annotations_of(runtime).get(SERVER_TYPE) or _SERVER_TYPES.get(name, "")
    tag = _TAG.search(image)
    if not server or tag is None:
        return image
    limits = mapping(mapping(container.get("resources"), "resources").get("limits"), "limits")
    if any(one == "nvidia.com/gpu" or str(one).startswith("nvidia.com/mig") for one in limits):
        return f"{image}-gpu" if server in _GPU_TAGGED and not image.endswith("-gpu") else image
    repository = image[: tag.start()]
    return f"{repository}-cpu{tag[0]}" if server == _VLLM and not repository.endswith("-cpu") else image


_NOT_OF_A_CANARY = ("maxReplicas", "scaleTarget", "scaleMetric", "scaleMetricType", "autoScaling", "workerSpec")
_BY_KEY = ("annotations", "labels", "limits", "nodeSelector", "requests")
"""Mappings in which even an empty value replaces the value below it."""


def canary_predictors(spec: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The predictor of each canary with its place in the list, `minReplicas` as KServe counts them. Raises ValueError
    for an entry that is not a canary."""
    stable = mapping(spec.get("predictor"), "predictor")
    found = model_of(stable)
    base = stable if found is None else {**stable, found[0]: None, "model": found[1]}
    base = {key: value for key, value in base.items() if value is not None and key not in _NOT_OF_A_CANARY}
    for index, item in enumerate(sequence(spec.get("canary"), "canary")):
        canary = mapping(item, "a canary")
        if canary.get("predictor") is None:
            continue
        own = mapping(canary["predictor"], "predictor")
        own = {key: value for key, value in own.items() if key not in _NOT_OF_A_CANARY}
        yield index, {**_over(base, own), "minReplicas": _replicas(stable, canary, own)}


def stable_predictor(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The predictor beside its canaries, whose replicas KServe takes from its minReplicas. Raises ValueError."""
    stable = mapping(spec.get("predictor"), "predictor")
    taken = [one["minReplicas"] for _, one in canary_predictors(spec)]
    if not taken or stable.get("minReplicas") is None:
        return stable
    return {**stable, "minReplicas": max(optional(stable, "minReplicas", 1) - sum(taken), 1)}


def _replicas(stable: Mapping[str, Any], canary: Mapping[str, Any], own: Mapping[str, Any]) -> int:
    if own.get("minReplicas") is not None:
        return optional(own, "minReplicas", 1)
    share = optional(stable, "minReplicas", 1) * optional(canary, "trafficPercent", 0)
    return -(-share // 100)


def _over(under: Mapping[str, Any], own: Mapping[str, Any], *, whole: bool = False) -> dict[str, Any]:
    """`own` over `under`: mappings merge key by key, other values replace if not empty. `whole`: empty ones too."""
    merged = dict(under)
    for key, value in own.items():
        there = merged.get(key)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            merged[key] = _over(there, value, whole=key in _BY_KEY)
        elif whole or value or key not in merged:
            merged[key] = value
    return merged

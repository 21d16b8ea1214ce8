"""The pods of an InferenceService: merged with its runtime by the rules of KServe (release 0.20), as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.vllm_containers import Found, Server, Unread, containers, devices_of, filled_in, not_vllm
from neuroscale.manifests import kserve_pods
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import mapping, sequence
from neuroscale.vllm.command import serve_command

SERVING = "kserve-container"
"""The container that KServe sends requests to."""
BUILT_IN = "kserve-vllmserver"
"""KServe's own runtime for vLLM, which it takes for the model format vLLM where a service names none."""
_BUILT_IN_CONTAINER: Mapping[str, Any] = {
    "name": "kserve-container",
    # The tag is whatever KServe was installed with; without NVIDIA GPUs it takes the image for CPUs.
    "image": "vllm-openai:latest",
    "command": ["python", "-m", "vllm.entrypoints.openai.api_server"],
    "args": ["--port=8080", "--served-model-name={{.Name}}", "--model=/mnt/models"],
}
Runtimes = Callable[[str, str], Manifest | None]
"""A runtime by its name and the service's namespace."""


def inference_service_pods(manifest: Manifest, runtime: Runtimes) -> Iterator[Found]:
    """What of its pods runs vLLM. `runtime`: the runtimes that are known. Raises ValueError where it cannot be read."""
    spec = mapping(manifest.value.get("spec"), "spec")
    if kserve_pods.stopped(manifest.value):
        return
    predictors: list[tuple[Path, Mapping[str, Any]]] = []
    if spec.get("predictor") is not None:
        predictors.append((("spec", "predictor"), mapping(spec["predictor"], "predictor")))
    for index, item in enumerate(sequence(spec.get("canary"), "canary")):
        predictor = mapping(item, "a canary").get("predictor")
        if predictor is not None:
            predictors.append((("spec", "canary", index, "predictor"), mapping(predictor, "predictor")))
    for at, predictor in predictors:
        yield from _predictor(manifest, at, predictor, runtime)
    for part in ("transformer", "explainer"):
        if spec.get(part) is not None:
            yield from containers(manifest, ("spec", part), mapping(spec[part], part), f"{manifest.subject} {part}")


def _predictor(manifest: Manifest, at: Path, predictor: Mapping[str, Any], runtime: Runtimes) -> Iterator[Found]:
    subject = manifest.subject
    found: list[Found] = []
    for key in kserve_pods.SERVERS:
        if predictor.get(key) is not None:
            found.extend(_model(manifest, at, predictor, key, runtime))
    own = {**predictor, "containers": sequence(predictor.get("containers"), "containers")}
    found.extend(
        replace(one, source=_custom_source(one.container)) if isinstance(one, Server) else one
        for one in containers(manifest, at, own, subject)
    )
    workers = predictor.get("workerSpec")
    if workers is None:
        yield from found
        return
    for one in found:
        yield _with_workers(one, mapping(workers, "workerSpec")) if isinstance(one, Server) else one


def _model(manifest: Manifest, at: Path, predictor: Mapping[str, Any], key: str, runtime: Runtimes) -> Iterator[Found]:
    model = mapping(predictor[key], key)
    if key != "model":  # KServe makes a model of that format of it
        model = {**model, "modelFormat": {"name": key}, "runtime": None}
    place = (*at, key)
    name = str(model.get("runtime") or "")
    wanted = str(mapping(model.get("modelFormat"), "modelFormat").get("name") or "")
    if not name and wanted.lower() == "vllm":
        name = BUILT_IN
    merged_with = runtime(name, manifest.namespace) if name else None
    base, base_spec, base_at = _runtime_container(merged_with)
    built_in = merged_with is None and name == BUILT_IN
    if built_in:
        base = dict(_BUILT_IN_CONTAINER)
    container, origins = _merged(base, model, merged_with, base_at, manifest, place)
    source, why = _source(model)
    command = serve_command(filled_in(container, manifest.name, manifest.namespace))
    hidden: list[tuple[Path, str]] = [(place, why)] if why else []
    if merged_with is None and not built_in:
        what = f"its runtime {name}" if name else f"the runtime that KServe chooses for the format {wanted}"
        told = f"{what} is not among the files: it puts its own arguments, and maybe its command, before these"
        hidden.append(((*place, "runtime") if name else place, told))
        if command is None:
            # Its own words may be vLLM's; other formats (sklearn, triton, ...) name other servers.
            if "vllm" in name.lower() or "huggingface" in (name + wanted).lower() or devices_of(container):
                yield Unread(manifest, (*place, "runtime") if name else place, manifest.subject, told)
            return
    elif command is None:
        if devices := devices_of(container):
            yield Unread(manifest, place, manifest.subject, not_vllm(devices))
        return
    own = {name: value for name, value in predictor.items() if name not in (*kserve_pods.SERVERS, "containers")}
    spec = {**base_spec, **own}
    selector = {
        **mapping(base_spec.get("nodeSelector"), "nodeSelector"),
        **mapping(predictor.get("nodeSelector"), "nodeSelector"),
    }
    spec |= {"nodeSelector": selector, "containers": [container], "initContainers": []}
    yield Server(
        manifest,
        place,
        manifest.subject,
        command,
        spec,
        source,
        hidden=tuple(hidden),
        for_cpu=built_in,
        origins=origins,
    )


def _runtime_container(runtime: Manifest | None) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """The serving container of a runtime, the pod around it, and its path."""
    if runtime is None:
        return {}, {}, ()
    spec = mapping(runtime.value.get("spec"), "spec")
    for index, item in enumerate(sequence(spec.get("containers"), "containers")):
        container = mapping(item, "a container")
        if container.get("name") == SERVING:
            kept = ("nodeSelector", "affinity", "tolerations", "volumes")
            return container, {key: spec[key] for key in kept if key in spec}, ("spec", "containers", index)
    raise ValueError(f"the runtime {runtime.name} has no container of the name {SERVING}")


def _merged(
    base: Mapping[str, Any],
    own: Mapping[str, Any],
    runtime: Manifest | None,
    base_at: Path,
    manifest: Manifest,
    at: Path,
) -> tuple[dict[str, Any], dict[tuple[str | int, ...], tuple[Manifest, Path]]]:
    """The runtime's container with the service's on top: arguments one behind the other, all else the service's."""
    merged = _on_top(base, own)
    before, behind = sequence(base.get("args"), "args"), sequence(own.get("args"), "args")
    merged["args"] = [*before, *behind]
    variables = {
        str(mapping(item, "a variable").get("name")): item
        for item in (*sequence(base.get("env"), "env"), *sequence(own.get("env"), "env"))
    }
    merged["env"] = list(variables.values())
    resources = mapping(base.get("resources"), "resources"), mapping(own.get("resources"), "resources")
    merged["resources"] = {
        kind: {**mapping(resources[0].get(kind), kind), **mapping(resources[1].get(kind), kind)}
        for kind in ("requests", "limits")
    }
    origins: dict[tuple[str | int, ...], tuple[Manifest, Path]] = {}
    place_of_base = (runtime, base_at) if runtime is not None else (manifest, at)
    for index in range(len(before)):
        path = (*place_of_base[1], "args", index) if runtime is not None else at
        origins["args", index] = (place_of_base[0], path)
    for index in range(len(behind)):
        origins["args", len(before) + index] = (manifest, (*at, "args", index))
    if own.get("command") is None and runtime is not None:
        for index in range(len(sequence(base.get("command"), "command"))):
            origins["command", index] = (runtime, (*base_at, "command", index))
    if own.get("image") is None and runtime is not None:
        origins["image",] = (runtime, (*base_at, "image"))
    return merged, origins


def _on_top(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key, as a strategic merge patch does; whatever else is there is replaced."""
    merged = dict(base)
    for key, value in own.items():
        under = base.get(key)
        if value is not None:
            merged[key] = _on_top(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def _source(model: Mapping[str, Any]) -> tuple[str, str]:
    """Where KServe gets the files from, and why that is not told ("" for told)."""
    if model.get("storageUri") is not None:
        return str(model["storageUri"]), ""
    storage = mapping(model.get("storage"), "storage")
    if storage or model.get("storageUris"):
        return "", "its files come from a storage that the manifest names by a key"
    return "", ""


def _custom_source(container: Mapping[str, Any]) -> str:
    """What a container of one's own has KServe put to /mnt/models."""
    for item in sequence(container.get("env"), "env"):
        variable = mapping(item, "a variable")
        if variable.get("name") == "STORAGE_URI" and variable.get("value"):
            return str(variable["value"])
    return ""


def _with_workers(server: Server, worker_spec: Mapping[str, Any]) -> Found:
    """A predictor on several nodes."""
    try:
        head, worker, count = kserve_pods.with_workers(server.pod(), worker_spec)
    except ValueError as error:
        return replace(server, hidden=(*server.hidden, ((*server.at,), f"its workers cannot be counted: {error}")))
    if dict(head.devices) == dict(worker.devices):
        return replace(server, pods=count + 1)
    return replace(server, workers=(worker,) * count)

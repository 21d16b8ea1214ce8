"""Finds vLLM in the pods of an InferenceService, merged with its runtime by the rules of KServe (release 0.20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.vllm_containers import Found, Unread, VllmContainer, containers, devices_of, not_vllm
from neuroscale.manifests import kserve_pods, kserve_scaling
from neuroscale.manifests.canaries import canary_predictors
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import mapping, sequence
from neuroscale.manifests.runtime_merge import (
    merged_pod,
    merged_worker,
    models_of,
    parts_of_runtime,
    serving_container,
    serving_index,
)
from neuroscale.manifests.serving_runtimes import BUILT_IN, model_format, runtime_name, runtime_of
from neuroscale.vllm.command import serve_command

Runtimes = Callable[[str, str], Manifest | None]
"""Gives a runtime by its name and the service's namespace."""


def inference_service_servers(manifest: Manifest, runtime: Runtimes) -> Iterator[Found]:
    """The containers of its pods that run vLLM. `runtime`: the known ones. Raises ValueError if it cannot be read."""
    spec = mapping(manifest.value.get("spec"), "spec")
    if kserve_scaling.stopped(manifest.value):
        return
    predictors: list[tuple[Path, Mapping[str, Any]]] = []
    if spec.get("predictor") is not None:
        predictors.append((("spec", "predictor"), mapping(spec["predictor"], "predictor")))
    predictors += [(("spec", "canary", index, "predictor"), canary) for index, canary in canary_predictors(spec)]
    for at, predictor in predictors:
        yield from _predictor(manifest, at, predictor, runtime)
    for part in ("transformer", "explainer"):
        if spec.get(part) is not None:
            yield from containers(manifest, ("spec", part), mapping(spec[part], part), f"{manifest.subject} {part}")


def _predictor(manifest: Manifest, at: Path, predictor: Mapping[str, Any], runtime: Runtimes) -> Iterator[Found]:
    subject = manifest.subject
    found: list[Found] = []
    described = list(models_of(predictor))
    for key, model in described:
        found.extend(_model(manifest, at, predictor, key, model, runtime))
    own = {**predictor, "containers": sequence(predictor.get("containers"), "containers")}
    found.extend(
        replace(one, source=_custom_source(one.container)) if isinstance(one, VllmContainer) else one
        for one in containers(manifest, at, own, subject)
    )
    workers = predictor.get("workerSpec")
    if workers is None:
        yield from found
        return
    known = _described(described[0][1], manifest, runtime) if described else None
    for one in found:
        yield _with_workers(one, mapping(workers, "workerSpec"), known) if isinstance(one, VllmContainer) else one


def _described(model: Mapping[str, Any], manifest: Manifest, runtime: Runtimes) -> Mapping[str, Any] | None:
    """The runtime of a model as KServe merges the service with it; None if the files do not show it."""

    def value(name: str, namespace: str) -> Mapping[str, Any] | None:
        found = runtime(name, namespace)
        return None if found is None else found.value

    return runtime_of(model, manifest.namespace, value)


def _model(
    manifest: Manifest, at: Path, predictor: Mapping[str, Any], key: str, model: Mapping[str, Any], runtime: Runtimes
) -> Iterator[Found]:
    place = (*at, key)
    name, wanted = runtime_name(model), model_format(model)
    merged_with = runtime(name, manifest.namespace) if name else None
    built_in = merged_with is None and name == BUILT_IN
    described = _described(model, manifest, runtime)
    spec = merged_pod(predictor, model, described, (manifest.name, manifest.namespace))
    container = spec["containers"][0]
    source, why = _source(model)
    command = serve_command(container)
    hidden: list[tuple[Path, str]] = [(place, why)] if why else []
    if described is None:
        what = f"its runtime {name}" if name else f"the runtime that KServe chooses for the format {wanted}"
        told = f"{what} is not among the files; KServe puts its arguments, and perhaps its command, before these"
        hidden.append(((*place, "runtime") if name else place, told))
        if command is None:
            # The service's own arguments may be vLLM's; other formats (sklearn, triton, ...) name other servers.
            named = f"{name} {wanted}".lower()
            if "vllm" in named or "huggingface" in named or devices_of(container):
                yield Unread(manifest, (*place, "runtime") if name else place, manifest.subject, told)
            return
    elif command is None:
        if devices := devices_of(container):
            yield Unread(manifest, place, manifest.subject, not_vllm(devices))
        return
    yield VllmContainer(
        manifest,
        place,
        manifest.subject,
        command,
        {**spec, "containers": [container], "initContainers": []},
        source,
        hidden=tuple(hidden),
        for_cpu=built_in,
        origins=_origins(manifest, place, model, described, merged_with),
    )


def _origins(
    manifest: Manifest, at: Path, own: Mapping[str, Any], described: Mapping[str, Any] | None, runtime: Manifest | None
) -> dict[tuple[str | int, ...], tuple[Manifest, Path]]:
    """Where the fields of a merged container are written: in the service's container, or in the runtime's."""
    origins: dict[tuple[str | int, ...], tuple[Manifest, Path]] = {}
    base = {} if described is None else serving_container(described)
    before = len(sequence(base.get("args"), "args"))
    for merged, path in parts_of_runtime(base, own):
        if runtime is not None:
            origins[merged] = (runtime, ("spec", "containers", serving_index(runtime.value), *path))
        elif merged[0] == "args":
            origins[merged] = (manifest, at)
    for index in range(len(sequence(own.get("args"), "args"))):
        origins["args", before + index] = (manifest, (*at, "args", index))
    return origins


def _source(model: Mapping[str, Any]) -> tuple[str, str]:
    """Where KServe gets the files from, and why the manifest does not show that ("" if it does)."""
    if model.get("storageUri") is not None:
        return str(model["storageUri"]), ""
    storage = mapping(model.get("storage"), "storage")
    if storage or model.get("storageUris"):
        return "", "its files come from a storage that the manifest names by a key"
    return "", ""


def _custom_source(container: Mapping[str, Any]) -> str:
    """The address of the files that KServe puts into /mnt/models of a custom container."""
    for item in sequence(container.get("env"), "env"):
        variable = mapping(item, "a variable")
        if variable.get("name") == "STORAGE_URI" and variable.get("value"):
            return str(variable["value"])
    return ""


def _with_workers(server: VllmContainer, workers: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> Found:
    """The server of a predictor on several nodes."""
    try:
        worker_spec, staged = merged_worker(workers, runtime)
        head, worker, count = kserve_pods.with_workers(server.pod(), worker_spec, staged=staged)
    except ValueError as error:
        return replace(server, hidden=(*server.hidden, ((*server.at,), f"its workers cannot be counted: {error}")))
    if dict(head.devices) == dict(worker.devices):
        return replace(server, pods=count + 1)
    return replace(server, workers=(worker,) * count)


# LLMInferenceService.

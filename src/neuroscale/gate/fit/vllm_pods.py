"""Finds the pods of a set of manifests that run vLLM, and their commands, whatever object makes the pods.

An InferenceService is merged with its runtime by the rules of KServe (release 0.20), as its controller does; the pods
of an LLMInferenceService have the commands that KServe writes for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from neuroscale.core.validation import mapping, sequence
from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.vllm_containers import (
    PORT_SERVICE,
    Found,
    Unread,
    VllmContainer,
    containers,
    devices_of,
    not_vllm,
)
from neuroscale.manifests import kserve_pods
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.runtime_merge import (
    canary_predictors,
    merged_pod,
    merged_worker,
    models_of,
    parts_of_runtime,
    serving_container,
    serving_index,
)
from neuroscale.manifests.serving_runtimes import (
    BUILT_IN,
    KSERVE,
    RUNTIMES,
    find_runtime,
    model_format,
    runtime_key,
    runtime_name,
    runtime_of,
)
from neuroscale.vllm.command import ServeCommand, Word, serve_command

Runtimes = Callable[[str, str], Manifest | None]
"""Gives a runtime by its name and the service's namespace."""


def inference_service_servers(manifest: Manifest, runtime: Runtimes) -> Iterator[Found]:
    """The containers of its pods that run vLLM. `runtime`: the known ones. Raises ValueError if it cannot be read."""
    spec = mapping(manifest.value.get("spec"), "spec")
    if kserve_pods.stopped(manifest.value):
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


_LLM_CONTAINER = "main"


def llm_inference_service_servers(manifest: Manifest) -> Iterator[Found]:
    """The containers of its pods that run vLLM. Raises ValueError if the manifest cannot be read."""
    spec = mapping(manifest.value.get("spec"), "spec")
    if kserve_pods.stopped(manifest.value):
        return
    uri = str(mapping(spec.get("model"), "model").get("uri") or "")
    for part, described in kserve_pods.llm_parts(spec):
        at: Path = ("spec", part) if part else ("spec",)
        subject = f"{manifest.subject} {part}".strip()
        template = mapping(described.get("template"), "template")
        own = [mapping(item, "a container") for item in sequence(template.get("containers"), "containers")]
        if not own:
            yield Unread(manifest, at, subject, "its pods come from one of KServe's LLMInferenceServiceConfigs")
            continue
        if described.get("worker") is not None:
            yield Unread(manifest, (*at, "worker"), subject, "KServe writes the command of a service on several nodes")
            continue
        yield from containers(manifest, (*at, "template"), {**template, "containers": []}, subject)
        for index, container in enumerate(own):
            place = (*at, "template", "containers", index)
            alone = {**template, "containers": [container], "initContainers": []}
            command = serve_command(container)
            hidden: tuple[tuple[Path, str], ...] = ()
            if container.get("name") == _LLM_CONTAINER:
                hidden = tuple(_added(spec, at, described))
                if not container.get("command"):
                    command = _llm_command(container, described, spec, manifest)
            if command is not None:
                # KServe's config/llmisvcconfig mounts a volume in memory at /dev/shm into this container.
                shared = container.get("name") == _LLM_CONTAINER
                yield VllmContainer(manifest, place, subject, command, alone, uri, hidden=hidden, shared_memory=shared)
            elif devices := devices_of(container):
                yield Unread(manifest, place, subject, not_vllm(devices))


def _added(spec: Mapping[str, Any], at: Path, part: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """What KServe adds to the container `main`, whether or not the container has a command."""
    if spec.get("baseRefs"):
        yield ("spec", "baseRefs"), "an LLMInferenceServiceConfig adds fields to it"
    if mapping(mapping(spec.get("model"), "model").get("lora"), "lora").get("adapters"):
        told = "KServe adds --enable-lora and --lora-modules, and the memory of LoRA adapters is not counted"
        yield ("spec", "model", "lora"), told
    if part.get("kvCacheOffloading"):
        yield (*at, "kvCacheOffloading"), "KServe adds --kv-transfer-config, and its memory is not counted"


def _llm_command(
    container: Mapping[str, Any], part: Mapping[str, Any], spec: Mapping[str, Any], manifest: Manifest
) -> ServeCommand:
    """The command that KServe's own configuration gives to a container without one.

    It renders only the tensor-parallel size (kserve/kserve#5782): pipeline, data and expert parallelism are missing.
    """
    parallelism = mapping(part.get("parallelism"), "parallelism")
    name = str(mapping(spec.get("model"), "model").get("name") or manifest.name)
    words = ["/mnt/models", "--served-model-name", name, "--port", "8000"]
    if parallelism.get("tensor") is not None:
        words += ["--tensor-parallel-size", str(parallelism["tensor"])]
    # KServe's script is `eval "exec vllm serve $VLLM_ADDITIONAL_ARGS $@"`: a shell reads the joined words anew.
    args = " ".join(map(str, sequence(container.get("args"), "args")))
    script = {
        **container,
        "image": container.get("image") or "llm-d-cuda",
        "command": ["/bin/bash", "-c", f"exec vllm serve $(VLLM_ADDITIONAL_ARGS) {args}"],
        "args": [],
        "env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": ""}, *sequence(container.get("env"), "env")],
    }
    told = serve_command(script)
    assert told is not None
    return replace(told, words=(*(Word(word, ()) for word in words), *told.words))


def servers(manifests: Sequence[Manifest], elsewhere: Callable[[str], Manifest | None]) -> Iterator[Found]:
    """Every container that runs vLLM. `elsewhere` gives a ClusterServingRuntime outside of the manifests by name."""
    given = {key: manifest for manifest in manifests if (key := runtime_key(manifest.value))}

    def runtime(name: str, namespace: str) -> Manifest | None:
        return find_runtime(given, name, namespace) or elsewhere(name)

    linked = {one.namespace: one for one in manifests if _sets_port(one)}
    for manifest in manifests:
        try:
            for found in _read(manifest, runtime):
                if isinstance(found, VllmContainer) and _sees_services(found):
                    yield replace(found, port_service=linked.get(manifest.namespace))
                else:
                    yield found
        except ValueError as error:
            # The schema check reports what is wrong with it.
            if _mentions(manifest.value):
                yield Unread(manifest, (), manifest.subject, f"it cannot be read: {error}")


def _sets_port(manifest: Manifest) -> bool:
    """Whether it is a Service whose address Kubernetes writes into VLLM_PORT of its namespace's pods."""
    if (manifest.group, manifest.kind, manifest.name) != ("", "Service", PORT_SERVICE):
        return False
    spec = manifest.value.get("spec")
    return isinstance(spec, dict) and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName"


def _sees_services(server: VllmContainer) -> bool:
    """Whether the pod gets the variables of Services: Knative switches them off; other pods get them by default."""
    if server.spec.get("enableServiceLinks") is False or server.description:
        return False
    return server.manifest.kind != "InferenceService" or kserve_pods.is_standard(server.manifest.value)


def _read(manifest: Manifest, runtime: Runtimes) -> Iterator[Found]:
    if manifest.group == KSERVE and manifest.kind == "InferenceService":
        yield from inference_service_servers(manifest, runtime)
    elif manifest.group == KSERVE and manifest.kind == "LLMInferenceService":
        yield from llm_inference_service_servers(manifest)
    else:
        pods = _group_size(manifest)
        description = manifest.kind in RUNTIMES or manifest.kind in ("LLMInferenceServiceConfig", "PodTemplate")
        for at, spec in _pod_specs(manifest.value, ()):
            for found in containers(manifest, at, spec, manifest.subject, description=description):
                yield replace(found, pods=pods) if isinstance(found, VllmContainer) else found


def _group_size(manifest: Manifest) -> int:
    """The number of pods that one server runs in, if a LeaderWorkerSet makes them."""
    if manifest.kind != "LeaderWorkerSet":
        return 1
    group = mapping(mapping(manifest.value.get("spec"), "spec").get("leaderWorkerTemplate"), "leaderWorkerTemplate")
    size = group.get("size")
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1


def _pod_specs(value: Any, at: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every mapping of an object that holds containers, and the path to it."""
    if isinstance(value, dict):
        containers = value.get("containers")
        if isinstance(containers, list) and all(isinstance(one, dict) for one in containers):
            yield at, value
        for key, item in value.items():
            if key not in ("containers", "metadata"):
                yield from _pod_specs(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pod_specs(item, (*at, index))


def _mentions(value: Any) -> bool:
    return "vllm" in repr(value).lower()

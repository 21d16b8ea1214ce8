"""Which pods of a set of manifests run vLLM, with which command: whoever wrote them, and whatever makes the pods.

An InferenceService is merged with its runtime by the rules of KServe (release 0.20), as its controller does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.environment import PORT_SERVICE
from neuroscale.manifests import kserve_pods
from neuroscale.manifests.canaries import canary_predictors
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import Pod, mapping, read_pod, sequence
from neuroscale.manifests.runtime_merge import (
    filled,
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

_INIT = "it runs vLLM before the pod's own containers, which start once it has ended"
_LLM_CONTAINER = "main"


@dataclass(frozen=True)
class Server:
    """A container that runs vLLM.

    `subject` names it as findings do. `spec` is its pod's, with this container alone. `source` is what KServe puts to
    /mnt/models ("" where it puts nothing there). `pods`: how many of them one server runs in. `workers`: those of them
    that ask for other resources. `hidden`: what of the command the files do not tell, with its place in the manifest.
    `description`: it describes pods and runs none. `for_cpu`: it runs the build for CPUs whatever its image is called.
    `port_service`: a Service by whose name Kubernetes sets VLLM_PORT in its pods.
    """

    manifest: Manifest
    at: Path
    subject: str
    command: ServeCommand
    spec: Mapping[str, Any]
    source: str = ""
    pods: int = 1
    workers: tuple[Pod, ...] = ()
    hidden: tuple[tuple[Path, str], ...] = ()
    description: bool = False
    for_cpu: bool = False
    port_service: Manifest | None = None
    origins: Mapping[tuple[str | int, ...], tuple[Manifest, Path]] = field(default_factory=dict)

    @property
    def container(self) -> Mapping[str, Any]:
        one: Mapping[str, Any] = self.spec["containers"][0]
        return one

    def pod(self) -> Pod:
        """What the pod asks for. Raises ValueError where it cannot be read."""
        return read_pod(self.spec)

    def origin(self, place: tuple[str | int, ...]) -> tuple[Manifest, Path]:
        """Where a word, or another part of the container, is written."""
        return self.origins.get(place, (self.manifest, (*self.at, *place)))


@dataclass(frozen=True)
class Unread:
    """Something that may run vLLM, or asks for accelerators, and of which the files do not tell the command."""

    manifest: Manifest
    at: Path
    subject: str
    reason: str


Found = Server | Unread
Runtimes = Callable[[str, str], Manifest | None]
"""A runtime by its name and the service's namespace."""


def servers(manifests: Sequence[Manifest], elsewhere: Callable[[str], Manifest | None]) -> Iterator[Found]:
    """Everything that runs vLLM. `elsewhere`: a ClusterServingRuntime by its name that is not among the manifests."""
    given = {key: manifest for manifest in manifests if (key := runtime_key(manifest.value))}

    def runtime(name: str, namespace: str) -> Manifest | None:
        return find_runtime(given, name, namespace) or elsewhere(name)

    linked = {one.namespace: one for one in manifests if _sets_port(one)}
    for manifest in manifests:
        try:
            for found in _read(manifest, runtime):
                if isinstance(found, Server) and _sees_services(found):
                    yield replace(found, port_service=linked.get(manifest.namespace))
                else:
                    yield found
        except ValueError as error:
            # The schema's check says what is wrong with it.
            if _mentions(manifest.value):
                yield Unread(manifest, (), manifest.subject, f"it cannot be read: {error}")


def _sets_port(manifest: Manifest) -> bool:
    """Whether it is a Service whose address Kubernetes puts into VLLM_PORT of its namespace's pods."""
    if (manifest.group, manifest.kind, manifest.name) != ("", "Service", PORT_SERVICE):
        return False
    spec = manifest.value.get("spec")
    return isinstance(spec, dict) and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName"


def _sees_services(server: Server) -> bool:
    """Knative switches these variables off; elsewhere they are on unless the pod says otherwise."""
    if server.spec.get("enableServiceLinks") is False or server.description:
        return False
    return server.manifest.kind != "InferenceService" or kserve_pods.is_standard(server.manifest.value)


def _read(manifest: Manifest, runtime: Runtimes) -> Iterator[Found]:
    if manifest.group == KSERVE and manifest.kind == "InferenceService":
        yield from _inference_service(manifest, runtime)
    elif manifest.group == KSERVE and manifest.kind == "LLMInferenceService":
        yield from _llm_inference_service(manifest)
    else:
        pods = _group_size(manifest)
        description = manifest.kind in RUNTIMES or manifest.kind in ("LLMInferenceServiceConfig", "PodTemplate")
        for at, spec in _pod_specs(manifest.value, ()):
            for found in _containers(manifest, at, spec, manifest.subject, description=description):
                yield replace(found, pods=pods) if isinstance(found, Server) else found


def _group_size(manifest: Manifest) -> int:
    """How many pods one server runs in that a LeaderWorkerSet makes."""
    if manifest.kind != "LeaderWorkerSet":
        return 1
    group = mapping(mapping(manifest.value.get("spec"), "spec").get("leaderWorkerTemplate"), "leaderWorkerTemplate")
    size = group.get("size")
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1


def _containers(
    manifest: Manifest, at: Path, spec: Mapping[str, Any], subject: str, *, description: bool = False, source: str = ""
) -> Iterator[Found]:
    for key in ("containers", "initContainers"):
        for index, item in enumerate(sequence(spec.get(key), key)):
            container = mapping(item, "a container")
            command = serve_command(filled(container) if description else container)
            place = (*at, key, index)
            if key == "initContainers" and container.get("restartPolicy") != "Always" and command is not None:
                if command.unreadable:
                    command = None  # of vLLM's image, to do something else
                elif not description:
                    yield Unread(manifest, place, subject, _INIT)
                    continue
            if command is not None:
                alone = {**spec, "containers": [container], "initContainers": []}
                yield Server(manifest, place, subject, command, alone, source, description=description)
            elif (devices := _devices(container)) and not description:
                yield Unread(manifest, place, subject, _not_vllm(devices))


def _devices(container: Mapping[str, Any]) -> list[str]:
    """The accelerators that a container asks for, by the names of their resources."""
    resources = mapping(container.get("resources"), "resources")
    asked = {**mapping(resources.get("requests"), "requests"), **mapping(resources.get("limits"), "limits")}
    devices = sorted(str(name) for name, amount in asked.items() if "/" in str(name) and str(amount) != "0")
    claims = [mapping(one, "a claim") for one in sequence(resources.get("claims"), "claims")]
    return [*devices, *(f"devices by the claim {one.get('name')}" for one in claims)]


def _not_vllm(devices: list[str]) -> str:
    return f"it asks for {' and '.join(devices)}, and what it runs is not known to be vLLM"


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


# InferenceService.


def _inference_service(manifest: Manifest, runtime: Runtimes) -> Iterator[Found]:
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
            yield from _containers(manifest, ("spec", part), mapping(spec[part], part), f"{manifest.subject} {part}")


def _predictor(manifest: Manifest, at: Path, predictor: Mapping[str, Any], runtime: Runtimes) -> Iterator[Found]:
    subject = manifest.subject
    found: list[Found] = []
    described = list(models_of(predictor))
    for key, model in described:
        found.extend(_model(manifest, at, predictor, key, model, runtime))
    own = {**predictor, "containers": sequence(predictor.get("containers"), "containers")}
    found.extend(
        replace(one, source=_custom_source(one.container)) if isinstance(one, Server) else one
        for one in _containers(manifest, at, own, subject)
    )
    workers = predictor.get("workerSpec")
    if workers is None:
        yield from found
        return
    known = _described(described[0][1], manifest, runtime) if described else None
    for one in found:
        yield _with_workers(one, mapping(workers, "workerSpec"), known) if isinstance(one, Server) else one


def _described(model: Mapping[str, Any], manifest: Manifest, runtime: Runtimes) -> Mapping[str, Any] | None:
    """The runtime of a model as KServe merges the service with it; None where the files do not tell it."""

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
        told = f"{what} is not among the files: it puts its own arguments, and maybe its command, before these"
        hidden.append(((*place, "runtime") if name else place, told))
        if command is None:
            # Its own words may be vLLM's; other formats (sklearn, triton, ...) name other servers.
            if "vllm" in name.lower() or "huggingface" in (name + wanted).lower() or _devices(container):
                yield Unread(manifest, (*place, "runtime") if name else place, manifest.subject, told)
            return
    elif command is None:
        if devices := _devices(container):
            yield Unread(manifest, place, manifest.subject, _not_vllm(devices))
        return
    yield Server(
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
    """Where the words of a merged container are written: in the service's container, or in the runtime's."""
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


def _with_workers(server: Server, workers: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> Found:
    """A predictor on several nodes."""
    try:
        worker_spec, staged = merged_worker(workers, runtime)
        head, worker, count = kserve_pods.with_workers(server.pod(), worker_spec, staged=staged)
    except ValueError as error:
        return replace(server, hidden=(*server.hidden, ((*server.at,), f"its workers cannot be counted: {error}")))
    if dict(head.devices) == dict(worker.devices):
        return replace(server, pods=count + 1)
    return replace(server, workers=(worker,) * count)


# LLMInferenceService.


def _llm_inference_service(manifest: Manifest) -> Iterator[Found]:
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
            yield Unread(manifest, at, subject, "its pods come from an LLMInferenceServiceConfig of KServe's")
            continue
        if described.get("worker") is not None:
            yield Unread(manifest, (*at, "worker"), subject, "KServe writes the command of a service on several nodes")
            continue
        yield from _containers(manifest, (*at, "template"), {**template, "containers": []}, subject)
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
                yield Server(manifest, place, subject, command, alone, uri, hidden=hidden)
            elif devices := _devices(container):
                yield Unread(manifest, place, subject, _not_vllm(devices))


def _added(spec: Mapping[str, Any], at: Path, part: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """What KServe adds to the container of the name `main`, with a command of its own or without."""
    if spec.get("baseRefs"):
        yield ("spec", "baseRefs"), "it takes more from an LLMInferenceServiceConfig"
    if mapping(mapping(spec.get("model"), "model").get("lora"), "lora").get("adapters"):
        told = "KServe adds --enable-lora and --lora-modules, and the memory of LoRA adapters is not counted"
        yield ("spec", "model", "lora"), told
    if part.get("kvCacheOffloading"):
        yield (*at, "kvCacheOffloading"), "KServe adds --kv-transfer-config, and the memory of it is not counted"


def _llm_command(
    container: Mapping[str, Any], part: Mapping[str, Any], spec: Mapping[str, Any], manifest: Manifest
) -> ServeCommand:
    """What KServe's own configuration makes of a container without a command.

    Of the parallelism it renders the tensor size alone (kserve/kserve#5782): pipeline, data and expert are not there.
    """
    parallelism = mapping(part.get("parallelism"), "parallelism")
    name = str(mapping(spec.get("model"), "model").get("name") or manifest.name)
    words = ["/mnt/models", "--served-model-name", name, "--port", "8000"]
    if parallelism.get("tensor") is not None:
        words += ["--tensor-parallel-size", str(parallelism["tensor"])]
    script = {
        **container,
        "image": container.get("image") or "llm-d-cuda",
        "command": ["/bin/bash", "-c", 'eval "exec vllm serve $VLLM_ADDITIONAL_ARGS $@"', "--"],
        "env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": ""}, *sequence(container.get("env"), "env")],
    }
    told = serve_command(script)
    assert told is not None
    return replace(told, words=(*(Word(word, ()) for word in words), *told.words))

"""Which pods of a set of manifests run vLLM, with which command: whoever wrote them, and whatever makes the pods.

An InferenceService is merged with its runtime by the rules of KServe (release 0.20), as its controller does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.environment import PORT_SERVICE
from neuroscale.manifests import kserve_pods
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import Pod, mapping, read_pod, sequence
from neuroscale.vllm.command import ServeCommand, Word, serve_command

KSERVE = "serving.kserve.io"
RUNTIMES = ("ServingRuntime", "ClusterServingRuntime")
BUILT_IN = "kserve-vllmserver"
"""KServe's own runtime for vLLM, which it takes for the model format vLLM where a service names none."""
_BUILT_IN_CONTAINER: Mapping[str, Any] = {
    "name": "kserve-container",
    # The tag is whatever KServe was installed with; without NVIDIA GPUs it takes the image for CPUs.
    "image": "vllm-openai:latest",
    "command": ["python", "-m", "vllm.entrypoints.openai.api_server"],
    "args": ["--port=8080", "--served-model-name={{.Name}}", "--model=/mnt/models"],
}
_PLACEHOLDER = re.compile(r"\{\{-?\s*\.(Name|Namespace)\s*-?\}\}")
_INIT = "it runs vLLM before the pod's own containers, which start once it has ended"
SERVING = "kserve-container"
"""The container that KServe sends requests to."""
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
    given = {
        (manifest.kind, manifest.namespace if manifest.kind == RUNTIMES[0] else "", manifest.name): manifest
        for manifest in manifests
        if manifest.group == KSERVE and manifest.kind in RUNTIMES
    }

    def runtime(name: str, namespace: str) -> Manifest | None:
        return given.get((RUNTIMES[0], namespace, name)) or given.get((RUNTIMES[1], "", name)) or elsewhere(name)

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
            command = serve_command(_filled(container) if description else container)
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
    for index, item in enumerate(sequence(spec.get("canary"), "canary")):
        predictor = mapping(item, "a canary").get("predictor")
        if predictor is not None:
            predictors.append((("spec", "canary", index, "predictor"), mapping(predictor, "predictor")))
    for at, predictor in predictors:
        yield from _predictor(manifest, at, predictor, runtime)
    for part in ("transformer", "explainer"):
        if spec.get(part) is not None:
            yield from _containers(manifest, ("spec", part), mapping(spec[part], part), f"{manifest.subject} {part}")


def _predictor(manifest: Manifest, at: Path, predictor: Mapping[str, Any], runtime: Runtimes) -> Iterator[Found]:
    subject = manifest.subject
    found: list[Found] = []
    for key in kserve_pods.SERVERS:
        if predictor.get(key) is not None:
            found.extend(_model(manifest, at, predictor, key, runtime))
    own = {**predictor, "containers": sequence(predictor.get("containers"), "containers")}
    found.extend(
        replace(one, source=_custom_source(one.container)) if isinstance(one, Server) else one
        for one in _containers(manifest, at, own, subject)
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
    command = serve_command(_filled(container, manifest.name, manifest.namespace))
    hidden: list[tuple[Path, str]] = [(place, why)] if why else []
    if merged_with is None and not built_in:
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


def _filled(container: Mapping[str, Any], name: str = "name", namespace: str = "namespace") -> dict[str, Any]:
    """With KServe's placeholders for the service's name and namespace filled in, wherever they stand."""
    known = {"Name": name, "Namespace": namespace}

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return _PLACEHOLDER.sub(lambda found: known[found[1]], value)
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        return [filled(item) for item in value] if isinstance(value, list) else value

    return {key: filled(value) for key, value in container.items()}


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

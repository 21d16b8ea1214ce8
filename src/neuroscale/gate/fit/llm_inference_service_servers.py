"""Finds vLLM in the pods of KServe's LLMInferenceService (release 0.20), with the commands that KServe writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.vllm_containers import Found, Unread, VllmContainer, containers, devices_of, not_vllm
from neuroscale.manifests import kserve_pods, kserve_scaling
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import mapping, sequence
from neuroscale.vllm.command import ServeCommand, Word, serve_command

_LLM_CONTAINER = "main"


def llm_inference_service_servers(manifest: Manifest) -> Iterator[Found]:
    """The containers of its pods that run vLLM. Raises ValueError if the manifest cannot be read."""
    spec = mapping(manifest.value.get("spec"), "spec")
    if kserve_scaling.stopped(manifest.value):
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
    script = {
        **container,
        "image": container.get("image") or "llm-d-cuda",
        "command": ["/bin/bash", "-c", 'eval "exec vllm serve $VLLM_ADDITIONAL_ARGS $@"', "--"],
        "env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": ""}, *sequence(container.get("env"), "env")],
    }
    told = serve_command(script)
    assert told is not None
    return replace(told, words=(*(Word(word, ()) for word in words), *told.words))

"""Checks that the volumes that vLLM writes to have room for the files that it certainly writes.

Kubernetes ends a pod whose emptyDir holds more than its sizeLimit, and one with `medium: Memory` is a file system of
that size. Only a volume that is certainly too small is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

from neuroscale.core.units import GIB, MIB
from neuroscale.gate.fit.container_faults import ContainerFault
from neuroscale.gate.fit.known_models import KnownModel
from neuroscale.manifests.pod_resources import mapping, sequence
from neuroscale.manifests.quantity import quantity
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.command import ServeCommand
from neuroscale.vllm.parallel_sizes import ranks

READ = ("download_dir", "distributed_executor_backend", "load_format", "tensor_parallel_size", "pipeline_parallel_size")
"""Arguments that decide which files vLLM writes, and where."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108  # a name in a manifest, not a file of this program
_CHUNK = "VLLM_MQ_MAX_CHUNK_BYTES_MB"
# vLLM 0.32, vllm/distributed/device_communicators/shm_broadcast.py and vllm/envs.py: the queue between the ranks of one
# server has ten chunks of 16 MiB, each with a byte for the writer and one for each rank. vLLM ends where /dev/shm has
# less room than that ("Insufficient space in /dev/shm ... 160 MiB required").
_CHUNKS, _CHUNK_MIB = 10, 16
_DOWNLOADED = ("auto", "safetensors", "hf", "pt")
# Where the hub's files go, by the first variable that is set (huggingface_hub/constants.py).
_HUB_FOLDERS = (
    ("HF_HUB_CACHE", ""),
    ("HUGGINGFACE_HUB_CACHE", ""),
    ("HF_HOME", "hub"),
    ("XDG_CACHE_HOME", "huggingface/hub"),
    ("HOME", ".cache/huggingface/hub"),
)
_CACHE_FOLDERS = (("VLLM_CACHE_ROOT", ""), ("XDG_CACHE_HOME", "vllm"), ("HOME", ".cache/vllm"))  # vllm/envs.py
_COMPILATION = ("compilation_config", "optimization_level")
_UNCACHED = "VLLM_DISABLE_COMPILE_CACHE"
# Measured: vLLM 0.32 had written 2.7 MiB there once a Llama of four layers answered on a CPU, and 0.01 MiB with
# --enforce-eager. Larger models and GPUs take more; how much more is unknown.
_LEAST_COMPILED = Decimal(2 * MIB)
# The weights in the files can be smaller than those counted from a config, as experts of 4 bits are.
_COUNTED = Decimal("0.2")


@dataclass(frozen=True)
class _Volume:
    """An emptyDir with a limit. `place`: its mount, within the container."""

    name: str
    limit: Decimal
    in_memory: bool
    place: tuple[str | int, ...]


def check_room(
    spec: Mapping[str, Any], parsed: Parsed, command: ServeCommand, model: KnownModel | None, *, compiled: bool
) -> Iterator[ContainerFault]:
    """Faults of volumes that are too small. The command is read as a whole; `spec` is a pod's, with one container.

    `model`: None if it is unknown, or does not come from the hub. `compiled`: it runs on an accelerator for which
    vLLM compiles kernels with torch.compile, unless the command says otherwise.
    """
    yield from _shared_memory(spec, parsed, command)
    if compiled:
        yield from _cache(spec, parsed, command)
    if model is not None:
        yield from _download(spec, parsed, command, model)


def _shared_memory(spec: Mapping[str, Any], parsed: Parsed, command: ServeCommand) -> Iterator[ContainerFault]:
    volume = _volume(spec, SHARED_MEMORY)
    count = ranks(parsed)
    if volume is None or not volume.in_memory or count < 2 or _CHUNK in command.hidden:
        return
    if parsed.value("distributed_executor_backend") not in (None, "mp"):
        return
    try:
        chunk = int(command.environment.get(_CHUNK, _CHUNK_MIB))
    except ValueError:
        return
    needed = Decimal(_CHUNKS * (chunk * MIB + 1 + count))
    if volume.limit < needed:
        told = (
            f"{count} ranks exchange messages by a queue of {chunk * _CHUNKS} MiB in {SHARED_MEMORY}, and the volume "
            f"{volume.name} there holds {_size(volume.limit)}: vLLM ends at its start"
        )
        yield ContainerFault("small-volume", volume.place, told, "Raise its sizeLimit, to 1Gi or more.")


def _download(
    spec: Mapping[str, Any], parsed: Parsed, command: ServeCommand, model: KnownModel
) -> Iterator[ContainerFault]:
    if parsed.value("load_format") not in (None, *_DOWNLOADED):
        return
    folder = str(parsed.value("download_dir") or "") or _hub_folder(command)
    volume = _volume(spec, folder) if folder.startswith("/") else None
    if volume is None:
        return
    exact = model.facts.basis == "headers"
    least = sum(model.facts.weight_bytes.values()) * (Decimal(1) if exact else _COUNTED)
    if volume.limit < least:
        told = (
            f"vLLM downloads more than {_size(least)} of {model.entry.name} to {folder}, and the volume {volume.name} "
            f"there holds {_size(volume.limit)}: the pod is evicted before it answers"
        )
        yield ContainerFault("small-volume", volume.place, told, "Raise its sizeLimit beyond the size of the weights.")


def _cache(spec: Mapping[str, Any], parsed: Parsed, command: ServeCommand) -> Iterator[ContainerFault]:
    if parsed.arguments.enforce_eager or any(dest in parsed.values for dest in _COMPILATION):
        return
    if _UNCACHED in {*command.environment, *command.hidden}:
        return
    folder = _folder(command, _CACHE_FOLDERS)
    volume = _volume(spec, folder) if folder else None
    if volume is not None and volume.limit < _LEAST_COMPILED:
        told = (
            f"vLLM keeps compiled kernels in {folder}, over {_size(_LEAST_COMPILED)} for the smallest model, and the "
            f"volume {volume.name} there holds {_size(volume.limit)}: the pod is evicted"
        )
        yield ContainerFault("small-volume", volume.place, told, "Raise its sizeLimit, to 10Gi or more.")


def _hub_folder(command: ServeCommand) -> str:
    """The folder of the hub's files; "" if the command does not show it, or if vLLM downloads none."""
    if command.environment.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return ""
    return _folder(command, _HUB_FOLDERS)


def _folder(command: ServeCommand, folders: Sequence[tuple[str, str]]) -> str:
    """The folder below the first variable that is set; "" if its value is hidden or no variable is set: the image's
    user decides then."""
    for name, below in folders:
        if name in command.hidden or "" in command.hidden:
            return ""
        if folder := command.environment.get(name):
            return str(PurePosixPath(folder, below))
    return ""


def _volume(spec: Mapping[str, Any], folder: str) -> _Volume | None:
    """The emptyDir with a limit that a folder lies in; None for another volume, or if the limit cannot be read."""
    container = mapping(spec["containers"][0], "a container")
    mounts = [mapping(one, "a mount") for one in sequence(container.get("volumeMounts"), "volumeMounts")]
    around = [
        (len(PurePosixPath(path).parts), index)
        for index, one in enumerate(mounts)
        if (path := str(one.get("mountPath") or "")) and PurePosixPath(folder).is_relative_to(path)
    ]
    if not around:
        return None
    index = max(around)[1]
    for item in sequence(spec.get("volumes"), "volumes"):
        one = mapping(item, "a volume")
        empty = mapping(one.get("emptyDir"), "emptyDir")
        if one.get("name") != mounts[index].get("name") or empty.get("sizeLimit") is None:
            continue
        try:
            limit = quantity(empty["sizeLimit"])
        except ValueError:
            return None  # the API server refuses it
        if limit == 0:
            return None  # Kubernetes reads 0 as no limit
        return _Volume(str(one.get("name")), limit, empty.get("medium") == "Memory", ("volumeMounts", index))
    return None


def _size(size: Decimal) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"

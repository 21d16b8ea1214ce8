"""Checks a server's shared memory, the room in its volumes, its host memory, and its rights to mounted buckets.

Kubernetes ends a pod whose emptyDir holds more than its sizeLimit, and one with `medium: Memory` is a file system of
that size. Only a volume that is certainly too small is a finding. A bucket that Cloud Storage FUSE mounts belongs to
the user in its options, which may not be the server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

from neuroscale.core.units import GIB, MIB
from neuroscale.core.validation import mapping, sequence
from neuroscale.gate.fit.known_models import KnownModel, KnownPlace
from neuroscale.gate.fit.vllm_containers import ContainerFault
from neuroscale.manifests.pod_resources import memory_limit, quantity
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.weights import rank_weights
from neuroscale.planning.replica_memory import host_memory
from neuroscale.vllm.accelerator_rules import local_data_parallel, pod_ranks, ranks
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.command import ServeCommand

_LEAST = Decimal(GIB)


def check_host_memory(
    spec: Mapping[str, Any], model: KnownModel | None, place: KnownPlace | None
) -> Iterator[ContainerFault]:
    """A fault if the memory limit is too small for any vLLM; the advice is what a plan gives the model in that place.
    Another check reports a limit that cannot be read.
    """
    try:
        limit = memory_limit(spec)
    except ValueError:
        return
    if limit is None or limit >= _LEAST:
        return
    told = f"the container may use {limit / MIB:.0f} MiB of memory, and vLLM alone takes 1 GiB or more: it is killed"
    fix = "Raise the memory limit to what the model needs while it loads: neuroscale plan computes it."
    if model is not None and place is not None:
        accelerator = place.place.accelerator
        planned = host_memory(model.entry, accelerator, place.place.count).gib
        fix = f"Raise the memory limit to {planned}Gi, as a plan gives {model.entry.name} on {accelerator.title}."
    yield ContainerFault("host-memory", ("resources",), told, fix)


def beyond_limit(parsed: Parsed, facts: ModelFacts, spec: Mapping[str, Any]) -> tuple[str, str] | None:
    """The argument's name and a sentence, if the weights and the KV cache that it offloads exceed the memory limit of
    the one container in a pod's `spec`. None if they do not, if there is no limit, or if the limit cannot be read,
    which another check reports."""
    try:
        limited = memory_limit(spec)
    except ValueError:
        return None
    if limited is None:
        return None
    limit = float(limited) / GIB
    weights = rank_weights(facts, parsed.arguments.in_range()).offloaded * pod_ranks(parsed) / GIB
    size = parsed.values.get("kv_offloading_size")
    cache = float(size) * local_data_parallel(parsed) if isinstance(size, int | float) else 0.0
    if weights + cache <= limit:
        return None
    dest = "cpu_offload_gb" if weights >= cache else "kv_offloading_size"
    told = (
        f"{weights + cache:.2f} GiB of weights or KV cache are put into host memory, and the container may use "
        f"{limit:.2f} GiB of it: the gate cannot judge whether it is killed"
    )
    return dest, told


DRIVER = "gcsfuse.csi.storage.gke.io"


def check_buckets(spec: Mapping[str, Any]) -> Iterator[ContainerFault]:
    """A notice for each bucket that belongs to another user than the server's. `spec`: a pod's, with one container.

    A FUSE mount belongs to root unless its options name a user. The image's own user is not known here, so a server
    without `runAsUser` gets no notice.
    """
    with suppress(ValueError):  # the schema check finds fields of a wrong type
        yield from _foreign_buckets(spec)


def _foreign_buckets(spec: Mapping[str, Any]) -> Iterator[ContainerFault]:
    container = mapping(spec["containers"][0], "a container")
    users = [mapping(one.get("securityContext"), "securityContext").get("runAsUser") for one in (container, spec)]
    user = next((one for one in users if one is not None), None)
    if not isinstance(user, int) or user == 0:
        return
    buckets: dict[str, set[str]] = {}
    for volume in (mapping(one, "a volume") for one in sequence(spec.get("volumes"), "volumes")):
        name, driven = volume.get("name"), mapping(volume.get("csi"), "csi")
        if isinstance(name, str) and driven.get("driver") == DRIVER:
            options = mapping(driven.get("volumeAttributes"), "volumeAttributes").get("mountOptions")
            buckets[name] = {one.strip() for one in str(options or "").split(",")}
    for index, mount in enumerate(mounts_of(container)):
        name = mount.get("name")
        options = buckets.get(name) if isinstance(name, str) else None
        if options is None or f"uid={user}" in options or _readable(options):
            continue
        named = next((one for one in sorted(options) if one.startswith("uid=")), "")
        whose = f"the user of {named}" if named else "root, since its mountOptions name no uid"
        told = f"the server runs as user {user}, and the bucket of the volume {name} belongs to {whose}"
        message = f"{told}: it may not be allowed to read the files"
        fix = f"Add uid={user} and the gid of its group to mountOptions of the volume's volumeAttributes."
        yield ContainerFault("mounted-bucket", ("volumeMounts", index), message, fix, refused=False)


def _readable(options: Iterable[str]) -> bool:
    """Whether the options say that everybody may read the files and enter the folders."""
    modes = {
        key.replace("_", "-"): int(value, 8)
        for key, _, value in (one.partition("=") for one in options)
        if re.fullmatch(r"[0-7]{3,4}", value)
    }
    return modes.get("file-mode", 0) & 0o4 == 0o4 and modes.get("dir-mode", 0) & 0o5 == 0o5


READ = ("download_dir", "distributed_executor_backend", "load_format", "tensor_parallel_size", "pipeline_parallel_size")
"""Arguments that decide which files vLLM writes, and where."""

_GPUS = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # a name in a manifest, not a file of this program
_CHUNK = "VLLM_MQ_MAX_CHUNK_BYTES_MB"
# vLLM 0.32, vllm/distributed/device_communicators/shm_broadcast.py and vllm/envs.py: the queue between the ranks of one
# server has ten chunks of 16 MiB, each with a byte for the writer and one for each rank. vLLM ends where /dev/shm has
# less room than that ("Insufficient space in /dev/shm ... 160 MiB required").
_CHUNKS, _CHUNK_MIB = 10, 16
# What a container has at /dev/shm where nothing is mounted there: the default of containerd and CRI-O, whose images
# Kubernetes runs. NCCL's segments alone can take more: 9.2 MiB for each pair of GPUs without a direct link
# (https://github.com/NVIDIA/nccl/issues/525).
_DEFAULT = Decimal(64 * MIB)
_MOUNT = "Mount an emptyDir with medium: Memory and a sizeLimit of 1Gi or more there."
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


def check_shared_memory(
    spec: Mapping[str, Any], parsed: Parsed, command: ServeCommand, *, processes: bool
) -> Iterator[ContainerFault]:
    """Faults of a server of several ranks with nothing in memory at /dev/shm. `spec` is a pod's, with one container.

    `processes`: it runs on accelerators for which each rank is a process of its own, as on every GPU; a server that
    certainly ends is refused then, and any other gets a notice.
    """
    processes = processes or _asks_for_gpus(spec)
    count = pod_ranks(parsed)
    if count < 2 or spec.get("hostIPC") is True:
        return
    mount = nearest_mount(spec["containers"][0], SHARED_MEMORY)
    if mount is not None:
        empty = _empty_dir(spec, mount)
        if empty is not None and empty.get("medium") != "Memory":
            told = f"{count} ranks exchange messages in {SHARED_MEMORY}, which is a volume on the node's disk"
            place = ("volumeMounts", mount)
            yield ContainerFault(
                "no-shared-memory", place, told, "Write medium: Memory in its emptyDir.", refused=False
            )
        return
    needed, size = _queue(parsed, command)
    if processes and needed > _DEFAULT:
        told = (
            f"{ranks(parsed)} ranks exchange messages by a queue of {size} MiB in {SHARED_MEMORY}, and a container "
            f"without a volume there has {_size(_DEFAULT)}: vLLM ends at its start"
        )
    else:
        told = (
            f"{count} ranks share {_size(_DEFAULT)} in {SHARED_MEMORY}, as a container without a volume there has, and "
            "what they exchange (on GPUs by NCCL) may need more: the server ends then"
        )
    yield ContainerFault("no-shared-memory", ("volumeMounts",), told, _MOUNT, refused=processes and needed > _DEFAULT)


def _asks_for_gpus(spec: Mapping[str, Any]) -> bool:
    for item in sequence(spec.get("containers"), "containers"):
        limits = mapping(mapping(mapping(item, "a container").get("resources"), "resources").get("limits"), "limits")
        if not _GPUS.isdisjoint(limits):
            return True
    return False


def _queue(parsed: Parsed, command: ServeCommand) -> tuple[Decimal, int]:
    """The bytes of the queue between the ranks of one server, and its size in MiB; 0 if there is none, or if it is not
    known."""
    count = ranks(parsed)
    if count < 2 or _CHUNK in command.hidden or parsed.value("distributed_executor_backend") not in (None, "mp"):
        return Decimal(0), 0
    try:
        chunk = int(command.environment.get(_CHUNK, _CHUNK_MIB))
    except ValueError:
        return Decimal(0), 0
    return Decimal(_CHUNKS * (chunk * MIB + 1 + count)), chunk * _CHUNKS


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
    needed, size = _queue(parsed, command)
    if volume is not None and volume.in_memory and volume.limit < needed:
        told = (
            f"{ranks(parsed)} ranks exchange messages by a queue of {size} MiB in {SHARED_MEMORY}, and the volume "
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
    index = nearest_mount(spec["containers"][0], folder)
    empty = None if index is None else _empty_dir(spec, index)
    if index is None or empty is None or empty.get("sizeLimit") is None:
        return None
    try:
        limit = quantity(empty["sizeLimit"])
    except ValueError:
        return None  # the API server refuses it
    if limit == 0:
        return None  # Kubernetes reads 0 as no limit
    name = str(mounts_of(spec["containers"][0])[index].get("name"))
    return _Volume(name, limit, empty.get("medium") == "Memory", ("volumeMounts", index))


def mounts_of(container: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The mounts of a container. Raises ValueError if they cannot be read."""
    return [mapping(one, "a mount") for one in sequence(container.get("volumeMounts"), "volumeMounts")]


def nearest_mount(container: Mapping[str, Any], folder: str) -> int | None:
    """The position of the mount that a folder lies in; None if it lies in the container's own files."""
    around = [
        (len(PurePosixPath(path).parts), index)
        for index, one in enumerate(mounts_of(container))
        if (path := str(one.get("mountPath") or "")) and PurePosixPath(folder).is_relative_to(path)
    ]
    return max(around)[1] if around else None


def _empty_dir(spec: Mapping[str, Any], mount: int) -> dict[str, Any] | None:
    """The emptyDir that is mounted at that position; None for another volume."""
    name = mounts_of(spec["containers"][0])[mount].get("name")
    for item in sequence(spec.get("volumes"), "volumes"):
        one = mapping(item, "a volume")
        if one.get("name") == name and one.get("emptyDir") is not None:
            return mapping(one["emptyDir"], "emptyDir")
    return None


def _size(size: Decimal) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"

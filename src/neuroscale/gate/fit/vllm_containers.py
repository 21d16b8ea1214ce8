"""Finds the containers of a pod that run vLLM, and the variables that make vLLM (release 0.32) end at its start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from neuroscale.core.releases import release
from neuroscale.core.validation import mapping, sequence
from neuroscale.core.yaml_io import Path
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import Pod, read_pod
from neuroscale.manifests.runtime_merge import filled
from neuroscale.vllm.command import ServeCommand, serve_command
from neuroscale.vllm.engine_arguments import CACHE_SPACE, cache_space


@dataclass(frozen=True)
class ContainerFault:
    """A fault of a container."""

    rule: str
    place: Path  # its field within the container
    message: str
    fix: str
    refused: bool = True  # False for a notice


_INIT = "it runs vLLM before the pod's own containers, which start once it has ended"


@dataclass(frozen=True)
class VllmContainer:
    """A container that runs vLLM."""

    manifest: Manifest
    at: Path
    subject: str  # as findings name it
    command: ServeCommand
    spec: Mapping[str, Any]  # its pod's, with only this container
    source: str = ""  # the address of the files that KServe puts into /mnt/models ("" if it puts none there)
    pods: int = 1  # that one server runs in
    workers: tuple[Pod, ...] = ()  # the pods of them that ask for other resources
    hidden: tuple[tuple[Path, str], ...] = ()  # places, and the part of the command that the files do not show there
    description: bool = False  # it describes pods and runs none
    for_cpu: bool = False  # it runs the build for CPUs, whatever its image's name is
    shared_memory: bool = False  # KServe mounts /dev/shm into it
    port_service: Manifest | None = None  # a Service for which Kubernetes sets VLLM_PORT in its pods
    origins: Mapping[tuple[str | int, ...], tuple[Manifest, Path]] = field(default_factory=dict)

    @property
    def container(self) -> Mapping[str, Any]:
        one: Mapping[str, Any] = self.spec["containers"][0]
        return one

    @property
    def image(self) -> str:
        return str(self.container.get("image") or "")

    def pod(self) -> Pod:
        """The resources that the pod asks for. Raises ValueError if they cannot be read."""
        return read_pod(self.spec)

    def origin(self, place: tuple[str | int, ...]) -> tuple[Manifest, Path]:
        """The manifest and the field in which a word, or another part of the container, is written."""
        return self.origins.get(place, (self.manifest, (*self.at, *place)))


@dataclass(frozen=True)
class Unread:
    """A container that may run vLLM, or asks for accelerators, and whose command the files do not show."""

    manifest: Manifest
    at: Path
    subject: str
    reason: str


Found = VllmContainer | Unread


def containers(
    manifest: Manifest, at: Path, spec: Mapping[str, Any], subject: str, *, description: bool = False, source: str = ""
) -> Iterator[Found]:
    """The servers in the pod `spec` at the path `at` of a manifest. Raises ValueError if it is not a pod's spec."""
    for key in ("containers", "initContainers"):
        for index, item in enumerate(sequence(spec.get(key), key)):
            container = mapping(item, "a container")
            command = serve_command(filled(container) if description else container)
            place = (*at, key, index)
            if key == "initContainers" and container.get("restartPolicy") != "Always" and command is not None:
                if command.unread_script:
                    yield Unread(manifest, place, subject, f"{command.unreadable[0][1]}: it may run vLLM")
                    continue
                if command.unreadable:
                    command = None  # vLLM's image runs another program here
                elif not description:
                    yield Unread(manifest, place, subject, _INIT)
                    continue
            if command is not None:
                alone = {**spec, "containers": [container], "initContainers": []}
                yield VllmContainer(manifest, place, subject, command, alone, source, description=description)
            elif (devices := devices_of(container)) and not description:
                yield Unread(manifest, place, subject, not_vllm(devices))


def devices_of(container: Mapping[str, Any]) -> list[str]:
    """The accelerators that a container asks for, by the names of their resources."""
    resources = mapping(container.get("resources"), "resources")
    asked = {**mapping(resources.get("requests"), "requests"), **mapping(resources.get("limits"), "limits")}
    devices = sorted(str(name) for name, amount in asked.items() if "/" in str(name) and str(amount) != "0")
    claims = [mapping(one, "a claim") for one in sequence(resources.get("claims"), "claims")]
    return [*devices, *(f"devices by the claim {one.get('name')}" for one in claims)]


def not_vllm(devices: list[str]) -> str:
    """Why the gate does not judge a container that asks for these devices."""
    return f"it asks for {' and '.join(devices)}, and its program is not known to be vLLM"


ENV = ("env",)
"""The field of a container that holds its variables."""
PORT = "VLLM_PORT"
PORT_SERVICE = "vllm"
"""Kubernetes sets VLLM_PORT to the address of a Service of this name, in the pods of its namespace."""
_VISIBLE: Mapping[str, tuple[str, ...]] = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}
"""The variables that hide devices, by the accelerator's family: HIP reads the first two, ROCm's runtime the third."""


def _whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


_VALUES: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    (PORT, _whole, "a whole number"),
    (CACHE_SPACE, _whole, "a whole number"),
    ("VLLM_WORKER_MULTIPROC_METHOD", lambda text: text in ("fork", "spawn"), "fork or spawn"),
)


def check_values(environment: Mapping[str, str]) -> Iterator[ContainerFault]:
    """Faults of the variables that vLLM reads at its start on every accelerator."""
    for name, taken, wanted in _VALUES:
        if name in environment and not taken(environment[name]):
            told = f"{name}: {environment[name]!r} is not {wanted}: vLLM ends"
            yield ContainerFault("variable-value", ENV, told, f"Write {wanted}, or remove the variable.")


def hidden_values(hidden: Mapping[str, str], family: str) -> Iterator[str]:
    """Why the gate cannot judge variables whose values the files do not show. `hidden`: that of a ServeCommand."""
    for name in (*(name for name, _, _ in _VALUES if name != CACHE_SPACE), *_VISIBLE.get(family, ())):
        if name in hidden:
            yield f"whether vLLM starts with its {name} cannot be judged: {hidden[name]}"


_UUIDS = (0, 24)
"""The first release that finds a GPU by its UUID: `device_control_id_to_physical_device_id` in vLLM's sources of 0.24.0
and 0.32.0 asks NVML for the whole UUID, and refuses one on ROCm; 0.22.1 and 0.23.0 take `int()` of the text."""
_MAPPED = "CUDA_VISIBLE_DEVICES"  # on ROCm, too
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|MIG-.+", re.IGNORECASE)


def check_device_names(
    environment: Mapping[str, str], family: str, used: int, version: str, newest: str
) -> Iterator[ContainerFault]:
    """Faults of the names of a pod's devices, of which `used` ranks take the first ones. `version`: the server's ("":
    not known), and `newest`: the newest that is known here; beyond it, or without it, a fault is a notice."""
    if family not in _VISIBLE:
        return
    reads_uuids = family == "cuda" and (not version or release(version) >= _UUIDS)
    for entry in environment.get(_MAPPED, "").split(",")[:used]:
        if not entry.strip() or _whole(entry) or (reads_uuids and _UUID.fullmatch(entry)):
            continue
        wanted = "whole numbers and a GPU's whole UUID" if reads_uuids else "whole numbers alone"
        message = f"{_MAPPED}: {entry!r}, and vLLM {version or newest} reads {wanted}: it ends"
        fix = "Remove the variable: the pod sees only its own accelerators."
        is_known = bool(version) and release(version) <= release(newest)
        yield ContainerFault("variable-value", ENV, message, fix, refused=is_known)
        return


def check_devices(environment: Mapping[str, str], family: str, used: int, there: int) -> Iterator[ContainerFault]:
    """Faults of variables that hide devices or memory from a pod's `used` ranks; the pod has `there` accelerators."""
    for name in (one for one in _VISIBLE.get(family, ()) if one in environment):
        seen = _visible(environment[name], there)
        if seen < used:
            told = f"{name}={environment[name]} shows vLLM {seen} of the {used} accelerators that it runs on"
            fix = "Remove the variable: the pod sees only its own accelerators."
            yield ContainerFault("visible-devices", ENV, f"{told}: it ends", fix)
    space = cache_space(environment)
    if family == "cpu" and space is not None and space < 1:
        told = f"{CACHE_SPACE}={space} leaves no memory for a cache: vLLM ends"
        yield ContainerFault("variable-value", ENV, told, "Write the GiB of the cache, 1 or more.")


def _visible(listed: str, there: int) -> int:
    """How many of a pod's accelerators a list shows: an unknown number ends the list."""
    seen: list[str] = []
    for part in (part.strip() for part in listed.split(",")):
        if not part or (_whole(part) and not 0 <= int(part) < there):
            break
        seen.append(part)
    return len(set(seen))

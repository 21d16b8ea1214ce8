"""Finds the containers of a pod that run vLLM.

Defines `ContainerFault`: a fault of a container that is not in its command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from neuroscale.core.validation import mapping, sequence
from neuroscale.core.yaml_io import Path
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import Pod, read_pod
from neuroscale.manifests.runtime_merge import filled
from neuroscale.vllm.command import ServeCommand, serve_command


@dataclass(frozen=True)
class ContainerFault:
    """A fault. `place`: its field within the container. `refused`: False for a notice."""

    rule: str
    place: Path
    message: str
    fix: str
    refused: bool = True


_INIT = "it runs vLLM before the pod's own containers, which start once it has ended"


@dataclass(frozen=True)
class VllmContainer:
    """A container that runs vLLM.

    `subject` names it as findings do. `spec` is its pod's, with only this container. `source`: the address of the files
    that KServe puts into /mnt/models ("" if it puts none there). `pods`: the number of pods that one server runs in.
    `workers`: the pods of them that ask for other resources. `hidden`: places in the manifest, and which part of the
    command the files do not show there. `description`: it describes pods and runs none. `for_cpu`: it runs the build
    for CPUs, whatever its image's name is. `shared_memory`: KServe mounts /dev/shm into it. `port_service`: a Service
    for which Kubernetes sets VLLM_PORT in its pods.
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
    shared_memory: bool = False
    port_service: Manifest | None = None
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

"""Containers that run vLLM, as their pods are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import Pod, mapping, read_pod, sequence
from neuroscale.manifests.runtime_merge import filled
from neuroscale.vllm.command import ServeCommand, serve_command

_INIT = "it runs vLLM before the pod's own containers, which start once it has ended"


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


def containers(
    manifest: Manifest, at: Path, spec: Mapping[str, Any], subject: str, *, description: bool = False, source: str = ""
) -> Iterator[Found]:
    """Those of the pod `spec` at a path of a manifest. Raises ValueError for what is no pod."""
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
    """Why a container is not judged that asks for these devices."""
    return f"it asks for {' and '.join(devices)}, and what it runs is not known to be vLLM"

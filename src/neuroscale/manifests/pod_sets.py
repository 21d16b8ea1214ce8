"""What is known of the pods that an object makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neuroscale.manifests.pod_resources import Pod, mapping, read_pod
from neuroscale.manifests.scaling import Bounds

Object = Mapping[str, Any]
Target = tuple[str, str, str]
Specs = tuple[tuple[Mapping[str, Any], int], ...]


@dataclass(frozen=True)
class PodSet:
    """Pods that come and go together.

    `part`: which of the object's pods they are, "" where it has no others. `specs` are the pods' specs of one replica,
    each with how many of it there are, as the cluster gets them. `bounds`: the fewest and the most replicas, None
    where the object does not say. `passing`: why that is not how many run all the time, "" where it is. `labels` are
    those that the description of the pods adds to the object's. `targets` are the names under which an autoscaler
    scales them (kind, namespace, name).
    """

    part: str
    specs: Specs
    bounds: Bounds | None
    passing: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()

    def pods(self) -> tuple[tuple[Pod, int], ...]:
        """What the pods of one replica ask for, each with how many of it there are. Raises ValueError."""
        return tuple((read_pod(spec), count) for spec, count in self.specs)


@dataclass(frozen=True)
class UnknownPods:
    """Pods of an object that cannot be told, with the reason. `decisive`: others than a small addition to what is."""

    part: str
    reason: str
    decisive: bool = True


Found = PodSet | UnknownPods


def name_of(value: Object) -> str:
    """The object's name, "" where it has none."""
    return str(_metadata(value).get("name") or "")


def namespace_of(value: Object) -> str:
    """The object's namespace, "" where it has none."""
    return str(_metadata(value).get("namespace") or "")


def subject_of(value: Object) -> str:
    """`Kind namespace/name`, as findings name the object."""
    place = f"{namespace_of(value)}/{name_of(value)}" if namespace_of(value) else name_of(value)
    return f"{value.get('kind')} {place}"


def labels_of(value: Object) -> dict[str, Any]:
    """The labels of an object or a pod template. Raises ValueError."""
    return mapping(mapping(value.get("metadata"), "metadata").get("labels"), "labels")


def _metadata(value: Object) -> Mapping[str, Any]:
    metadata = value.get("metadata")
    return metadata if isinstance(metadata, dict) else {}

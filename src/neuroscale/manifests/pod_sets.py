"""Describes the pods that an object makes: `PodSet` and `UnknownPods`."""

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
    """Pods that are made and scaled together.

    `part`: which of the object's pods they are, "" if it has no others. `specs` are the pods' specs of one replica,
    each with its number of pods, as the cluster gets them. `bounds`: the fewest and the most replicas, None if the
    object does not say. `passing`: why this number does not run all the time, "" if it does. `labels` are those that
    the pods' template adds to the object's. `targets` are the names under which an autoscaler scales them (kind,
    namespace, name).
    """

    part: str
    specs: Specs
    bounds: Bounds | None
    passing: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()

    def pods(self) -> tuple[tuple[Pod, int], ...]:
        """The resources of the pods of one replica, each with its number of pods. Raises ValueError."""
        return tuple((read_pod(spec), count) for spec, count in self.specs)


@dataclass(frozen=True)
class UnknownPods:
    """Unknown pods of an object, with the reason. `decisive`: they are more than a small addition to the known pods."""

    part: str
    reason: str
    decisive: bool = True


Found = PodSet | UnknownPods


def name_of(value: Object) -> str:
    """The object's name, "" if it has none."""
    return str(_metadata(value).get("name") or "")


def namespace_of(value: Object) -> str:
    """The object's namespace, "" if it has none."""
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

"""Finds the parts of Kubernetes objects that cost something: pods with their cost centre, and parts without a price."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.core.validation import mapping, sequence
from neuroscale.manifests.objects import COST_CENTER
from neuroscale.manifests.pod_resources import Pod
from neuroscale.manifests.pod_sets import (
    Bounds,
    Found,
    Object,
    UnknownPods,
    annotations_of,
    labels_of,
    namespace_of,
    subject_of,
    texts,
)
from neuroscale.manifests.pods_of_objects import pods_of_objects


@dataclass(frozen=True)
class Workload:
    """Pods that are made and scaled together: `pods` are those of one replica, each with its number. `cost_center` is
    the label's value ("" without the label)."""

    subject: str
    namespace: str
    cost_center: str
    pods: tuple[tuple[Pod, int], ...]
    bounds: Bounds


@dataclass(frozen=True)
class Unpriced:
    """A part of an object that no figure counts, with its name and the reason."""

    subject: str
    reason: str
    decisive: bool  # pods with an unknown cost, without which a difference would mislead
    content: str = ""  # an equal one means the same part on both sides of a change


@dataclass(frozen=True)
class Workloads:
    """The workloads and the parts without a price of a set of objects."""

    priced: tuple[Workload, ...] = ()
    unpriced: tuple[Unpriced, ...] = ()


# Prefixes of annotations that start, stop or scale the pods of an object.
_SCALING = ("serving.kserve.io/", "autoscaling.knative.dev/", "autoscaling.keda.sh/")
_STORAGE = "the price lists have no storage"
NO_BOUND = "nothing bounds its replicas; the highest cost counts only the fewest"
"""The reason at pods whose number nothing bounds."""


def read_workloads(objects: Iterable[Object], runtimes: Iterable[Object] = ()) -> Workloads:
    """The workloads in the objects of one service; each has a kind and a name, and Lists are expanded. `runtimes`:
    serving runtimes that are known beside those among the objects. Parts that cannot be counted are named, never left
    out."""
    workloads: list[Workload] = []
    unpriced: list[Unpriced] = []
    for one in pods_of_objects(objects, runtimes):
        for found in (*one.found, *_pieces(one.value)):
            read = _priced(one.value, found)
            if isinstance(read, Workload):
                workloads.append(read)
            else:
                unpriced.append(read)
    unpriced += [Unpriced(one.subject, NO_BOUND, decisive=False) for one in workloads if one.bounds.unlimited]
    return Workloads(tuple(workloads), tuple(unpriced))


def _priced(value: Object, pods: Found) -> Workload | Unpriced:
    """Pods that a figure counts, or the reason why no figure does."""
    subject = f"{subject_of(value)} {pods.part}".strip()
    if isinstance(pods, UnknownPods):
        return Unpriced(subject, pods.reason, pods.decisive, _content(value))
    if pods.bounds is None or pods.passing:
        return Unpriced(subject, pods.passing, True, _content(value))
    try:
        center = _center(labels_of(value)) or _center(pods.labels)
        return Workload(subject, namespace_of(value), center, pods.pods(), pods.bounds)
    except ValueError as error:
        return Unpriced(subject, str(error), True, _content(value))


def _pieces(value: Object) -> Iterator[UnknownPods]:
    """The parts of an object that cost something beside its pods."""
    kind, group = str(value.get("kind")), str(value.get("apiVersion")).rpartition("/")[0]
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return
    try:
        if (group, kind) == ("", "PersistentVolumeClaim"):
            yield UnknownPods("", _STORAGE, decisive=False)
        elif (group, kind) == ("", "Service") and spec.get("type") == "LoadBalancer":
            yield UnknownPods("", "the price lists have no load balancers", decisive=False)
        elif group in ("apps", "extensions") and kind in ("Deployment", "StatefulSet", "ReplicaSet"):
            for claim in sequence(spec.get("volumeClaimTemplates"), "volumeClaimTemplates"):
                name = mapping(mapping(claim, "a volume claim").get("metadata"), "metadata").get("name")
                yield UnknownPods(f"volume {name}", _STORAGE, decisive=False)
    except ValueError as error:
        yield UnknownPods("", str(error))


def _content(value: Object) -> str:
    group = str(value.get("apiVersion")).rpartition("/")[0]
    told = [group, str(value.get("kind")), value.get("spec"), _scaling_annotations(value)]
    return json.dumps(told, sort_keys=True, default=str)


def _center(labels: Mapping[str, Any]) -> str:
    return texts(labels, "labels").get(COST_CENTER, "")


def _scaling_annotations(value: Object) -> dict[str, str]:
    """The annotations that decide how many pods there are, or whether there are any."""
    try:
        given = annotations_of(value)
    except ValueError:
        return {}
    return {key: text for key, text in given.items() if key.startswith(_SCALING)}

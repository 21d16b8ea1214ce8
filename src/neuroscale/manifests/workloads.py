"""What in Kubernetes objects has a price: their pods, on whose account they run, and what no figure counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.manifests.pod_resources import Pod, mapping, sequence
from neuroscale.manifests.pod_sets import Found, Object, UnknownPods, labels_of, namespace_of, subject_of
from neuroscale.manifests.pods_of_objects import pods_of_objects
from neuroscale.manifests.scaling import Bounds, annotations_of, texts

COST_CENTER = "cost-center"


@dataclass(frozen=True)
class Workload:
    """Pods that come and go together: `pods` are those of one replica, each with how many of it there are.

    `cost_center` is the label's ("" where there is none).
    """

    subject: str
    namespace: str
    cost_center: str
    pods: tuple[tuple[Pod, int], ...]
    bounds: Bounds


@dataclass(frozen=True)
class Unpriced:
    """Something that no figure counts, by name and with the reason.

    `decisive`: pods whose cost is unknown, without which a difference would mislead. `content` tells whether it is
    the same thing on both sides of a change.
    """

    subject: str
    reason: str
    decisive: bool
    content: str = ""


@dataclass(frozen=True)
class Workloads:
    """What was found in a set of objects."""

    priced: tuple[Workload, ...] = ()
    unpriced: tuple[Unpriced, ...] = ()


# Where annotations lie that start, stop or scale what an object describes.
_SCALING = ("serving.kserve.io/", "autoscaling.knative.dev/", "autoscaling.keda.sh/")
_STORAGE = "the price lists have no storage"
_NO_BOUND = "nothing bounds its replicas; what it costs at most counts the fewest"


def read_workloads(objects: Iterable[Object], runtimes: Iterable[Object] = ()) -> Workloads:
    """The workloads in the objects of one service; each has a kind and a name, and Lists are expanded.

    `runtimes`: serving runtimes that are known beside those among the objects. What cannot be counted is named, never
    left out.
    """
    workloads: list[Workload] = []
    unpriced: list[Unpriced] = []
    for one in pods_of_objects(objects, runtimes):
        for found in (*one.found, *_pieces(one.value)):
            read = _priced(one.value, found)
            if isinstance(read, Workload):
                workloads.append(read)
            else:
                unpriced.append(read)
    unpriced += [Unpriced(one.subject, _NO_BOUND, decisive=False) for one in workloads if one.bounds.unlimited]
    return Workloads(tuple(workloads), tuple(unpriced))


def _priced(value: Object, found: Found) -> Workload | Unpriced:
    """Pods that a figure counts, or by name why none does."""
    subject = f"{subject_of(value)} {found.part}".strip()
    if isinstance(found, UnknownPods):
        return Unpriced(subject, found.reason, found.decisive, _content(value))
    if found.bounds is None or found.passing:
        return Unpriced(subject, found.passing, True, _content(value))
    try:
        center = _center(labels_of(value)) or _center(found.labels)
        return Workload(subject, namespace_of(value), center, found.pods(), found.bounds)
    except ValueError as error:
        return Unpriced(subject, str(error), True, _content(value))


def _pieces(value: Object) -> Iterator[UnknownPods]:
    """What of an object costs something beside its pods."""
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

"""Describes the pods that an object makes, the bounds of their number, and the budgets of their disruption."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuroscale.core.validation import mapping, sequence
from neuroscale.manifests.pod_resources import Pod, read_pod, whole

AUTOSCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
_KNATIVE = "autoscaling.knative.dev/"
_PAUSED = "autoscaling.keda.sh/paused-replicas"
_KEDA_MOST = 100  # KEDA's default if maxReplicaCount is missing


@dataclass(frozen=True)
class Bounds:
    """The fewest and the most replicas. `unlimited`: nothing bounds them, and `most` is the same as `fewest`."""

    fewest: int
    most: int
    unlimited: bool = False


STOPPED = Bounds(0, 0)


@dataclass(frozen=True)
class Autoscaler:
    """A HorizontalPodAutoscaler or ScaledObject: `target` is kind, namespace and name of the object that it scales."""

    subject: str
    target: tuple[str, str, str]
    bounds: Bounds
    wakes: bool  # it also scales a workload that is set to no replicas


def fixed(spec: Mapping[str, Any]) -> Bounds:
    """The bounds of `replicas`, whose default is 1."""
    count = optional(spec, "replicas", 1)
    return Bounds(count, count)


def between(fewest: int, most: int) -> Bounds:
    """Bounds whose most is never below their fewest."""
    return Bounds(fewest, max(fewest, most))


def optional(spec: Mapping[str, Any], key: str, default: int) -> int:
    """A count, or `default` if it is missing or null."""
    value = spec.get(key)
    try:
        return default if value is None else whole(value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def read_autoscaler(kind: str, subject: str, namespace: str, value: Mapping[str, Any]) -> Autoscaler:
    """The autoscaler in an object. Raises ValueError if it does not name its target, or its upper bound."""
    spec = mapping(value.get("spec"), "spec")
    target = mapping(spec.get("scaleTargetRef"), "scaleTargetRef")
    if not isinstance(name := target.get("name"), str):
        raise ValueError("it does not name its target")
    scaled = (str(target.get("kind") or "Deployment"), namespace, name)
    if kind == "HorizontalPodAutoscaler":
        if spec.get("maxReplicas") is None:
            raise ValueError("it has no maxReplicas")
        return Autoscaler(
            subject, scaled, between(optional(spec, "minReplicas", 1), optional(spec, "maxReplicas", 1)), wakes=False
        )
    fewest = optional(spec, "minReplicaCount", 0)
    bounds = between(fewest, optional(spec, "maxReplicaCount", _KEDA_MOST))
    if spec.get("idleReplicaCount") is not None:
        bounds = Bounds(min(fewest, optional(spec, "idleReplicaCount", 0)), bounds.most)
    paused = annotations_of(value).get(_PAUSED)
    if paused is not None:
        count = _count(paused, _PAUSED)
        bounds = Bounds(count, count)
    return Autoscaler(subject, scaled, bounds, wakes=True)


def scaled(bounds: Bounds, autoscalers: Sequence[Autoscaler]) -> Bounds:
    """The bounds of a workload with these autoscalers; with several, the widest bounds of all."""
    working = [one for one in autoscalers if one.wakes or bounds.most]
    if not working:
        return bounds
    return Bounds(min(one.bounds.fewest for one in working), max(one.bounds.most for one in working))


def knative(given: Mapping[str, str]) -> Bounds:
    """The bounds in the annotations of a Knative revision: from none to any number if they are missing."""
    fewest = _first(given, "min-scale", "minScale")
    most = _first(given, "max-scale", "maxScale")
    return between(fewest, most) if most else Bounds(fewest, fewest, unlimited=True)


def _first(given: Mapping[str, str], *names: str) -> int:
    for name in names:
        if (value := given.get(_KNATIVE + name)) is not None:
            return _count(value, _KNATIVE + name)
    return 0


def _count(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"{name}: {text!r:.60} is not a count")
    return int(text)


def annotations_of(value: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of an object or a pod template."""
    return texts(mapping(value.get("metadata"), "metadata").get("annotations"), "annotations")


def texts(value: Any, name: str) -> dict[str, str]:
    """Labels or annotations. Raises ValueError if the value is not a mapping."""
    return {str(key): str(text) for key, text in mapping(value, name).items()}


KIND = ("policy", "PodDisruptionBudget")
"""Group and kind."""
_PERCENT = re.compile(r"[0-9]{1,6}%")


def selects(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether the budget with this spec selects a pod with these labels. An empty selector selects every pod of the
    namespace, a missing one none. Raises ValueError for a selector that Kubernetes refuses."""
    if spec.get("selector") is None:
        return False
    selector = mapping(spec["selector"], "selector")
    wanted = texts(selector.get("matchLabels"), "matchLabels")
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    return all(
        _matches(mapping(one, "an expression"), labels)
        for one in sequence(selector.get("matchExpressions"), "matchExpressions")
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = str(expression.get("key")), expression.get("operator")
    values = [str(one) for one in sequence(expression.get("values"), "values")]
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    raise ValueError(f"{operator!r:.60} is not an operator of a selector")


def pods_kept(spec: Mapping[str, Any], replicas: int) -> int:
    """The number of `replicas` ready pods that evictions leave, at most `replicas`: no eviction is allowed then.
    Percentages round up, as in Kubernetes' disruption controller (`pkg/controller/disruption/disruption.go`,
    getExpectedPodCount); it allows no eviction where both fields are missing. Raises ValueError, also where both stand,
    which the API server refuses."""
    if spec.get("maxUnavailable") is not None and spec.get("minAvailable") is not None:
        raise ValueError("it has both maxUnavailable and minAvailable")
    if spec.get("maxUnavailable") is not None:
        return max(0, replicas - _scaled(spec["maxUnavailable"], replicas))
    if spec.get("minAvailable") is not None:
        return min(replicas, _scaled(spec["minAvailable"], replicas))
    return replicas


def _scaled(value: Any, replicas: int) -> int:
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            raise ValueError(f"{value!r:.60} is neither a count nor a percentage")
        return math.ceil(int(value[:-1]) * replicas / 100)
    return whole(value)


Object = Mapping[str, Any]
Target = tuple[str, str, str]
Specs = tuple[tuple[Mapping[str, Any], int], ...]


@dataclass(frozen=True)
class PodSet:
    """Pods that are made and scaled together."""

    part: str  # which of the object's pods they are, "" if it has no others
    specs: Specs  # the pods' specs of one replica, each with its number of pods, as the cluster gets them
    bounds: Bounds | None  # the fewest and the most replicas, None if the object does not say
    passing: str = ""  # why this number does not run all the time, "" if it does
    labels: Mapping[str, Any] = field(default_factory=dict)  # those that the pods' template adds to the object's
    targets: tuple[Target, ...] = ()  # the names under which an autoscaler scales them (kind, namespace, name)

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

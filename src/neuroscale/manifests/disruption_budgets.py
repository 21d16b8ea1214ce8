"""Reads PodDisruptionBudgets (policy/v1): the pods that one selects, and how many of them an eviction leaves."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from neuroscale.manifests.pod_resources import mapping, sequence
from neuroscale.manifests.quantity import whole
from neuroscale.manifests.scaling import texts

KIND = ("policy", "PodDisruptionBudget")
"""Group and kind."""
_PERCENT = re.compile(r"[0-9]{1,6}%")


def selects(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether the budget with this spec selects a pod with these labels.

    An empty selector selects every pod of the namespace, a missing one none. Raises ValueError for a selector that
    Kubernetes refuses.
    """
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
    which the API server refuses.
    """
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

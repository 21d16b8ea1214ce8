"""Reads the canaries of an InferenceService: each is its predictor with fields replaced (KServe's release 0.20).

The rules are those of `buildCanaryPredictor` and `canaryReplicaCount` in KServe's
`pkg/controller/v1beta1/inferenceservice/components/predictor.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from neuroscale.manifests.pod_resources import mapping, sequence
from neuroscale.manifests.runtime_merge import model_of
from neuroscale.manifests.scaling import optional

_NOT_OF_A_CANARY = ("maxReplicas", "scaleTarget", "scaleMetric", "scaleMetricType", "autoScaling", "workerSpec")
_BY_KEY = ("annotations", "labels", "limits", "nodeSelector", "requests")
"""Mappings in which even an empty value replaces the value below it."""


def canary_predictors(spec: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The predictor of each canary with its place in the list, `minReplicas` as KServe counts them.

    Raises ValueError for an entry that is not a canary.
    """
    stable = mapping(spec.get("predictor"), "predictor")
    found = model_of(stable)
    base = stable if found is None else {**stable, found[0]: None, "model": found[1]}
    base = {key: value for key, value in base.items() if value is not None and key not in _NOT_OF_A_CANARY}
    for index, item in enumerate(sequence(spec.get("canary"), "canary")):
        canary = mapping(item, "a canary")
        if canary.get("predictor") is None:
            continue
        own = mapping(canary["predictor"], "predictor")
        own = {key: value for key, value in own.items() if key not in _NOT_OF_A_CANARY}
        yield index, {**_over(base, own), "minReplicas": _replicas(stable, canary, own)}


def stable_predictor(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The predictor beside its canaries, whose replicas KServe takes from its minReplicas. Raises ValueError."""
    stable = mapping(spec.get("predictor"), "predictor")
    taken = [one["minReplicas"] for _, one in canary_predictors(spec)]
    if not taken or stable.get("minReplicas") is None:
        return stable
    return {**stable, "minReplicas": max(optional(stable, "minReplicas", 1) - sum(taken), 1)}


def _replicas(stable: Mapping[str, Any], canary: Mapping[str, Any], own: Mapping[str, Any]) -> int:
    if own.get("minReplicas") is not None:
        return optional(own, "minReplicas", 1)
    share = optional(stable, "minReplicas", 1) * optional(canary, "trafficPercent", 0)
    return -(-share // 100)


def _over(under: Mapping[str, Any], own: Mapping[str, Any], *, whole: bool = False) -> dict[str, Any]:
    """`own` over `under`: mappings merge key by key, other values replace if not empty. `whole`: empty ones too."""
    merged = dict(under)
    for key, value in own.items():
        there = merged.get(key)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            merged[key] = _over(there, value, whole=key in _BY_KEY)
        elif whole or value or key not in merged:
            merged[key] = value
    return merged

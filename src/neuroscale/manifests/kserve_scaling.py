"""Reads how many replicas KServe gives its own kinds, by the rules of its controllers (release 0.20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroscale.manifests.pod_resources import mapping
from neuroscale.manifests.scaling import STOPPED, Bounds, annotations_of, between, fixed, knative, optional, texts

_PREFIX = "serving.kserve.io/"
STOP = f"{_PREFIX}stop"
"""The annotation of an InferenceService or LLMInferenceService whose value `true` stops it."""
_CLASS = f"{_PREFIX}autoscalerClass"
_STANDARD = ("Standard", "RawDeployment")


def stopped(value: Mapping[str, Any]) -> bool:
    """Whether an annotation tells KServe to stop the object's pods."""
    return annotations_of(value).get(STOP, "").lower() == "true"


def is_standard(value: Mapping[str, Any]) -> bool:
    """Whether KServe runs a service's pods in a Deployment, without Knative."""
    return _mode(value) in _STANDARD


def _mode(value: Mapping[str, Any]) -> str:
    return annotations_of(value).get(f"{_PREFIX}deploymentMode", "Knative")  # only the service's own decide


def component_bounds(
    value: Mapping[str, Any], component: Mapping[str, Any], under: Mapping[str, Any] | None = None
) -> Bounds:
    """The replicas of a component. `under`: annotations of its runtime; the component's and the service's win.

    Without Knative the autoscaler's class decides, as in KServe's `createRawDefaultDeployment`
    (`reconcilers/deployment/deployment_reconciler.go`), `createHPA` (`reconcilers/hpa/hpa_reconciler.go`) and
    `createKedaScaledObject` (`reconcilers/keda/keda_reconciler.go`): with `none` KServe writes minReplicas into the
    Deployment and nothing scales it; with `external` it writes no number, so there is one pod until somebody else
    scales it, and neither minReplicas nor maxReplicas is a limit. Raises ValueError for a mode in which the pods are
    not the service's own, and for a class that KServe refuses.
    """
    if stopped(value):
        return STOPPED
    given = _annotations(value, component, under)
    mode = _mode(value)
    if mode.startswith("ModelMesh"):
        raise ValueError("it runs in ModelMesh, whose pods serve several services")
    fewest, most = optional(component, "minReplicas", 1), optional(component, "maxReplicas", 0)
    if mode not in _STANDARD:
        annotated = knative(given)
        if not most and annotated.unlimited:
            return Bounds(fewest, fewest, unlimited=True)
        return between(fewest, most or annotated.most)
    scaler = given.get(_CLASS, "hpa")
    if scaler == "none":
        return Bounds(fewest, fewest)
    if scaler == "external":
        return Bounds(1, 1, unlimited=True)
    if scaler not in ("hpa", "keda"):
        raise ValueError(f"its autoscaler class {scaler!r:.60} is not one of KServe's, which makes no pods then")
    return between(max(fewest, 1) if scaler == "hpa" else fewest, most)


def nothing_scales(
    value: Mapping[str, Any], component: Mapping[str, Any], under: Mapping[str, Any] | None = None
) -> bool:
    """Whether KServe writes minReplicas of a component in Standard mode into its Deployment, and nothing scales it."""
    return _annotations(value, component, under).get(_CLASS) == "none"


def _annotations(
    value: Mapping[str, Any], component: Mapping[str, Any], under: Mapping[str, Any] | None
) -> dict[str, str]:
    own = texts(component.get("annotations"), "annotations")
    return texts(under, "annotations") | annotations_of(value) | own


def llm_bounds(value: Mapping[str, Any], part: Mapping[str, Any]) -> Bounds:
    """The replicas of a part. Raises ValueError if it scales without an upper bound."""
    if stopped(value):
        return STOPPED
    if part.get("scaling") is None:
        return fixed(part)
    scaling = mapping(part["scaling"], "scaling")
    if scaling.get("maxReplicas") is None:
        raise ValueError("scaling has no maxReplicas")
    bounds = between(optional(scaling, "minReplicas", 1), optional(scaling, "maxReplicas", 1))
    keda = mapping(mapping(scaling.get("wva"), "wva").get("keda"), "keda")
    return Bounds(min(bounds.fewest, optional(keda, "idleReplicaCount", bounds.fewest)), bounds.most)

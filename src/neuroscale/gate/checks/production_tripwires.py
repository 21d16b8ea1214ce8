"""Holds known-bad services of a production environment: every run of the production check must find each fault."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from neuroscale.catalog.settings import PRODUCTION_RULES
from neuroscale.core.yaml_io import Document
from neuroscale.manifests.labels import SERVICE
from neuroscale.manifests.objects import TRIPWIRE_PREFIX, Manifest

_BY_DIGEST = f"example.com/vllm@sha256:{'0' * 64}"
_PODS = {SERVICE: TRIPWIRE_PREFIX}


@dataclass(frozen=True)
class ProductionTripwire:
    """The objects of a service with one fault, which `rule` must find."""

    title: str
    rule: str
    objects: tuple[Manifest, ...]


REMOVALS: tuple[tuple[tuple[str, ...], int], ...] = ((("one",), 0), (("one", "two"), 0), (("one", "two"), 1))
"""Removals that the rule must name: the services that a change removes, and how many stay."""


@cache
def production_tripwires() -> tuple[ProductionTripwire, ...]:
    """All tripwires of the production check: good services with one change."""
    service, budget = _service(), _budget({"maxUnavailable": 1})
    replicas, disruptions, digest, revision, _ = PRODUCTION_RULES
    return (
        ProductionTripwire("one replica", replicas, (_service(replicas=1), budget)),
        ProductionTripwire("no budget", disruptions, (service,)),
        ProductionTripwire("a budget that keeps every pod", disruptions, (service, _budget({"minAvailable": "51%"}))),
        ProductionTripwire("a budget that keeps no pod", disruptions, (service, _budget({"maxUnavailable": "51%"}))),
        ProductionTripwire(
            "a budget of other pods",
            disruptions,
            (service, _budget({"maxUnavailable": 1}, {SERVICE: "another"})),
        ),
        ProductionTripwire("an image by its tag", digest, (_service(image="example.com/vllm:v0.32.0"), budget)),
        ProductionTripwire("a model's image by its tag", digest, (_service(source="oci://example.com/m:1"), budget)),
        ProductionTripwire("a model by its branch", revision, (_service(source="hf://owner/name"), budget)),
    )


def _service(replicas: int = 2, image: str = _BY_DIGEST, source: str = "") -> Manifest:
    container: dict[str, Any] = {"name": "kserve-container", "image": image, "args": ["--model=/mnt/models"]}
    if source:
        container["env"] = [{"name": "STORAGE_URI", "value": source}]
    predictor = {"minReplicas": replicas, "containers": [container]}
    annotations = {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "none"}
    return _manifest(
        "serving.kserve.io/v1beta1", "InferenceService", {"predictor": predictor}, {"annotations": annotations}
    )


def _budget(bound: dict[str, Any], pods: dict[str, str] | None = None) -> Manifest:
    selector = {"matchLabels": _PODS if pods is None else pods}
    return _manifest("policy/v1", "PodDisruptionBudget", {"selector": selector, **bound}, {})


def _manifest(api_version: str, kind: str, spec: dict[str, Any], metadata: dict[str, Any]) -> Manifest:
    named = {"name": TRIPWIRE_PREFIX, "namespace": TRIPWIRE_PREFIX, **metadata}
    value = {"apiVersion": api_version, "kind": kind, "metadata": named, "spec": spec}
    return Manifest("tripwire.yaml", value, Document(value, {(): 1}))

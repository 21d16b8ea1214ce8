"""Objects, prices and comparisons for the tests of costs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import yaml

from neuroscale.catalog import Catalog
from neuroscale.costs.bill import CostChange, ServiceCost
from neuroscale.costs.difference import ChangedService, Side, compare
from neuroscale.costs.pricing import Prices
from neuroscale.planning.plan import Plan
from platform_repository import CATALOG, SETTINGS

TODAY = date(2026, 7, 1)
HOURS = 730

L4, VCPU, GIB = Decimal("0.72"), Decimal("0.0864"), Decimal("0.009")
"""The hourly prices of the catalog's price list."""

Object = Mapping[str, Any]


@cache
def prices() -> Prices:
    """The prices of this repository."""
    return Prices(CATALOG, SETTINGS.environments)


def repriced(accelerator: str, usd: str) -> Prices:
    """The prices of this repository with another price for an accelerator."""
    now = prices()
    price_list = now.catalog.prices["google-cloud"]
    changed = tuple(
        one.model_copy(update={"usd": Decimal(usd)}) if one.accelerator == accelerator else one
        for one in price_list.prices
    )
    catalog = Catalog(
        now.catalog.models,
        now.catalog.accelerators,
        {**now.catalog.prices, price_list.name: price_list.model_copy(update={"prices": changed})},
        now.catalog.runtimes,
        now.catalog.teams,
    )
    return Prices(catalog, now.environments)


def at_lists(*names: str) -> Prices:
    """The prices of this repository where the environment dev takes them from these lists."""
    now = prices()
    dev = now.environments["dev"].model_copy(update={"price_lists": names})
    return Prices(now.catalog, {**now.environments, "dev": dev})


def objects(text: str) -> tuple[Object, ...]:
    """The objects of a YAML stream."""
    return tuple(yaml.safe_load_all(text))


def side(*given: Object) -> Side:
    return Side(objects=given, empty=not given)


def service(
    before: tuple[Object, ...],
    after: tuple[Object, ...],
    environment: str = "dev",
    name: str = "chat",
    plan: Any = None,
) -> ChangedService:
    assert plan is None or isinstance(plan, Plan)
    return ChangedService(environment, name, side(*before), side(*after), plan)


def changed(*services: ChangedService, at: Prices | None = None, today: date = TODAY) -> CostChange | None:
    return compare(services, prices(), at or prices(), today)


def added(*given: Object, environment: str = "dev") -> tuple[ServiceCost, CostChange]:
    """The cost of these objects as a new service."""
    cost = changed(service((), given, environment))
    assert cost is not None
    return cost.services[0], cost


def reasons(cost: CostChange) -> dict[str, str]:
    """The reasons for missing prices, by subject."""
    return {one.subject: one.reason for one in cost.unpriced}


def monthly(hourly: Decimal, replicas: int = 1) -> Decimal:
    return (hourly * replicas * HOURS).quantize(Decimal("0.01"))


def pod_spec(**resources: Any) -> dict[str, Any]:
    """A pod on L4 nodes with one container; `gpu`, `cpu` and `memory` are its requests."""
    names = {"gpu": "nvidia.com/gpu"}
    requests = {names.get(name, name): value for name, value in resources.items()}
    spec: dict[str, Any] = {"containers": [{"name": "server", "resources": {"requests": requests}}]}
    if "gpu" in resources:
        spec["nodeSelector"] = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    return spec


def workload(kind: str = "Deployment", name: str = "chat", labels: Any = None, **spec: Any) -> dict[str, Any]:
    """A Deployment or one of its relatives in the namespace team-alpha, one L4, 4 cores and 16 GiB a pod."""
    versions = {"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
    template = {"metadata": {"labels": spec.pop("pod_labels", {})}, "spec": spec.pop("pod", GPU_POD)}
    return {
        "apiVersion": versions.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-alpha", "labels": labels or {}},
        "spec": template["spec"] if kind == "Pod" else {"template": template, **spec},
    }


GPU_POD = pod_spec(gpu=1, cpu=4, memory="16Gi")
HOURLY = L4 + 4 * VCPU + 16 * GIB
"""The hourly cost of GPU_POD."""


def inference_service(
    predictor: Mapping[str, Any] | None = None, annotations: Mapping[str, str] | None = None, **parts: Any
) -> dict[str, Any]:
    """An InferenceService in Standard mode that runs GPU_POD, with `predictor` added."""
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": "chat",
            "namespace": "team-alpha",
            "labels": {},
            "annotations": {"serving.kserve.io/deploymentMode": "Standard"} if annotations is None else annotations,
        },
        "spec": {"predictor": {**GPU_POD, **(predictor or {})}, **parts},
    }


def llm_service(**spec: Any) -> dict[str, Any]:
    """An LLMInferenceService that runs GPU_POD."""
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {"template": GPU_POD, **spec},
    }


def autoscaler(kind: str, target: str, target_kind: str = "Deployment", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2" if kind == "HorizontalPodAutoscaler" else "keda.sh/v1alpha1",
        "kind": kind,
        "metadata": {"name": "scaler", "namespace": "team-alpha", "annotations": spec.pop("annotations", {})},
        "spec": {"scaleTargetRef": {"kind": target_kind, "name": target}, **spec},
    }

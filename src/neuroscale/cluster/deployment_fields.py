"""Compares a service with its Deployment, field by field, to see whether KServe has applied the service's last
change.
"""

from __future__ import annotations

from typing import Any

from neuroscale.cluster.object_differences import differences
from neuroscale.cluster.object_fields import items, part
from neuroscale.cluster.pod_state import SERVER
from neuroscale.kube.client import Object
from neuroscale.manifests.kserve_scaling import nothing_scales
from neuroscale.manifests.runtime_merge import runtime_annotations

_NO_FIELDS_OF_A_CONTAINER = (
    "modelFormat",
    "runtime",
    "runtimeVersion",
    "protocolVersion",
    "storageUri",
    "storage",
    "confidential",
    "args",
    "name",
)
_NO_FIELDS_OF_A_POD = (
    "annotations",
    "autoScaling",
    "batcher",
    "canaryTrafficPercent",
    "containerConcurrency",
    "containers",
    "deploymentStrategy",
    "labels",
    "logger",
    "maxReplicas",
    "minReplicas",
    "model",
    "name",
    "scaleMetric",
    "scaleMetricType",
    "scaleTarget",
    "storageContainerName",
    "storageUris",
    "timeout",
)
_STORAGE_URI = "internal.serving.kserve.io/storage-initializer-sourceuri"


def stale_fields(service: Object, deployment: Object, runtime: Object | None) -> list[str]:
    """The fields of the service that its Deployment does not have yet. KServe merges the fields of its `runtime` with
    them.
    """
    predictor = part(service, "spec", "predictor")
    model = part(predictor, "model")
    template = part(deployment, "spec", "template")
    server = next((one for one in items(template, "spec", "containers") if one.get("name") == SERVER), {})
    pod = {key: value for key, value in predictor.items() if key not in _NO_FIELDS_OF_A_POD}
    container = {key: value for key, value in model.items() if key not in _NO_FIELDS_OF_A_CONTAINER}
    fields = differences(pod, part(template, "spec"), "predictor")
    fields += differences(_plain(container), server, "predictor.model")
    if _other_arguments(model.get("args") or [], server.get("args") or [], runtime):
        fields.append("predictor.model.args")
    if model.get("storageUri") and part(template, "metadata", "annotations").get(_STORAGE_URI) != model["storageUri"]:
        fields.append("predictor.model.storageUri")
    fewest = predictor.get("minReplicas")
    if isinstance(fewest, int) and _nothing_scales(service, predictor, runtime):
        fields += ["predictor.minReplicas"] if part(deployment, "spec").get("replicas") != fewest else []
    return fields


def _nothing_scales(service: Object, predictor: Object, runtime: Object | None) -> bool:
    try:
        return nothing_scales(service, predictor, runtime_annotations(runtime))
    except ValueError:  # a malformed object
        return False


def _other_arguments(wanted: Any, found: Any, runtime: Object | None) -> bool:
    """Whether the arguments differ: KServe puts the runtime's before the service's, and fills in placeholders."""
    if not isinstance(wanted, list) or not isinstance(found, list):
        return True
    containers = items(runtime, "spec", "containers")
    first = next((one.get("args") or [] for one in containers if one.get("name") == SERVER), None)
    if first is not None:
        wanted = [*first, *wanted]
        found = found if len(found) == len(wanted) else [None] * len(wanted)
    else:
        found = found[len(found) - len(wanted) :] if len(found) >= len(wanted) else [None] * len(wanted)
    return any(one != other and "{{" not in str(one) for one, other in zip(wanted, found, strict=True))


def _plain(container: dict[str, Any]) -> dict[str, Any]:
    """The object without the fields that have a placeholder, which KServe fills in."""
    return {key: value for key, value in container.items() if "{{" not in str(value)}

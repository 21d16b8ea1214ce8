"""Finds the pods of an InferenceService: predictor, workers, canaries, transformer, explainer (KServe 0.20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from neuroscale.manifests import kserve_pods, kserve_scaling
from neuroscale.manifests.canaries import canary_predictors, stable_predictor
from neuroscale.manifests.pod_resources import Pod, mapping, read_pod, sequence
from neuroscale.manifests.pod_sets import Found, Object, PodSet, Specs, UnknownPods, name_of, namespace_of
from neuroscale.manifests.runtime_merge import merged_pod, merged_worker, model_of, runtime_annotations
from neuroscale.manifests.scaling import Bounds
from neuroscale.manifests.serving_runtimes import SERVING, Runtimes, runtime_name, runtime_of

_PREDICTOR = "predictor"


def inference_service_pods(value: Object, runtimes: Runtimes) -> Iterator[Found]:
    """All its pods, and reasons for unknown ones. Raises ValueError if `value` is not a valid InferenceService."""
    spec = mapping(value.get("spec"), "spec")
    for part in kserve_pods.COMPONENTS:
        if spec.get(part) is None:
            continue
        component = mapping(spec[part], part)
        stable = _stable(value, spec, runtimes) if part == _PREDICTOR else _component(value, part, component)
        yield from _named_at_least(part, stable)
        if component.get("canaryTrafficPercent") is not None:
            yield UnknownPods(part, "the pods of the previous revision are not counted", decisive=False)
    if spec.get("canary"):
        yield from _named_at_least("canary", _canaries(value, spec, runtimes))


def _named_at_least(part: str, found: Iterator[Found]) -> Iterator[Found]:
    try:
        yield from found
    except ValueError as error:
        yield UnknownPods(part, str(error))


def _stable(value: Object, spec: Mapping[str, Any], runtimes: Runtimes) -> Iterator[Found]:
    predictor = stable_predictor(spec) if kserve_scaling.is_standard(value) else mapping(spec[_PREDICTOR], _PREDICTOR)
    if predictor.get("workerSpec") is None:
        yield from _predictor(value, _PREDICTOR, predictor, runtimes)
        return
    runtime = _runtime(value, predictor, runtimes)
    bounds = kserve_scaling.component_bounds(value, predictor, runtime_annotations(runtime))
    try:
        head = predictor_spec(value, predictor, runtimes)
        worker, staged = merged_worker(mapping(predictor["workerSpec"], "workerSpec"), runtime)
        head_pod, worker_pod, count = kserve_pods.with_workers(read_pod(head), worker, staged=staged)
    except ValueError as error:
        yield UnknownPods(_PREDICTOR, str(error))
        yield UnknownPods(f"{_PREDICTOR} workers", str(error))
        return
    count = 0 if kserve_scaling.stopped(value) else count
    yield _set(value, _PREDICTOR, predictor, ((_holding(head, head_pod), 1),), bounds)
    workers_of = ((_holding(worker, worker_pod), 1),)
    yield PodSet(f"{_PREDICTOR} workers", workers_of, Bounds(count, count), labels=_labels(predictor))


def _canaries(value: Object, spec: Mapping[str, Any], runtimes: Runtimes) -> Iterator[Found]:
    if not kserve_scaling.is_standard(value):
        raise ValueError("KServe takes canaries only in the deployment mode Standard")
    for _, predictor in canary_predictors(spec):
        if "model" in predictor:  # in a canary KServe takes a model only under this key
            predictor = {key: one for key, one in predictor.items() if key == "model" or key not in kserve_pods.SERVERS}
        part = f"canary {predictor.get('name')}"
        yield from _named_at_least(part, _predictor(value, part, predictor, runtimes))


def _predictor(value: Object, part: str, predictor: Mapping[str, Any], runtimes: Runtimes) -> Iterator[Found]:
    runtime = _runtime(value, predictor, runtimes)
    bounds = kserve_scaling.component_bounds(value, predictor, runtime_annotations(runtime))
    yield _set(value, part, predictor, ((predictor_spec(value, predictor, runtimes), 1),), bounds)
    found = model_of(predictor)
    if found is not None and runtime is None and (name := runtime_name(found[1])):
        reason = f"its runtime {name} is not among the files, and its additions to these pods are not counted"
        yield UnknownPods(part, reason, decisive=False)


def _runtime(value: Object, predictor: Mapping[str, Any], runtimes: Runtimes) -> Mapping[str, Any] | None:
    found = model_of(predictor)
    return None if found is None else runtime_of(found[1], namespace_of(value), runtimes)


def predictor_spec(value: Object, predictor: Mapping[str, Any], runtimes: Runtimes) -> dict[str, Any]:
    """The pod's spec of a predictor, merged with its runtime if that is known. Raises ValueError."""
    found = model_of(predictor)
    if found is None:
        spec = kserve_pods.component_spec(predictor)
        alone = len(spec["containers"]) == 1
        return _named(spec) if alone or not spec["containers"][0].get("name") else spec
    service = name_of(value), namespace_of(value)
    return merged_pod(predictor, found[1], _runtime(value, predictor, runtimes), service)


def _component(value: Object, part: str, component: Mapping[str, Any]) -> Iterator[Found]:
    spec = _named(kserve_pods.component_spec(component))
    yield _set(value, part, component, ((spec, 1),), kserve_scaling.component_bounds(value, component))


def _named(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with KServe's name for its first container: a custom one gets the name of those that serve models.

    KServe also gives a transformer arguments with the predictor's address; these are left out.
    """
    first, *others = spec["containers"]
    return {**spec, "containers": [{**first, "name": SERVING}, *others]}


def _set(value: Object, part: str, component: Mapping[str, Any], specs: Specs, bounds: Bounds) -> PodSet:
    kind = part if part in kserve_pods.COMPONENTS else _PREDICTOR
    variant = f"-{component['name']}" if component.get("name") else ""
    target = ("Deployment", namespace_of(value), f"{name_of(value)}{variant}-{kind}")
    return PodSet(part, specs, bounds, labels=_labels(component), targets=(target,))


def _labels(component: Mapping[str, Any]) -> dict[str, Any]:
    return mapping(component.get("labels"), "labels")


def _holding(spec: Mapping[str, Any], pod: Pod) -> dict[str, Any]:
    """The spec whose first container asks for the accelerators that KServe counts for a node."""
    first, *others = [mapping(one, "a container") for one in sequence(spec.get("containers"), "containers")]
    there = read_pod(spec).devices
    changed = {name: int(amount) for name, amount in pod.devices.items() if amount != there.get(name, Decimal(0))}
    resources = mapping(first.get("resources"), "resources")
    kinds = {kind: {**mapping(resources.get(kind), kind), **changed} for kind in ("requests", "limits")}
    return {**spec, "containers": [{**first, "resources": {**resources, **kinds}} if changed else first, *others]}

"""Finds the pods that Kubernetes objects make, for all rooms: their containers, resources and number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from typing import Any

from neuroscale.core.validation import mapping, sequence
from neuroscale.manifests import kserve_pods
from neuroscale.manifests.pod_resources import Pod, read_pod
from neuroscale.manifests.pod_sets import (
    AUTOSCALERS,
    Autoscaler,
    Bounds,
    Found,
    Object,
    PodSet,
    Specs,
    UnknownPods,
    annotations_of,
    fixed,
    knative,
    labels_of,
    name_of,
    namespace_of,
    optional,
    read_autoscaler,
    scaled,
    subject_of,
)
from neuroscale.manifests.runtime_merge import (
    canary_predictors,
    merged_pod,
    merged_worker,
    model_of,
    runtime_annotations,
    stable_predictor,
)
from neuroscale.manifests.serving_runtimes import KSERVE, SERVING, Runtimes, known_runtimes, runtime_name, runtime_of

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
    predictor = stable_predictor(spec) if kserve_pods.is_standard(value) else mapping(spec[_PREDICTOR], _PREDICTOR)
    if predictor.get("workerSpec") is None:
        yield from _predictor(value, _PREDICTOR, predictor, runtimes)
        return
    runtime = _runtime(value, predictor, runtimes)
    bounds = kserve_pods.component_bounds(value, predictor, runtime_annotations(runtime))
    try:
        head = predictor_spec(value, predictor, runtimes)
        worker, staged = merged_worker(mapping(predictor["workerSpec"], "workerSpec"), runtime)
        head_pod, worker_pod, count = kserve_pods.with_workers(read_pod(head), worker, staged=staged)
    except ValueError as error:
        yield UnknownPods(_PREDICTOR, str(error))
        yield UnknownPods(f"{_PREDICTOR} workers", str(error))
        return
    count = 0 if kserve_pods.stopped(value) else count
    yield _set(value, _PREDICTOR, predictor, ((_holding(head, head_pod), 1),), bounds)
    workers_of = ((_holding(worker, worker_pod), 1),)
    yield PodSet(f"{_PREDICTOR} workers", workers_of, Bounds(count, count), labels=_labels(predictor))


def _canaries(value: Object, spec: Mapping[str, Any], runtimes: Runtimes) -> Iterator[Found]:
    if not kserve_pods.is_standard(value):
        raise ValueError("KServe takes canaries only in the deployment mode Standard")
    for _, predictor in canary_predictors(spec):
        if "model" in predictor:  # in a canary KServe takes a model only under this key
            predictor = {key: one for key, one in predictor.items() if key == "model" or key not in kserve_pods.SERVERS}
        part = f"canary {predictor.get('name')}"
        yield from _named_at_least(part, _predictor(value, part, predictor, runtimes))


def _predictor(value: Object, part: str, predictor: Mapping[str, Any], runtimes: Runtimes) -> Iterator[Found]:
    runtime = _runtime(value, predictor, runtimes)
    bounds = kserve_pods.component_bounds(value, predictor, runtime_annotations(runtime))
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
    yield _set(value, part, component, ((spec, 1),), kserve_pods.component_bounds(value, component))


def _named(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with KServe's name for its first container: a custom one gets the name of those that serve models.
    KServe also gives a transformer arguments with the predictor's address; these are left out."""
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


_APPS = ("apps", "extensions")
_FOR_A_TIME = "the time that it runs is not known"
_ON_NODES = "runs on every node that fits it, and the number of these nodes is not known"
# Kinds of Prometheus' Operator, which makes a StatefulSet of each.
_OPERATED = ("Alertmanager", "Prometheus", "PrometheusAgent", "ThanosRuler")
_ROUTER = "the pods of its router are KServe's own, and their resources are not known"
# These kinds describe pods and run none.
_DESCRIPTIONS = (
    *("ClusterServingRuntime", "ClusterStorageContainer", "ConfigMap", "CustomResourceDefinition"),
    *("LLMInferenceServiceConfig", "PodTemplate", "Secret", "ServingRuntime"),
)


@dataclass(frozen=True)
class ObjectPods:
    """An object, and all the pods that it makes."""

    value: Object
    found: tuple[Found, ...]


def pods_of_objects(objects: Iterable[Object], runtimes: Iterable[Object] = ()) -> list[ObjectPods]:
    """The pods of each object; Lists are expanded before. Unknown pods are named, never left out. `objects` are all
    objects of a run: an autoscaler among them bounds the workload that it scales, and serving runtimes among them win
    over the other known `runtimes`. An InferenceService is read as KServe's release 0.20 does."""
    given = list(objects)
    known = known_runtimes(chain(runtimes, given))
    autoscalers: list[tuple[Object, Autoscaler]] = []
    read = [ObjectPods(value, tuple(_guarded(value, known, autoscalers))) for value in given]
    targets = {target for one in read for pods in one.found if isinstance(pods, PodSet) for target in pods.targets}
    stray = {id(value): one for value, one in autoscalers if one.target not in targets}
    return [_bounded(one, [scaler for _, scaler in autoscalers], stray.get(id(one.value))) for one in read]


def _guarded(value: Object, runtimes: Runtimes, autoscalers: list[tuple[Object, Autoscaler]]) -> Iterator[Found]:
    try:
        kind, group = str(value.get("kind")), str(value.get("apiVersion")).rpartition("/")[0]
        if kind in AUTOSCALERS and group in ("autoscaling", "keda.sh"):
            scaler = read_autoscaler(kind, subject_of(value), namespace_of(value), value)
            autoscalers.append((value, scaler))
            return
        yield from _read(value, kind, group, runtimes)
    except ValueError as error:
        yield UnknownPods("", str(error))


def _bounded(read: ObjectPods, autoscalers: Sequence[Autoscaler], stray: Autoscaler | None) -> ObjectPods:
    """The pods with the bounds that autoscalers set; for a stray autoscaler, that its target is missing."""
    if stray is not None:
        reason = f"its target ({stray.target[0]} {stray.target[2]}) is not among the files"
        return replace(read, found=(UnknownPods("", reason),))
    found: list[Found] = []
    for one in read.found:
        if isinstance(one, PodSet) and one.bounds is not None:
            mine = [scaler for scaler in autoscalers if scaler.target in one.targets]
            one = replace(one, bounds=scaled(one.bounds, mine)) if mine else one
        found.append(one)
    return replace(read, found=tuple(found))


def _read(value: Object, kind: str, group: str, runtimes: Runtimes) -> Iterator[Found]:
    spec = mapping(value.get("spec"), "spec")
    if (group, kind) == (KSERVE, "InferenceService"):
        yield from inference_service_pods(value, runtimes)
    elif (group, kind) == (KSERVE, "LLMInferenceService"):
        yield from _llm_inference_service(value, spec)
    elif (group, kind) == (KSERVE, "InferenceGraph"):
        yield _router(value, spec)
    elif group == "monitoring.coreos.com" and kind in _OPERATED:
        yield _operated(spec)
    elif (group, kind) == ("apps", "DaemonSet"):
        yield _passing(lambda: _templated(value, spec, None), _ON_NODES)
    elif (group, kind) == ("batch", "Job"):
        yield _passing(lambda: _job(value, spec), _FOR_A_TIME)
    elif (group, kind) == ("batch", "CronJob"):
        job = mapping(mapping(spec.get("jobTemplate"), "jobTemplate").get("spec"), "spec")
        yield _passing(lambda: _job(value, job), _FOR_A_TIME)
    elif (group, kind) == ("", "Pod"):
        yield _templated(value, {"template": value}, Bounds(1, 1))
    elif (group, kind) == ("serving.knative.dev", "Service"):
        template = mapping(spec.get("template"), "template")
        yield _templated(value, spec, knative(annotations_of(template)))
    elif (group, kind) == ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"):
        yield _leaders(value, spec)
    elif (group in _APPS and kind in ("Deployment", "StatefulSet", "ReplicaSet")) or (
        (group, kind) == ("", "ReplicationController")
    ):
        yield _templated(value, spec, fixed(spec))
    elif kind not in _DESCRIPTIONS and "kyverno.io" not in group and _holds_containers(value):
        yield UnknownPods("", f"runs containers, and the number of pods of a {kind} is not known")


def _templated(value: Object, spec: Mapping[str, Any], bounds: Bounds | None) -> PodSet:
    template = mapping(spec.get("template"), "template")
    return _whole(value, ((_spec(template), 1),), bounds, labels_of(template))


def _whole(value: Object, specs: Specs, bounds: Bounds | None, labels: Mapping[str, Any]) -> PodSet:
    target = (str(value.get("kind")), namespace_of(value), name_of(value))
    return PodSet("", specs, bounds, labels=labels, targets=(target,))


def _spec(template: Mapping[str, Any]) -> dict[str, Any]:
    return mapping(template.get("spec"), "the pod's spec")


def _job(value: Object, spec: Mapping[str, Any]) -> PodSet:
    count = optional(spec, "parallelism", 1)
    return _templated(value, spec, Bounds(count, count))


def _passing(read: Callable[[], PodSet], reason: str) -> Found:
    try:
        return replace(read(), passing=reason, targets=())
    except ValueError:
        return UnknownPods("", reason)


def _operated(spec: Mapping[str, Any]) -> PodSet:
    """The pods of Prometheus' Operator: the program, and a reloader whose requests are a setting of the Operator."""
    program = {"name": "program", "resources": mapping(spec.get("resources"), "resources")}
    count = optional(spec, "replicas", 1) * optional(spec, "shards", 1)
    return PodSet("", (({"containers": [program, {"name": "config-reloader"}]}, 1),), Bounds(count, count))


def _leaders(value: Object, spec: Mapping[str, Any]) -> PodSet:
    """Groups of a leader and its workers; without a template of its own the leader is one of the workers."""
    group = mapping(spec.get("leaderWorkerTemplate"), "leaderWorkerTemplate")
    worker = mapping(group.get("workerTemplate"), "workerTemplate")
    leader = mapping(group.get("leaderTemplate"), "leaderTemplate") or worker
    size = max(optional(group, "size", 1), 1)
    specs = ((_spec(leader), 1), *(((_spec(worker), size - 1),) if size > 1 else ()))
    return _whole(value, specs, fixed(spec), labels_of(leader))


def _router(value: Object, spec: Mapping[str, Any]) -> Found:
    """The router of an InferenceGraph; if the graph does not give its resources, a setting of the cluster does."""
    resources = mapping(spec.get("resources"), "resources")
    if not resources:
        return UnknownPods("", _ROUTER)
    around = {key: spec[key] for key in ("affinity", "nodeSelector", "tolerations") if spec.get(key) is not None}
    pod = {**around, "containers": [{"name": name_of(value), "resources": resources}]}
    bounds = kserve_pods.component_bounds(value, spec)
    return PodSet("", ((pod, 1),), bounds, targets=(("Deployment", namespace_of(value), name_of(value)),))


def _llm_inference_service(value: Object, spec: Mapping[str, Any]) -> Iterator[Found]:
    labels = mapping(spec.get("labels"), "labels")
    for part, described in kserve_pods.llm_parts(spec):
        target = ("Deployment", namespace_of(value), f"{name_of(value)}-kserve{'-' + part if part else ''}")
        try:
            specs, bounds = kserve_pods.llm_specs(described), kserve_pods.llm_bounds(value, described)
        except ValueError as error:
            yield UnknownPods(part, str(error))
        else:
            yield PodSet(part, specs, bounds, labels=labels, targets=(target,))
    router = mapping(spec.get("router"), "router")
    scheduler = mapping(router.get("scheduler"), "scheduler")
    if "scheduler" not in router or mapping(scheduler.get("pool"), "pool").get("ref") is not None:
        return
    if scheduler.get("template") is None:
        reason = "its pods are KServe's own, and their resources are not known"
        yield UnknownPods("scheduler", reason, decisive=False)
        return
    count = 0 if kserve_pods.stopped(value) else optional(scheduler, "replicas", 1)
    template = mapping(scheduler["template"], "the pod's spec")
    yield PodSet("scheduler", ((template, 1),), Bounds(count, count), labels=labels)


def _holds_containers(value: Any) -> bool:
    """Whether anything in an object of an unknown kind looks like a container, or like a container's resources."""
    return any(
        (key in ("containers", "steps") and isinstance(item, list) and any(isinstance(one, dict) for one in item))
        or (key == "container" and isinstance(item, dict))
        or (key == "resources" and isinstance(item, dict) and bool({"requests", "limits"} & set(item)))
        for key, item in _items(value)
    )


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    waiting: list[Any] = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield from here.items()
            waiting.extend(here.values())
        elif isinstance(here, Sequence) and not isinstance(here, str):
            waiting.extend(here)

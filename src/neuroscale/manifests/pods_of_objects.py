"""Finds the pods that Kubernetes objects make, for all rooms: their containers, their resources and their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from neuroscale.manifests import kserve_pods, kserve_scaling
from neuroscale.manifests.inference_service_pods import inference_service_pods
from neuroscale.manifests.pod_resources import mapping
from neuroscale.manifests.pod_sets import (
    Found,
    Object,
    PodSet,
    Specs,
    UnknownPods,
    labels_of,
    name_of,
    namespace_of,
    subject_of,
)
from neuroscale.manifests.scaling import (
    AUTOSCALERS,
    Autoscaler,
    Bounds,
    annotations_of,
    fixed,
    knative,
    optional,
    read_autoscaler,
    scaled,
)
from neuroscale.manifests.serving_runtimes import KSERVE, Runtimes, known_runtimes

_APPS = ("apps", "extensions")
_FOR_A_TIME = "the time that it runs is not known"
_ON_NODES = "runs on every node that fits it, and the number of these nodes is not known"
# Kinds of Prometheus' Operator, which makes a StatefulSet of each.
_OPERATED = ("Alertmanager", "Prometheus", "PrometheusAgent", "ThanosRuler")
_ROUTER = "the pods of its router are KServe's own, and their resources are not known"
# These kinds describe pods and run none.
_DESCRIPTIONS = (
    "ClusterServingRuntime",
    "ClusterStorageContainer",
    "ConfigMap",
    "CustomResourceDefinition",
    "LLMInferenceServiceConfig",
    "PodTemplate",
    "Secret",
    "ServingRuntime",
)


@dataclass(frozen=True)
class ObjectPods:
    """An object, and all the pods that it makes."""

    value: Object
    found: tuple[Found, ...]


def pods_of_objects(objects: Iterable[Object], runtimes: Iterable[Object] = ()) -> list[ObjectPods]:
    """The pods of each object; Lists are expanded before. Unknown pods are named, never left out.

    `objects` are all objects of a run: an autoscaler among them bounds the workload that it scales, and serving
    runtimes among them win over the other known `runtimes`. An InferenceService is read as KServe's release 0.20 does.
    """
    given = list(objects)
    known = known_runtimes(chain(runtimes, given))
    autoscalers: list[tuple[Object, Autoscaler]] = []
    read = [ObjectPods(value, tuple(_guarded(value, known, autoscalers))) for value in given]
    targets = {target for one in read for pods in one.found if isinstance(pods, PodSet) for target in pods.targets}
    stray = {id(value): one for value, one in autoscalers if one.target not in targets}
    return [_bounded(one, [scaler for _, scaler in autoscalers], stray.get(id(one.value))) for one in read]


def _guarded(value: Object, runtimes: Runtimes, autoscalers: list[tuple[Object, Autoscaler]]) -> Iterator[Found]:
    try:
        kind, group = _kind(value)
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


def _kind(value: Object) -> tuple[str, str]:
    return str(value.get("kind")), str(value.get("apiVersion")).rpartition("/")[0]


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
    bounds = kserve_scaling.component_bounds(value, spec)
    return PodSet("", ((pod, 1),), bounds, targets=(("Deployment", namespace_of(value), name_of(value)),))


def _llm_inference_service(value: Object, spec: Mapping[str, Any]) -> Iterator[Found]:
    labels = mapping(spec.get("labels"), "labels")
    for part, described in kserve_pods.llm_parts(spec):
        target = ("Deployment", namespace_of(value), f"{name_of(value)}-kserve{'-' + part if part else ''}")
        try:
            specs, bounds = kserve_pods.llm_specs(described), kserve_scaling.llm_bounds(value, described)
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
    count = 0 if kserve_scaling.stopped(value) else optional(scheduler, "replicas", 1)
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

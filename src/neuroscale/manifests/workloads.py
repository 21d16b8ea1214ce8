"""The workloads in Kubernetes objects: which pods they run, how many, and on whose account."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neuroscale.manifests import kserve_pods
from neuroscale.manifests.pod_resources import Pod, mapping, read_pod, sequence
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
    texts,
)

COST_CENTER = "cost-center"

Target = tuple[str, str, str]


@dataclass(frozen=True)
class Workload:
    """Pods that come and go together: `pods` are those of one replica, each with how many of it there are.

    `cost_center` is the label's ("" where there is none); `targets` are the names under which an autoscaler scales it
    (kind, namespace, name).
    """

    subject: str
    namespace: str
    cost_center: str
    pods: tuple[tuple[Pod, int], ...]
    bounds: Bounds
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Unpriced:
    """Something that no figure counts, by name and with the reason.

    `decisive`: pods whose cost is unknown, without which a difference would mislead. `content` tells whether it is
    the same thing on both sides of a change.
    """

    subject: str
    reason: str
    decisive: bool
    content: str = ""


@dataclass(frozen=True)
class Workloads:
    """What was found in a set of objects."""

    priced: tuple[Workload, ...] = ()
    unpriced: tuple[Unpriced, ...] = ()


# Where annotations lie that start, stop or scale what an object describes.
_SCALING = ("serving.kserve.io/", "autoscaling.knative.dev/", "autoscaling.keda.sh/")
_APPS = ("apps", "extensions")
_ONCE = {
    ("apps", "DaemonSet"): "runs on every node that fits it, and how many that are is not known",
    ("batch", "Job"): "runs for a time that is not known",
    ("batch", "CronJob"): "runs for a time that is not known",
    ("serving.kserve.io", "InferenceGraph"): "the pods of its router are KServe's own, and what they take is not known",
}
_PIECES = {
    ("", "PersistentVolumeClaim"): "the price lists have no storage",
}
# They describe pods and run none.
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


def read_workloads(objects: Iterable[Mapping[str, Any]]) -> Workloads:
    """The workloads in the objects of one service; each has a kind and a name, and Lists are expanded.

    An autoscaler among them bounds its target. What cannot be counted is named, never left out.
    """
    workloads: list[Workload] = []
    unpriced: list[Unpriced] = []
    autoscalers: list[tuple[Autoscaler, str]] = []
    for value in objects:
        _read(value, workloads, unpriced, autoscalers)
    targets = {target for workload in workloads for target in workload.targets}
    unpriced += [
        Unpriced(one.subject, f"what it scales ({one.target[0]} {one.target[2]}) is not among the files", True, content)
        for one, content in autoscalers
        if one.target not in targets
    ]
    result = []
    for workload in workloads:
        mine = [one for one, _ in autoscalers if one.target in workload.targets]
        result.append(replace(workload, bounds=scaled(workload.bounds, mine)) if mine else workload)
    unpriced += [
        Unpriced(one.subject, "nothing bounds its replicas; what it costs at most counts the fewest", False)
        for one in result
        if one.bounds.unlimited
    ]
    return Workloads(tuple(result), tuple(unpriced))


def _read(
    value: Mapping[str, Any],
    workloads: list[Workload],
    unpriced: list[Unpriced],
    autoscalers: list[tuple[Autoscaler, str]],
) -> None:
    kind, group, subject = str(value.get("kind")), str(value.get("apiVersion")).rpartition("/")[0], _subject(value)
    content = json.dumps([group, kind, value.get("spec"), _scaling_annotations(value)], sort_keys=True, default=str)

    def name(reason: str, decisive: bool = True, part: str = "") -> None:
        unpriced.append(Unpriced(f"{subject} {part}".strip(), reason, decisive, content))

    def take(part: str, make: Callable[[], Workload]) -> None:
        try:
            workloads.append(make())
        except ValueError as error:
            name(str(error), part=part)

    try:
        spec = mapping(value.get("spec"), "spec")
        if (group, kind) in _ONCE:
            name(_ONCE[group, kind])
        elif (group, kind) in _PIECES:
            name(_PIECES[group, kind], decisive=False)
        elif (group, kind) == ("serving.kserve.io", "InferenceService"):
            _inference_service(value, spec, take, name)
        elif (group, kind) == ("serving.kserve.io", "LLMInferenceService"):
            _llm_inference_service(value, spec, take, name)
        elif kind in AUTOSCALERS and group in ("autoscaling", "keda.sh"):
            autoscalers.append((read_autoscaler(kind, subject, _namespace(value), value), content))
        elif (group, kind) == ("", "Pod"):
            take("", lambda: _plain(value, value, Bounds(1, 1)))
        elif (group, kind) == ("serving.knative.dev", "Service"):
            template = mapping(spec.get("template"), "template")
            take("", lambda: _plain(value, template, knative(annotations_of(template))))
        elif (group in _APPS and kind in ("Deployment", "StatefulSet", "ReplicaSet")) or (
            (group, kind) == ("", "ReplicationController")
        ):
            template = mapping(spec.get("template"), "template")
            take("", lambda: _plain(value, template, fixed(spec)))
            for claim in sequence(spec.get("volumeClaimTemplates"), "volumeClaimTemplates"):
                volume = mapping(mapping(claim, "a volume claim").get("metadata"), "metadata").get("name")
                name("the price lists have no storage", decisive=False, part=f"volume {volume}")
        elif (group, kind) == ("", "Service") and spec.get("type") == "LoadBalancer":
            name("the price lists have no load balancers", decisive=False)
        elif kind not in _DESCRIPTIONS and "kyverno.io" not in group and _holds_containers(value):
            name(f"runs containers, and how many pods a {kind} has is not known")
    except ValueError as error:
        name(str(error))


def _plain(value: Mapping[str, Any], template: Mapping[str, Any], bounds: Bounds) -> Workload:
    center = _label(value) or _label(template)
    target = (str(value.get("kind")), _namespace(value), _name(value))
    return Workload(
        _subject(value), _namespace(value), center, ((read_pod(template.get("spec")), 1),), bounds, (target,)
    )


def _inference_service(
    value: Mapping[str, Any],
    spec: Mapping[str, Any],
    take: Callable[[str, Callable[[], Workload]], None],
    name: Callable[..., None],
) -> None:
    for part in kserve_pods.COMPONENTS:
        if spec.get(part) is None:
            continue
        component = mapping(spec[part], part)
        worker_spec = component.get("workerSpec")

        def make(
            part: str = part, component: Mapping[str, Any] = component, worker_spec: Any = worker_spec
        ) -> Workload:
            pod, bounds = kserve_pods.component_pod(component), kserve_pods.component_bounds(value, component)
            if worker_spec is not None:
                pod = kserve_pods.with_workers(pod, mapping(worker_spec, "workerSpec"))[0]
            return _part(value, part, component, ((pod, 1),), bounds, _deployment(value, part, component))

        def make_workers(component: Mapping[str, Any] = component, worker_spec: Any = worker_spec) -> Workload:
            _, worker, count = kserve_pods.with_workers(
                kserve_pods.component_pod(component), mapping(worker_spec, "workerSpec")
            )
            count = 0 if kserve_pods.stopped(value) else count
            return _part(value, "predictor workers", component, ((worker, 1),), Bounds(count, count), "")

        take(part, make)
        if worker_spec is not None:
            take(f"{part} workers", make_workers)
        if component.get("canaryTrafficPercent") is not None:
            name("the pods of the revision before are not counted", decisive=False, part=part)
    if spec.get("canary"):
        name("the pods of its canaries are not counted", part="canary")


def _deployment(value: Mapping[str, Any], part: str, component: Mapping[str, Any]) -> str:
    variant = f"-{component['name']}" if component.get("name") else ""
    return f"{_name(value)}{variant}-{part}"


def _llm_inference_service(
    value: Mapping[str, Any],
    spec: Mapping[str, Any],
    take: Callable[[str, Callable[[], Workload]], None],
    name: Callable[..., None],
) -> None:
    for part, described in kserve_pods.llm_parts(spec):

        def make(part: str = part, described: Mapping[str, Any] = described) -> Workload:
            deployment = f"{_name(value)}-kserve{'-' + part if part else ''}"
            pods, bounds = kserve_pods.llm_pods(described), kserve_pods.llm_bounds(value, described)
            return _part(value, part, spec, pods, bounds, deployment)

        take(part, make)
    scheduler = mapping(mapping(spec.get("router"), "router").get("scheduler"), "scheduler")
    pool = mapping(scheduler.get("pool"), "pool")
    if "scheduler" not in mapping(spec.get("router"), "router") or pool.get("ref") is not None:
        return
    if scheduler.get("template") is None:
        name("its pods are KServe's own, and what they take is not known", decisive=False, part="scheduler")
        return
    count = 0 if kserve_pods.stopped(value) else optional(scheduler, "replicas", 1)

    def make_scheduler() -> Workload:
        return _part(value, "scheduler", spec, ((read_pod(scheduler["template"]), 1),), Bounds(count, count), "")

    take("scheduler", make_scheduler)


def _part(
    value: Mapping[str, Any],
    part: str,
    labelled: Mapping[str, Any],
    pods: tuple[tuple[Pod, int], ...],
    bounds: Bounds,
    deployment: str,
) -> Workload:
    """A part of an object of KServe's. `labelled` holds the labels that its pods get."""
    namespace = _namespace(value)
    center = _label(value) or texts(labelled.get("labels"), "labels").get(COST_CENTER, "")
    targets = (("Deployment", namespace, deployment),) if deployment else ()
    return Workload(f"{_subject(value)} {part}".strip(), namespace, center, pods, bounds, targets)


def _label(value: Mapping[str, Any]) -> str:
    labels = mapping(mapping(value.get("metadata"), "metadata").get("labels"), "labels")
    return texts(labels, "labels").get(COST_CENTER, "")


def _metadata(value: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = value.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(value: Mapping[str, Any]) -> str:
    return str(_metadata(value).get("name") or "")


def _namespace(value: Mapping[str, Any]) -> str:
    return str(_metadata(value).get("namespace") or "")


def _subject(value: Mapping[str, Any]) -> str:
    """`Kind namespace/name`, as findings name the object."""
    place = f"{_namespace(value)}/{_name(value)}" if _namespace(value) else _name(value)
    return f"{value.get('kind')} {place}"


def _scaling_annotations(value: Mapping[str, Any]) -> dict[str, str]:
    """The annotations that decide how many pods there are, or whether there are any."""
    try:
        given = annotations_of(value)
    except ValueError:
        return {}
    return {key: text for key, text in given.items() if key.startswith(_SCALING)}


def _holds_containers(value: Any) -> bool:
    """Whether anything in an object of an unknown kind looks like a container, or like what one asks for."""
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

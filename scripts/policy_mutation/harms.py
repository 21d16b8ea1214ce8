"""Puts the bad part of a test object (a container, fields of a pod, a volume) into every other place and kind.

A rule that sees one kind alone lets these pass, although the server that they start is the same. The places are those
of the definitions of Kubernetes and KServe, not those of the policies.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import Path, dotted
from neuroscale.policies.bad_objects import EXPECTED_MESSAGE, path_of
from policy_mutation.mutant import Mutant, Object, at, of_value

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
MODEL_FIELDS = (
    *("model", "huggingface", "lightgbm", "onnx", "paddle", "pmml", "pytorch"),
    *("sklearn", "tensorflow", "triton", "xgboost", "art"),
)

SERVER = {
    "name": "server",
    "image": "docker.io/vllm/vllm-openai:v0.32.0",
    "command": ["vllm", "serve"],
    "args": ["--served-model-name=chat", "--port=8080"],
    "ports": [{"containerPort": 8080}],
}
"""A container that everybody recognises as a vLLM server."""

_TEMPLATE: tuple[Path, ...] = (("spec", "template", "spec"),)
POD_PLACES: dict[str, tuple[Path, ...]] = {
    "InferenceService": (
        ("spec", "predictor"),
        ("spec", "predictor", "workerSpec"),
        ("spec", "transformer"),
        ("spec", "explainer"),
        ("spec", "canary", 0, "predictor"),
    ),
    "LLMInferenceService": (
        ("spec", "template"),
        ("spec", "worker"),
        ("spec", "prefill", "template"),
        ("spec", "prefill", "worker"),
        ("spec", "router", "scheduler", "template"),
    ),
    "ServingRuntime": (("spec",), ("spec", "workerSpec")),
    "ClusterServingRuntime": (("spec",), ("spec", "workerSpec")),
    "Pod": (("spec",),),
    "CronJob": (("spec", "jobTemplate", "spec", "template", "spec"),),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"), _TEMPLATE
    ),
}
"""The paths of the pods of each kind."""


def list_positions(pod: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Each position for one more container in a pod: what it is called, its list, and its index there."""
    yield "first container", "containers", 0
    yield "last container", "containers", len(pod.get("containers") or ())
    yield "init container", "initContainers", len(pod.get("initContainers") or ())
    yield "sidecar", "initContainers", 0
    yield "ephemeral container", "ephemeralContainers", len(pod.get("ephemeralContainers") or ())


_OF_BOTH = (
    *("image", "command", "args", "env", "envFrom", "workingDir", "ports", "volumeMounts", "resources"),
    *("securityContext", "lifecycle", "startupProbe", "readinessProbe", "livenessProbe"),
)
"""The fields that a model of an InferenceService and a container share."""
_EACH = 2  # harms of one sort with the same message


@dataclass(frozen=True)
class Harm:
    """`sort`: `container`, `model`, `pod`, `volume` or `labels` (the object's). `value`: what is put in.

    `base`: where it comes from. `inner`: the field of it that the policy's message names, or () for the whole.
    """

    sort: str
    value: Object
    said: str
    base: Object
    inner: Path = ()


def harms_of(bad: Sequence[Object], good: Sequence[Object]) -> list[Harm]:
    """The harms of a policy's bad objects: for each of its messages at most two of a sort."""
    found: list[Harm] = []
    for one in bad:
        places, _, said = str(one["metadata"]["annotations"][EXPECTED_MESSAGE]).partition(": ")
        for place in places.split(", ")[:1]:
            harm = _harm(one, path_of(place), said, good)
            alike = [other for other in found if harm and (other.sort, other.said) == (harm.sort, harm.said)]
            if harm is not None and len(alike) < _EACH and all(other.value != harm.value for other in alike):
                found.append(harm)
    return found


def _harm(bad: Object, place: Path, said: str, good: Sequence[Object]) -> Harm | None:
    if place[:2] == ("metadata", "labels"):
        return Harm("labels", bad["metadata"].get("labels") or {}, said, bad)
    for end in range(len(place), 0, -1):
        value = at(bad, place[:end])
        holder = place[end - 1]
        if not isinstance(value, dict):
            continue
        before = place[end - 2] if end > 1 else None
        if isinstance(holder, int) and before in CONTAINER_LISTS:
            return Harm("container", value, said, bad)
        if holder in MODEL_FIELDS and bad["kind"] == "InferenceService":
            return Harm("model", {str(holder): value}, said, bad, place[end:]) if holder != "art" else None
        if isinstance(holder, int) and before == "volumes":
            return Harm("volume", value, said, bad)
        if place[:end] in POD_PLACES.get(bad["kind"], ()):
            fields = _pod_fields(bad, place[:end], good)
            return Harm("pod", fields, said, bad) if fields else None
    return None


def _pod_fields(bad: Object, place: Path, good: Sequence[Object]) -> Object:
    """The fields of a bad pod that no good object of the kind has there with this value."""
    others = [at(one, place) for one in good if one["kind"] == bad["kind"]]
    return {
        key: value
        for key, value in at(bad, place).items()
        if key not in (*CONTAINER_LISTS, *MODEL_FIELDS, "labels", "annotations", "workerSpec", "volumes")
        and not any(isinstance(other, dict) and other.get(key) == value for other in others)
    }


def transplanted(policy: str, harms: Sequence[Harm], good: Sequence[Object]) -> Iterator[Mutant]:
    """Every harm in every pod and position of one good object of each kind."""
    hosts: dict[str, Object] = {}
    for one in good:
        hosts.setdefault(one["kind"], one)
    for harm in harms:
        for host in hosts.values():
            for place in () if harm.sort == "labels" else POD_PLACES.get(host["kind"], ()):
                yield from _into_pod(policy, harm.base["metadata"]["name"], harm, host, place)


def _into_pod(policy: str, source: str, harm: Harm, host: Mapping[str, Any], place: Path) -> Iterator[Mutant]:
    def made(operator: str, change: Any, inner: Path = ()) -> Iterator[Mutant]:
        value = copy.deepcopy(dict(host))
        pod = _pod(value, place)
        if pod is not None:
            change(pod)
            where = dotted((*place, *inner))
            yield of_value(policy, f"{operator}:{source}", host, where, value, by_place=True)

    if harm.sort == "container":
        for name, into, index in list_positions(at(host, place) or {}):
            container = {key: one for key, one in harm.value.items() if key != "restartPolicy"}
            if container.get("name") in _names(at(host, place) or {}):
                container["name"] = "mutant"
            if name == "sidecar":
                container["restartPolicy"] = "Always"
            yield from made(name, lambda pod, i=into, n=index, c=container: _insert(pod, i, n, c), (into, index))
    elif harm.sort == "model":
        if place[:1] == ("spec",) and "predictor" in place and "workerSpec" not in place:
            yield from made("model", lambda pod: _model(pod, harm.value), (next(iter(harm.value)),))
        alone = as_container(harm)
        if alone is not None and host["kind"] not in ("InferenceService", "LLMInferenceService"):
            yield from made("model as a container", lambda pod: _insert(pod, "containers", 0, alone), ("containers", 0))
    elif harm.sort == "volume":
        volumes = (at(host, place) or {}).get("volumes") or []
        for name, index in (("first volume", 0), ("last volume", len(volumes))):
            volume = {**harm.value, "name": "mutant"}
            yield from made(name, lambda pod, n=index, v=volume: _insert(pod, "volumes", n, v), ("volumes", index))
    else:
        yield from made("pod", lambda pod: pod.update(copy.deepcopy(harm.value)))


def as_container(harm: Harm) -> Object | None:
    """The harm as a container of any pod; None if it is of another sort, or in a field that a container has not."""
    if harm.sort == "container":
        return {key: one for key, one in harm.value.items() if key != "restartPolicy"}
    if harm.sort != "model" or (harm.inner and harm.inner[0] not in _OF_BOTH):
        return None
    ((field, model),) = harm.value.items()
    if "vllm" not in str((model.get("modelFormat") or {}).get("name")).lower() and field == "model":
        return None
    kept = {key: copy.deepcopy(one) for key, one in model.items() if key in _OF_BOTH}
    return {"name": "mutant", "image": SERVER["image"], **kept}


def _names(pod: Object) -> set[str]:
    return {str(one.get("name")) for field in CONTAINER_LISTS for one in pod.get(field) or ()}


def _insert(pod: Object, into: str, index: int, item: Object) -> None:
    items = pod.setdefault(into, [])
    items.insert(index, copy.deepcopy(item))


def _model(pod: Object, fields: Object) -> None:
    for key in MODEL_FIELDS:
        pod.pop(key, None)
    pod.update(copy.deepcopy(fields))


def _pod(value: Object, place: Path) -> Object | None:
    """The pod at a place, made if it is not there."""
    holder: Any = value
    for index, part in enumerate(place):
        if isinstance(part, int):
            if not holder:
                holder.append({})
            holder = holder[part]
            continue
        if holder.get(part) is None:
            holder[part] = [] if isinstance(place[index + 1 : index + 2] and place[index + 1], int) else {}
        holder = holder[part]
    return holder if isinstance(holder, dict) else None


_KSERVE = "serving.kserve.io/v1alpha1"
_POD_KINDS = (
    ("v1", "Pod"),
    *(("apps/v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    *(("batch/v1", "Job"), ("batch/v1", "CronJob")),
    *(("v1", "ReplicationController"), ("v1", "PodTemplate")),
    *(("extensions/v1beta1", "Deployment"), ("apps/v1beta2", "Deployment")),
    *(("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), ("serving.knative.dev/v1", "Service")),
    ("argoproj.io/v1alpha1", "Rollout"),
    *((_KSERVE, "ServingRuntime"), (_KSERVE, "ClusterServingRuntime")),
)
_NO_SELECTOR = ("Job", "CronJob", "Service")
_APP = {"app": "mutant"}


def in_other_kinds(
    policy: str, harms: Sequence[Harm], bad: Sequence[Object], good: Sequence[Object], schemas: SchemaSet
) -> Iterator[Mutant]:
    """One bad pod in all kinds, and every harm in each kind that the policy has no good object of.

    Kinds that set-up has no schema of, which the schema check refuses whatever they hold, get only one harm.
    """
    whole = next((one for one in bad if one["kind"] in ("Deployment", "Pod") and one["kind"] in POD_PLACES), None)
    if whole is not None:
        inner = whole if whole["kind"] == "Pod" else at(whole, ("spec", "template")) or {}
        labels = at(inner, ("metadata", "labels")) or {}
        pod = at(whole, POD_PLACES[whole["kind"]][0])
        for version, kind in _POD_KINDS:
            if (version, kind) != (whole["apiVersion"], whole["kind"]):
                yield _mutant(policy, whole, version, kind, whole["metadata"].get("labels") or {}, labels, pod)
    shown = {one["kind"] for one in good}
    missing = [one for one in _POD_KINDS if one[1] not in shown]
    for number, (harm, pod) in enumerate((harm, pod) for harm in harms if (pod := _pod_of(harm)) is not None):
        labels = harm.value if harm.sort == "labels" else harm.base["metadata"].get("labels") or {}
        for version, kind in missing:
            if number == 0 or (version, kind) in schemas.kinds:
                yield _mutant(policy, harm.base, version, kind, labels, labels, pod)


def _pod_of(harm: Harm) -> Object | None:
    """A pod with the harm, or None if only KServe gives the harm its meaning."""
    container = as_container(harm)
    if container is not None:
        return {"containers": [container]}
    server = {"containers": [copy.deepcopy(SERVER)]}
    if harm.sort == "volume":
        return {**server, "volumes": [{**harm.value, "name": "mutant"}]}
    if harm.sort == "pod":
        return {**server, **copy.deepcopy(harm.value)}
    return server if harm.sort == "labels" else None


def _mutant(
    policy: str,
    base: Object,
    version: str,
    kind: str,
    own: Mapping[str, Any],
    labels: Mapping[str, Any],
    pod: Object,
) -> Mutant:
    """`own`: the labels of the object; `labels`: those of its pods."""
    metadata = {key: base["metadata"][key] for key in ("name", "namespace") if key in base["metadata"]}
    if kind == "Pod":
        own = dict(own.items() & labels.items())
    value: Object = {"apiVersion": version, "kind": kind, "metadata": {**metadata, "labels": dict(own)}}
    spec = copy.deepcopy(pod)
    template: Object = {"metadata": {"labels": {**labels, **_APP}}, "spec": spec}
    if kind in ("Job", "CronJob"):
        spec["restartPolicy"] = "Never"
    if kind == "Pod" or kind.endswith("ServingRuntime"):
        value["spec"] = spec
        if kind.startswith("Cluster"):
            value["metadata"].pop("namespace", None)
    elif kind == "PodTemplate":
        value["template"] = template
    elif kind == "LeaderWorkerSet":
        value["spec"] = {"leaderWorkerTemplate": {"workerTemplate": template}}
    elif kind == "CronJob":
        value["spec"] = {"schedule": "0 4 * * *", "jobTemplate": {"spec": {"template": template}}}
    else:
        value["spec"] = {"template": template}
        if kind not in _NO_SELECTOR:
            value["spec"]["selector"] = _APP if kind == "ReplicationController" else {"matchLabels": _APP}
        if kind == "StatefulSet":
            value["spec"]["serviceName"] = "mutant"
    return of_value(policy, f"other kind:{version} {kind}", base, "", value)

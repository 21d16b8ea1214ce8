"""Puts the bad part of a test object (a container, fields of a pod, a volume) into every other place."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscale.core.yaml_io import Path, dotted
from neuroscale.gate.mutation.mutant import Mutant, Object, at, of_value, path_of
from neuroscale.gate.mutation.pod_places import CONTAINER_LISTS, MODEL_FIELDS, POD_PLACES, SERVER, list_positions
from neuroscale.policies.policy_set import EXPECTED_MESSAGE

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

"""Resolves the environment variables of a container from its pod.

Reads from the API server the Secrets and ConfigMaps from which a pod's containers take variables.
"""

from __future__ import annotations

import base64
import contextlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from neuroscale.kube.client import Cluster, KubernetesError, Object, RefusedError
from neuroscale.local.node.waiting import CONFIGURATION, WaitingError
from neuroscale.manifests.pod_resources import quantity

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_NAME = re.compile(r"[^\0=]+")


@dataclass(frozen=True)
class Sources:
    """The objects that containers may refer to: the values by key of each Secret and ConfigMap, None for a missing
    one."""

    secrets: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict, repr=False)
    config_maps: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """The facts that a pod may ask about itself. `cpu` in cores, `memory` in bytes: the most that it can get."""

    node: str
    address: str
    host: str
    cpu: int
    memory: int


def referred(container: Object) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the Secrets and the ConfigMaps that a container's environment refers to."""
    secrets: set[str | None] = set()
    config_maps: set[str | None] = set()
    for entry in container.get("envFrom") or ():
        secrets.add((entry.get("secretRef") or {}).get("name"))
        config_maps.add((entry.get("configMapRef") or {}).get("name"))
    for entry in container.get("env") or ():
        source = entry.get("valueFrom") or {}
        secrets.add((source.get("secretKeyRef") or {}).get("name"))
        config_maps.add((source.get("configMapKeyRef") or {}).get("name"))
    return frozenset(name for name in secrets if name), frozenset(name for name in config_maps if name)


def resolve(pod: Object, container: Object, sources: Sources, place: Place) -> dict[str, str]:
    """The container's variables with their values. Raises WaitingError (CreateContainerConfigError)."""
    variables: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        prefix = entry.get("prefix") or ""
        for key, value in _whole(entry, sources).items():
            variables[prefix + key] = value
    for entry in container.get("env") or ():
        name = entry["name"]
        source = entry.get("valueFrom")
        given = (
            _value(pod, container, source, sources, place) if source else expand(entry.get("value") or "", variables)
        )
        if given is None:
            continue  # optional, and missing
        if not _NAME.fullmatch(name) or "\0" in given:
            raise WaitingError(CONFIGURATION, f"the variable {name!r} cannot be one of a process")
        variables[name] = given
    return variables


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced by that variable, and `$$` by `$`; an unknown name stays as it stands."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replaced, text)


def expand_all(texts: Iterable[str], variables: Mapping[str, str]) -> list[str]:
    """`expand` for each."""
    return [expand(text, variables) for text in texts]


def _whole(entry: Mapping[str, Any], sources: Sources) -> Mapping[str, str]:
    for field_name, kind, there in (
        ("secretRef", "secret", sources.secrets),
        ("configMapRef", "configmap", sources.config_maps),
    ):
        reference = entry.get(field_name)
        if reference:
            values = there.get(reference["name"])
            if values is None and not reference.get("optional"):
                raise WaitingError(CONFIGURATION, f'{kind} "{reference["name"]}" not found')
            return values or {}
    return {}


def _value(pod: Object, container: Object, source: Mapping[str, Any], sources: Sources, place: Place) -> str | None:
    if reference := source.get("secretKeyRef"):
        return _of_key(pod, reference, "Secret", sources.secrets)
    if reference := source.get("configMapKeyRef"):
        return _of_key(pod, reference, "ConfigMap", sources.config_maps)
    if reference := source.get("fieldRef"):
        return _of_field(pod, reference.get("fieldPath") or "", place)
    if reference := source.get("resourceFieldRef"):
        return _of_resource(container, reference, place)
    raise WaitingError(CONFIGURATION, f"this node cannot read a variable from {', '.join(source) or 'an empty source'}")


def _of_key(
    pod: Object, reference: Mapping[str, Any], kind: str, there: Mapping[str, Mapping[str, str] | None]
) -> str | None:
    name, key = reference["name"], reference["key"]
    values = there.get(name)
    if values is not None and key in values:
        return values[key]
    if reference.get("optional"):
        return None
    if values is None:
        raise WaitingError(CONFIGURATION, f'{kind.lower()} "{name}" not found')
    place = f"{pod['metadata']['namespace']}/{name}"
    raise WaitingError(CONFIGURATION, f"couldn't find key {key} in {kind} {place}")


def _of_field(pod: Object, path: str, place: Place) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    match = _SUBSCRIPT.fullmatch(path)
    if match is not None:
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": place.node,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "",
        "status.podIP": place.address,
        "status.podIPs": place.address,
        "status.hostIP": place.host,
        "status.hostIPs": place.host,
    }
    if path not in known:
        raise WaitingError(CONFIGURATION, f"unsupported fieldPath: {path}")
    return str(known[path])


def _of_resource(container: Object, reference: Mapping[str, Any], place: Place) -> str:
    kind, _, resource = str(reference.get("resource") or "").partition(".")
    given = {"cpu": Decimal(place.cpu), "memory": Decimal(place.memory)}
    if kind not in ("limits", "requests") or resource not in given:
        raise WaitingError(CONFIGURATION, f"unsupported container resource: {reference.get('resource')}")
    # Without a limit a container may use the whole node; without a request it is guaranteed nothing.
    default = given[resource] if kind == "limits" else Decimal(0)
    value = amount(container, kind, resource)
    divisor = quantity(reference.get("divisor") or "1") or Decimal(1)
    return str(math.ceil((default if value is None else value) / divisor))


def amount(container: Object, kind: str, resource: str) -> Decimal | None:
    """The amount that a container requests (`requests`) or may use (`limits`): cores, or bytes. None if it is not
    set."""
    text = ((container.get("resources") or {}).get(kind) or {}).get(resource)
    return None if text is None else quantity(text)


def read_sources(cluster: Cluster, container: Object, namespace: str) -> Sources:
    """The Secrets and ConfigMaps that a container names. Raises WaitingError if the API server does not give them."""
    secrets, config_maps = referred(container)
    return Sources(
        {name: _decoded(_get(cluster, "Secret", name, namespace)) for name in secrets},
        {name: _texts(_get(cluster, "ConfigMap", name, namespace)) for name in config_maps},
    )


def _get(cluster: Cluster, kind: str, name: str, namespace: str) -> Object | None:
    try:
        return cluster.get("v1", kind, name, namespace)
    except RefusedError as error:
        # Just after a pod was bound, the API server does not know yet that this node may read its Secrets and
        # ConfigMaps.
        raise WaitingError("CreateContainerConfigError", error.message) from error
    except KubernetesError as error:
        raise WaitingError("CreateContainerConfigError", "failed to sync cache: " + str(error)) from error


def _decoded(secret: Object | None) -> dict[str, str] | None:
    if secret is None:
        return None
    values = {}
    for key, value in (secret.get("data") or {}).items():
        with contextlib.suppress(UnicodeDecodeError):  # bytes that are not text cannot be a variable
            values[key] = base64.b64decode(value).decode()
    return values


def _texts(config_map: Object | None) -> dict[str, str] | None:
    return None if config_map is None else dict(config_map.get("data") or {})

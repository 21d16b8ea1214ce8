"""Reaches a program in a cluster from outside: by a port-forward to a pod of its Service."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from neuroscale.cluster.endpoint.forward import port_forward
from neuroscale.cluster.object_fields import items, part
from neuroscale.cluster.pod_state import is_ending, look
from neuroscale.core.errors import InputError, Problem
from neuroscale.kube.client import Cluster, Object
from neuroscale.repo.layout import SETTINGS


@dataclass(frozen=True)
class ServiceAddress:
    """A Service that the settings name. `field`: where they do. `fix`: what to do where the cluster lacks it."""

    namespace: str
    service: str
    port: int
    field: str
    fix: str


@contextlib.contextmanager
def forwarded(cluster: Cluster, wanted: ServiceAddress) -> Iterator[tuple[str, str]]:
    """An address on this machine that leads to a ready pod of the Service, and how people call the place.

    Raises InputError where the cluster has no such pod, KubernetesError, EndpointError.
    """
    pod, port = _pod(cluster, wanted)
    with port_forward(cluster, wanted.namespace, pod, port) as local:
        yield f"http://127.0.0.1:{local}", f"{wanted.namespace}/{wanted.service}:{wanted.port} of {cluster.name}"


def _pod(cluster: Cluster, wanted: ServiceAddress) -> tuple[str, int]:
    """A ready pod behind the Service, and the pod's port that the Service's port leads to."""
    service = cluster.get("v1", "Service", wanted.service, wanted.namespace)
    name = f"the Service {wanted.namespace}/{wanted.service}"

    def missing(what: str) -> InputError:
        return InputError(Problem(SETTINGS, wanted.field, f"{name} {what}", wanted.fix))

    if service is None:
        raise missing(f"is not in the cluster {cluster.name}")
    port = next((one for one in items(service, "spec", "ports") if one.get("port") == wanted.port), None)
    chosen = part(service, "spec", "selector")
    if port is None or not chosen:
        raise missing(f"has no port {wanted.port} that leads to pods")
    labels = ",".join(f"{key}={value}" for key, value in chosen.items())
    now = datetime.now(UTC)
    pods = cluster.list("v1", "Pod", wanted.namespace, labels)
    ready = [pod for pod in pods if look(pod, now).state == "ready" and not is_ending(pod)]
    if not ready:
        told = "; ".join(f"{state.name}: {state.told}" for state in (look(pod, now) for pod in pods[:3]))
        raise missing(f"has no pod that is ready ({told or 'it has none'})")
    return str(part(ready[0], "metadata").get("name")), _port(ready[0], port.get("targetPort"), wanted.port)


def _port(pod: Object, target: Any, otherwise: int) -> int:
    """The number of a port that a Service names by number or by name."""
    if isinstance(target, int):
        return target
    ports = [one for container in items(pod, "spec", "containers") for one in items(container, "ports")]
    named = (one.get("containerPort") for one in ports if one.get("name") == target)
    return next((number for number in named if isinstance(number, int)), otherwise)

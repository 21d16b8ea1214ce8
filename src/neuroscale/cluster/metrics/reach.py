"""Reaches a Prometheus by its address, or through a cluster's API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from neuroscale.catalog.settings import Prometheus as Configured
from neuroscale.cluster.endpoint.connection import client
from neuroscale.cluster.endpoint.forward import port_forward
from neuroscale.cluster.metrics.prometheus import Prometheus, address
from neuroscale.cluster.object_fields import items, part
from neuroscale.cluster.pod_state import look
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.web_address import is_loopback
from neuroscale.kube.client import Cluster, Object
from neuroscale.repo.layout import SETTINGS

OPTION = "--prometheus-url"


@contextlib.contextmanager
def by_address(url: str) -> Iterator[Prometheus]:
    """The Prometheus at an address. Raises InputError if it is not a web address."""
    url = address(url, OPTION)
    with client(url, direct=is_loopback(urlsplit(url).hostname or "")) as http:
        yield Prometheus(url, http)


@contextlib.contextmanager
def in_cluster(cluster: Cluster, wanted: Configured, environment: str) -> Iterator[Prometheus]:
    """The Prometheus that the settings name, by a port-forward to one of its pods.

    Raises InputError if the cluster does not have it, KubernetesError, EndpointError.
    """
    place = f"{wanted.namespace}/{wanted.service}:{wanted.port}"
    pod, port = _pod(cluster, wanted, f"environments.{environment}.prometheus")
    with port_forward(cluster, wanted.namespace, pod, port) as local:
        url = f"http://127.0.0.1:{local}"
        with client(url, direct=True) as http:
            yield Prometheus(url, http, f"{place} of {cluster.name}")


def _pod(cluster: Cluster, wanted: Configured, field: str) -> tuple[str, int]:
    """A ready pod behind the Service, and the pod's port that the Service's port leads to."""
    service = cluster.get("v1", "Service", wanted.service, wanted.namespace)
    name = f"the Service {wanted.namespace}/{wanted.service}"
    fix = f"Name the Service of Prometheus in the settings, give {OPTION}, or --state for the platform of this machine."
    if service is None:
        raise InputError(Problem(SETTINGS, field, f"{name} is not in the cluster {cluster.name}", fix))
    port = next((one for one in items(service, "spec", "ports") if one.get("port") == wanted.port), None)
    chosen = part(service, "spec", "selector")
    if port is None or not chosen:
        raise InputError(Problem(SETTINGS, field, f"{name} has no port {wanted.port} that leads to pods", fix))
    labels = ",".join(f"{key}={value}" for key, value in chosen.items())
    now = datetime.now(UTC)
    pods = cluster.list("v1", "Pod", wanted.namespace, labels)
    ready = [
        pod for pod in pods if look(pod, now).state == "ready" and not part(pod, "metadata").get("deletionTimestamp")
    ]
    if not ready:
        told = "; ".join(f"{state.name}: {state.told}" for state in (look(pod, now) for pod in pods[:3]))
        raise InputError(Problem(SETTINGS, field, f"{name} has no pod that is ready ({told or 'it has none'})", fix))
    return str(part(ready[0], "metadata").get("name")), _port(ready[0], port.get("targetPort"), wanted.port)


def _port(pod: Object, target: Any, otherwise: int) -> int:
    """The number of a port that a Service names by number or by name."""
    if isinstance(target, int):
        return target
    ports = [one for container in items(pod, "spec", "containers") for one in items(container, "ports")]
    named = (one.get("containerPort") for one in ports if one.get("name") == target)
    return next((number for number in named if isinstance(number, int)), otherwise)

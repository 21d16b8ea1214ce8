"""The way to a Prometheus: by its address, on the platform of this machine, or through a cluster's API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from neuroscale.cluster.pods import items, look, part
from neuroscale.endpoint.connection import client
from neuroscale.endpoint.forward import port_forward
from neuroscale.errors import InputError, Problem
from neuroscale.kube.client import Cluster, Object
from neuroscale.metrics.prometheus import Prometheus, address
from neuroscale.repository import SETTINGS
from neuroscale.settings import Prometheus as Configured
from neuroscale.web_address import is_loopback

OPTION = "--prometheus-url"


@contextlib.contextmanager
def by_address(url: str) -> Iterator[Prometheus]:
    """The Prometheus at an address. Raises InputError where that is none."""
    url = address(url, OPTION)
    with client(url, direct=is_loopback(urlsplit(url).hostname or "")) as http:
        yield Prometheus(url, http)


@contextlib.contextmanager
def of_local_platform(folder: Path) -> Iterator[Prometheus]:
    """That of the platform on this machine. Raises InputError where there is none."""
    from neuroscale.local.prometheus import NAME
    from neuroscale.local.prometheus import Prometheus as Local
    from neuroscale.local.state import State

    found = State.read(folder)
    if found is None or not found.instance.cluster or NAME not in found.instance.ports:
        raise InputError(Problem(str(folder), "", "holds no Prometheus", "Start one: neuroscale local up --cluster"))
    with by_address(Local(found).url) as prometheus:
        yield prometheus


@contextlib.contextmanager
def in_cluster(cluster: Cluster, wanted: Configured, environment: str) -> Iterator[Prometheus]:
    """The one that the settings name, by a port-forward to one of its pods.

    Raises InputError where the cluster has none, KubernetesError, EndpointError.
    """
    place = f"{wanted.namespace}/{wanted.service}:{wanted.port}"
    pod, port = _pod(cluster, wanted, f"environments.{environment}.prometheus")
    with port_forward(cluster, wanted.namespace, pod, port) as local:
        url = f"http://127.0.0.1:{local}"
        with client(url, direct=True) as http:
            yield Prometheus(url, http, f"{place} of {cluster.name}")


def _pod(cluster: Cluster, wanted: Configured, field: str) -> tuple[str, int]:
    """A ready pod behind the Service, and the port that the Service's port is in it."""
    service = cluster.get("v1", "Service", wanted.service, wanted.namespace)
    name = f"the Service {wanted.namespace}/{wanted.service}"
    fix = f"Name the Service of Prometheus in the settings, give {OPTION}, or --state for the platform of this machine."
    if service is None:
        raise InputError(Problem(SETTINGS, field, f"{name} is not in the cluster {cluster.name}", fix))
    port = next((one for one in items(service, "spec", "ports") if one.get("port") == wanted.port), None)
    chosen = part(service, "spec", "selector")
    if port is None or not chosen:
        raise InputError(Problem(SETTINGS, field, f"{name} leads from no port {wanted.port} to pods", fix))
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

"""Reaches a Prometheus by its address, or through a cluster's API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from neuroscale.catalog.settings import Prometheus as Configured
from neuroscale.cluster.endpoint.connection import client
from neuroscale.cluster.forwarded_service import ServiceAddress, forwarded
from neuroscale.cluster.metrics.prometheus import Prometheus, address
from neuroscale.kube.client import Cluster

OPTION = "--prometheus-url"
_FIX = f"Name the Service of Prometheus in the settings, give {OPTION}, or --state for the platform of this machine."


@contextlib.contextmanager
def by_address(url: str) -> Iterator[Prometheus]:
    """The Prometheus at an address. Raises InputError if it is not a web address."""
    url = address(url, OPTION)
    with client(url) as http:
        yield Prometheus(url, http)


@contextlib.contextmanager
def in_cluster(cluster: Cluster, wanted: Configured, environment: str) -> Iterator[Prometheus]:
    """The Prometheus that the settings name, by a port-forward to one of its pods.

    Raises InputError if the cluster does not have it, KubernetesError, EndpointError.
    """
    field = f"environments.{environment}.prometheus"
    found = ServiceAddress(wanted.namespace, wanted.service, wanted.port, field, _FIX)
    with forwarded(cluster, found) as (url, place), client(url) as http:
        yield Prometheus(url, http, place)

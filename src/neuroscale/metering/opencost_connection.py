"""Connects to an OpenCost: by its address, or through a cluster's API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

from neuroscale.catalog.settings import OpenCost as Configured
from neuroscale.cluster.endpoint.connection import client
from neuroscale.cluster.forwarded_service import ServiceAddress, forwarded
from neuroscale.cluster.metrics.prometheus import address
from neuroscale.kube.client import Cluster
from neuroscale.metering.opencost import OpenCost

OPTION = "--opencost-url"
_FIX = (
    f"Name the Service of OpenCost in the settings, or give {OPTION}. platform/cost/README.md says how it is installed."
)


@contextlib.contextmanager
def by_address(url: str) -> Iterator[OpenCost]:
    """The OpenCost at an address. Raises InputError if `url` is not an address."""
    url = address(url, OPTION)
    with client(url) as http:
        yield OpenCost(url, http)


@contextlib.contextmanager
def of_local_platform(url: str, step: timedelta, unpriced: tuple[str, ...]) -> Iterator[OpenCost]:
    """The OpenCost of the local platform, with its step and its nodes without a price."""
    with client(url) as http:
        yield OpenCost(url, http, step=step, unpriced=unpriced, local=True)


@contextlib.contextmanager
def in_cluster(cluster: Cluster, wanted: Configured, environment: str) -> Iterator[OpenCost]:
    """The OpenCost that the settings name, through a port-forward to one of its pods.

    Raises InputError if the cluster does not have it, KubernetesError, EndpointError.
    """
    field = f"environments.{environment}.opencost"
    found = ServiceAddress(wanted.namespace, wanted.service, wanted.port, field, _FIX)
    with forwarded(cluster, found) as (url, place), client(url) as http:
        yield OpenCost(url, http, place)

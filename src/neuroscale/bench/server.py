"""Asks an endpoint what it serves: the model, the version, the longest request, and what its caches hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.cluster.endpoint.chat import get_json, models
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.metrics import Snapshot, read

_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}")


@dataclass(frozen=True)
class ServerFacts:
    """What a server says of itself. `root`: what it was started with, a folder or a repository of the Hub ("": it does
    not say). `version`: vLLM's ("": it does not say). `metrics`: its counters at the begin (None: it has none to read,
    and `no_metrics` says why)."""

    model: str
    root: str
    version: str
    max_model_len: int | None
    metrics: Snapshot | None
    no_metrics: str


def ask(endpoint: Endpoint) -> ServerFacts:
    """The facts of the model that the endpoint serves by its name. Raises EndpointError without such a model."""
    listed = models(endpoint)
    found = next((one for one in listed if one.id == endpoint.model), None)
    if found is None:
        names = ", ".join(one.id for one in listed[:5]) or "none"
        raise EndpointError(f"{endpoint.url} does not serve {endpoint.model}. Its models: {names}", 404)
    metrics, why = counters(endpoint)
    return ServerFacts(
        endpoint.model,
        found.root,
        _version(endpoint),
        found.max_model_len,
        metrics,
        why,
    )


def counters(endpoint: Endpoint) -> tuple[Snapshot | None, str]:
    """The server's counters now, or None and the reason."""
    try:
        found = read(endpoint)
    except EndpointError as error:
        return None, str(error)
    return (found, "") if found.names else (None, f"{endpoint.url}/metrics has no metrics.")


def _version(endpoint: Endpoint) -> str:
    try:
        told: Any = get_json(endpoint, "/version")
    except EndpointError:  # a gateway, or no vLLM
        return ""
    version = told.get("version") if isinstance(told, Mapping) else None
    match = _VERSION.match(version) if isinstance(version, str) else None
    return match[0] if match else ""

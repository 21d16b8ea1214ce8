"""Stores CustomResourceDefinitions in etcd before its API server starts, which then serves their kinds from the start.

A running server writes a definition that it is sent several times, with its status, and compares all fields each time:
for one of 700 kB that takes three seconds of a processor more.
"""

from __future__ import annotations

import base64
import functools
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import httpx

from neuroscale.core.retries import repeatedly
from neuroscale.kube.client import KubernetesError, Object
from neuroscale.kube.control_plane import ControlPlane, client_context

_PREFIX = "/registry/apiextensions.k8s.io/customresourcedefinitions"
_ANSWERS_WITHIN = 30.0  # seconds
_ATTEMPTS, _FIRST_PAUSE = 4, 0.2
_CLIENT = ("--etcd-cafile", "--etcd-certfile", "--etcd-keyfile")


def gateway_options(plane: ControlPlane) -> tuple[str, ...]:
    """The options with which etcd also answers JSON over HTTP: it shows itself the API server's certificate then."""
    _, certificate, key = _client_files(plane)
    return f"--client-cert-file={certificate}", f"--client-key-file={key}"


def store_definitions(plane: ControlPlane, definitions: Sequence[Object]) -> None:
    """Store definitions in an etcd with the `gateway_options`, whose API server does not run yet.

    Nobody checks a definition here, so it has to be one that an API server takes. Raises KubernetesError.
    """
    if not definitions:
        return
    context = client_context(*_client_files(plane))
    with httpx.Client(base_url=plane.etcd_url, verify=context, timeout=_ANSWERS_WITHIN, trust_env=False) as client:
        for definition in definitions:
            name = definition["metadata"]["name"]
            pair = {"key": _encoded(f"{_PREFIX}/{name}"), "value": _encoded(json.dumps(_established(definition)))}
            repeatedly(
                functools.partial(_put, client, name, pair),
                attempts=_ATTEMPTS,
                again=lambda error: isinstance(error, KubernetesError),
                first_pause=_FIRST_PAUSE,
            )


def _put(client: httpx.Client, name: str, pair: Mapping[str, str]) -> None:
    try:
        answer = client.post("/v3/kv/put", json=pair)
    except httpx.HTTPError as error:
        raise KubernetesError(f"etcd did not store {name} ({type(error).__name__}).") from error
    if answer.status_code != 200:
        raise KubernetesError(f"etcd did not store {name}: {answer.status_code} {answer.text.strip()[-200:]}")


def _established(definition: Object) -> Object:
    """A definition as an API server stores it once it has accepted its names."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata, spec = definition["metadata"], definition["spec"]
    kind = spec["names"]["kind"]
    names = {"singular": kind.lower(), "listKind": f"{kind}List", **spec["names"]}

    def condition(name: str, reason: str, message: str) -> Object:
        return {"type": name, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}

    return {
        **definition,
        "metadata": {**metadata, "uid": str(uuid.uuid4()), "creationTimestamp": now, "generation": 1},
        "spec": {**spec, "names": names},
        "status": {
            "acceptedNames": names,
            "storedVersions": [version["name"] for version in spec["versions"] if version["storage"]],
            "conditions": [
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ],
        },
    }


def _client_files(plane: ControlPlane) -> tuple[Path, Path, Path]:
    """The authority, the certificate and the key with which the API server speaks to etcd."""
    options = dict(one.split("=", 1) for one in plane.api_server_argv() if "=" in one)
    authority, certificate, key = (Path(options[name]) for name in _CLIENT)
    return authority, certificate, key


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()

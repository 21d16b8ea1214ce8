"""Stores CustomResourceDefinitions in etcd, best before its API server starts, which then serves their kinds at once.

A server that gets a definition writes it several times, with its status, and compares all fields each time: for one of
700 kB that takes three seconds of a processor more.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx

from neuroscale.core.waiting import repeatedly
from neuroscale.kube.client import KubernetesError, Object
from neuroscale.kube.control_plane import ControlPlane

_PREFIX = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
_ANSWERS_WITHIN = 30.0  # seconds
_ATTEMPTS, _FIRST_PAUSE = 4, 0.2


def store_definitions(plane: ControlPlane, definitions: Sequence[Object]) -> None:
    """Store definitions in etcd; one that is there stays as it is. An API server that runs already serves them soon.

    Nobody checks a definition here, so it has to be one that an API server takes. Raises KubernetesError.
    """
    if not definitions:
        return
    with httpx.Client(
        base_url=plane.etcd_url, verify=plane.etcd_context(), timeout=_ANSWERS_WITHIN, trust_env=False
    ) as client:
        all_keys = {"key": _encoded(_PREFIX), "range_end": _encoded(_PREFIX[:-1] + chr(ord("/") + 1))}
        stored = {pair["key"] for pair in _ask(client, "range", {**all_keys, "keys_only": True}).get("kvs", [])}
        for definition in definitions:
            key = _encoded(_PREFIX + definition["metadata"]["name"])
            if key not in stored:
                _ask(client, "put", {"key": key, "value": _encoded(json.dumps(_established(definition)))})


def _ask(client: httpx.Client, method: str, question: Mapping[str, Any]) -> dict[str, Any]:
    def once() -> dict[str, Any]:
        try:
            answer = client.post(f"/v3/kv/{method}", json=question)
        except httpx.HTTPError as error:
            reason = f"etcd did not answer while definitions were stored ({type(error).__name__})."
            raise KubernetesError(reason) from error
        if answer.status_code != 200:
            reason = answer.text.strip()[-200:]
            raise KubernetesError(f"etcd answered {answer.status_code} while definitions were stored: {reason}")
        value: dict[str, Any] = answer.json()
        return value

    return repeatedly(
        once,
        attempts=_ATTEMPTS,
        again=lambda error: isinstance(error, KubernetesError),
        first_pause=_FIRST_PAUSE,
    )


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


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()

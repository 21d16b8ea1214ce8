"""Reads how far the cluster is, from the small tables that kubectl prints, so that looking costs little."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import httpx

from neuroscale.kube.control_plane import ADMINISTRATOR
from neuroscale.local.control_plane import control_plane
from neuroscale.local.state import State

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_APPLICATIONS = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications"
_SERVICES = "/apis/serving.kserve.io/v1beta1/inferenceservices"


@dataclass(frozen=True)
class Progress:
    """The number of objects of each kind; `ready`: InferenceServices, `healthy`: Applications that are also Synced."""

    applications: int
    synced: int
    inference_services: int
    deployments: int
    pods: int
    ready: int
    healthy: int

    def done(self, services: int) -> bool:
        """Whether every service has reached every stage."""
        return all(getattr(self, one.name) == services for one in fields(self))


class Watcher:
    """Looks at a cluster. `close` ends its connections."""

    def __init__(self, state: State) -> None:
        plane = control_plane(state)
        self._client = httpx.Client(
            base_url=plane.url, verify=plane.client_context(ADMINISTRATOR), timeout=60.0, trust_env=False
        )

    def close(self) -> None:
        self._client.close()

    def look(self, environment: str) -> Progress:
        """How far the services of an environment are. There must be no other Deployments and Pods."""
        rows = [row for row in self._rows(_APPLICATIONS) if row["NAME"].endswith(f".{environment}")]
        synced = [row for row in rows if row["SYNC STATUS"] == "Synced"]
        services = self._rows(_SERVICES)
        return Progress(
            applications=len(rows),
            synced=len(synced),
            inference_services=len(services),
            deployments=self._count("/apis/apps/v1/deployments"),
            pods=self._count("/api/v1/pods"),
            ready=sum(row["READY"] == "True" for row in services),
            healthy=sum(row["HEALTH STATUS"] == "Healthy" for row in synced),
        )

    def text(self, address: str) -> str:
        """The API server's answer as text."""
        return self._client.get(address).raise_for_status().text

    def _rows(self, address: str) -> list[dict[str, Any]]:
        parameters = {"includeObject": "None", "resourceVersion": "0"}
        answer = self._client.get(address, params=parameters, headers={"Accept": _TABLE}).raise_for_status().json()
        names = [column["name"].upper() for column in answer["columnDefinitions"]]
        return [dict(zip(names, row["cells"], strict=True)) for row in answer["rows"] or []]

    def _count(self, address: str) -> int:
        """The number of objects, by reading one of them."""
        answer = self._client.get(address, params={"limit": "1"}).raise_for_status().json()
        return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)

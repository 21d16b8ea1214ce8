"""Reads from the API server the Secrets and ConfigMaps from which a pod's containers take variables."""

from __future__ import annotations

import base64
import contextlib

from neuroscale.kube.client import Cluster, KubernetesError, Object, RefusedError
from neuroscale.local.node.variables import Sources, referred
from neuroscale.local.node.waiting_error import WaitingError


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
    found = {}
    for key, value in (secret.get("data") or {}).items():
        with contextlib.suppress(UnicodeDecodeError):  # bytes that are not text cannot be a variable
            found[key] = base64.b64decode(value).decode()
    return found


def _texts(config_map: Object | None) -> dict[str, str] | None:
    return None if config_map is None else dict(config_map.get("data") or {})

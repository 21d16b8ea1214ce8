"""Opens the way to a served model, with its key: through the API server to one of its pods, or by its address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from neuroscale.cluster.command_lines import command_lines
from neuroscale.cluster.endpoint import chat, key
from neuroscale.cluster.endpoint.connection import Endpoint, client
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.forward import port_forward
from neuroscale.cluster.endpoint.routes import DIRECT, Routes
from neuroscale.cluster.object_fields import served_model_name
from neuroscale.cluster.pod_state import SERVER, PodState, is_ending, look
from neuroscale.core.addresses import checked_address
from neuroscale.core.errors import InputError
from neuroscale.core.secret_text import SecretText
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Cluster, Object
from neuroscale.manifests.objects import SERVICE

__all__ = ["Endpoint", "EndpointError", "ReadyPod", "open_endpoint", "pods_of", "ready_pods"]

PORT = 8080
"""The port on which vLLM listens, by the template."""

_SERVICE_KIND = ("serving.kserve.io/v1beta1", "InferenceService")


@dataclass(frozen=True)
class ReadyPod:
    """A pod that answers. `port`: its server's. `model`: the name by which it serves the model ("" if no argument sets
    it)."""

    name: str
    port: int
    model: str
    key: key.Reference | None


def pods_of(cluster: Cluster, namespace: str, service: str) -> list[Object]:
    """All pods of a service, ready or not."""
    return cluster.list("v1", "Pod", namespace, f"{SERVICE}={service}")


def ready_pods(cluster: Cluster, namespace: str, service: str) -> tuple[ReadyPod, ...]:
    """The ready pods of a service that are not being deleted, the newest first. Raises EndpointError if there are
    none."""
    pods = pods_of(cluster, namespace, service)
    now = datetime.now(UTC)
    states: list[tuple[Object, PodState]] = [(pod, look(pod, now)) for pod in pods]
    staying = [pod for pod, state in states if state.state == "ready" and not is_ending(pod)]
    if not staying:
        told = "; ".join(f"{state.name}: {state.told.rstrip('.')}" for _, state in states[:3])
        if not told and cluster.get(*_SERVICE_KIND, service, namespace) is None:
            told = f"there is no InferenceService of this name in the namespace {namespace}"
        raise EndpointError(
            f"{service} has no pod that is ready: {told or 'it has no pods'}. See: {_status(cluster, service)}"
        )
    staying.sort(key=lambda pod: str(part(pod, "metadata").get("creationTimestamp")), reverse=True)
    return tuple(_ready(pod) for pod in staying)


@contextlib.contextmanager
def open_endpoint(
    cluster: Cluster | None,
    namespace: str,
    service: str,
    *,
    base_url: str = "",
    routes: Routes = DIRECT,
    api_key: SecretText | None = None,
    pod: str = "",
) -> Iterator[Endpoint]:
    """A service's endpoint, as long as the context lasts.

    Without `base_url` by a port-forward through the API server to a ready pod (`pod`: to that one); with one, by that
    address and `routes`, for which `cluster` may be None. The key is `api_key`, else the one in the environment (see
    `key.from_environment`), else the one in the Secret that the service names.

    Raises InputError (an address to which a key must not be sent, a missing or unusable key, no kubectl),
    EndpointError (no ready pod, no port-forward), KubernetesError.
    """
    given = api_key or key.from_environment()
    if base_url:
        url = checked_address(base_url, "--base-url", "the key")
        model = ""
        if cluster is not None:
            model, found = _of_service(cluster, namespace, service)
            if given is None and found is not None:
                given = key.read(cluster, namespace, service, found)
        elif given is None:
            raise InputError.at(
                "the key",
                "",
                f"of {service or 'the service'} lies in a cluster, and no cluster is named",
                f"Set ${key.KEY_VARIABLE} or ${key.KEY_FILE_VARIABLE}, or name the cluster.",
            )
        with client(url, direct=False, routes=routes) as http:
            lines = command_lines(cluster)
            yield _named(Endpoint(url, model, given, http, "url", namespace, service, lines=lines, routes=routes))
        return
    if cluster is None:
        raise InputError.at(
            "the endpoint",
            "",
            "is missing: neither a cluster nor an address is given",
            "Name the service's cluster, or its address.",
        )
    chosen = _chosen(ready_pods(cluster, namespace, service), pod, service)
    if given is None and chosen.key is not None:
        given = key.read(cluster, namespace, service, chosen.key)
    with port_forward(cluster, namespace, chosen.name, chosen.port) as port:
        url = f"http://127.0.0.1:{port}"
        with client(url) as http:
            place = (namespace, service, chosen.name, command_lines(cluster))
            yield _named(Endpoint(url, chosen.model, given, http, "port-forward", *place))


def _chosen(pods: tuple[ReadyPod, ...], name: str, service: str) -> ReadyPod:
    found = next((one for one in pods if name in ("", one.name)), None)
    if found is None:
        raise EndpointError(
            f"{name} is not a ready pod of {service}. Its ready pods: {', '.join(one.name for one in pods)}"
        )
    return found


def _named(endpoint: Endpoint) -> Endpoint:
    """The endpoint with the name that the server gives its model, if the name is still unknown."""
    if endpoint.model:
        return endpoint
    listed = chat.models(endpoint)
    if not listed:
        raise EndpointError(f"{endpoint.url} does not serve a model.", 200)
    return replace(endpoint, model=listed[0].id)


def _of_service(cluster: Cluster, namespace: str, service: str) -> tuple[str, key.Reference | None]:
    """The model's name and where its key is, from the InferenceService."""
    found = cluster.get(*_SERVICE_KIND, service, namespace)
    if found is None:
        raise EndpointError(
            f"There is no InferenceService {service} in the namespace {namespace}. See: {_status(cluster, service)}"
        )
    return served_model_name(part(found, "spec", "predictor", "model").get("args")), key.reference(found)


def _status(cluster: Cluster, service: str) -> str:
    return command_lines(cluster).own(f"status {service}")


def _ready(pod: Object) -> ReadyPod:
    containers = items(pod, "spec", "containers")
    server = next((one for one in containers if one.get("name") == SERVER), containers[0] if containers else {})
    ports = [one.get("containerPort") for one in items(server, "ports")]
    port = next((one for one in ports if isinstance(one, int)), PORT)
    return ReadyPod(
        str(part(pod, "metadata").get("name")), port, served_model_name(server.get("args")), key.reference(pod)
    )

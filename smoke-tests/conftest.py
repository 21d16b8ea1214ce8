"""Fixtures with the facts that the checks compare, from Git and from the cluster. Each is read when first needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from neuroscale.cluster.command_lines import CommandLines
from neuroscale.cluster.endpoint.access import open_endpoint, pods_of
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError, UnreachedError
from neuroscale.core.errors import NeuroscaleError
from neuroscale.kube.client import Cluster, KubernetesError, Object, RefusedError
from neuroscale.smoke import model_requests
from neuroscale.smoke.expected_services import (
    Api,
    Opened,
    Service,
    Target,
    ends_of,
    https_url,
    load_target,
    version_that_answers,
    who_am_i,
)
from neuroscale.smoke.model_requests import Prompts
from neuroscale.smoke.pytest_plugin import asking, distrust, hide, remember_ends
from neuroscale.smoke.results import NeedsError
from neuroscale.smoke.runner import Spec


@pytest.fixture(scope="session")
def target(spec: Spec) -> Target:
    """The environment as Git holds it at the commit of this run."""
    only = spec.services[0] if len(spec.services) == 1 else ""
    return load_target(Path(spec.repository), spec.environment, spec.revision, only, spec.fetch)


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest, target: Target) -> Service:
    """A service as Git holds it. A check that asks for it runs once for each."""
    return target.service(request.param)


@pytest.fixture(scope="session")
def lines(spec: Spec) -> CommandLines:
    """The beginnings of command lines that ask the same cluster."""
    return spec.lines


@pytest.fixture(scope="session")
def api(spec: Spec, pytestconfig: pytest.Config) -> Iterator[Api]:
    """The API server and its answers."""
    try:
        found = Cluster.of_kubeconfig(Path(spec.kubeconfig) if spec.kubeconfig else None, spec.context or None)
    except NeuroscaleError as error:
        yield Api(None, problem=str(error))
        return
    found.own_options = spec.own_options
    with found:
        yield who_am_i(found)
        # If the API server is gone, it may have caused the failures.
        try:
            found.request("GET", "/version")
        except RefusedError:
            return
        except KubernetesError as error:
            distrust(pytestconfig, f"the API server does not answer at the end: {error}")


@pytest.fixture(scope="session")
def cluster(api: Api) -> Cluster:
    """The cluster, as the user of the kubeconfig."""
    if api.cluster is None:
        raise NeedsError("api-server", "the API server does not answer")
    if api.unknown:
        raise NeedsError("identity", "the API server does not know its caller")
    return api.cluster


@pytest.fixture
def live(cluster: Cluster, service: Service) -> Object:
    """The InferenceService in the cluster."""
    found = cluster.get("serving.kserve.io/v1beta1", "InferenceService", service.name, service.namespace)
    if found is None:
        raise NeedsError("ready", "the InferenceService does not exist")
    return found


@pytest.fixture
def pods(cluster: Cluster, service: Service) -> list[Object]:
    """The service's pods that are not being deleted, at least one."""
    found = pods_of(cluster, service.namespace, service.name)
    alive = [
        pod
        for pod in found
        if not pod["metadata"].get("deletionTimestamp")
        and pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")
    ]
    if not alive:
        raise NeedsError("ready", "it has no pod")
    return alive


@pytest.fixture(scope="session")
def ends(spec: Spec, cluster: Cluster, service: Service, pytestconfig: pytest.Config) -> Mapping[str, int]:
    """How often the server of each pod had ended before anything was asked of it, by the pod's uid."""
    found = spec.ends.get(service.name)
    if found is None:
        found = ends_of(pods_of(cluster, service.namespace, service.name))
        remember_ends(pytestconfig, service.name, found)
    return found


@pytest.fixture(scope="session")
def opened(
    spec: Spec, cluster: Cluster, target: Target, service: Service, ends: object, pytestconfig: pytest.Config
) -> Iterator[Opened]:
    """The endpoint, or why it cannot be opened."""
    with contextlib.ExitStack() as stack:
        inside, ask = None, asking(pytestconfig)
        try:
            opening = open_endpoint(cluster, service.namespace, service.name)
            inside = endpoint = replace(stack.enter_context(opening), asking=ask)
            hide(pytestconfig, inside.key)
            if url := spec.base_url or (spec.connect_to and https_url(cluster, service)):
                opening = open_endpoint(cluster, service.namespace, service.name, base_url=url, routes=spec.routes)
                endpoint = replace(stack.enter_context(opening), asking=ask)
                hide(pytestconfig, endpoint.key)
                # Where no service answers at all, one check fails in place of all that would ask.
                if model_requests.status(endpoint, "GET", "/v1/models", None, spec.patience, key=None) == 404:
                    told = f"no service is at {endpoint.url}: /v1/models answers 404"
                    raise UnreachedError(told, "Name the address by which its clients reach it.")
        except NeuroscaleError as error:
            yield Opened(None, inside, error)
            return
        asked = inside.pod if endpoint is inside else ""
        yield Opened(endpoint, inside, None, version_that_answers(cluster, target, service, asked))


@pytest.fixture(scope="session")
def endpoint(opened: Opened) -> Endpoint:
    """The service as its clients reach it: at the base URL, or at a pod through the API server."""
    if opened.endpoint is None:
        raise NeedsError("reachable", "the endpoint cannot be reached")
    return opened.endpoint


@pytest.fixture(scope="session")
def inside(opened: Opened) -> Endpoint:
    """One of its pods, through the API server: as its probes and Prometheus see it."""
    if opened.inside is None:
        raise NeedsError("reachable", "the endpoint cannot be reached")
    return opened.inside


@pytest.fixture(scope="session")
def prompts(endpoint: Endpoint, spec: Spec) -> Prompts:
    """Prompts of an exact number of tokens."""
    try:
        return Prompts.of_server(endpoint, spec.patience)
    except EndpointError as error:
        raise NeedsError("completion", f"no prompt of an exact length can be made: {error}") from error

"""What the smoke tests' user may do in a cluster, and what it may not: by a real API server."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from api_server import ApiServer
from cluster_lab import install_kinds
from neuroscale.core.errors import InputError
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.local.start_and_stop import with_contexts
from neuroscale.rendering.platform import tenancy
from platform_repository import CATALOG
from waiting import wait_for

pytestmark = pytest.mark.tools

USER = "smoke-tests-user"
KSERVE = "serving.kserve.io"
NAMESPACE = "team-alpha"
MAY = [
    *itertools.product(("get", "list"), [("inferenceservices", KSERVE), ("pods", ""), ("deployments", "apps")]),
    *itertools.product(("get", "create"), [("pods/portforward", ""), ("secrets", "")]),
    ("get", ("pods/log", "")),
    ("list", ("events", "")),
]
MAY_NOT = [
    *itertools.product(
        ("update", "patch", "delete", "deletecollection"),
        [("inferenceservices", KSERVE), ("pods", ""), ("deployments", "apps"), ("secrets", ""), ("services", "")],
    ),
    *itertools.product(("create",), [("inferenceservices", KSERVE), ("pods", ""), ("deployments", "apps")]),
    *itertools.product(("list", "watch"), [("secrets", "")]),
    *[("create", ("pods/exec", "")), ("get", ("pods/exec", "")), ("create", ("pods/attach", ""))],
    *[("create", ("serviceaccounts/token", "")), ("create", ("pods/eviction", ""))],
    *[("create", ("roles", "rbac.authorization.k8s.io")), ("create", ("rolebindings", "rbac.authorization.k8s.io"))],
]


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> ApiServer:
    """An API server with the teams' places in it, and what the smoke tests may do."""
    found = [one for text in tenancy.render_tenancy(CATALOG).values() for one in yaml.safe_load_all(text)]
    install_kinds(api_server)
    for one in sorted(found, key=lambda one: one["kind"] != "Namespace"):
        api_server.cluster.apply(one)
    return api_server


@pytest.fixture(scope="module")
def tester(server: ApiServer) -> Iterator[Cluster]:
    """The cluster as the smoke tests' user sees it."""
    path = server.kubeconfig_of(USER, (tenancy.SMOKE_TESTS,))
    context = json.loads(path.read_text())["contexts"][0]["name"]
    with contextlib.closing(Cluster.of_kubeconfig(path, context)) as found:
        yield found


def test_each_environment_is_a_context_of_the_kubeconfig_that_workflows_get(server: ApiServer, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(with_contexts(server.kubeconfig_of(USER, (tenancy.SMOKE_TESTS,)).read_text(), ["local", "dev"]))
    for environment in ("local", "dev"):
        with contextlib.closing(Cluster.of_kubeconfig(file, environment)) as cluster:
            assert cluster.list("v1", "Pod", NAMESPACE) == []
    with pytest.raises(InputError):
        Cluster.of_kubeconfig(file, "prod")


def may(server: ApiServer, verb: str, resource: str, group: str, namespace: str) -> bool:
    name, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": USER, "groups": [tenancy.SMOKE_TESTS], "resourceAttributes": attributes},
    }
    answer = server.cluster.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", None, review)
    return bool(answer["status"]["allowed"])


def test_the_smoke_tests_see_what_is_served_and_change_nothing_of_it(server: ApiServer) -> None:
    for verb, (resource, group) in MAY:
        assert may(server, verb, resource, group, NAMESPACE), (verb, resource)
        assert not may(server, verb, resource, group, "kube-system"), (verb, resource)
    for verb, (resource, group) in MAY_NOT:
        assert not may(server, verb, resource, group, NAMESPACE), (verb, resource)


def test_the_smoke_tests_see_argo_cds_applications_and_none_of_its_secrets(server: ApiServer) -> None:
    assert may(server, "get", "applications", "argoproj.io", "argocd")
    assert may(server, "list", "applicationsets", "argoproj.io", "argocd")
    for verb, resource, group in [
        ("patch", "applications", "argoproj.io"),
        ("get", "secrets", ""),
        ("create", "secrets", ""),
    ]:
        assert not may(server, verb, resource, group, "argocd"), (verb, resource)


def secret(name: str, kind: str = "Opaque", namespace: str = NAMESPACE) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            # What Kubernetes fills a Secret of the token's type for.
            "annotations": {"kubernetes.io/service-account.name": "default"},
        },
        "type": kind,
        "stringData": {"api-key": "not-a-key"},
    }


def refusal(cluster: Cluster, wanted: Object, *, dry_run: bool = False) -> str:
    """What the API server says to it; "" where it takes it."""
    try:
        cluster.create(wanted, dry_run=dry_run)
    except RefusedError as error:
        return error.message
    return ""


@pytest.fixture(scope="module")
def guarded(server: ApiServer, tester: Cluster) -> Cluster:
    """The tester's cluster, once the API server judges by the admission policy, which it reads a moment after."""
    wait_for(lambda: "no other" in refusal(tester, secret("any"), dry_run=True), 60, "the admission policy")
    return tester


def test_the_smoke_tests_make_the_secret_of_an_api_key_and_no_other(server: ApiServer, guarded: Cluster) -> None:
    made = secret("support-chat-api-key")
    assert refusal(guarded, made) == ""
    assert guarded.get("v1", "Secret", "support-chat-api-key", NAMESPACE) is not None
    server.cluster.delete(Identity.of(made))
    assert "no other" in refusal(guarded, secret("registry"))
    assert "no other" in refusal(guarded, secret("stolen-api-key", "kubernetes.io/service-account-token"))
    assert "is forbidden" in refusal(guarded, secret("support-chat-api-key", namespace="default"))


def test_the_smoke_tests_may_try_an_object_out_and_not_create_it(server: ApiServer, guarded: Cluster) -> None:
    tripwire = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "smoke-tripwire", "namespace": "default"},
        "spec": {"predictor": {"model": {"modelFormat": {"name": "vLLM"}, "name": ""}}},
    }
    wait_for(lambda: refusal(guarded, tripwire, dry_run=True) == "", 60, "a dry-run that is allowed")
    assert "create none" in refusal(guarded, tripwire)
    assert server.cluster.get(f"{KSERVE}/v1beta1", "InferenceService", "smoke-tripwire", "default") is None
    other = {**tripwire, "metadata": {"name": "smoke-tripwire", "namespace": NAMESPACE}}
    assert "is forbidden" in refusal(guarded, other, dry_run=True)

"""`neuroscale platform install`, onto a real API server."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api_server import ApiServer
from neuroscale.cli.app import app
from neuroscale.core import schemas
from neuroscale.core.errors import NeuroscaleError
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from platform_repository import copy_platform, edit
from roots import ROOT
from waiting import wait_for

pytestmark = pytest.mark.tools

GROUP_VERSION = "argoproj.io/v1alpha1"
KINDS = ("ApplicationSet", "Application", "AppProject")


@pytest.fixture(scope="module")
def argocd(api_server: ApiServer) -> Cluster:
    """The API server with Argo CD's kinds and its namespace, and no Argo CD behind them."""
    cluster = api_server.cluster
    for definition in schemas.find().crds():
        if definition["spec"]["group"] == "argoproj.io":
            cluster.apply(definition)
            kind = definition["spec"]["names"]["kind"]
            wait_for(functools.partial(served, cluster, kind), what=f"{kind} is served")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})
    return cluster


def served(cluster: Cluster, kind: str) -> bool:
    try:
        cluster.list(GROUP_VERSION, kind)
    except RefusedError:
        return False
    return True


@pytest.fixture
def empty(argocd: Cluster) -> Iterator[Cluster]:
    """Argo CD without anything of the platform."""
    yield argocd
    for kind in KINDS:
        for found in argocd.list(GROUP_VERSION, kind, "argocd"):
            argocd.merge(Identity.of(found), {"metadata": {"finalizers": None}})
            argocd.delete(Identity.of(found))
    for name in ("argocd-cm", "argocd-cmd-params-cm", "argocd-rbac-cm"):
        argocd.delete(Identity("v1", "ConfigMap", "argocd", name))


class Said:
    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text

    @property
    def results(self) -> dict[str, str]:
        """Result by `Kind name`."""
        return {f"{row['kind']} {row['name']}": row["result"] for row in json.loads(self.text)["objects"]}


def install(server: ApiServer, *more: str, root: Path = ROOT, environment: str = "dev") -> Said:
    command = ["platform", "install", "--context", server.context, "--kubeconfig", str(server.kubeconfig)]
    return run(*command, "--environment", environment, "--repository", str(root), *more)


def run(*arguments: str) -> Said:
    done = CliRunner().invoke(app, [*arguments])
    if isinstance(done.exception, NeuroscaleError):
        return Said(done.exception.exit_status, str(done.exception))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Said(done.exit_code, done.output)


def live(cluster: Cluster, kind: str, name: str) -> Object:
    found = cluster.get(GROUP_VERSION, kind, name, "argocd")
    assert found is not None
    return found


@pytest.mark.usefixtures("empty")
def test_it_brings_projects_platform_and_services_and_the_second_time_nothing_changes(
    api_server: ApiServer, argocd: Cluster
) -> None:
    first = install(api_server, "--json")
    assert first.status == 0, first.text
    assert set(first.results.values()) == {"created"}
    assert set(first.results) == {
        *("ConfigMap argocd-cm", "ConfigMap argocd-cmd-params-cm", "ConfigMap argocd-rbac-cm"),
        *("AppProject services", "AppProject platform", "ApplicationSet services-dev"),
        *(f"Application platform-{part}" for part in ("upstream", "monitoring", "runtimes", "tenancy", "policies")),
    }
    before = live(argocd, "ApplicationSet", "services-dev")
    second = install(api_server, "--json")
    assert set(second.results.values()) == {"unchanged"}
    assert live(argocd, "ApplicationSet", "services-dev") == before
    assert json.loads(second.text)["notes"] == []
    # What starts only once is said only when it must be started again.
    assert any("restart" in note for note in json.loads(first.text)["notes"])


@pytest.mark.usefixtures("empty")
def test_a_hand_edit_is_put_right_and_other_peoples_settings_stay(api_server: ApiServer, argocd: Cluster) -> None:
    install(api_server)
    project = Identity(GROUP_VERSION, "AppProject", "argocd", "services")
    argocd.merge(project, {"spec": {"clusterResourceWhitelist": [{"group": "*", "kind": "*"}]}})
    config = Identity("v1", "ConfigMap", "argocd", "argocd-cm")
    argocd.merge(config, {"data": {"oidc.config": "name: Ours", "exec.enabled": "true"}})
    again = install(api_server, "--json")
    assert {name for name, result in again.results.items() if result == "changed"} == {
        "AppProject services",
        "ConfigMap argocd-cm",
    }
    assert live(argocd, "AppProject", "services")["spec"]["clusterResourceWhitelist"] == []
    data: Any = argocd.get("v1", "ConfigMap", "argocd-cm", "argocd")
    assert (data["data"]["oidc.config"], data["data"]["exec.enabled"]) == ("name: Ours", "false")


@pytest.mark.usefixtures("empty")
def test_marks_that_argo_cd_sets_while_it_works_do_not_count_as_changes(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forge's event may come, and a sync begin, between the look at an object and its dry-run."""
    assert install(api_server).status == 0
    ask = Cluster.apply

    def noted(cluster: Cluster, wanted: Object, **options: Any) -> Object:
        found = ask(cluster, wanted, **options)
        found["metadata"].setdefault("annotations", {})["argocd.argoproj.io/application-set-refresh"] = "true"
        return {**found, "operation": {"sync": {}}} if wanted["kind"] == "Application" else found

    monkeypatch.setattr(Cluster, "apply", noted)
    assert set(install(api_server, "--json").results.values()) == {"unchanged"}


@pytest.mark.usefixtures("empty")
def test_a_dry_run_says_what_would_be_and_stores_nothing(api_server: ApiServer, argocd: Cluster) -> None:
    said = install(api_server, "--dry-run")
    assert said.status == 0
    assert "ApplicationSet argocd/services-dev: would be created" in said.text
    assert argocd.list(GROUP_VERSION, "AppProject", "argocd") == []


@pytest.mark.usefixtures("empty")
def test_the_cluster_of_another_environment_is_refused_and_left_alone(api_server: ApiServer, argocd: Cluster) -> None:
    install(api_server, environment="dev")
    before = live(argocd, "Application", "platform-tenancy")
    said = install(api_server, environment="prod")
    assert said.status == 2
    assert "is the cluster of the environment 'dev'" in said.text
    assert "--environment dev" in said.text
    assert live(argocd, "Application", "platform-tenancy") == before
    assert argocd.get(GROUP_VERSION, "ApplicationSet", "services-prod", "argocd") is None


@pytest.mark.usefixtures("empty")
def test_another_address_and_branch_reach_every_source_and_the_projects(api_server: ApiServer, argocd: Cluster) -> None:
    url = "http://127.0.0.1:3000/neuroscale/platform"
    assert install(api_server, "--repo-url", url, "--revision", "trial").status == 0
    text = json.dumps([found for kind in KINDS for found in argocd.list(GROUP_VERSION, kind, "argocd")])
    assert "https://github.com/example/neuroscale" not in text
    spec = live(argocd, "ApplicationSet", "services-dev")["spec"]
    assert spec["generators"][0]["git"]["repoURL"] == spec["template"]["spec"]["source"]["repoURL"] == url
    assert spec["generators"][0]["git"]["revision"] == spec["template"]["spec"]["source"]["targetRevision"] == "trial"
    assert url in live(argocd, "AppProject", "services")["spec"]["sourceRepos"]


@pytest.mark.usefixtures("empty")
def test_an_address_with_a_password_is_refused_and_not_repeated(api_server: ApiServer) -> None:
    said = install(api_server, "--repo-url", "https://me:hunter2@example.com/x")
    assert said.status == 2
    assert "hunter2" not in said.text


@pytest.mark.usefixtures("empty")
def test_an_object_that_the_cluster_refuses_leaves_nothing_half_installed(
    api_server: ApiServer, argocd: Cluster
) -> None:
    """The ApplicationSet comes last: what was before it must not be stored without it."""
    with refused_application_sets(argocd, unless="false"):
        said = install(api_server)
    assert said.status == 2
    assert "not today" in said.text
    assert argocd.list(GROUP_VERSION, "AppProject", "argocd") == []


@pytest.mark.usefixtures("empty")
def test_what_was_applied_before_a_late_refusal_is_named_and_the_next_run_completes_it(
    api_server: ApiServer, argocd: Cluster
) -> None:
    with refused_application_sets(argocd, unless="request.dryRun"):
        said = install(api_server)
    assert said.status == 2
    assert "The ApplicationSet argocd/services-dev was not applied" in said.text
    assert "Applied before it, and left as it is: ConfigMap argocd/argocd-cm" in said.text
    again = install(api_server, "--json")
    assert {name for name, result in again.results.items() if result == "created"} == {"ApplicationSet services-dev"}


@contextlib.contextmanager
def refused_application_sets(cluster: Cluster, unless: str) -> Iterator[None]:
    """Within the block the API server refuses ApplicationSets unless a CEL expression holds."""
    rule = {"apiGroups": ["argoproj.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"]}
    of_admission = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "not-today"}}
    policy = {
        **of_admission,
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{**rule, "resources": ["applicationsets"]}]},
            "validations": [{"expression": unless, "message": "not today"}],
        },
    }
    binding = {
        **of_admission,
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": "not-today", "validationActions": ["Deny"]},
    }
    for found in (policy, binding):
        cluster.apply(found)
    try:
        wait_for(lambda: refused(cluster), what="the admission policy is in force")
        yield
    finally:
        for found in (policy, binding):
            cluster.delete(Identity.of(found))
        wait_for(lambda: not refused(cluster), what="the admission policy is gone")


def refused(cluster: Cluster) -> bool:
    probe = {
        "apiVersion": GROUP_VERSION,
        "kind": "ApplicationSet",
        "metadata": {"name": "probe", "namespace": "argocd"},
    }
    spec = {"generators": [], "template": {"metadata": {}, "spec": {"project": "", "destination": {}}}}
    try:
        cluster.apply({**probe, "spec": spec})
    except RefusedError as error:
        return "not today" in str(error)
    cluster.delete(Identity.of(probe))
    return False


def test_what_nobody_wants_any_more_is_named_and_left(empty: Cluster, api_server: ApiServer) -> None:
    install(api_server)
    old = live(empty, "Application", "platform-policies")
    metadata = {"name": "platform-old", "namespace": "argocd", "labels": old["metadata"]["labels"]}
    empty.apply({"apiVersion": GROUP_VERSION, "kind": "Application", "metadata": metadata, "spec": old["spec"]})
    said = install(api_server)
    assert "Application argocd/platform-old is no longer wanted" in said.text
    assert live(empty, "Application", "platform-old")


def test_files_that_are_not_rendered_are_refused_before_the_cluster_is_asked(
    api_server: ApiServer, tmp_path: Path
) -> None:
    root = copy_platform(tmp_path)
    edit(root, "platform/settings.yaml", "default_branch: main", "default_branch: trunk")
    said = install(api_server, root=root)
    assert said.status == 2
    assert "neuroscale platform render" in said.text
    assert "platform/argocd/dev/services.yaml" in said.text


def test_an_unknown_environment_or_context_is_named(api_server: ApiServer) -> None:
    said = install(api_server, environment="porod")
    assert said.status == 2
    assert "Did you mean 'prod'" in said.text
    command = ["platform", "install", "--kubeconfig", str(api_server.kubeconfig), "--environment", "dev"]
    said = run(*command, "--context", "elsewhere", "--repository", str(ROOT))
    assert said.status == 2
    assert "elsewhere" in said.text


@pytest.mark.usefixtures("empty")
def test_somebody_who_may_not_is_told_so_and_nothing_is_stored(api_server: ApiServer, argocd: Cluster) -> None:
    kubeconfig = api_server.kubeconfig_of("visitor")
    command = ["platform", "install", "--context", api_server.context, "--kubeconfig", str(kubeconfig)]
    said = run(*command, "--environment", "dev", "--repository", str(ROOT))
    assert said.status == 2
    assert "forbidden" in said.text
    assert argocd.list(GROUP_VERSION, "AppProject", "argocd") == []

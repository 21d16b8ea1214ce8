"""What Argo CD is told: who may deploy what, and that it reads the very files that the gate judges."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError
from neuroscale.gate.checks import files as files_gate
from neuroscale.kube.client import Object
from neuroscale.planning.planner import plan
from neuroscale.rendering.object_names import application_name
from neuroscale.rendering.platform import argocd
from neuroscale.rendering.platform.charts import load_charts
from neuroscale.rendering.service_folder import RENDERED_FILES, render
from neuroscale.repo.layout import CATALOG_INFO, KEY_FILE, PLAN_FILE, RENDERED_KINDS, REQUEST_FILE
from neuroscale.request.service_request import SERVICE_NAME, Request
from platform_repository import CATALOG, SETTINGS, SNAPSHOT, TEMPLATE, rendered_platform
from roots import ROOT

CHARTS = load_charts(SNAPSHOT)
ENVIRONMENTS = sorted(SETTINGS.environments)
ENVIRONMENT_NAME = r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?"


def objects(environment: str, **changes: Any) -> list[Object]:
    return argocd.environment_objects(argocd.render(SETTINGS, CATALOG, CHARTS, environment, **changes))


def one(environment: str, kind: str, name: str) -> Object:
    (found,) = (each for each in objects(environment) if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def matches(pattern: str, name: str) -> bool:
    """As Argo CD's globs do: braces are choices, and a star also stands for slashes."""
    choices = pattern[1:-1].split(",") if pattern.startswith("{") else [pattern]
    return any(fnmatch.fnmatchcase(name, choice) for choice in choices)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_argo_cd_reads_the_files_that_the_gate_judges_and_no_other(environment: str) -> None:
    found = one(environment, "ApplicationSet", f"services-{environment}")
    (generator,) = found["spec"]["generators"]
    assert [entry["path"] for entry in generator["git"]["directories"]] == [f"manifests/{environment}/*"]
    directory = found["spec"]["template"]["spec"]["source"]["directory"]
    assert directory["recurse"] is False
    names = {
        *RENDERED_FILES,
        ".argocd-source.yaml",
        "kustomization.yaml",
        "Chart.yaml",
        "x.yaml",
        "x.json",
        "x.jsonnet",
        KEY_FILE,
    }
    read = {name for name in names if matches(directory["include"], name) and not matches(directory["exclude"], name)}
    # The kinds check refuses an ExternalSecret in these environments, which have no secret store.
    assert read == files_gate._ALLOWED - {REQUEST_FILE, PLAN_FILE, CATALOG_INFO, KEY_FILE}


def test_a_service_may_hold_what_the_template_renders_and_only_in_its_teams_namespace() -> None:
    request = Request(
        service="chat",
        model="google/gemma-4-26B-A4B-it-qat-w4a16-ct",
        team="team-alpha",
        environment="dev",
        concurrent_users=4,
        longest_prompt_tokens=2048,
        longest_answer_tokens=512,
        p95_ttft_seconds=5,
        availability="standard",
    )
    rendered = render(request, plan(request, CATALOG, SETTINGS, TEMPLATE.version), TEMPLATE)
    services = [yaml.safe_load(text) for name, text in rendered.items() if name in RENDERED_KINDS]
    project = one("dev", "AppProject", "services")["spec"]
    allowed = {(kind["group"], kind["kind"]) for kind in project["namespaceResourceWhitelist"]}
    assert allowed == {(found["apiVersion"].rpartition("/")[0], found["kind"]) for found in services}
    assert project["clusterResourceWhitelist"] == []
    # The application itself names no namespace.
    namespaces = {place["namespace"] for place in project["destinations"]} - {""}
    assert namespaces == {team.namespace for team in CATALOG.teams.values()}
    assert {found["metadata"]["namespace"] for found in services} <= namespaces
    assert project["sourceRepos"] == [SETTINGS.repository.url]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_argo_cd_deploys_heals_prunes_and_never_takes_anothers_object(environment: str) -> None:
    """It fails if Argo CD does not ask the API server for the difference."""
    found = objects(environment)
    specs = [each["spec"] for each in found if each["kind"] == "Application"]
    specs += [each["spec"]["template"]["spec"] for each in found if each["kind"] == "ApplicationSet"]
    assert len(specs) >= 4
    for spec in specs:
        policy = spec["syncPolicy"]
        assert policy["automated"] == {"prune": True, "selfHeal": True, "allowEmpty": False}
        assert {"ServerSideApply=true", "FailOnSharedResource=true"} <= set(policy["syncOptions"])
        assert policy["retry"]["backoff"]["maxDuration"] == "3m"
        assert "ignoreDifferences" not in spec
        assert spec["project"] in ("services", "platform")
    for each in found:
        metadata = each["spec"]["template"]["metadata"] if each["kind"] == "ApplicationSet" else each["metadata"]
        if each["kind"] != "AppProject":
            assert metadata["annotations"]["argocd.argoproj.io/compare-options"] == "ServerSideDiff=true"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_service_whose_folder_is_gone_goes_with_its_objects(environment: str) -> None:
    spec = one(environment, "ApplicationSet", f"services-{environment}")["spec"]
    assert spec["syncPolicy"] == {"applicationsSync": "sync", "preserveResourcesOnDeletion": False}
    assert spec["template"]["metadata"]["finalizers"] == ["resources-finalizer.argocd.argoproj.io"]
    assert spec["goTemplateOptions"] == ["missingkey=error"]


def selected(application: str) -> set[str]:
    """The files of this repository that one of the platform's applications deploys."""
    source = one("dev", "Application", application)["spec"]["source"]
    root = ROOT / source["path"]
    pattern = source["directory"]["include"]
    below = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    return {f"{source['path']}/{name}" for name in below if matches(pattern, name)}


def test_the_policies_are_deployed_and_neither_their_tests_nor_bad_resources_nor_tripwires() -> None:
    policies = {path.relative_to(ROOT).as_posix() for path in (ROOT / "policies").glob("*/policy.yaml")}
    assert len(policies) > 10
    assert selected("platform-policies") == policies


def test_each_other_part_deploys_rendered_files_only() -> None:
    rendered = set(rendered_platform())
    for part in ("upstream", "monitoring", "runtimes", "tenancy"):
        found = selected(f"platform-{part}")
        assert found
        assert found <= rendered


def test_this_machines_platform_gets_the_same_parts_without_upstreams_charts() -> None:
    local = {each["metadata"]["name"] for each in objects("local") if each["kind"] == "Application"}
    real = {each["metadata"]["name"] for each in objects("prod") if each["kind"] == "Application"}
    # Here Prometheus is a process, which reads the same rules and chooses the same pods.
    assert real - local == {"platform-upstream", "platform-monitoring"}
    assert local < real


SERVICES = st.from_regex(SERVICE_NAME, fullmatch=True)
PLACES = st.tuples(st.from_regex(ENVIRONMENT_NAME, fullmatch=True), SERVICES)


@settings(max_examples=examples(300), deadline=None)
@given(first=PLACES, second=PLACES)
def test_each_service_of_each_environment_has_an_application_of_its_own(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    names = [application_name(*place) for place in (first, second)]
    assert (names[0] == names[1]) == (first == second)
    for name in names:
        assert len(name) <= 63
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)


def test_the_application_set_names_applications_as_the_rest_of_the_platform_does() -> None:
    template = one("prod", "ApplicationSet", "services-prod")["spec"]["template"]
    assert template["metadata"]["name"].replace("{{ .path.basename }}", "chat") == application_name("prod", "chat")


@pytest.mark.parametrize("name", ["a" * 22, "no", "true", "x-1"])
def test_any_legal_environment_name_is_rendered_as_text(name: str) -> None:
    text = json.dumps(SETTINGS.model_dump(mode="json"))
    value = json.loads(text)
    value["environments"] = {name: value["environments"]["dev"]}
    changed = Settings.model_validate_json(json.dumps(value))
    found = argocd.environment_objects(argocd.render(changed, CATALOG, CHARTS, name))
    labels = [each["metadata"]["labels"].get(argocd.ENVIRONMENT_LABEL, name) for each in found]
    assert set(labels) == {name}


def test_an_environment_whose_applications_names_would_be_too_long_is_refused() -> None:
    value = SETTINGS.model_dump(mode="json")
    value["environments"] = {"a" * 23: value["environments"]["dev"]}
    with pytest.raises(ValueError, match="environments"):
        Settings.model_validate_json(json.dumps(value))


def test_argo_cds_own_settings_are_its_config_maps_key_by_key() -> None:
    maps = {each["metadata"]["name"]: each["data"] for each in argocd.config_maps((ROOT / argocd.VALUES).read_text())}
    assert set(maps) == {"argocd-cm", "argocd-cmd-params-cm", "argocd-rbac-cm"}
    assert maps["argocd-cmd-params-cm"]["controller.resource.health.persist"] == "true"
    for part in ("reposerver", "applicationsetcontroller"):
        assert maps["argocd-cmd-params-cm"][f"{part}.enable.git.submodule"] == "false"
    assert maps["argocd-cm"]["application.resourceTrackingMethod"] == "annotation"
    assert maps["argocd-rbac-cm"]["policy.default"] == "role:readonly"
    for exclusion in yaml.safe_load(maps["argocd-cm"]["resource.exclusions"]):
        # Nothing that the platform deploys is hidden from Argo CD.
        assert not {"serving.kserve.io", "networking.k8s.io", "policies.kyverno.io"} & set(exclusion["apiGroups"])


@pytest.mark.parametrize("text", ["a: 1\n", "configs:\n  cm:\n    x: true\n", "configs:\n  secret: {}\n"])
def test_settings_of_argo_cd_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"values\.yaml"):
        argocd.config_maps(text)


def test_another_address_changes_every_source() -> None:
    url = "http://127.0.0.1:3000/neuroscale/platform"
    text = json.dumps(objects("dev", repository=url, revision="trial"))
    assert SETTINGS.repository.url not in text
    assert text.count(url) > 5
    assert '"main"' not in text

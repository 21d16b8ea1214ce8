"""KServe, Kyverno and the serving runtimes as clusters get them: upstream's own charts, rendered with our values."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import InputError
from neuroscale.core.tool_cache import find_tool
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.gate.checks.schema import evaluate_schemas
from neuroscale.kube.client import Object
from neuroscale.local.charts import Chart as LocalChart
from neuroscale.local.charts import render as render_chart
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.rendering.platform.charts import CLUSTERS, chart_values, load_charts
from neuroscale.rendering.platform.files import is_rendered, render_repository
from neuroscale.rendering.platform.monitoring import SCRAPE
from neuroscale.rendering.platform.tenancy import KYVERNO, system_namespaces
from neuroscale.repo.snapshot import FolderSnapshot
from platform_repository import CATALOG, SETTINGS, SNAPSHOT, copy_platform, edit, rendered_platform
from policies_support import NAMES, judge
from roots import ROOT

pytestmark = pytest.mark.tools

SERVING = ROOT / "platform/serving"
KSERVE = LocalChart("kserve-controller", "kserve-resources", "kserve", "kserve")
KSERVE_KINDS = LocalChart("kserve-controller", "kserve-crd", "kserve-crd", "kserve")
KYVERNO_CHART = LocalChart("kyverno-controller", "kyverno", "kyverno", "kyverno")
CHARTS = {chart.name: chart for chart in load_charts(SNAPSHOT)}
FILES = rendered_platform()
# Kinds without definitions here: those of cert-manager, the Gateway API, Envoy Gateway and Prometheus' Operator.
ELSEWHERE = {
    *("Certificate", "ClusterIssuer", "Issuer"),
    *("BackendTrafficPolicy", "Gateway", "GatewayClass", "HTTPRoute"),
    *("PodMonitor", "PrometheusRule"),
}


def of_cluster(name: str, cluster: str = "gke") -> dict[str, Any]:
    """The values in an application of a cluster, exactly as Argo CD will use them."""
    found = yaml.safe_load_all(FILES[f"platform/clusters/{cluster}/{name}.yaml"])
    (application,) = (one for one in found if one["kind"] == "Application")
    values: dict[str, Any] = application["spec"]["source"]["helm"]["valuesObject"]
    return values


@pytest.fixture(scope="module")
def kserve(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Object]]:
    """KServe's objects: as a real cluster gets them, or with a file of values on top."""
    folder = tmp_path_factory.mktemp("values")
    made: dict[str, list[Object]] = {}

    def rendered(variant: str) -> list[Object]:
        if variant not in made:
            path = folder / "gke.yaml"
            path.write_text(dump(of_cluster("kserve")))
            values = [path] if variant == "gke" else [SERVING / "kserve.yaml", SERVING / f"kserve-{variant}.yaml"]
            made[variant] = render_chart(KSERVE, values)
        return made[variant]

    return rendered


@pytest.fixture(scope="module")
def kyverno(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    path = tmp_path_factory.mktemp("values") / "gke.yaml"
    path.write_text(dump(of_cluster("kyverno")))
    return render_chart(KYVERNO_CHART, [path])


def manifests(objects: list[Object], where: str) -> list[Manifest]:
    found = []
    for value in objects:
        (one,) = read_manifests(json.dumps(value).encode(), f"{where}.json")
        found.append(one)
    return found


def schema_findings(objects: list[Object], folder: Path, where: str) -> list[str]:
    known = [value for value in objects if value["kind"] not in ELSEWHERE]
    evaluation = evaluate_schemas(manifests(known, where), schemas.find(), tool_cache.find("kubeconform"), folder)
    assert evaluation.evaluated == len(known) > 0
    return [str(finding) for finding in evaluation.findings]


def images(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["image"]] if isinstance(value.get("image"), str) else []
        return own + [image for item in value.values() for image in images(item)]
    return [image for item in value for image in images(item)] if isinstance(value, list) else []


def configuration(objects: list[Object]) -> dict[str, Any]:
    """KServe's ConfigMap, each key read as the JSON that it is."""
    (found,) = (one for one in objects if one["metadata"]["name"] == "inferenceservice-config")
    return {key: json.loads(text) for key, text in found["data"].items() if key != "_example"}


@pytest.mark.parametrize("variant", ["gke", "gateway", "no-ingress", "knative"])
def test_what_kserves_chart_renders_is_valid_and_pinned(
    variant: str, kserve: Callable[[str], list[Object]], tmp_path: Path
) -> None:
    objects = kserve(variant)
    assert {"Deployment", "ConfigMap", "ValidatingWebhookConfiguration"} <= {one["kind"] for one in objects}
    assert schema_findings(objects, tmp_path / "run", variant) == []
    version = find_tool("kserve-controller").module.version
    assert [image for image in images(objects) if image.startswith("kserve/") and not image.endswith(version)] == []
    assert not_pinned(images(objects)) == []
    assert not_pinned([part["image"] for part in configuration(objects).values() if "image" in part]) == []


def not_pinned(found: list[str]) -> list[str]:
    assert found
    return [image for image in found if ":" not in image.rpartition("/")[2] or image.endswith((":latest", ":main"))]


def test_services_are_plain_deployments_reached_through_the_gateway_api(kserve: Callable[[str], list[Object]]) -> None:
    objects = kserve("gke")
    found = configuration(objects)
    assert found["deploy"]["defaultDeploymentMode"] == "Standard"
    ingress = found["ingress"]
    assert (ingress["enableGatewayApi"], ingress["disableIngressCreation"]) == (True, False)
    assert ingress["ingressDomain"] == SETTINGS.domain
    # The gateway that KServe names is ours; its chart's own knows no TLS.
    gateway = of_kind("gke", "Gateway")
    assert ingress["kserveIngressGateway"] == f"{gateway['metadata']['namespace']}/{gateway['metadata']['name']}"
    assert "Gateway" not in {one["kind"] for one in objects}
    assert gateway["spec"]["gatewayClassName"] == of_kind("gke", "GatewayClass")["metadata"]["name"]
    # KServe's own limit would end a stream that is longer than a minute.
    assert ingress["disableHTTPRouteTimeout"] is True
    assert found["security"]["autoMountServiceAccountToken"] is False


def of_kind(cluster: str, kind: str, name: str = "") -> Object:
    """The object of a cluster's gateway."""
    objects = yaml.safe_load_all(FILES[f"platform/clusters/{cluster}/gateway.yaml"])
    (found,) = (one for one in objects if one["kind"] == kind and name in ("", one["metadata"]["name"]))
    return dict(found)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_services_are_reached_by_tls_alone_with_a_certificate_for_their_hosts(cluster: str) -> None:
    gateway = of_kind(cluster, "Gateway")
    https, http = gateway["spec"]["listeners"]
    assert (https["port"], https["protocol"], https["tls"]["mode"]) == (443, "HTTPS", "Terminate")
    certificate = of_kind(cluster, "Certificate", "models")
    assert certificate["metadata"]["namespace"] == gateway["metadata"]["namespace"]
    assert [one["name"] for one in https["tls"]["certificateRefs"]] == [certificate["spec"]["secretName"]]
    assert certificate["spec"]["dnsNames"] == [https["hostname"]] == [f"*.{SETTINGS.domain}"]
    issuer = of_kind(cluster, certificate["spec"]["issuerRef"]["kind"], certificate["spec"]["issuerRef"]["name"])
    signed = {"kind": "ca", "gke": "acme", "eks": "acme"}[cluster]
    assert set(issuer["spec"]) == {signed}
    # Only teams' namespaces may serve, and nothing but the redirect is reached without TLS.
    assert https["allowedRoutes"]["namespaces"]["from"] == "Selector"
    assert (http["port"], http["allowedRoutes"]["namespaces"]) == (80, {"from": "Same"})
    route = of_kind(cluster, "HTTPRoute")
    assert (route["metadata"]["namespace"], route["spec"]["parentRefs"][0]["sectionName"]) == (
        gateway["metadata"]["namespace"],
        "http",
    )
    (rule,) = route["spec"]["rules"]
    assert set(rule) == {"filters"}
    assert rule["filters"][0]["requestRedirect"]["scheme"] == "https"
    assert of_cluster("kserve", cluster)["kserve"]["controller"]["gateway"]["urlScheme"] == "https"


def test_envoy_ends_no_answer_that_takes_its_time() -> None:
    policy = of_kind("gke", "BackendTrafficPolicy")
    assert [one["name"] for one in policy["spec"]["targetRefs"]] == [of_kind("gke", "Gateway")["metadata"]["name"]]
    assert policy["spec"]["timeout"]["http"]["requestTimeout"] == "0s"


def test_the_teams_namespaces_are_those_that_the_gateway_lets_serve() -> None:
    (rule,) = of_kind("gke", "Gateway")["spec"]["listeners"][0]["allowedRoutes"]["namespaces"]["selector"][
        "matchExpressions"
    ]
    for team in CATALOG.teams:
        (namespace,) = (
            one
            for one in yaml.safe_load_all(FILES[f"platform/tenancy/{team}/namespace.yaml"])
            if one["kind"] == "Namespace"
        )
        assert rule["key"] in namespace["metadata"]["labels"]


def test_where_the_settings_name_no_authority_the_cluster_has_one_of_its_own(tmp_path: Path) -> None:
    root = copy_platform(tmp_path / "platform")
    text = (root / "platform/settings.yaml").read_text()
    start, end = text.index("certificates:\n"), text.index("environments:\n")
    (root / "platform/settings.yaml").write_text(text[:start] + text[end:])
    files = render_repository(FolderSnapshot(root))
    kind = files["platform/clusters/kind/gateway.yaml"]
    assert files["platform/clusters/gke/gateway.yaml"] == kind == FILES["platform/clusters/kind/gateway.yaml"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("issuer: own", "issuer: somebody", "issuer"),
        ("server: https://", "server: http://", "server"),
        ("email: platform@example.com", "email: nobody", "email"),
        ("  gke:\n    # A public", "  aks:\n    # A public", "aks"),
    ],
)
def test_an_authority_that_cannot_be_is_refused(old: str, new: str, told: str, tmp_path: Path) -> None:
    root = copy_platform(tmp_path / "platform")
    edit(root, "platform/settings.yaml", old, new)
    with pytest.raises(InputError, match=told):
        render_repository(FolderSnapshot(root))


@pytest.mark.parametrize("variant", ["gateway", "no-ingress", "knative"])
def test_every_variant_says_that_services_are_reached_by_tls(
    variant: str, kserve: Callable[[str], list[Object]]
) -> None:
    assert configuration(kserve(variant))["ingress"]["urlScheme"] == "https"


def test_without_an_ingress_kserve_makes_none_and_asks_for_no_kind_that_is_missing(
    kserve: Callable[[str], list[Object]],
) -> None:
    objects = kserve("no-ingress")
    ingress = configuration(objects)["ingress"]
    assert (ingress["disableIngressCreation"], ingress["enableGatewayApi"]) == (True, False)
    assert ingress["disableIstioVirtualHost"] is True
    assert "Gateway" not in {one["kind"] for one in objects}


def test_knative_with_kourier_does_not_ask_for_istio(kserve: Callable[[str], list[Object]]) -> None:
    found = configuration(kserve("knative"))
    assert found["deploy"]["defaultDeploymentMode"] == "Knative"
    assert found["ingress"]["disableIstioVirtualHost"] is True
    assert "istio" not in json.dumps(found["ingress"]["localGatewayService"])


def test_the_platform_installs_the_versions_that_run_and_are_tested_here() -> None:
    kserve_version = find_tool("kserve-controller").module.version
    assert {CHARTS["kserve"].version, CHARTS["kserve-crd"].version} == {kserve_version}
    tool = find_tool("kyverno-controller")
    facts = yaml.safe_load((tool.files / "charts/kyverno/Chart.yaml").read_text())
    assert (CHARTS["kyverno"].version, facts["appVersion"]) == (facts["version"], tool.module.version)
    # The gate judges with the same Kyverno as the cluster.
    assert find_tool("kyverno").module == tool.module


def test_kserves_definitions_come_with_their_chart() -> None:
    kinds = {one["spec"]["names"]["kind"] for one in render_chart(KSERVE_KINDS, [])}
    assert {"InferenceService", "ClusterServingRuntime"} <= kinds


def test_what_kyvernos_chart_renders_is_valid_and_pinned(kyverno: list[Object], tmp_path: Path) -> None:
    own = [one for one in kyverno if one["kind"] != "CustomResourceDefinition"]
    assert schema_findings(own, tmp_path / "run", "kyverno") == []
    # helm's own test, which Argo CD does not run, may take the newest.
    running = [one for one in own if (one["metadata"].get("annotations") or {}).get("helm.sh/hook") != "test"]
    assert not_pinned(images(running)) == []
    deployments = {one["metadata"]["name"]: one["spec"] for one in own if one["kind"] == "Deployment"}
    assert set(deployments) == {"kyverno-admission-controller", "kyverno-reports-controller"}
    assert deployments["kyverno-admission-controller"]["replicas"] == 3
    text = json.dumps(deployments["kyverno-admission-controller"])
    assert "--forceFailurePolicyIgnore=false" in text
    assert "--enablePolicyException=false" in text
    assert "--generateValidatingAdmissionPolicy=false" in text


def test_a_dead_kyverno_shuts_teams_namespaces_and_never_those_that_bring_it_back(kyverno: list[Object]) -> None:
    (config,) = (one for one in kyverno if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "kyverno")
    selector = json.loads(config["data"]["webhooks"])["namespaceSelector"]["matchExpressions"]
    spared = [name for rule in selector if rule["operator"] == "NotIn" for name in rule["values"]]
    assert all((rule["key"], rule["operator"]) == ("kubernetes.io/metadata.name", "NotIn") for rule in selector)
    assert not {team.namespace for team in CATALOG.teams.values()} & set(spared)
    assert {"argocd", "kube-system", "kube-public", "kube-node-lease"} <= set(spared)
    assert {chart.namespace for chart in CHARTS.values()} <= set(spared)
    for environment in SETTINGS.environments.values():
        assert {*environment.ingress_namespaces, *environment.monitoring_namespaces} <= set(spared)
    assert set(system_namespaces(read_mapping((ROOT / KYVERNO).read_text(), KYVERNO).value)) <= set(spared)
    # Each policy asks for it to be shut.
    for name in NAMES:
        policy = yaml.safe_load((ROOT / "policies" / name / "policy.yaml").read_text())
        assert policy["spec"]["failurePolicy"] == "Fail"


def test_kyverno_filters_out_no_kind_that_a_policy_judges(kyverno: list[Object]) -> None:
    (config,) = (one for one in kyverno if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "kyverno")
    everywhere = {
        part.strip("[]").split(",")[0] for part in config["data"]["resourceFilters"].split("]") if ",*," in part
    }
    judged = set()
    for name in NAMES:
        policy = yaml.safe_load((ROOT / "policies" / name / "policy.yaml").read_text())
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            judged |= {resource.split("/")[0].rstrip("s").lower() for resource in rule["resources"]}
    assert "replicaset" in judged
    assert not {kind.lower() for kind in everywhere} & judged


@pytest.mark.parametrize("name", sorted(CATALOG.runtimes))
def test_a_runtime_is_the_catalogs_image_and_adds_nothing_to_a_service(name: str, tmp_path: Path) -> None:
    runtime = yaml.safe_load(FILES[f"platform/serving/runtimes/{name}.yaml"])
    assert runtime["metadata"]["name"] == name
    (container,) = runtime["spec"]["containers"]
    assert container["image"] == CATALOG.runtimes[name].reference
    assert not_pinned([container["image"]]) == []
    # KServe puts these before the service's own, or keeps them where the service says nothing.
    volume = {"volumeMounts"} if CATALOG.runtimes[name].has_read_only_root else set()
    assert set(container) == {"name", "image", "securityContext"} | volume
    assert "server-type" not in json.dumps(runtime)
    assert all(not one.get("autoSelect") for one in runtime["spec"]["supportedModelFormats"])
    assert schema_findings([runtime], tmp_path / "run", name) == []


def test_no_runtime_has_a_name_by_which_kserve_would_change_its_image() -> None:
    upstream = {path.stem for path in (find_tool("kserve-controller").files / "config/runtimes").glob("*.yaml")}
    assert "kserve-vllmserver" in upstream
    assert not upstream & set(CATALOG.runtimes)


def test_runtimes_pass_every_policy_and_data_parallelism_in_one_is_refused(tmp_path: Path) -> None:
    runtimes = [yaml.safe_load(FILES[f"platform/serving/runtimes/{name}.yaml"]) for name in CATALOG.runtimes]
    answers = judge(NAMES, runtimes, tmp_path / "good")
    assert {key: answer for key, answer in answers.items() if answer[0] != "pass"} == {}
    assert ("moe-data-parallelism", "ClusterServingRuntime", "neuroscale-vllm-gemma4-moe") in answers
    (moe,) = (one for one in runtimes if one["metadata"]["name"] == "neuroscale-vllm-gemma4-moe")
    moe["spec"]["containers"][0]["args"] = ["--data-parallel-size=2"]
    answers = judge(["moe-data-parallelism"], [moe], tmp_path / "bad")
    assert [result for result, _ in answers.values()] == ["fail"]


def test_every_application_and_object_of_the_platform_is_valid(tmp_path: Path) -> None:
    texts = [text for path, text in FILES.items() if is_rendered(path) and path != SCRAPE]
    objects = [found for text in texts for found in yaml.safe_load_all(text)]
    assert {one["kind"] for one in objects} >= {"AppProject", "Application", "ApplicationSet", "ClusterServingRuntime"}
    # One name an environment: those of several environments are alike.
    unique = {(one["kind"], one["metadata"]["name"], json.dumps(one)): one for one in objects}
    assert schema_findings(list(unique.values()), tmp_path / "run", "platform") == []


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_upstreams_parts_have_fixed_versions_and_each_namespace_once(cluster: str) -> None:
    own = [text for path, text in FILES.items() if path.startswith(f"platform/clusters/{cluster}/")]
    objects = [found for text in own for found in yaml.safe_load_all(text)]
    namespaces = [one["metadata"]["name"] for one in objects if one["kind"] == "Namespace"]
    applications = [one for one in objects if one["kind"] == "Application"]
    assert sorted(namespaces) == sorted({one["spec"]["destination"]["namespace"] for one in applications})
    for one in [*applications, *(found for found in objects if found["kind"] == "Namespace")]:
        assert one["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=confirm,Delete=confirm"
    waves = {
        (one["kind"], one["metadata"]["name"]): int(one["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"])
        for one in objects
    }
    for one in applications:
        assert (
            waves["Namespace", one["spec"]["destination"]["namespace"]] < waves["Application", one["metadata"]["name"]]
        )
    first = ("cert-manager", "envoy-gateway")
    assert max(waves["Application", name] for name in first) < waves["Application", "kserve-crd"]
    assert waves["Application", "kserve-crd"] < waves["Application", "kserve"]
    assert ("Application", "nvidia-device-plugin") in waves or cluster != "eks"


def test_values_are_merged_as_helm_merges_them(tmp_path: Path) -> None:
    """What a cluster gets is what the files of values say together, by helm's own rules."""
    chart = CHARTS["kserve"]
    path = tmp_path / "merged.yaml"
    path.write_text(dump(chart_values(chart, SNAPSHOT, SETTINGS)))
    by_helm = [ROOT / file for file in chart.values_files]
    domain = {str(chart.domain_at): SETTINGS.domain}
    assert render_chart(KSERVE, [path]) == render_chart(KSERVE, by_helm, domain)


# The health check that Argo CD runs -----------------------------------------------------------------------------------


def service(conditions: list[dict[str, Any]], transition: str = "", budget: int = 300, **more: Any) -> Object:
    probe = {"periodSeconds": 10, "failureThreshold": budget // 10}
    status: dict[str, Any] = {"conditions": conditions, "observedGeneration": 7, **more}
    if transition:
        status["modelStatus"] = {"transitionStatus": transition, "lastFailureInfo": {"message": "out of memory"}}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        # The Deployment's generation is another one: KServe copies it into observedGeneration.
        "metadata": {"name": "chat", "namespace": "team-alpha", "generation": 2},
        "spec": {"predictor": {"model": {"modelFormat": {"name": "vLLM"}, "startupProbe": probe}}},
        "status": status,
    }


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


READY = [condition("PredictorReady", "True"), condition("Ready", "True"), condition("Stopped", "False")]
LATE = [condition("PredictorReady", "False", "ProgressDeadlineExceeded", "has timed out"), condition("Ready", "False")]
REFUSED = [condition("PredictorReady", "False", "FailedCreate", "exceeded quota: team"), condition("Ready", "False")]
STARTING = [condition("PredictorReady", "False", "MinimumReplicasUnavailable"), condition("Ready", "False")]


@pytest.mark.parametrize(
    ("found", "health", "told"),
    [
        (service(READY, "UpToDate"), "Healthy", "answers"),
        (service(READY), "Healthy", "answers"),
        (service(READY, "InProgress"), "Progressing", "loading"),
        (service([]), "Progressing", ""),
        (service(STARTING), "Progressing", "MinimumReplicasUnavailable"),
        (service(LATE, budget=300), "Degraded", "ProgressDeadlineExceeded"),
        # Kubernetes waits 600 s, the start may take longer: it is not a failure yet.
        (service(LATE, budget=1200), "Progressing", "ProgressDeadlineExceeded"),
        (service(REFUSED, budget=1200), "Degraded", "exceeded quota"),
        (service(STARTING, "BlockedByFailedLoad"), "Degraded", "out of memory"),
        (service(READY, "InvalidSpec"), "Degraded", "InvalidSpec"),
        (service([condition("Stopped", "True")]), "Suspended", "stopped"),
    ],
)
def test_argo_cds_health_of_a_service_tells_starting_from_failed(
    found: Object, health: str, told: str, tmp_path: Path
) -> None:
    said = argocd_health(found, tmp_path)
    assert f"STATUS: {health}" in said
    assert told in said


def test_a_service_without_a_status_is_progressing(tmp_path: Path) -> None:
    found = service([])
    del found["status"]
    assert "STATUS: Progressing" in argocd_health(found, tmp_path)


def argocd_health(found: Object, folder: Path) -> str:
    from neuroscale.rendering.platform import argocd

    (settings,) = (
        one for one in argocd.config_maps((ROOT / argocd.VALUES).read_text()) if one["metadata"]["name"] == "argocd-cm"
    )
    (folder / "argocd-cm.yaml").write_text(dump(settings))
    (folder / "service.yaml").write_text(dump(found))
    done = subprocess.run(
        [
            str(tool_cache.find("argocd")),
            *("admin", "settings", "resource-overrides", "health", str(folder / "service.yaml")),
            *("--argocd-cm-path", str(folder / "argocd-cm.yaml")),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

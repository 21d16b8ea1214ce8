"""Rendering: what reaches the cluster, and what is refused instead."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plan_strategies as strategies
from examples import examples
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import read_documents
from neuroscale.planning.plan import (
    Alternative,
    Architecture,
    Memory,
    Plan,
    Replicas,
    Resources,
    Runtime,
    Startup,
    dump_plan,
    load_plan,
)
from neuroscale.planning.startup import judge_liveness, probe_window
from neuroscale.rendering import object_names
from neuroscale.rendering.scaffolder.plan_step import RefusedPlanError
from neuroscale.rendering.scaffolder.template import FETCH
from neuroscale.rendering.service_folder import RENDERED_FILES, render, write, write_service
from neuroscale.repo.layout import KEY_FILE
from neuroscale.request.service_request import Override, Request, dump_request, load_request
from plan_factory import make_plan, make_request
from platform_repository import TEMPLATE

CLUSTER_FILES = ("inferenceservice.yaml", "networkpolicy.yaml", "poddisruptionbudget.yaml")


def rendered(request: Request | None = None, **changes: Any) -> dict[str, str]:
    request = request or make_request()
    return render(request, make_plan(request, **changes), TEMPLATE)


def parsed(files: dict[str, str], name: str) -> Any:
    (document,) = read_documents(files[name], name)
    return document.value


def service(request: Request | None = None, **changes: Any) -> Any:
    return parsed(rendered(request, **changes), "inferenceservice.yaml")


def container(**changes: Any) -> Any:
    return service(**changes)["spec"]["predictor"]["model"]


def problems_of(request: Request | None = None, **changes: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        rendered(request, **changes)
    assert all(problem.message and problem.fix for problem in caught.value.problems)
    return [problem.field for problem in caught.value.problems]


def resources(**changes: Any) -> Resources:
    return make_plan().resources.model_copy(update=changes)


def test_a_service_folder_holds_the_answers_the_lock_three_objects_and_a_file_for_the_catalog() -> None:
    files = rendered()
    assert tuple(files) == RENDERED_FILES
    assert {name: parsed(files, name)["kind"] for name in CLUSTER_FILES} == {
        "inferenceservice.yaml": "InferenceService",
        "networkpolicy.yaml": "NetworkPolicy",
        "poddisruptionbudget.yaml": "PodDisruptionBudget",
    }
    assert files["request.yaml"] == dump_request(make_request())
    assert files["plan.yaml"] == dump_plan(make_plan())


def test_rendering_is_pure() -> None:
    request, plan = make_request(), make_plan()
    before = request.model_dump_json(), plan.model_dump_json()
    assert render(request, plan, TEMPLATE) == render(request, plan, TEMPLATE)
    assert (request.model_dump_json(), plan.model_dump_json()) == before


def test_every_object_lies_in_the_teams_namespace_and_carries_its_owner() -> None:
    files = rendered()
    for name in CLUSTER_FILES:
        metadata = parsed(files, name)["metadata"]
        assert metadata["namespace"] == "team-alpha"
        assert metadata["name"] == "support-chat"
        assert metadata["labels"]["app.kubernetes.io/owner"] == "team-alpha"
        assert metadata["labels"]["cost-center"] == "cc-ml-inference"


def test_the_service_says_what_kind_of_model_it_serves() -> None:
    labels = service()["metadata"]["labels"]
    assert labels["model-architecture"] == "moe"
    assert labels["active-param-ratio"] == "0.15"
    assert labels["total-params"] == "25.2B"


@pytest.mark.parametrize(
    ("kind", "total", "ratio", "shown"),
    [
        ("dense", 30_700_000_000, 1.0, ("1.00", "30.7B")),
        ("moe", 671_030_000_000, 0.0559, ("0.06", "671.0B")),
        ("moe", 1_500_000, 0.9991, ("0.999", "1.5M")),
        ("moe", 2_000_000_000_000, 0.0012, ("0.001", "2.0T")),
        ("dense", 999_990_000, 1.0, ("1.00", "1.0B")),
        ("dense", 4_630_000_000, 0.492, ("1.00", "4.6B")),
        ("dense", 40, 1.0, ("1.00", "0.1M")),
    ],
)
def test_parameter_labels_stay_readable_and_consistent(kind: str, total: int, ratio: float, shown: Any) -> None:
    labels = service(
        architecture=Architecture(
            kind=kind,  # type: ignore[arg-type]
            total_params=total,
            active_params=1,
            active_params_without_embedding=None,
            active_ratio=ratio,
        )
    )["metadata"]["labels"]
    assert (labels["active-param-ratio"], labels["total-params"]) == shown


def test_kserve_runs_it_as_a_plain_deployment_without_an_autoscaler() -> None:
    assert service()["metadata"]["annotations"] == {
        "serving.kserve.io/deploymentMode": "Standard",
        "serving.kserve.io/autoscalerClass": "none",
    }


def test_the_plans_arguments_appear_verbatim_and_in_order() -> None:
    arguments = ("--model=a b", "--x=$y %}", '--json={"a": {"b": {}}}', "", "--max-model-len=10")
    assert container(vllm_args=arguments)["args"] == list(arguments)


def test_vllm_listens_where_the_probes_and_the_network_policy_look() -> None:
    files = rendered()
    model = parsed(files, "inferenceservice.yaml")["spec"]["predictor"]["model"]
    assert model["command"] == ["vllm", "serve", "--port=8080"]
    assert [port["containerPort"] for port in model["ports"]] == [8080]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert model[probe]["httpGet"] == {"path": "/health", "port": 8080}
    assert parsed(files, "networkpolicy.yaml")["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 8080}]


@pytest.mark.parametrize("budget", [1, 10, 11, 1505, 20_000])
def test_the_startup_probe_allows_at_least_the_plans_budget(budget: int) -> None:
    probe = container(startup=Startup(expected_seconds=1, probe_budget_seconds=budget))["startupProbe"]
    allowed, _ = probe_window(probe)
    assert budget <= allowed < budget + probe["periodSeconds"]


def test_a_service_has_the_plans_time_to_end_and_its_gateways_theirs() -> None:
    start = Startup(expected_seconds=1, probe_budget_seconds=60, termination_grace_seconds=260)
    predictor = service(startup=start)["spec"]["predictor"]
    assert predictor["terminationGracePeriodSeconds"] == 260
    assert predictor["model"]["lifecycle"] == {"preStop": {"sleep": {"seconds": 15}}}


def test_the_liveness_probe_leaves_a_busy_server_alone() -> None:
    assert judge_liveness(container()["livenessProbe"]).enough


def test_requests_and_limits_agree_and_are_written_as_kubernetes_writes_them() -> None:
    found = container(resources=resources(cpu=4, memory_gib=2048), tensor_parallel_size=4)["resources"]
    assert found["limits"] == {"cpu": "4", "memory": "2Ti", "nvidia.com/gpu": "4"}
    assert found["requests"] == found["limits"]
    assert container(resources=resources(cpu=2000, memory_gib=1000))["resources"]["limits"] == {
        "cpu": "2k",
        "memory": "1000Gi",
        "nvidia.com/gpu": "1",
    }


def test_a_service_without_accelerators_asks_for_none() -> None:
    predictor = service(resources=resources(accelerator_resource="", node_selector={}))["spec"]["predictor"]
    assert predictor["model"]["resources"]["limits"].keys() == {"cpu", "memory"}
    assert "tolerations" not in predictor
    assert "nodeSelector" not in predictor


def test_a_service_with_accelerators_reaches_their_nodes() -> None:
    predictor = service()["spec"]["predictor"]
    assert predictor["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert predictor["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_the_pod_runs_as_a_user_without_rights_who_can_write_to_a_home() -> None:
    predictor = service(
        runtime=Runtime(name="r", image="vllm/vllm-openai:v0.32.0", version="0.32.0", uid=4711, gid=4712)
    )["spec"]["predictor"]
    assert predictor["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 4711,
        "runAsGroup": 4712,
        "fsGroup": 4712,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert predictor["model"]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert predictor["automountServiceAccountToken"] is False
    variables = {entry["name"]: entry.get("value") for entry in predictor["model"]["env"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in predictor["model"]["volumeMounts"]}
    volumes = {volume["name"]: volume["emptyDir"] for volume in predictor["volumes"]}
    assert variables["USER"] == "vllm"
    assert volumes[mounts[variables["HOME"]]].keys() == {"sizeLimit"}
    assert volumes[mounts["/dev/shm"]] == {"medium": "Memory", "sizeLimit": "2Gi"}


@pytest.mark.parametrize("missing", ["HOME", "USER"])
def test_a_runtime_that_could_not_run_as_that_user_is_refused(missing: str) -> None:
    variables = {name: value for name, value in make_plan().environment_variables.items() if name != missing}
    assert problems_of(environment_variables=variables) == [f"environment_variables.{missing}"]


def test_the_home_holds_the_weights_that_vllm_downloads() -> None:
    def home(**changes: Any) -> str:
        volumes = service(**changes)["spec"]["predictor"]["volumes"]
        limit: str = next(volume["emptyDir"]["sizeLimit"] for volume in volumes if volume["name"] == "home")
        return limit

    weights = Memory(weights=50.0, kv_cache=1.0, overhead=1.0, usable=80.0, free=28.0)
    assert home(memory_gib=weights, tensor_parallel_size=2) == "120Gi"
    assert home(memory_gib=weights, tensor_parallel_size=2, model_source="gs://models/x") == "10Gi"


@pytest.mark.parametrize("source", ["gs://models/x", "s3://models/x", "pvc://claim/x"])
def test_weights_from_a_store_are_downloaded_by_kserve(source: str) -> None:
    assert container(model_source=source)["storageUri"] == source


@pytest.mark.parametrize("source", ["hf://google/gemma", "file:///mnt/models/tiny", ""])
def test_other_weights_are_left_to_vllm(source: str) -> None:
    assert "storageUri" not in container(model_source=source)


def test_the_hugging_face_token_is_only_ever_a_reference_to_a_secret() -> None:
    entries = {entry["name"]: entry for entry in container(needs_hugging_face_token=True)["env"]}
    assert entries["HF_TOKEN"] == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hugging-face", "key": "token"}},
    }
    assert "HF_TOKEN" not in {entry["name"] for entry in container(needs_hugging_face_token=False)["env"]}


@pytest.mark.parametrize("service_name", ["support-chat", "on", "n"])
def test_the_api_key_is_a_reference_to_the_services_own_secret_which_must_be_there(service_name: str) -> None:
    model = service(make_request(service=service_name))["spec"]["predictor"]["model"]
    assert [entry for entry in model["env"] if entry["name"] == object_names.VARIABLE] == [
        {
            "name": "VLLM_API_KEY",
            "valueFrom": {"secretKeyRef": {"name": object_names.secret_name(service_name), "key": object_names.ENTRY}},
        }
    ]
    assert not any("api-key" in argument for argument in [*model["command"], *model["args"]])


def test_high_availability_spreads_the_replicas() -> None:
    spread = service(make_request(availability="high"))["spec"]["predictor"]["topologySpreadConstraints"]
    assert [(entry["topologyKey"], entry["whenUnsatisfiable"]) for entry in spread] == [
        ("kubernetes.io/hostname", "DoNotSchedule"),
        ("topology.kubernetes.io/zone", "ScheduleAnyway"),
    ]
    assert "topologySpreadConstraints" not in service()["spec"]["predictor"]


def test_the_network_policy_denies_all_but_what_it_lists() -> None:
    spec = parsed(rendered(), "networkpolicy.yaml")["spec"]
    assert spec["podSelector"] == {"matchLabels": {"serving.kserve.io/inferenceservice": "support-chat"}}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    for rule in spec["ingress"]:
        assert rule["from"]
        assert rule["ports"]
    for rule in spec["egress"]:
        assert rule["to"]
        assert {port["port"] for port in rule["ports"]} in ({53}, {443})
    blocks = [peer["ipBlock"] for rule in spec["egress"] for peer in rule["to"] if "ipBlock" in peer]
    assert {block["cidr"] for block in blocks} == {"0.0.0.0/0", "::/0"}
    v4 = next(block["except"] for block in blocks if block["cidr"] == "0.0.0.0/0")
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8"} <= set(v4)


def test_the_disruption_budget_selects_the_services_pods() -> None:
    assert parsed(rendered(), "poddisruptionbudget.yaml")["spec"] == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {"serving.kserve.io/inferenceservice": "support-chat"}},
    }


def test_a_refused_plan_is_not_rendered_and_says_what_works() -> None:
    request = make_request()
    other = Alternative(
        change="Use 1 x NVIDIA RTX PRO 6000", model="m", accelerator="a", accelerator_count=1, hourly=None
    )
    plan = make_plan(request, verdict="refused", reasons=("31B does not fit one L4.",), alternatives=(other,))
    with pytest.raises(RefusedPlanError) as caught:
        render(request, plan, TEMPLATE)
    assert caught.value.plan is plan
    assert str(caught.value) == (
        "plan.yaml: support-chat cannot be served: 31B does not fit one L4. What works: Use 1 x NVIDIA RTX PRO 6000."
    )


@pytest.mark.parametrize("field", ["service", "environment", "model"])
def test_a_plan_of_another_request_is_refused(field: str) -> None:
    assert problems_of(None, **{field: "other"}) == [field]


def test_a_plan_of_another_team_is_refused() -> None:
    tenancy = make_plan().tenancy.model_copy(update={"team": "team-beta"})
    assert problems_of(tenancy=tenancy) == ["tenancy.team"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"vllm_args": ()}, "vllm_args"),
        ({"vllm_args": ("--a", "--b={{.Namespace}}")}, "vllm_args[1]"),
        ({"vllm_args": ("--b=$(HOME)",)}, "vllm_args[0]"),
        ({"vllm_args": ("\ud800",)}, "vllm_args[0]"),
        ({"replicas": Replicas(min=0, max=1)}, "replicas.min"),
        ({"replicas": Replicas(min=3, max=2)}, "replicas.max"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size"),
        ({"resources": resources(cpu=0)}, "resources.cpu"),
        ({"resources": resources(memory_gib=-1)}, "resources.memory_gib"),
        ({"resources": resources(accelerator_resource="a b")}, "resources.accelerator_resource"),
        ({"resources": resources(node_selector={"a": "b c"})}, "resources.node_selector.a"),
        ({"resources": resources(node_selector={"a b": "c"})}, "resources.node_selector"),
        ({"environment_variables": {"HOME": "/h", "USER": "u", "A B": "x"}}, "environment_variables"),
        ({"environment_variables": {"HOME": "h", "USER": "u"}}, "environment_variables.HOME"),
        ({"startup": Startup(expected_seconds=1, probe_budget_seconds=0)}, "startup.probe_budget_seconds"),
        ({"tenancy": make_plan().tenancy.model_copy(update={"owner": "a b"})}, "tenancy.owner"),
        ({"tenancy": make_plan().tenancy.model_copy(update={"cost_center": ""})}, "tenancy.cost_center"),
        ({"tenancy": make_plan().tenancy.model_copy(update={"namespace": "A"})}, "tenancy.namespace"),
    ],
)
def test_what_kubernetes_would_refuse_or_replace_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    assert problems_of(**changes) == [field]


@pytest.mark.parametrize("name", ["HF_TOKEN", "VLLM_API_KEY"])
def test_a_variable_that_the_template_sets_already_is_refused(name: str) -> None:
    variables = {**make_plan().environment_variables, name: "x"}
    with pytest.raises(InputError, match=f"two entries of one list have the name '{name}'"):
        rendered(environment_variables=variables)


# -- any text --------------------------------------------------------------------------------------------------------

FAST = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def expected_service(request: Request, plan: Plan) -> Any:
    """The service of a plain plan, with this plan's values at their places and nothing else changed."""
    benign = service(
        make_request(availability=request.availability),
        resources=resources(accelerator_resource=plan.resources.accelerator_resource, node_selector={}),
        needs_hugging_face_token=plan.needs_hugging_face_token,
    )
    expected = copy.deepcopy(benign)
    metadata, predictor = expected["metadata"], expected["spec"]["predictor"]
    model = predictor["model"]
    metadata["name"] = metadata["labels"]["app.kubernetes.io/name"] = plan.service
    metadata["namespace"] = plan.tenancy.namespace
    metadata["labels"]["app.kubernetes.io/owner"] = plan.tenancy.owner
    metadata["labels"]["cost-center"] = plan.tenancy.cost_center
    predictor["minReplicas"], predictor["maxReplicas"] = plan.replicas.min, plan.replicas.max
    predictor["securityContext"]["runAsUser"] = plan.runtime.uid
    predictor["securityContext"]["runAsGroup"] = predictor["securityContext"]["fsGroup"] = plan.runtime.gid
    if plan.resources.node_selector:
        predictor["nodeSelector"] = plan.resources.node_selector
    for spread in predictor.get("topologySpreadConstraints", ()):
        spread["labelSelector"]["matchLabels"]["serving.kserve.io/inferenceservice"] = plan.service
    model["runtime"], model["image"] = plan.runtime.name, plan.runtime.image
    if plan.model_source.startswith(("gs://", "s3://", "pvc://")):
        model["storageUri"] = plan.model_source
    model["args"] = list(plan.vllm_args)
    token = [entry for entry in model["env"] if entry["name"] == "HF_TOKEN"]
    for entry in token:
        around = plan.surroundings
        entry["valueFrom"]["secretKeyRef"] = {"name": around.token_secret, "key": around.token_key}
    key = {"secretKeyRef": {"name": f"{plan.service}-api-key", "key": "api-key"}}
    model["env"] = [
        *({"name": name, "value": value} for name, value in sorted(plan.environment_variables.items())),
        {"name": "VLLM_API_KEY", "valueFrom": key},
        *token,
    ]
    model["volumeMounts"][0]["mountPath"] = plan.environment_variables["HOME"]
    return expected


def without_sizes(manifest: Any) -> Any:
    """The manifest without numbers that are computed and labels of the model: other tests are about those."""
    kept = copy.deepcopy(manifest)
    for label in ("model-architecture", "active-param-ratio", "total-params"):
        del kept["metadata"]["labels"][label]
    predictor = kept["spec"]["predictor"]
    for resource in predictor["model"]["resources"].values():
        for name in resource:
            resource[name] = "size"
    predictor["model"]["startupProbe"]["failureThreshold"] = 1
    for volume in predictor["volumes"]:
        volume["emptyDir"]["sizeLimit"] = "size"
    return kept


@FAST
@given(strategies.pairs())
def test_any_text_in_a_plan_becomes_that_text_and_nothing_else(pair: tuple[Request, Plan]) -> None:
    request, plan = pair
    files = render(request, plan, TEMPLATE)
    assert tuple(files) == (*RENDERED_FILES, *([KEY_FILE] if plan.surroundings.secret_store else []))
    assert without_sizes(parsed(files, "inferenceservice.yaml")) == without_sizes(expected_service(request, plan))
    plain = rendered()
    component, expected = parsed(files, "catalog-info.yaml"), parsed(plain, "catalog-info.yaml")
    named = f"{plan.service}.{plan.environment}"
    expected["metadata"] |= {"name": named, "title": named}
    expected["metadata"]["annotations"] = {
        "argocd/app-name": named,
        "backstage.io/kubernetes-label-selector": f"serving.kserve.io/inferenceservice={plan.service}",
        "backstage.io/kubernetes-namespace": plan.tenancy.namespace,
        "neuroscale.dev/cost-center": plan.tenancy.cost_center,
        "neuroscale.dev/model": plan.model,
    }
    expected["spec"] |= {"lifecycle": plan.environment, "owner": plan.tenancy.owner}
    assert component == expected
    for name in ("networkpolicy.yaml", "poddisruptionbudget.yaml"):
        text = parsed(files, name)
        assert text["metadata"]["name"] == plan.service
        assert text["metadata"]["namespace"] == plan.tenancy.namespace
        expected = parsed(plain, name)
        expected["metadata"] = text["metadata"]
        selector = "podSelector" if name == "networkpolicy.yaml" else "selector"
        if name == "networkpolicy.yaml":
            clients = expected["spec"]["ingress"][0]["from"][1]["namespaceSelector"]["matchExpressions"][0]
            clients["values"] = list(plan.surroundings.client_namespaces)
        expected["spec"][selector]["matchLabels"]["serving.kserve.io/inferenceservice"] = plan.service
        assert text == expected
    assert load_request(files["request.yaml"], "request.yaml") == request
    assert load_plan(files["plan.yaml"], "plan.yaml") == plan


TEXT_FIELDS: dict[str, Callable[[Plan, str], dict[str, Any]]] = {
    "vllm_args": lambda plan, text: {"vllm_args": (*plan.vllm_args, text)},
    "environment_variables": lambda plan, text: {
        "environment_variables": {**plan.environment_variables, "EXTRA": text}
    },
    "runtime.image": lambda plan, text: {"runtime": plan.runtime.model_copy(update={"image": text})},
    "runtime.name": lambda plan, text: {"runtime": plan.runtime.model_copy(update={"name": text})},
    "model_source": lambda plan, text: {"model_source": f"gs://{text}"},
    "tenancy.owner": lambda plan, text: {"tenancy": plan.tenancy.model_copy(update={"owner": text})},
    "tenancy.cost_center": lambda plan, text: {"tenancy": plan.tenancy.model_copy(update={"cost_center": text})},
    "tenancy.namespace": lambda plan, text: {"tenancy": plan.tenancy.model_copy(update={"namespace": text})},
    "surroundings.token_secret": lambda plan, text: {
        "surroundings": plan.surroundings.model_copy(update={"token_secret": text})
    },
    "surroundings.token_key": lambda plan, text: {
        "surroundings": plan.surroundings.model_copy(update={"token_key": text})
    },
    "surroundings.client_namespaces[0]": lambda plan, text: {
        "surroundings": plan.surroundings.model_copy(update={"client_namespaces": (text,)})
    },
    "resources.node_selector": lambda plan, text: {"resources": resources(node_selector={text: "x"})},
    "resources.node_selector.x": lambda plan, text: {"resources": resources(node_selector={"x": text})},
    "resources.accelerator_resource": lambda plan, text: {"resources": resources(accelerator_resource=text)},
}


def texts(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | set().union(*map(texts, value.values()))
    if isinstance(value, list):
        return set().union(*map(texts, value))
    return {value} if isinstance(value, str) else set()


@settings(FAST, max_examples=examples(400))
@given(st.sampled_from(sorted(TEXT_FIELDS)), strategies.any_text)
def test_any_text_in_any_field_is_refused_by_name_or_rendered_as_it_is(field: str, text: str) -> None:
    plan = make_plan()
    changed = plan.model_copy(update=TEXT_FIELDS[field](plan, text))
    try:
        files = render(make_request(), changed, TEMPLATE)
    except InputError as error:
        named = [problem.field.startswith(field) for problem in error.problems]
        str(error).encode()
    else:
        named = []
    if named:
        assert all(named)
        return
    found = texts([parsed(files, name) for name in CLUSTER_FILES])
    expected = {text if field != "model_source" else f"gs://{text}"}
    if field == "resources.accelerator_resource" and text == "":
        expected = set()  # the word for serving on the CPU
    assert expected <= found


@settings(FAST, max_examples=examples(300))
@given(strategies.writable_text.filter(str.strip))
def test_any_reason_of_an_override_survives(reason: str) -> None:
    override = Override(field="replicas.min", value=2, reason=reason, expires=date(2027, 1, 31))
    request = make_request(overrides=(override,))
    assert load_request(rendered(request)["request.yaml"], "request.yaml") == request


# -- writing ---------------------------------------------------------------------------------------------------------


def test_writing_twice_touches_nothing(tmp_path: Path) -> None:
    files = rendered()
    write(files, tmp_path / "a" / "b")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a" / "b").iterdir()}
    write(files, tmp_path / "a" / "b")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a" / "b").iterdir()} == before
    assert {path.name: path.read_text() for path in before} == files


def test_writing_removes_what_is_no_longer_rendered_and_nothing_else(tmp_path: Path) -> None:
    write(rendered(), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    files = {name: text for name, text in rendered().items() if name != "networkpolicy.yaml"}
    write(files, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*files, "notes.txt"}


def test_a_file_that_is_not_rendered_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file that the platform renders"):
        write({**rendered(), "../escape.yaml": "x"}, tmp_path / "service")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["inferenceservice.yaml", "networkpolicy.yaml"])
def test_nothing_is_written_through_a_symlink(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    folder = tmp_path / "service"
    folder.mkdir()
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(InputError, match="is not a plain file"):
        write(rendered(), folder)
    assert elsewhere.read_text() == "untouched"
    assert [path.name for path in folder.iterdir()] == [name]


def test_a_failing_write_leaves_whole_files_and_no_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(rendered(), tmp_path)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}

    def full(handle: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(InputError, match="No space left on device"):
        write(rendered(make_request(availability="high")), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_a_service_is_written_into_its_folder(tmp_path: Path) -> None:
    files = {f"manifests/dev/support-chat/{name}": text for name, text in rendered().items()}
    write_service(files, tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.yaml")} == set(files)


@pytest.mark.parametrize(
    "target",
    [
        "policies/x",
        "manifests/${{ parameters.environment }}/a/${{ parameters.service }}",
        "manifests/${{ parameters.service }}",
    ],
)
def test_a_template_that_renders_outside_the_service_folder_is_refused(target: str) -> None:
    steps = tuple(
        replace(step, input={**step.input, "targetPath": target}) if step.action == FETCH else step
        for step in TEMPLATE.steps
    )
    with pytest.raises(InputError, match=r"Let it render exactly .* into manifests/dev/support-chat"):
        render(make_request(), make_plan(), replace(TEMPLATE, steps=steps))


def test_writing_through_a_symlinked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "repository" / "manifests").mkdir(parents=True)
    (tmp_path / "repository" / "manifests" / "dev").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a symlink"):
        write_service({"manifests/dev/a/request.yaml": "x"}, tmp_path / "repository")
    assert list((tmp_path / "elsewhere").iterdir()) == []

"""A team's place in a cluster: what the platform renders fits into it, and its people may do what they are told."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import yaml

from api_server import ApiServer
from neuroscale.kube.client import Identity, Object, RefusedError
from neuroscale.planning.plan import Plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.platform.tenancy import render_tenancy
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import TENANCY
from neuroscale.request.service_request import Request
from platform_repository import CATALOG, SETTINGS, TEMPLATE

pytestmark = pytest.mark.tools
TEAMS = sorted(CATALOG.teams)
_LARGEST_TEAM = "team-alpha"
_FOR_THE_LARGEST = {"Qwen/Qwen3-Coder-480B-A35B-Instruct", "moonshotai/Kimi-K2-Instruct"}
"""Models of about a terabyte, on eight H200 each: only the largest share has room for two such pods."""


def objects(team: str) -> list[Object]:
    files = render_tenancy(CATALOG)
    return [
        found
        for path, text in files.items()
        if path.startswith(f"{TENANCY}/{team}/")
        for found in yaml.safe_load_all(text)
    ]


def planned(model: str, team: str, environment: str, **more: Any) -> tuple[Request, Plan]:
    local = environment == "local"
    request = Request(
        service="chat",
        model=model,
        team=team,
        environment=environment,
        concurrent_users=4,
        longest_prompt_tokens=256 if local else 2048,
        longest_answer_tokens=128 if local else 512,
        p95_ttft_seconds=10,
        availability=more.pop("availability", "standard"),
    )
    return request, plan(request, CATALOG, SETTINGS, TEMPLATE.version)


@cache
def services() -> Sequence[tuple[Request, Plan]]:
    """One service for each model of the catalog, where it can be served. Of the largest, only a quantised copy can.

    The teams take turns: a plan is the same for all of them but for its namespace and owner.
    """
    found = []
    copied = {entry.variant_of for entry in CATALOG.models.values()}
    for model, team in zip(CATALOG.models, itertools.cycle(TEAMS)):
        made = (planned(model, team, environment) for environment in SETTINGS.environments)
        works = next((pair for pair in made if pair[1].verdict != "refused"), None)
        assert works is not None or model in copied, f"{model} can be served nowhere"
        if works is not None:
            found.append(works)
    return found


def pod_of(request: Request, made: Plan) -> Object:
    """The pod that KServe makes of a rendered service (in Standard mode), as far as admission looks at it."""
    service = yaml.load(render(request, made, TEMPLATE)["inferenceservice.yaml"], yaml.CSafeLoader)
    spec = copy.deepcopy(service["spec"]["predictor"])
    model = spec.pop("model")
    for field in ("minReplicas", "maxReplicas"):
        spec.pop(field)
    stored = model.pop("storageUri", None)
    for field in ("modelFormat", "runtime"):
        model.pop(field)
    spec["containers"] = [{"name": "kserve-container", **model}]
    if stored:
        limits = {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
        loader = {"name": "storage-initializer", "image": "kserve/storage-initializer:v0.20.0", "resources": limits}
        spec["initContainers"] = [{**loader, "securityContext": model["securityContext"]}]
    metadata = {
        "name": "chat-0",
        "namespace": service["metadata"]["namespace"],
        "labels": service["metadata"]["labels"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def teams(api_server: ApiServer) -> ApiServer:
    """An API server with every team's place in it. What the quota controller would note, the test does."""
    for team in TEAMS:
        for found in sorted(objects(team), key=lambda one: one["kind"] != "Namespace"):
            api_server.cluster.apply(found)
        quota = next(found for found in objects(team) if found["kind"] == "ResourceQuota")
        used = dict.fromkeys(quota["spec"]["hard"], "0")
        status = {"status": {"hard": quota["spec"]["hard"], "used": used}}
        api_server.cluster.merge(Identity.of(quota), status, subresource="status")
    return api_server


@pytest.mark.parametrize("team", TEAMS)
def test_the_pods_of_every_model_are_admitted_to_a_team_and_those_of_each_team_are(team: str, teams: ApiServer) -> None:
    """Pod Security level, LimitRange and quota, as the API server itself judges them: each model in one team.

    The next test computes whether it fits into the quotas of the others.
    """
    own = [(request, made) for request, made in services() if request.team == team]
    assert len(own) > len(services()) / (len(TEAMS) + 1)
    for request, made in own:
        pod = pod_of(request, made)
        admitted = teams.cluster.create(pod, dry_run=True)
        assert admitted["spec"]["containers"][0]["resources"] == pod["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize("team", TEAMS)
def test_each_model_fits_the_teams_share_while_it_is_updated(team: str) -> None:
    """A Deployment of one to four replicas runs one pod more than those while it is updated."""
    quota = CATALOG.teams[team].quota
    for request, made in services():
        if request.model in _FOR_THE_LARGEST and team != _LARGEST_TEAM:
            continue
        pods = made.replicas.max + 1
        resources = made.resources
        assert pods <= quota.pods
        assert pods * resources.cpu <= quota.cpu, request.model
        assert pods * resources.memory_gib <= quota.memory_gib, request.model
        if resources.accelerator_resource:
            most = quota.accelerators[resources.accelerator_resource]
            assert pods * made.tensor_parallel_size <= most, request.model


def refusal(server: ApiServer, pod: Object) -> str:
    with pytest.raises(RefusedError) as caught:
        server.cluster.create(pod, dry_run=True)
    return caught.value.message


def a_pod(team: str = "team-alpha") -> Object:
    return pod_of(*planned("google/gemma-4-26B-A4B-it-qat-w4a16-ct", team, "dev"))


def test_more_than_the_share_is_refused_by_name(teams: ApiServer) -> None:
    for resource, many in (("nvidia.com/gpu", "65"), ("cpu", "513"), ("memory", "9000Gi")):
        pod = a_pod()
        for part in ("requests", "limits"):
            pod["spec"]["containers"][0]["resources"][part][resource] = many
        assert "exceeded quota: team" in refusal(teams, pod)
        assert resource in refusal(teams, pod)


def test_an_accelerator_that_the_team_does_not_list_is_not_to_be_had() -> None:
    alpha = CATALOG.teams["team-alpha"]
    without = alpha.model_copy(update={"quota": alpha.quota.model_copy(update={"accelerators": {}})})
    catalog = copy.copy(CATALOG)
    catalog.teams = {"team-alpha": without}  # type: ignore[assignment]
    (quota,) = yaml.safe_load_all(render_tenancy(catalog)["platform/tenancy/team-alpha/quota.yaml"].split("---")[0])
    assert quota["spec"]["hard"]["requests.nvidia.com/gpu"] == "0"
    assert quota["spec"]["hard"]["requests.google.com/tpu"] == "0"


@pytest.mark.parametrize(
    "field", [("runAsNonRoot", False), ("seccompProfile", None), ("hostNetwork", True), ("capabilities", None)]
)
def test_a_pod_that_claims_more_than_a_service_needs_is_refused(field: tuple[str, Any], teams: ApiServer) -> None:
    name, value = field
    pod = a_pod()
    if name == "hostNetwork":
        pod["spec"][name] = value
    elif name == "capabilities":
        del pod["spec"]["containers"][0]["securityContext"][name]
    else:
        pod["spec"]["securityContext"][name] = value
    assert 'violates PodSecurity "restricted' in refusal(teams, pod)


def test_a_container_that_says_nothing_gets_limits_so_that_the_quota_can_count_it(teams: ApiServer) -> None:
    pod = a_pod()
    del pod["spec"]["containers"][0]["resources"]
    (container,) = teams.cluster.create(pod, dry_run=True)["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "2Gi"}


def may(server: ApiServer, group: str, verb: str, resource: str, namespace: str, api_group: str = "") -> bool:
    resource, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "group": api_group,
        "resource": resource,
        "subresource": subresource,
        **({"namespace": namespace} if namespace else {}),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "ada", "groups": [group], "resourceAttributes": attributes},
    }
    answer = server.cluster.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", None, review)
    return bool(answer["status"]["allowed"])


KSERVE = "serving.kserve.io"
READ = [
    *itertools.product(
        ("get", "list", "watch"), [("inferenceservices", KSERVE), ("pods", ""), ("deployments", "apps")]
    ),
    *itertools.product(
        ("get", "list"), [("events", ""), ("resourcequotas", ""), ("networkpolicies", "networking.k8s.io")]
    ),
    ("get", ("pods/log", "")),
    ("create", ("pods/portforward", "")),
    ("get", ("pods/portforward", "")),
    ("get", ("secrets", "")),
]
WRITE = [
    *itertools.product(
        ("create", "update", "patch", "delete", "deletecollection"),
        [
            *[("inferenceservices", KSERVE), ("servingruntimes", KSERVE), ("pods", ""), ("deployments", "apps")],
            *[("networkpolicies", "networking.k8s.io"), ("resourcequotas", ""), ("limitranges", "")],
            *[("rolebindings", "rbac.authorization.k8s.io"), ("roles", "rbac.authorization.k8s.io"), ("secrets", "")],
        ],
    ),
    *itertools.product(("list", "watch"), [("secrets", "")]),
    *[("create", ("pods/exec", "")), ("get", ("pods/exec", "")), ("create", ("pods/attach", ""))],
    *[("create", ("serviceaccounts/token", "")), ("impersonate", ("serviceaccounts", ""))],
]


def test_a_team_reads_its_namespace_and_no_other(teams: ApiServer) -> None:
    for verb, (resource, group) in READ:
        assert may(teams, "team-alpha", verb, resource, "team-alpha", group), (verb, resource)
        assert not may(teams, "team-alpha", verb, resource, "team-beta", group), (verb, resource)
        assert not may(teams, "team-alpha", verb, resource, "", group), (verb, resource)


def test_a_team_changes_nothing_since_git_is_the_way_and_sees_no_secret_that_it_cannot_name(teams: ApiServer) -> None:
    for verb, (resource, group) in WRITE:
        assert not may(teams, "team-alpha", verb, resource, "team-alpha", group), (verb, resource)
    assert not may(teams, "team-alpha", "patch", "namespaces", "")


def test_a_catalogs_group_is_who_may_read(teams: ApiServer) -> None:
    alpha = CATALOG.teams["team-alpha"].model_copy(update={"group": "oidc:ml@example.com"})
    catalog = copy.copy(CATALOG)
    catalog.teams = {"team-alpha": alpha}  # type: ignore[assignment]
    text = render_tenancy(catalog)["platform/tenancy/team-alpha/access.yaml"]
    (binding,) = (found for found in yaml.safe_load_all(text) if found["kind"] == "RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == ["oidc:ml@example.com"]


@pytest.mark.parametrize("team", TEAMS)
def test_nothing_of_a_team_is_reached_or_reaches_out_by_default_and_its_namespace_is_not_pruned_unasked(
    team: str,
) -> None:
    found = {one["kind"]: one for one in objects(team)}
    spec = found["NetworkPolicy"]["spec"]
    assert spec == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    options = found["Namespace"]["metadata"]["annotations"]["argocd.argoproj.io/sync-options"]
    assert options == "Prune=confirm,Delete=confirm"
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    labels = found["Namespace"]["metadata"]["labels"]
    assert labels["cost-center"] == CATALOG.teams[team].cost_center
    assert {one["metadata"].get("namespace", team) for one in objects(team)} <= {CATALOG.teams[team].namespace, team}

"""`neuroscale plan --context` against a real API server's nodes, pods and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from cluster_lab import SERVICE, Failing, Lab, allow, lab, run
from command_line import Said
from neuroscale.cluster import capacity, capacity_reader
from neuroscale.kube.client import Identity, KubernetesError, Object, RefusedError

pytestmark = pytest.mark.tools

GPU = "nvidia.com/gpu"
ALL = [allow("", "nodes", "pods", "resourcequotas", "limitranges", "namespaces")]


@pytest.fixture
def here(api_server: ApiServer, tmp_path: Path) -> Iterator[Lab]:
    """A repository whose L4s have a label of this test's own: all tests share the cluster's nodes."""
    with lab(api_server, tmp_path) as found:
        path = found.root / "platform/catalog/accelerators/nvidia-l4.yaml"
        text = path.read_text()
        assert "cloud.google.com/gke-accelerator: nvidia-l4" in text
        path.write_text(text.replace("cloud.google.com/gke-accelerator: nvidia-l4", f"accelerator: {found.namespace}"))
        yield found


def node(here: Lab, name: str, gpus: int = 1, **spec: Any) -> str:
    unique = f"{here.namespace}-{name}"
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    taints = spec.pop("taints", [{"key": GPU, "value": "present", "effect": "NoSchedule"}])
    labels = {"accelerator": here.namespace, "kubernetes.io/hostname": unique}
    here.put(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique, "labels": labels}, "spec": spec},
        {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    )
    # The API server taints a new node as not ready, and no controller is here to take that away.
    here.cluster.merge(Identity("v1", "Node", "", unique), {"spec": {"taints": taints}})
    return unique


def pod(here: Lab, on: str, name: str = "other", gpus: int = 1) -> None:
    amounts = {"cpu": "1", "memory": "1Gi", GPU: str(gpus)}
    here.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": here.other},
            "spec": {
                "nodeName": on,
                "containers": [{"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}],
            },
        },
        {"phase": "Running"},
    )


def plan(here: Lab, *more: object, kubeconfig: Path | None = None, **answers: Any) -> Said:
    command = ["plan", here.answers(**answers), "--repository", here.root]
    return run(*command, "--context", here.server.context, "--kubeconfig", kubeconfig or here.server.kubeconfig, *more)


def test_a_plan_for_nodes_that_are_free_fits(here: Lab) -> None:
    node(here, "a")
    said = plan(here)
    assert said.status == 0, said.out
    assert "fits: room for" in said.out
    assert f"1 of 1 {GPU} free" in said.out
    found = plan(here, "--json").json
    assert found["service"] == SERVICE
    assert found["cluster"]["verdict"] == "fits"
    assert found["cluster"]["selector"] == {"accelerator": here.namespace}
    assert found["cluster"]["asks"][GPU] == "1"


def test_a_plan_alone_says_nothing_of_a_cluster(here: Lab) -> None:
    said = run("plan", here.answers(), "--repository", here.root, "--json")
    assert said.status == 0
    assert "cluster" not in said.json


def test_a_pod_that_holds_the_last_accelerator_is_counted(here: Lab) -> None:
    pod(here, node(here, "a"))
    said = plan(here)
    assert said.status == 1
    assert "does not fit" in said.out
    assert f"Held by {here.other} (1)" in said.out
    here.cluster.merge(Identity("v1", "Pod", here.other, "other"), {"status": {"phase": "Succeeded"}}, "status")
    assert plan(here).status == 0


def test_no_such_node_now_is_told_apart_from_an_error(here: Lab) -> None:
    said = plan(here)
    assert said.status == 1
    assert "no node now" in said.out
    assert f"accelerator={here.namespace}" in said.out
    assert "makes nodes on demand" in said.out


def test_cordoned_and_tainted_nodes_are_named(here: Lab) -> None:
    cordoned = node(here, "a", unschedulable=True)
    tainted = node(here, "b", taints=[{"key": "dedicated", "value": "research", "effect": "NoSchedule"}])
    said = plan(here)
    assert said.status == 1
    assert f"Node {cordoned} is cordoned" in said.out
    assert f"Node {tainted} has a taint that the pod does not tolerate (dedicated=research:NoSchedule)" in said.out


def test_a_quota_of_the_namespace_is_judged_as_the_api_server_counts_it(here: Lab) -> None:
    node(here, "a", 8)
    hard = {f"requests.{GPU}": "0"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": here.namespace},
        "spec": {"hard": hard},
    }
    here.put(quota)
    said = plan(here)
    assert said.status == 2, "nobody has counted it yet"
    assert "cannot be judged" in said.out
    here.put(quota, {"hard": hard, "used": {f"requests.{GPU}": "0"}})
    said = plan(here)
    assert said.status == 1
    assert f"ResourceQuota team leaves 0 of 0 requests.{GPU}" in said.out
    enough = {f"requests.{GPU}": "8"}
    here.put({**quota, "spec": {"hard": enough}}, {"hard": enough})
    assert plan(here).status == 0


def test_a_limit_range_that_would_refuse_the_pod_is_told(here: Lab) -> None:
    node(here, "a")
    rule = {"type": "Container", "max": {"memory": "1Gi"}}
    here.put(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "team", "namespace": here.namespace},
            "spec": {"limits": [rule]},
        }
    )
    said = plan(here)
    assert said.status == 1
    assert "LimitRange team allows container" in said.out


@pytest.mark.parametrize("hidden", ["nodes", "pods", "resourcequotas", "limitranges", "namespaces"])
def test_who_may_not_read_it_is_told_so_and_never_that_it_is_free(here: Lab, hidden: str) -> None:
    node(here, "a")
    rules: list[Object] = [{**rule, "resources": [one for one in rule["resources"] if one != hidden]} for rule in ALL]
    said = plan(here, kubeconfig=here.user(f"without-{hidden}", rules))
    assert said.status == 2
    assert "cannot be judged" in said.out
    assert f"{hidden} " in said.out or f'"{hidden}"' in said.out
    assert "forbidden" in said.out
    assert "fits: room" not in said.out
    if hidden in ("nodes", "pods"):
        assert f"1 of 1 {GPU} free" not in said.out


def test_who_may_read_all_of_it_and_nothing_else_gets_the_answer(here: Lab) -> None:
    node(here, "a")
    assert plan(here, kubeconfig=here.user("reader", ALL)).status == 0


@pytest.mark.parametrize(
    "error",
    [
        KubernetesError("the connection broke"),
        RefusedError("the list is too old", 410, "Expired"),
        RefusedError("no", 403, "Forbidden"),
    ],
    ids=str,
)
def test_an_error_in_the_middle_is_never_a_fit(here: Lab, error: Exception) -> None:
    node(here, "a")
    pod_spec = {"nodeSelector": {"accelerator": here.namespace}, "containers": [{"resources": {"limits": {GPU: 1}}}]}
    pod_spec["tolerations"] = [{"key": GPU, "operator": "Exists"}]
    wanted = capacity.Demand(SERVICE, here.namespace, pod_spec, (1, 1))
    whole = Failing(here.cluster, 0, error)
    assert capacity.judge_capacity(wanted, capacity_reader.read(whole, here.namespace)).verdict == "fits"
    for at in range(1, whole.count + 1):
        try:
            found = capacity_reader.read(Failing(here.cluster, at, error), here.namespace)
        except KubernetesError:
            continue
        assert capacity.judge_capacity(wanted, found).verdict == "unknown", f"request {at}"


def test_a_refused_plan_is_not_compared_with_a_cluster(here: Lab) -> None:
    said = plan(here, "--json", model="google/gemma-4-31B-it", environment="local")
    assert said.status == 1
    assert said.json["verdict"] == "refused"
    assert said.json["cluster"] is None


def test_a_context_that_the_file_lacks_is_exit_status_2(here: Lab) -> None:
    command = ["plan", here.answers(), "--repository", here.root, "--kubeconfig", here.server.kubeconfig]
    said = run(*command, "--context", "elsewhere")
    assert said.status == 2
    assert "elsewhere" in said.err

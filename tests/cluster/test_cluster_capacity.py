"""Whether a plan finds room in a cluster: counted as the scheduler and the quota controller count."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.cluster.capacity import Capacity, Demand, Other, Read, judge_capacity
from neuroscale.cluster.node_room import reserved
from neuroscale.manifests.accelerators import GKE_SLICES

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
LABEL = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
POOL = "cloud.google.com/gke-nodepool"
NAMESPACE = {"metadata": {"name": "team-alpha"}}
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "nodeTaintsPolicy": "Honor",
}


def resources(cpu: Any = 4, memory: Any = "16Gi", gpus: int = 1) -> Object:
    amounts = {"cpu": cpu, "memory": memory, **({GPU: gpus} if gpus else {})}
    return {"requests": dict(amounts), "limits": dict(amounts)}


def demand(fewest: int = 1, most: int = 1, gpus: int = 1, surge: int = 0, **changes: Any) -> Demand:
    pod = {
        "nodeSelector": dict(LABEL),
        "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "kserve-container", "resources": resources(gpus=gpus)}],
        **changes,
    }
    return Demand("support-chat", "team-alpha", pod, (fewest, most), surge)


def node(name: str, gpus: int = 8, **changes: Any) -> Object:
    found: Object = {
        "metadata": {"name": name, "labels": {**LABEL, POOL: "l4-pool", "kubernetes.io/hostname": name}},
        "spec": {"taints": [TAINT]},
        "status": {
            "allocatable": {"cpu": "63500m", "memory": "240Gi", "pods": "110", GPU: str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    for key, value in changes.items():
        found[key].update(value)
    return found


def pod(on: str | None, gpus: int = 1, name: str = "other", namespace: str = "team-beta", **status: Any) -> Object:
    found: Object = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "resources": resources(gpus=gpus)}]},
        "status": {"phase": "Running", **status},
    }
    if on is not None:
        found["spec"]["nodeName"] = on
    return found


def own(on: str) -> Object:
    found = pod(on, name="support-chat-1", namespace="team-alpha")
    found["metadata"]["labels"] = {"serving.kserve.io/inferenceservice": "support-chat"}
    return found


def cluster(*nodes: Object, pods: tuple[Object, ...] = (), **more: Any) -> Read:
    return Read(nodes=nodes, pods=pods, **{"namespace": NAMESPACE, **more})


def words(capacity: Capacity) -> str:
    return " ".join(f"{one.message} {one.remedy}" for one in capacity.findings)


# ------------------------------------------------------------ nodes


def test_a_free_accelerator_of_the_right_kind_fits() -> None:
    found = judge_capacity(demand(1, 2), cluster(node("a"), pods=(pod("a", 6),)))
    assert found.verdict == "fits"
    (pool,) = found.pools
    assert (pool.name, pool.nodes, pool.usable, pool.allocatable, pool.free) == ("l4-pool", 1, 1, 8, 2)
    assert found.findings == ()


def test_room_for_the_fewest_only_is_told_apart() -> None:
    found = judge_capacity(demand(1, 3), cluster(node("a"), pods=(pod("a", 7),)))
    assert found.verdict == "fits the fewest"
    assert "room for 1 of 3 replicas" in found.summary


def test_full_nodes_name_what_lacks_who_holds_it_and_what_is_free_elsewhere() -> None:
    other = node("h", metadata={"labels": {"accelerator": "h100"}})
    read = cluster(node("a", 2), other, pods=(pod("a", 2), pod("h", 5)))
    found = judge_capacity(demand(), read, [Other("nvidia-h100-80gb", GPU, {"accelerator": "h100"})])
    assert found.verdict == "does not fit"
    assert "nvidia.com/gpu: 0 of 2 free, 1 for a pod" in words(found)
    assert "Held by team-beta (2)" in words(found)
    assert "Free now: nvidia-h100-80gb (3)" in words(found)


def test_a_cluster_without_such_a_node_now_says_so_and_what_its_nodes_have() -> None:
    found = judge_capacity(
        demand(), cluster(node("h", metadata={"labels": {"cloud.google.com/gke-accelerator": "nvidia-h100"}}))
    )
    assert found.verdict == "no node now"
    assert "No node has the labels cloud.google.com/gke-accelerator=nvidia-l4 now" in words(found)
    assert "Labelled otherwise: 1 node with nvidia.com/gpu (cloud.google.com/gke-accelerator=nvidia-h100" in words(
        found
    )
    assert "makes nodes on demand" in words(found)
    assert judge_capacity(demand(), cluster()).verdict == "no node now"


def test_slices_are_no_room_for_a_whole_card() -> None:
    cut = {**LABEL, GKE_SLICES: "1g.10gb"}
    slices = node("s", 56, metadata={"labels": cut})
    found = judge_capacity(demand(1, 2), cluster(node("a", 1), slices))
    assert (found.verdict, found.places) == ("fits the fewest", 1)
    found = judge_capacity(demand(), cluster(slices), [Other("nvidia-l4", GPU, LABEL)])
    assert found.verdict == "no node now"
    assert "nvidia-l4 and whole cards now" in words(found)
    assert f"{GKE_SLICES}=1g.10gb" in words(found)
    assert "Free now" not in words(found)
    assert judge_capacity(demand(nodeSelector=cut), cluster(slices)).verdict == "fits"
    on_cpu = demand(gpus=0, nodeSelector={})
    assert judge_capacity(on_cpu, cluster(slices)).verdict == "fits"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"spec": {"unschedulable": True}}, "is cordoned"),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "is not ready"),
        ({"status": {"conditions": []}}, "is not ready"),
        (
            {"spec": {"taints": [TAINT, {"key": "dedicated", "value": "research", "effect": "NoSchedule"}]}},
            "has a taint that the pod does not tolerate (dedicated=research:NoSchedule)",
        ),
        ({"spec": {"taints": [{"key": GPU, "effect": "NoExecute"}]}}, "nvidia.com/gpu:NoExecute"),
        ({"status": {"allocatable": {"cpu": "64", "memory": "240Gi", "pods": "110"}}}, "has 0 of nvidia.com/gpu"),
        (
            {"status": {"allocatable": {"cpu": "3920m", "memory": "240Gi", "pods": "110", GPU: "1"}}},
            "has 3,920m of cpu, and a pod asks for 4",
        ),
        (
            {"status": {"allocatable": {"cpu": "64", "memory": "15Gi", "pods": "110", GPU: "1"}}},
            "has 15.0 GiB of memory, and a pod asks for 16.0 GiB",
        ),
    ],
)
def test_what_keeps_the_pod_off_a_node_is_told(changed: Object, told: str) -> None:
    found = judge_capacity(demand(), cluster(node("a", **changed)))
    assert found.verdict == "does not fit"
    assert told in words(found)
    (pool,) = found.pools
    assert pool.usable == 0


def test_a_taint_that_only_prefers_is_none() -> None:
    taints = [TAINT, {"key": "spot", "value": "true", "effect": "PreferNoSchedule"}]
    assert judge_capacity(demand(), cluster(node("a", spec={"taints": taints}))).verdict == "fits"


def test_all_that_a_pod_asks_for_must_be_free_on_the_same_node() -> None:
    """Two nodes: accelerators are free on one, cores on the other."""
    cores = pod("a", 0)
    cores["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 60}}
    found = judge_capacity(demand(), cluster(node("a"), node("b"), pods=(cores, pod("b", 8))))
    assert found.verdict == "does not fit"
    assert "cpu" in words(found)


def test_a_node_that_holds_as_many_pods_as_it_may_is_full() -> None:
    full = node("a")
    full["status"]["allocatable"]["pods"] = "2"
    assert judge_capacity(demand(), cluster(full, pods=(pod("a", 0, "x"), pod("a", 0, "y")))).verdict == "does not fit"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_nothing(phase: str) -> None:
    assert judge_capacity(demand(), cluster(node("a", 1), pods=(pod("a", 1, phase=phase),))).verdict == "fits"


def test_a_pod_that_is_ending_holds_its_accelerator_until_it_is_gone() -> None:
    ending = pod("a", 1)
    ending["metadata"]["deletionTimestamp"] = "2026-09-01T12:00:00Z"
    assert judge_capacity(demand(), cluster(node("a", 1), pods=(ending,))).verdict == "does not fit"


def test_pods_that_spread_need_as_many_nodes() -> None:
    spread: dict[str, Any] = {"topologySpreadConstraints": [SPREAD]}
    assert judge_capacity(demand(2, 2, **spread), cluster(node("a"), node("b"))).verdict == "fits"
    assert judge_capacity(demand(2, 2, **spread), cluster(node("a"))).verdict == "fits", "one node alone is even"
    full = cluster(node("a"), node("b", 1), pods=(pod("b", 1),))
    found = judge_capacity(demand(2, 2, **spread), full)
    assert found.verdict == "does not fit", "a second pod on one node would be two more than on the other"
    cordoned = cluster(node("a"), node("b", spec={"unschedulable": True}))
    assert judge_capacity(demand(2, 2, **spread), cordoned).verdict == "fits", "nodes that are closed do not count"


def test_its_own_pods_count_as_room_for_a_change_that_replaces_them() -> None:
    found = judge_capacity(demand(1, 1), cluster(node("a", 1), pods=(own("a"),)))
    assert (found.verdict, found.own, found.findings) == ("fits", 1, ())
    assert found.summary == "room for 1 of 1 replica"
    assert any("it needs no more room" in note for note in found.notes)


def test_a_change_that_starts_a_pod_more_finds_no_room_in_a_full_pool() -> None:
    full = cluster(node("a", 1), pods=(own("a"),))
    found = judge_capacity(demand(1, 1, surge=1), full)
    assert (found.verdict, found.own) == ("does not fit", 1)
    assert found.summary == "room for 1 of 2 pods (a change starts 1 beside 1 replica)"
    assert any("there is no room for it now" in note for note in found.notes)
    assert "0 pods of 1 to 1 find room on 1 node" in words(found)
    assert "override `rollout` with replace" in words(found)
    free = judge_capacity(demand(1, 1, surge=1), cluster(node("a", 2), pods=(own("a"),)))
    assert (free.verdict, free.findings) == ("fits", ())
    assert free.summary == "room for 1 of 1 replica and 1 pod more during a change"
    assert any("there is room for it" in note for note in free.notes)


def test_fewer_replicas_give_room_back_before_a_change_needs_it() -> None:
    found = judge_capacity(demand(1, 1, surge=1), cluster(node("a", 2), pods=(own("a"), own("a"))))
    assert found.verdict == "fits"
    assert any("there is room for it" in note for note in found.notes)


def test_a_service_that_does_not_run_yet_needs_no_pod_more() -> None:
    assert judge_capacity(demand(1, 1, surge=1), cluster(node("a", 1))).verdict == "fits"


@pytest.mark.parametrize(("most", "surge", "verdict"), [("1", 1, "does not fit"), ("2", 1, "fits"), ("1", 0, "fits")])
def test_the_quota_must_hold_the_pod_that_a_change_starts_beside_those_that_run(
    most: str, surge: int, verdict: str
) -> None:
    limit = {f"requests.{GPU}": most}
    quota = {
        "metadata": {"name": "team"},
        "spec": {"hard": limit},
        "status": {"hard": limit, "used": {f"requests.{GPU}": "1"}},
    }
    found = judge_capacity(demand(1, 1, surge=surge), cluster(node("a"), pods=(own("a"),), quotas=(quota,)))
    assert found.verdict == verdict, found.summary
    assert ("quota for 1 of 2 pods (a change starts 1 beside 1 replica)" in found.summary) == (verdict != "fits")


def test_its_own_pods_are_no_room_for_a_plan_that_asks_for_more() -> None:
    held = cluster(node("a", 4), pods=(own("a"), pod("a", 3)))
    assert judge_capacity(demand(1, 1), held).verdict == "fits"
    found = judge_capacity(demand(1, 1, gpus=4), held)
    assert found.verdict == "does not fit"
    assert found.own == 0
    assert any("ask for less" in note for note in found.notes)


def test_pods_that_wait_already_are_told() -> None:
    found = judge_capacity(demand(), cluster(node("a", 1), pods=(pod(None, 1, phase="Pending"),)))
    assert any("Other pods wait for such an accelerator already: 1 pod." in note for note in found.notes)


def test_a_cpu_service_needs_no_accelerator() -> None:
    without = Demand("s", "team-alpha", {"containers": [{"resources": resources(gpus=0)}]}, (1, 1))
    plain = node("a", 0, spec={"taints": []})
    found = judge_capacity(without, cluster(plain))
    assert found.verdict == "fits"
    assert found.pools[0].resource == "cpu"


# ------------------------------------------------------------ requests


def requests_of(spec: Object, status: Object | None = None) -> dict[str, Decimal]:
    return {name: amount for name, amount in reserved({"spec": spec, "status": status or {}}).items() if amount}


def test_requests_are_counted_as_the_scheduler_counts_them() -> None:
    def asks(cpu: int, **more: Any) -> Object:
        return {"name": f"c{cpu}", "resources": {"requests": {"cpu": cpu}}, **more}

    assert requests_of({"containers": [asks(1), asks(2)]}) == {"cpu": 3}
    assert requests_of({"containers": [asks(1)], "initContainers": [asks(5), asks(2)]}) == {"cpu": 5}
    sidecar = asks(2, restartPolicy="Always")
    assert requests_of({"containers": [asks(1)], "initContainers": [sidecar, asks(4)]}) == {"cpu": 6}
    assert requests_of({"containers": [asks(1)], "initContainers": [asks(4), sidecar]}) == {"cpu": 4}
    assert requests_of({"containers": [asks(1)], "overhead": {"cpu": "250m"}}) == {"cpu": Decimal("1.25")}
    assert requests_of({"containers": [{"resources": {"limits": {GPU: 2}}}]}) == {GPU: 2}
    assert requests_of({"containers": [asks(1)], "resources": {"requests": {"cpu": 3}}}) == {"cpu": 3}


def test_a_pod_that_is_being_made_smaller_holds_what_it_had() -> None:
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": 2}}}]}
    held = {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "6"}}]}
    assert requests_of(spec, held) == {"cpu": 6}
    held = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    assert requests_of(spec, held) == {"cpu": 2}


# ------------------------------------------------------------ quota and limits


def quota(hard: Object, used: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "team"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used if used is not None else dict.fromkeys(hard, "0")},
    }


def limited(*quotas: Object, limits: tuple[Object, ...] = (), pods: tuple[Object, ...] = ()) -> Read:
    return cluster(node("a"), pods=pods, quotas=quotas, limit_ranges=limits)


@pytest.mark.parametrize(
    ("hard", "used", "verdict"),
    [
        ({f"requests.{GPU}": "4"}, {f"requests.{GPU}": "2"}, "fits"),
        ({f"requests.{GPU}": "4"}, {f"requests.{GPU}": "3"}, "fits the fewest"),
        ({f"requests.{GPU}": "4"}, {f"requests.{GPU}": "4"}, "does not fit"),
        ({f"requests.{GPU}": "0"}, {}, "does not fit"),
        ({"requests.cpu": "7"}, {}, "fits the fewest"),
        ({"cpu": "3"}, {}, "does not fit"),
        ({"limits.memory": "40Gi"}, {"limits.memory": "8Gi"}, "fits"),
        ({"limits.memory": "40Gi"}, {"limits.memory": "9Gi"}, "fits the fewest"),
        ({"pods": "10"}, {"pods": "9"}, "fits the fewest"),
        ({"count/pods": "10"}, {"count/pods": "10"}, "does not fit"),
        ({"services": "3"}, {"services": "3"}, "does not fit"),
        ({"count/inferenceservices.serving.kserve.io": "1"}, {}, "fits"),
        ({"services.loadbalancers": "0", "configmaps": "0"}, {}, "fits"),
        ({"requests.google.com/tpu": "0"}, {}, "fits"),
    ],
)
def test_a_quota_is_judged_by_what_it_leaves(hard: Object, used: Object, verdict: str) -> None:
    found = judge_capacity(demand(1, 2), limited(quota(hard, used)))
    assert found.verdict == verdict
    assert bool(found.findings) == (verdict != "fits")


def test_what_its_own_pods_use_of_the_quota_counts_for_it() -> None:
    full = quota({f"requests.{GPU}": "1"}, {f"requests.{GPU}": "1"})
    assert judge_capacity(demand(1, 1), limited(full)).verdict == "does not fit"
    assert judge_capacity(demand(1, 1), limited(full, pods=(own("a"),))).verdict == "fits"


def test_a_quota_of_what_no_container_names_refuses_the_pod_unless_a_default_fills_it_in() -> None:
    strict = quota({"limits.ephemeral-storage": "100Gi"})
    found = judge_capacity(demand(), limited(strict))
    assert found.verdict == "does not fit"
    assert "does not name it" in words(found)
    default = {"spec": {"limits": [{"type": "Container", "default": {"ephemeral-storage": "20Gi"}}]}}
    assert judge_capacity(demand(), limited(strict, limits=(default,))).verdict == "fits"


@pytest.mark.parametrize(
    ("scopes", "verdict"),
    [
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, "does not fit"),
        ({"scopes": ["BestEffort"]}, "fits"),
        ({"scopes": ["Terminating"]}, "fits"),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, "fits"),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}},
            "does not fit",
        ),
        ({"scopes": ["SomethingNew"]}, "unknown"),
    ],
)
def test_a_quota_counts_only_within_its_scopes(scopes: Object, verdict: str) -> None:
    assert judge_capacity(demand(), limited(quota({"pods": "0"}, **scopes))).verdict == verdict


def test_a_quota_that_nobody_has_counted_makes_the_answer_unknown() -> None:
    uncounted = quota({"pods": "10"})
    del uncounted["status"]
    assert judge_capacity(demand(), limited(uncounted)).verdict == "unknown"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"type": "Container", "max": {"cpu": "2"}}, "at most 2 of cpu"),
        ({"type": "Container", "min": {"memory": "20Gi"}}, "at least 20Gi of memory"),
        ({"type": "Pod", "max": {GPU: "0"}}, "the pod at most 0 of nvidia.com/gpu"),
        ({"type": "Container", "maxLimitRequestRatio": {"ephemeral-storage": "2"}}, "ephemeral-storage"),
        ({"type": "Container", "max": {"cpu": "4", "memory": "16Gi"}, "min": {"cpu": "100m"}}, ""),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, ""),
    ],
)
def test_a_limit_range_that_would_refuse_the_pod_is_told(rule: Object, told: str) -> None:
    found = judge_capacity(demand(), limited(limits=({"metadata": {"name": "team"}, "spec": {"limits": [rule]}},)))
    assert found.verdict == ("does not fit" if told else "fits")
    assert told in words(found)


def test_a_namespace_that_is_not_there_does_not_fit() -> None:
    found = judge_capacity(demand(), cluster(node("a"), namespace=None))
    assert found.verdict == "does not fit"
    assert "The namespace team-alpha does not exist" in words(found)


# ------------------------------------------------------------ never falsely free


@pytest.mark.parametrize("kind", ["Node", "Pod", "ResourceQuota", "LimitRange", "Namespace"])
def test_what_cannot_be_read_makes_the_answer_unknown(kind: str) -> None:
    read = cluster(*([] if kind == "Node" else [node("a")]), unreadable={kind: f"{kind} is forbidden."})
    found = judge_capacity(demand(), read)
    assert found.verdict == "unknown"
    assert f"{kind} is forbidden" in found.summary
    assert found.places is None or kind not in ("Node", "Pod")
    assert all(pool.free is None for pool in found.pools) or kind != "Pod"


def test_a_pod_whose_requests_cannot_be_read_makes_the_answer_unknown() -> None:
    strange = pod("a")
    strange["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "many"}}
    assert judge_capacity(demand(), cluster(node("a"), pods=(strange,))).verdict == "unknown"


sizes = st.integers(0, 4)
worlds = st.lists(st.tuples(sizes, st.lists(st.integers(1, 3), max_size=4), st.booleans()), max_size=4)


def world(rows: list[tuple[int, list[int], bool]]) -> Read:
    nodes = [node(f"n{index}", gpus, spec={"unschedulable": closed}) for index, (gpus, _, closed) in enumerate(rows)]
    pods = [
        pod(f"n{index}", held, f"p{index}-{number}")
        for index, (_, on_it, _) in enumerate(rows)
        for number, held in enumerate(on_it)
    ]
    return cluster(*nodes, pods=tuple(pods))


@settings(max_examples=examples(300), deadline=None)
@given(worlds, st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
def test_what_fits_is_exactly_what_can_be_placed(
    rows: list[tuple[int, list[int], bool]], gpus: int, fewest: int, more: int
) -> None:
    room = sum(max(0, has - sum(held)) // gpus for has, held, closed in rows if not closed)
    found = judge_capacity(demand(fewest, fewest + more, gpus), world(rows))
    if not rows:
        assert found.verdict == "no node now"
    elif room >= fewest + more:
        assert found.verdict == "fits"
    else:
        assert found.verdict == ("fits the fewest" if room >= fewest else "does not fit")
        assert found.findings


@settings(max_examples=examples(200), deadline=None)
@given(worlds, st.integers(1, 3), st.booleans())
def test_another_pod_never_makes_more_room(rows: list[tuple[int, list[int], bool]], gpus: int, spread: bool) -> None:
    changes: dict[str, Any] = {"topologySpreadConstraints": [SPREAD]} if spread else {}
    wanted = demand(1, 6, gpus, **changes)
    before = world(rows)
    after = Read(before.nodes, (*before.pods, *(pod("n0", 1, "more") for _ in rows[:1])), before.namespace)
    places = [judge_capacity(wanted, read).places for read in (before, after)]
    assert places[0] is not None
    assert places[1] is not None
    assert places[1] <= places[0]

"""Base against merge result: what differs, for whom, and what is not known."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_examples import (
    GPU_POD,
    HOURLY,
    L4,
    at_lists,
    autoscaler,
    changed,
    inference_service,
    llm_service,
    monthly,
    pod_spec,
    prices,
    reasons,
    repriced,
    service,
    side,
    workload,
)
from examples import examples
from neuroscale.costs.bill import CostChange, Range, ServiceCost
from neuroscale.costs.difference import ChangedService, Side, compare
from neuroscale.manifests.workloads import Unpriced
from neuroscale.planning.plan import Band, FirstToken, PlannedLoad, Rate
from report_examples import GEMMA_DENSE_REFUSED, GEMMA_MOE

ZERO = Range(min=Decimal(0), max=Decimal(0))


def one(*given: Any, **options: Any) -> tuple[ServiceCost, CostChange]:
    cost = changed(service(*given, **options))
    assert cost is not None
    (row,) = cost.services
    return row, cost


def minus(left: Range, right: Range) -> Range:
    return Range(min=left.min - right.min, max=left.max - right.max)


def total(parts: Sequence[Range]) -> Range:
    zero = Decimal(0)
    return Range(min=sum((one.min for one in parts), zero), max=sum((one.max for one in parts), zero))


# Anything that a service may consist of.
_COUNTS = st.integers(0, 4)
_QUANTITIES = st.sampled_from([1, "500m", 4, "1.5", "3e-1"])
_MEMORY = st.sampled_from(["1Gi", "512Mi", "1G", 2**31, "1.5Gi"])
_PODS = st.builds(
    lambda gpu, cpu, memory, node: (
        pod_spec(cpu=cpu, memory=memory, **({"gpu": gpu} if gpu else {}))
        | {"nodeSelector": {"cloud.google.com/gke-accelerator": node}}
    ),
    st.sampled_from([0, 1, 2, 3]),
    _QUANTITIES,
    _MEMORY,
    st.sampled_from(["nvidia-l4", "nvidia-h100-80gb", "nvidia-h200-141gb", "nvidia-tesla-p100"]),
)
_LABELS = st.sampled_from([{}, {"cost-center": "a"}, {"cost-center": "b"}])
_OBJECTS = st.one_of(
    st.builds(
        lambda kind, name, labels, pod, count: workload(kind, name, labels, pod=pod, replicas=count),
        st.sampled_from(["Deployment", "StatefulSet", "DaemonSet", "Job"]),
        st.sampled_from(["x", "y"]),
        _LABELS,
        _PODS,
        _COUNTS,
    ),
    st.builds(lambda low, high: inference_service({"minReplicas": low, "maxReplicas": high}), _COUNTS, _COUNTS),
    st.builds(lambda count, pod: llm_service(replicas=count, prefill={"template": pod}), _COUNTS, _PODS),
    st.builds(lambda high: autoscaler("HorizontalPodAutoscaler", "x", maxReplicas=high), st.integers(1, 9)),
)
_SIDES = st.lists(_OBJECTS, max_size=3).map(tuple)
_SERVICES = st.lists(
    st.builds(service, _SIDES, _SIDES, st.sampled_from(["dev", "prod", "local", "nowhere"]), st.sampled_from("abc")),
    max_size=3,
)


@settings(deadline=None, max_examples=examples(300))
@given(_SERVICES)
def test_differences_are_new_less_past_and_totals_the_sum_of_their_rows(services: list[ChangedService]) -> None:
    cost = changed(*services)
    if cost is None:
        return
    known = [row for row in cost.services if row.difference is not None]
    for row in known:
        assert row.past is not None
        assert row.new is not None
        assert row.difference == minus(row.new, row.past)
    for row in cost.services:
        for amount, workloads in ((row.past, row.workloads_before), (row.new, row.workloads)):
            assert amount in (None, total([each.monthly for each in workloads]))
        if row.difference is None:
            assert row.partly
    assert cost.left_out == len(cost.services) - len(known)
    for rows in (known, cost.cost_centers):
        assert cost.total.past == total([row.past or ZERO for row in rows])
        assert cost.total.new == total([row.new or ZERO for row in rows])
        assert cost.total.difference == total([row.difference or ZERO for row in rows])
    assert CostChange.model_validate_json(cost.model_dump_json()) == cost
    assert cost.cost_centers == tuple(sorted(cost.cost_centers, key=lambda center: center.cost_center))
    assert "0.95" not in {str(each.hourly) for row in cost.services for each in (*row.workloads, *row.workloads_before)}


@settings(deadline=None, max_examples=examples(300))
@given(_SERVICES)
def test_swapping_the_two_sides_negates_every_difference(services: list[ChangedService]) -> None:
    cost = changed(*services)
    swapped = changed(*(ChangedService(each.environment, each.name, each.after, each.before) for each in services))
    if cost is None or swapped is None:
        assert cost is swapped
        return
    assert swapped.total.difference == minus(ZERO, cost.total.difference)
    for row, other in zip(cost.services, swapped.services, strict=True):
        assert (row.past, row.new, row.partly) == (other.new, other.past, other.partly)
        assert (row.difference is None) == (other.difference is None)
        if row.difference is not None:
            assert other.difference == minus(ZERO, row.difference)
    sides = {"before": "after", "after": "before", "both": "both"}
    assert {item.model_copy(update={"side": sides[item.side]}) for item in cost.unpriced} == set(swapped.unpriced)


@settings(deadline=None)
@given(_SIDES, st.sampled_from(["dev", "nowhere"]))
def test_a_service_that_stays_the_same_costs_nothing_and_is_not_told_of(objects: Any, environment: str) -> None:
    assert changed(service(objects, copy.deepcopy(objects), environment)) is None


@settings(deadline=None)
@given(_SIDES, st.permutations(range(3)))
def test_the_order_of_the_objects_does_not_matter(objects: Any, order: list[int]) -> None:
    assert changed(service(objects, tuple(objects[index] for index in order if index < len(objects)))) is None


def test_two_objects_of_one_name_and_price_are_the_same_in_either_order() -> None:
    # The price of an H100 includes CPU and memory, so that the two cost the same.
    node = {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}}
    pair = [workload(pod=pod_spec(gpu=1, cpu=1, memory=memory) | node) for memory in ("1Gi", "512Mi")]
    assert changed(service(tuple(pair), tuple(reversed(pair)))) is None


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inside for place in _places(item, (*path, key)))]


@settings(deadline=None, max_examples=examples(500))
@given(st.data())
def test_an_object_with_anything_anywhere_is_priced_or_named_and_never_crashes(data: st.DataObject) -> None:
    workers = {**GPU_POD, "tensorParallelSize": 2, "pipelineParallelSize": 2}
    llm = llm_service(
        prefill={"template": GPU_POD, "scaling": {"maxReplicas": 2, "wva": {"keda": {"idleReplicaCount": 1}}}},
        worker=GPU_POD,
        parallelism={"data": 2},
        router={"scheduler": {"template": GPU_POD}},
    )
    sane = data.draw(
        st.sampled_from(
            [
                workload(replicas=2),
                workload("StatefulSet", volumeClaimTemplates=[{"metadata": {"name": "x"}}]),
                inference_service({"workerSpec": workers}, transformer=GPU_POD),
                llm,
                autoscaler("ScaledObject", "chat", maxReplicaCount=2, annotations={"autoscaling.keda.sh/paused": "1"}),
            ]
        )
    )
    value = copy.deepcopy(sane)
    places = [place for place in _places(value) if place and place[0] not in ("apiVersion", "kind")]
    *path, last = data.draw(st.sampled_from(places))
    inside: Any = value
    for key in path:
        inside = inside[key]
    inside[last] = data.draw(_ODD)
    cost = changed(service((workload(name="other"),), (value,)))
    assert cost is not None
    assert CostChange.model_validate_json(cost.model_dump_json()) == cost


def test_a_change_of_nothing_costs_nothing() -> None:
    assert changed() is None


MUTATIONS: dict[str, Any] = {
    "replicas": lambda value: value["spec"].update(replicas=5),
    "gpu": lambda value: _requests(value).update({"nvidia.com/gpu": 2}),
    "cpu": lambda value: _requests(value).update(cpu="4100m"),
    "memory": lambda value: _requests(value).update(memory="17Gi"),
    "accelerator": lambda value: _pod(value).update(
        nodeSelector={"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    ),
    "sidecar": lambda value: _pod(value).update(
        initContainers=[{"restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}}]
    ),
    "container": lambda value: _pod(value)["containers"].append({"resources": {"requests": {"cpu": 1, "memory": 1}}}),
    "init container": lambda value: _pod(value).update(initContainers=[{"resources": {"requests": {"cpu": 9}}}]),
    "overhead": lambda value: _pod(value).update(overhead={"cpu": 1}),
    "cost centre": lambda value: value["metadata"].update(labels={"cost-center": "other"}),
}


def _pod(value: Any) -> Any:
    return value["spec"]["template"]["spec"]


def _requests(value: Any) -> Any:
    return _pod(value)["containers"][0]["resources"]["requests"]


@pytest.mark.parametrize("name", MUTATIONS)
def test_nothing_that_costs_can_change_unseen(name: str) -> None:
    after = copy.deepcopy(workload(replicas=2))
    MUTATIONS[name](after)
    row, cost = one((workload(replicas=2),), (after,))
    assert row.past == Range(min=monthly(HOURLY, 2), max=monthly(HOURLY, 2))
    assert row.difference is not None
    assert (row.difference.min > 0) == (name != "cost centre")
    assert cost.total.difference == row.difference


def test_a_removed_service_counts_negative() -> None:
    row, cost = one((workload(replicas=2),), ())
    assert (row.change, row.workloads, row.new) == ("removed", (), ZERO)
    assert cost.total.difference == Range(min=-monthly(HOURLY, 2), max=-monthly(HOURLY, 2))


def test_a_service_that_moves_to_another_cost_centre_is_right_in_both() -> None:
    _, cost = one(
        (workload(labels={"cost-center": "old"}, replicas=2),), (workload(labels={"cost-center": "new"}, replicas=3),)
    )
    assert [(center.cost_center, center.difference.min) for center in cost.cost_centers] == [
        ("new", monthly(HOURLY, 3)),
        ("old", -monthly(HOURLY, 2)),
    ]
    assert cost.total.difference.min == monthly(HOURLY, 3) - monthly(HOURLY, 2)


def test_a_service_that_moves_to_another_folder_is_right_in_both() -> None:
    value = workload()
    cost = changed(service((value,), (), "dev"), service((), (value,), "prod"))
    assert cost is not None
    assert [(row.environment, row.change) for row in cost.services] == [("dev", "removed"), ("prod", "added")]
    assert cost.total.difference == ZERO
    assert cost.cost_centers[0].past == cost.cost_centers[0].new


def test_a_difference_with_an_unknown_price_on_one_side_is_unknown() -> None:
    h200 = workload(pod=GPU_POD | {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-h200-141gb"}})
    row, cost = one((workload(),), (h200,))
    assert (row.past, row.new, row.difference) == (Range(min=monthly(HOURLY), max=monthly(HOURLY)), None, None)
    assert (cost.left_out, cost.total.difference, cost.total.past, cost.cost_centers) == (1, ZERO, ZERO, ())
    (item,) = cost.unpriced
    assert (item.environment, item.service, item.side) == ("dev", "chat", "after")


def test_what_has_no_price_and_stays_the_same_does_not_hide_the_difference() -> None:
    daemon = workload("DaemonSet", name="agent")
    row, cost = one((workload(), daemon), (workload(replicas=2), daemon))
    assert row.difference == Range(min=monthly(HOURLY), max=monthly(HOURLY))
    assert (row.partly, cost.unpriced[0].side, cost.left_out) == (True, "both", 0)
    heavier = workload("DaemonSet", name="agent", pod=pod_spec(cpu=8, memory="1Gi"))
    row, cost = one((workload(), daemon), (workload(replicas=2), heavier))
    assert (row.difference, cost.left_out) == (None, 1)


def test_what_has_no_price_and_is_started_makes_the_difference_unknown() -> None:
    running: dict[str, Any] = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {"replicas": 3, "baseRefs": [{"name": "shared"}]},
    }
    stopped = copy.deepcopy(running)
    stopped["metadata"]["annotations"] = {"serving.kserve.io/stop": "true"}
    row, cost = one((stopped,), (running,))
    assert (row.difference, cost.left_out, cost.unpriced[0].side) == (None, 1, "both")
    described = copy.deepcopy(running)
    described["metadata"]["annotations"] = {"description": "the same pods"}
    assert changed(service((running,), (described,))) is None


def test_a_file_that_cannot_be_read_is_named_and_makes_the_difference_unknown() -> None:
    broken = Side(unreadable=(Unpriced("a.yaml", "cannot be read: not valid YAML", decisive=True, content="1"),))
    cost = compare([ChangedService("dev", "chat", side(workload()), broken)], prices(), prices(), date(2026, 7, 1))
    assert cost is not None
    assert cost.services[0].difference is None
    assert cost.services[0].change == "changed"
    assert reasons(cost) == {"a.yaml": "cannot be read: not valid YAML"}


def test_both_sides_have_the_prices_of_the_merge_result_and_the_base_s_stand_beside() -> None:
    dear = repriced("nvidia-l4", "1.44")
    given = service((workload(replicas=1),), (workload(replicas=3),))
    cost = compare([given], dear, prices(), date(2026, 7, 1))
    assert cost is not None
    assert cost.prices_altered
    assert cost.total.difference.min == monthly(HOURLY + L4, 3) - monthly(HOURLY + L4)
    assert cost.at_base_prices is not None
    assert cost.at_base_prices.difference.min == monthly(HOURLY, 3) - monthly(HOURLY)
    assert compare([given], dear, dear, date(2026, 7, 1)) == cost.model_copy(
        update={"prices_altered": False, "at_base_prices": None}
    )
    unread = compare([given], dear, None, date(2026, 7, 1))
    assert unread is not None
    assert (unread.prices_altered, unread.at_base_prices) == (True, None)


def test_a_new_price_alone_is_no_change_of_what_runs() -> None:
    given = service((workload(),), (workload(),))
    assert compare([given], repriced("nvidia-l4", "1.44"), prices(), date(2026, 7, 1)) is None


@pytest.mark.parametrize(("today", "old"), [(date(2026, 9, 8), False), (date(2026, 9, 9), True)])
def test_prices_are_old_after_90_days(today: date, old: bool) -> None:
    cost = changed(service((), (workload(),)), today=today)
    assert cost is not None
    (used,) = cost.price_lists
    assert (used.name, used.date, used.old) == ("google-cloud", date(2026, 6, 10), old)


def test_a_price_list_is_as_old_as_the_oldest_price_that_is_used() -> None:
    machines = at_lists("google-cloud-machines")

    def pods(accelerator: str) -> Any:
        pod = pod_spec(gpu=8, cpu=4, memory="64Gi")
        return workload(name=accelerator, pod=pod | {"nodeSelector": {"cloud.google.com/gke-accelerator": accelerator}})

    h200, a100 = pods("nvidia-h200-141gb"), pods("nvidia-a100-80gb")
    told = []
    for added in ((h200,), (h200, a100)):
        cost = compare([service((), added)], machines, machines, date(2026, 11, 24))
        assert cost is not None
        (used,) = cost.price_lists
        told.append((used.date, used.old, used.source.count("; "), "a3-ultragpu-8g" in used.source))
    assert told == [(date(2026, 10, 13), False, 0, True), (date(2026, 8, 20), True, 1, True)]


def at_load(tokens_per_second: float | None) -> PlannedLoad:
    """16 users on two replicas, each of which writes so many tokens (None: not known)."""
    band = None if tokens_per_second is None else Band(value=tokens_per_second, low=0.0, high=1000.0)
    return PlannedLoad(
        users=16,
        replica_users=8,
        prompt_tokens=1000,
        answer_tokens=100,
        coverage="interpolated" if band else "unknown",
        ttft_seconds=FirstToken(p50=band, p95=band) if band else None,
        tokens_per_second=Rate(user=band, replica=band) if band else None,
        head_room_users=0 if band else None,
        usd_per_million_output_tokens=None,
    )


def test_output_tokens_have_a_price_where_a_plan_of_these_pods_says_how_fast_they_are() -> None:
    plan = GEMMA_MOE.model_copy(update={"speed": GEMMA_MOE.speed.model_copy(update={"decode_tokens_per_second": 50.0})})
    plan = plan.model_copy(
        update={"resources": plan.resources.model_copy(update={"accelerator_resource": "nvidia.com/gpu"})}
    )
    row, _ = one((), (inference_service({"minReplicas": 2}),), plan=plan)
    assert row.output_tokens is not None
    assert row.output_tokens.tokens_per_second == 50
    # 50 tokens/s are 0.18 million an hour, whatever the number of replicas.
    assert row.output_tokens.usd_per_million == (HOURLY / Decimal("0.18")).quantize(Decimal("0.01"))
    load = at_load(tokens_per_second=400.0)
    row, _ = one((), (inference_service({"minReplicas": 2}),), plan=plan.model_copy(update={"load": load}))
    assert row.output_tokens is not None
    assert row.output_tokens.users == 8
    assert row.output_tokens.tokens_per_second == 400
    assert row.output_tokens.usd_per_million == (HOURLY / Decimal("1.44")).quantize(Decimal("0.01"))
    # A load whose speed nobody knows has no price, whatever an idle replica does.
    row, _ = one((), (inference_service({"minReplicas": 2}),), plan=plan.model_copy(update={"load": at_load(None)}))
    assert row.output_tokens is None
    more = inference_service({"containers": pod_spec(gpu=2, cpu=4, memory="16Gi")["containers"]})
    for value, other in ((more, plan), (workload(replicas=1), None), (workload(), GEMMA_DENSE_REFUSED)):
        row, _ = one((), (value,), plan=other)
        assert row.output_tokens is None
    row, _ = one((), (workload(), workload(name="second")), plan=plan)
    assert row.output_tokens is None

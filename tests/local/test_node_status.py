"""What the local node says of a pod, from what its containers do."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.kube.client import Object
from neuroscale.local.node.addresses import address_of, is_address, loopback
from neuroscale.local.node.container import Running, Terminated, Waits
from neuroscale.local.node.pod_status import Seen, Whereabouts, pod_status
from neuroscale.local.node.registration import Capacity

WHERE = Whereabouts("10.127.3.4", "127.0.0.1", 1000.0, "0.32.0")
WAITS, RUNS = Waits("ContainerCreating"), Running(1000.0)
WELL, ILL = Terminated(0, "Completed", 1000.0, 1001.0), Terminated(1, "Error", 1000.0, 1001.0)
CRASHING = Waits("CrashLoopBackOff", "back-off")


def pod(policy: str = "Always", status: Object | None = None, **metadata: Any) -> Object:
    return {"metadata": {"name": "p", **metadata}, "spec": {"restartPolicy": policy}, "status": status or {}}


def seen(state: Waits | Running | Terminated, *, ready: bool = False, last: Terminated | None = None) -> Seen:
    return Seen("main", "vllm", state, last, 0, started=ready, ready=ready)


def phase(whole: Object, *states: Seen, first: tuple[Seen, ...] = ()) -> str:
    return str(pod_status(whole, first, states, WHERE, 2000.0)["phase"])


def condition(status: Object, kind: str) -> Object:
    return next(one for one in status["conditions"] if one["type"] == kind)


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        ("Always", [WAITS], "Pending"),
        ("Always", [RUNS], "Running"),
        ("Always", [RUNS, WAITS], "Pending"),
        ("Always", [ILL], "Running"),
        ("Always", [WELL], "Running"),
        ("OnFailure", [WELL], "Succeeded"),
        ("OnFailure", [ILL], "Running"),
        ("Never", [ILL], "Failed"),
        ("Never", [WELL], "Succeeded"),
        ("Never", [WELL, ILL], "Failed"),
    ],
)
def test_the_phase_follows_what_containers_do_and_whether_they_are_started_again(
    policy: str, states: list[Waits | Running | Terminated], expected: str
) -> None:
    assert phase(pod(policy), *map(seen, states)) == expected


def test_what_waits_to_be_started_again_has_run() -> None:
    assert phase(pod(), seen(CRASHING, last=ILL)) == "Running"


def test_a_pod_whose_first_container_failed_for_good_has_failed() -> None:
    assert phase(pod("Never"), seen(WAITS), first=(seen(ILL),)) == "Failed"
    assert phase(pod("Always"), seen(WAITS), first=(seen(ILL),)) == "Pending"


@pytest.mark.parametrize("state", [WAITS, WELL, ILL, CRASHING, RUNS])
def test_only_what_runs_and_is_ready_makes_a_pod_ready(state: Waits | Running | Terminated) -> None:
    status = pod_status(pod(), (), [seen(state, ready=state is RUNS)], WHERE, 2000.0)
    assert condition(status, "Ready")["status"] == ("True" if state is RUNS else "False")
    assert condition(status, "ContainersReady")["status"] == condition(status, "Ready")["status"]


def test_a_readiness_gate_is_the_clusters_to_open() -> None:
    gated = pod(status={"conditions": [{"type": "gate.example.com", "status": "False"}]})
    gated["spec"]["readinessGates"] = [{"conditionType": "gate.example.com"}]
    status = pod_status(gated, (), [seen(RUNS, ready=True)], WHERE, 2000.0)
    assert condition(status, "ContainersReady")["status"] == "True"
    assert condition(status, "Ready")["reason"] == "ReadinessGatesNotReady"
    # And stays as the cluster said.
    assert condition(status, "gate.example.com") == {"type": "gate.example.com", "status": "False"}


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    first = pod_status(pod(), (), [seen(RUNS)], WHERE, 2000.0)
    second = pod_status(pod(status=first), (), [seen(RUNS)], WHERE, 3000.0)
    assert second == first
    third = pod_status(pod(status=second), (), [seen(RUNS, ready=True)], WHERE, 4000.0)
    assert condition(third, "Ready")["lastTransitionTime"] > condition(second, "Ready")["lastTransitionTime"]
    assert condition(third, "PodScheduled") == condition(first, "PodScheduled")


@given(st.lists(st.uuids().map(str), unique=True, max_size=200))
def test_every_pod_has_an_address_of_its_own(uids: list[str]) -> None:
    taken: set[str] = set()
    for uid in uids:
        address = address_of(uid, taken)
        assert is_address(address)
        assert address not in taken
        assert all(0 < int(part) < 255 for part in address.split(".")[2:])
        assert loopback(address) == f"127.{address.removeprefix('10.')}"
        taken.add(address)


def test_a_pods_address_is_the_same_again_as_long_as_nobody_has_it() -> None:
    first = address_of("uid", ())
    assert address_of("uid", {"10.127.1.1"} - {first}) == first
    assert address_of("uid", {first}) != first


@given(st.integers(1, 64), st.integers(2**30, 2**40))
def test_pods_may_ask_for_more_cores_than_there_are_and_for_no_more_memory(cores: int, memory: int) -> None:
    found = Capacity(cores, memory, 2**40)
    assert int(found.allocatable()["cpu"]) >= max(8, 4 * cores)
    assert found.allocatable()["memory"] == found.capacity()["memory"]
    assert int(found.capacity()["cpu"]) == cores


def test_states_of_every_pair_of_containers_lead_to_some_phase() -> None:
    states: tuple[Waits | Running | Terminated, ...] = (WAITS, RUNS, WELL, ILL, CRASHING)
    for policy in ("Always", "OnFailure", "Never"):
        for one, other in itertools.product(states, repeat=2):
            assert phase(pod(policy), seen(one), seen(other)) in ("Pending", "Running", "Succeeded", "Failed")

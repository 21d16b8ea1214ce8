"""Estimate against meter: what differs, and causes that add up to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.metering.allocation import Meter, Metered, Place
from neuroscale.metering.comparison import CAUSES, Compared, Threshold, compare, measured_hours
from neuroscale.metering.services import Estimate, ServiceFacts, estimates, key_of
from neuroscale.metering.window import Window
from neuroscale.planning.plan import Cost, Replicas, Tenancy, dump_plan
from neuroscale.repo.snapshot import FolderSnapshot
from plan_factory import make_plan, make_request

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=100))
ZERO = Decimal(0)
PLACE = Place("prod", "team-one", "one", "ann", "chat", "1")
NAME = ("prod", "team-one", "chat")
PLAN = Estimate(hourly=Decimal("2"), replicas=2, gpus=1, cpu=Decimal(8))


def metered(total: str, gpu_hours: str, hours: str, **place: str) -> Metered:
    where = Place(**{**vars(PLACE), **place})
    amount = Decimal(total)
    return Metered(
        "pods", where, amount, amount, ZERO, ZERO, Decimal(gpu_hours), ZERO, Decimal(hours), START, WINDOW.end
    )


def idle(total: str) -> Metered:
    amount = Decimal(total)
    return Metered("idle", Place(), amount, amount, ZERO, ZERO, ZERO, ZERO, ZERO, START, WINDOW.end)


def compared(*found: Metered, plan: Estimate | None = PLAN) -> tuple[Compared, ...]:
    facts = {key_of(one): ServiceFacts("prod", "a-model", "nvidia-l4") for one in found if one.place.service}
    return compare(Meter(WINDOW, found), facts, {NAME: plan} if plan else {}).services


def causes(one: Compared) -> dict[str, str]:
    assert one.causes is not None
    return {name: str(amount) for name, amount in one.causes.items() if amount}


def test_services_of_other_environments_on_the_same_cluster_are_left_out_when_one_is_named() -> None:
    here, there = metered("10", "1", "1"), metered("20", "1", "1", namespace="team-two", service="other")
    facts = {
        key_of(here): ServiceFacts("prod", "a-model", "nvidia-l4"),
        key_of(there): ServiceFacts("local", "a-model", "cpu"),
    }
    meter = Meter(WINDOW, (here, there))
    assert [one.service for one in compare(meter, facts, {NAME: PLAN}, ["prod"]).services] == ["chat"]
    assert {one.service for one in compare(meter, facts, {NAME: PLAN}).services} == {"chat", "other"}


def test_what_runs_as_planned_at_the_planned_price_does_not_differ() -> None:
    (one,) = compared(metered("400", "200", "100"))
    assert (one.estimate, one.metered, one.difference, causes(one)) == (Decimal("400.00"), Decimal("400.00"), ZERO, {})


@pytest.mark.parametrize(
    ("total", "gpu_hours", "hours", "cause", "amount"),
    [
        ("500", "200", "100", "price", "100.00"),  # 2.50 an hour instead of 2
        ("600", "300", "100", "replicas", "200.00"),  # three replicas instead of two
        ("200", "100", "50", "hours", "-200.00"),  # two replicas for half of the time
        ("200", "100", "100", "replicas", "-200.00"),  # one replica all the time
    ],
)
def test_each_cause_is_told_apart(total: str, gpu_hours: str, hours: str, cause: str, amount: str) -> None:
    (one,) = compared(metered(total, gpu_hours, hours))
    assert causes(one) == {cause: amount}


def test_idle_is_a_cause_of_its_own_and_divided_over_all() -> None:
    found = {
        one.service: one
        for one in compared(metered("400", "200", "100"), metered("100", "1", "1", service="x"), idle("50"))
    }
    assert causes(found["chat"]) == {"idle": "40.00"}
    assert (found["chat"].difference, found["x"].idle) == (Decimal("40.00"), Decimal("10.00"))


def test_a_planned_service_that_never_ran_is_the_whole_estimate_too_much() -> None:
    (one,) = compared()
    assert (one.metered, one.difference, causes(one)) == (ZERO, Decimal("-400.00"), {"hours": "-400.00"})
    assert one.percent == Decimal("-100.0")


@pytest.mark.parametrize(
    ("plan", "why"),
    [(None, "the repository has no plan of it"), (Estimate(None, 1, 1, Decimal(1)), "its plan has no price")],
)
def test_what_cannot_be_compared_is_unknown_and_says_why(plan: Estimate | None, why: str) -> None:
    (one,) = compared(metered("400", "200", "100"), plan=plan)
    assert (one.estimate, one.difference, one.causes, one.why_unknown) == (None, None, None, why)
    assert not Threshold(ZERO, ZERO).passed_by(one)


def test_replicas_without_a_counted_accelerator_are_told_by_their_cpu() -> None:
    cpu = Metered("pods", PLACE, Decimal(400), ZERO, Decimal(400), ZERO, ZERO, Decimal(1600), Decimal(100), START)
    (one,) = compared(cpu, plan=Estimate(Decimal("2"), 2, 0, Decimal(8)))
    assert causes(one) == {}


def test_time_without_data_is_not_promised() -> None:
    gap = Window(START, START + timedelta(hours=40))
    late = Metered(**{**vars(metered("1", "1", "1")), "start": START + timedelta(hours=50)})
    assert measured_hours(Meter(WINDOW, (late,), empty=(gap,))) == 50
    assert measured_hours(Meter(WINDOW, (metered("1", "1", "1"),))) == 100


@pytest.mark.parametrize(("total", "counts"), [("440", False), ("441", True), ("360", False), ("359", True)])
def test_a_difference_counts_above_both_thresholds_in_both_directions(total: str, counts: bool) -> None:
    (one,) = compared(metered(total, "200", "100"))
    assert Threshold(Decimal(40), Decimal(10)).passed_by(one) is counts
    assert not Threshold(Decimal(41), Decimal(10)).passed_by(one)
    assert not Threshold(Decimal(40), Decimal(11)).passed_by(one)


@given(
    found=st.lists(
        st.builds(
            metered,
            st.decimals(0, 10000, places=5).map(str),
            st.decimals(0, 1000, places=5).map(str),
            st.decimals(0, 100, places=5).map(str),
            service=st.sampled_from(["chat", "other"]),
        ),
        max_size=4,
    ),
    rest=st.decimals(-10, 1000, places=5).map(str),
    hourly=st.decimals(0, 100, places=4),
)
def test_causes_add_up_to_the_difference_and_that_to_the_amounts(
    found: list[Metered], rest: str, hourly: Decimal
) -> None:
    for one in compared(*found, idle(rest), plan=Estimate(hourly, 3, 2, Decimal(8))):
        if one.difference is not None and one.estimate is not None and one.causes is not None:
            assert tuple(one.causes) == CAUSES
            assert sum(one.causes.values()) == one.difference
            assert one.estimate + one.difference == one.metered + one.idle


def test_estimates_are_those_of_the_plans_in_the_repository(tmp_path: Path) -> None:
    folder = tmp_path / "manifests/prod/chat"
    folder.mkdir(parents=True)
    cost = Cost(hourly=Decimal("4"), monthly_min=None, monthly_max=None, price_date=None, price_source="")
    tenancy = Tenancy(team="one", owner="ann", cost_center="one", namespace="team-one")
    plan = make_plan(
        make_request(service="chat", environment="prod"), cost=cost, replicas=Replicas(min=2, max=4), tenancy=tenancy
    )
    (folder / "plan.yaml").write_text(dump_plan(plan))
    (folder / "request.yaml").write_text("")
    found = estimates(FolderSnapshot(tmp_path), ("dev", "prod"))
    assert found == {NAME: Estimate(Decimal("2"), 2, 1, Decimal(plan.resources.cpu))}

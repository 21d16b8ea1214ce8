"""Estimate against meter: what differs, and causes that add up to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.metering.allocation import Meter, Metered, Place, together
from neuroscale.metering.comparison import CAUSES, Compared, Comparison, Threshold, compare
from neuroscale.metering.services import Estimate, Named, Planned, Promise, ServiceFacts, key_of
from neuroscale.metering.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=100))
ZERO = Decimal(0)
PLACE = Place("prod", "team-one", "one", "ann", "chat", "1")
NAME = ("prod", "team-one", "chat")
PLAN = Estimate(hourly=Decimal("2"), replicas=2, gpus=1, cpu=Decimal(8))


def promised(*plans: tuple[int, int, Estimate]) -> dict[Named, Promise]:
    """Plans by the hours of the window in which they begin and end."""
    return {
        NAME: Promise(
            tuple(
                Planned(Window(START + timedelta(hours=begin), START + timedelta(hours=end)), plan)
                for begin, end, plan in plans
            )
        )
    }


ALWAYS = promised((0, 100, PLAN))


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
    facts = {
        key_of(one): ServiceFacts("prod", "a-model", "nvidia-l4", estimate=plan) for one in found if one.place.service
    }
    return compare(Meter(WINDOW, found), facts, promised((0, 100, plan)) if plan else {}).services


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
    assert [one.service for one in compare(meter, facts, ALWAYS, ["prod"]).services] == ["chat"]
    assert {one.service for one in compare(meter, facts, ALWAYS).services} == {"chat", "other"}


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
    (one,) = on_tpu("400").services
    assert causes(one) == {}


def on_tpu(total: str) -> Comparison:
    """Two replicas with 8 cores each for the whole window, on an accelerator that OpenCost does not count."""
    amount = Decimal(total)
    cpu = Metered("pods", PLACE, amount, ZERO, amount, ZERO, ZERO, Decimal(1600), Decimal(100), START)
    plan = Estimate(Decimal("2"), 2, 0, Decimal(8))
    facts = {key_of(cpu): ServiceFacts("prod", "a-model", "tpu-v6e-1", "google.com/tpu", plan)}
    return compare(Meter(WINDOW, (cpu, idle("0"))), facts, promised((0, 100, plan)))


def test_an_accelerator_that_opencost_does_not_charge_is_unknown_and_no_difference_of_price() -> None:
    found = on_tpu("100")
    assert found.services[0].difference is None
    assert found.services[0].why_unknown.startswith("OpenCost counts no hours of google.com/tpu")
    (note,) = found.notes
    assert note.level == "warning"
    assert "no hours of google.com/tpu for team-one/chat (tpu-v6e-1)" in note.text


@pytest.mark.parametrize(("total", "why"), [("190", "its placeholder prices"), ("0", "charges nothing")])
def test_prices_that_are_none_are_no_difference_of_price(total: str, why: str) -> None:
    (one,) = compared(metered(total, "200", "100"))
    assert one.difference is None
    assert why in one.why_unknown


def test_a_service_that_was_merged_within_the_window_costs_its_plan_from_then_on() -> None:
    new = replace(metered("80", "40", "20"), start=START + timedelta(hours=80))
    meter = Meter(WINDOW, (new, metered("1", "0", "100", service="", cost_center="", namespace="kube-system")))
    facts = {key_of(new): ServiceFacts("prod", "a-model", "nvidia-l4", estimate=PLAN)}
    (one,) = compare(meter, facts, promised((80, 100, PLAN))).services
    assert (one.estimate, one.metered, causes(one)) == (Decimal("80.00"), Decimal("80.00"), {})


def test_a_service_that_was_removed_within_the_window_costs_its_plan_until_then() -> None:
    gone = metered("84", "42", "21")
    facts = {key_of(gone): ServiceFacts("prod", "a-model", "nvidia-l4", estimate=PLAN)}
    (one,) = compare(Meter(WINDOW, (gone,)), facts, promised((0, 20, PLAN))).services
    assert (one.estimate, causes(one)) == (Decimal("80.00"), {"hours": "4.00"})


def test_more_replicas_from_an_hour_on_are_promised_from_then_on() -> None:
    more = Estimate(Decimal(2), 4, 1, Decimal(8))
    chat = metered("600", "300", "100")
    facts = {key_of(chat): ServiceFacts("prod", "a-model", "nvidia-l4", estimate=more)}
    (one,) = compare(Meter(WINDOW, (chat,)), facts, promised((0, 50, PLAN), (50, 100, more))).services
    assert (one.estimate, causes(one)) == (Decimal("600.00"), {})


def test_costs_before_a_swap_of_accelerators_are_compared_with_the_plan_before_it() -> None:
    """Replicas of two GPUs at $6 became replicas of one GPU at $2; each part has replicas by its own plan."""
    large = Estimate(Decimal(6), 1, 2, Decimal(8))
    rows = (metered("300", "100", "50"), replace(metered("200", "100", "50"), part=1))
    facts = {
        key_of(row): ServiceFacts("prod", "a-model", "nvidia-l4", estimate=plan)
        for row, plan in zip(rows, (large, PLAN), strict=True)
    }
    meter = Meter(WINDOW, rows, cuts=(START + timedelta(hours=50),))
    (one,) = compare(meter, facts, promised((0, 50, large), (50, 100, PLAN))).services
    assert (one.estimate, causes(one)) == (Decimal("500.00"), {})


def test_pods_that_paused_between_two_samples_ran_for_fewer_hours() -> None:
    """OpenCost's minutes are the span from the first to the last sample: pods at both ends seem to have run between."""
    (one,) = compared(metered("4", "2", "100"), plan=Estimate(Decimal(2), 1, 1, Decimal(8)))
    assert causes(one) == {"hours": "-196.00"}


def test_times_that_overlap_count_once() -> None:
    """A canary with other labels beside the service, both for the first half of the window."""
    half = ((START, START + timedelta(hours=50)),)
    rows = [replace(metered("100", "50", "50", cost_center=center), spans=half) for center in ("one", "two")]
    assert causes(compared(*rows)[0]) == {"hours": "-200.00"}


def test_time_without_data_is_not_promised() -> None:
    gap = Window(START, START + timedelta(hours=40))
    assert compare(Meter(WINDOW, (metered("1", "1", "1"),), empty=(gap,)), {}, {}).measured_hours == 60
    assert compare(Meter(WINDOW, (metered("1", "1", "1"),)), {}, {}).measured_hours == 100
    whole = Window(START, START + timedelta(hours=100))
    middle = Window(START + timedelta(hours=30), START + timedelta(hours=40))
    assert compare(Meter(whole, (metered("1", "1", "1"),), empty=(middle,)), {}, {}).measured_hours == 90


def test_negative_idle_of_one_day_does_not_lower_what_the_other_days_idle_cost() -> None:
    found = together([metered("400", "200", "100"), idle("-30"), idle("50")])
    assert compared(*found)[0].idle == Decimal("50.00")


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

"""The statement: rows that add up to the bill, and what the weighting does to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.metering.allocation import (
    Kind,
    Meter,
    Metered,
    Place,
    experts_touched,
    in_cents,
    read_ratio,
    rounded,
    together,
    weighted,
)
from neuroscale.metering.services import ServiceFacts, ServiceKey, key_of
from neuroscale.metering.showback import BY, By, Statement, statement_of
from neuroscale.metering.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(days=1))
ENVIRONMENTS = ("dev", "prod")
ZERO = Decimal(0)


def metered(total: str, kind: Kind = "pods", **place: str) -> Metered:
    where = Place(**{"cluster": "prod", "namespace": "team-one", **place})
    amount = Decimal(total)
    return Metered(kind, where, amount, amount, ZERO, ZERO, ZERO, ZERO, ZERO, START, WINDOW.end)


def service(total: str, name: str, center: str, ratio: str = "1", **place: str) -> Metered:
    return metered(total, "pods", service=name, cost_center=center, ratio=ratio, owner=f"owner-of-{center}", **place)


def statement(
    *found: Metered, by: By = "cost-center", accelerator: str = "nvidia-a100-80gb", idle_known: bool = True
) -> Statement:
    facts = {key_of(one): ServiceFacts("prod", f"model-of-{one.place.service}", accelerator) for one in found}
    return statement_of(Meter(WINDOW, together(found), idle_known=idle_known), by, facts, ENVIRONMENTS)


def column(found: Statement, name: str) -> dict[str, str]:
    return {row.name: str(getattr(row, name)) for row in found.rows}


def texts(found: Statement) -> str:
    return "\n".join(note.text for note in found.notes)


# ------------------------------------------------------------------------------------------------ anything adds up

_AMOUNTS = st.decimals(min_value=0, max_value=10**6, places=5)
_NAMES = st.sampled_from(["", "a", "b", "c"])
_RATIOS = st.sampled_from(["1", "0.15", "0.09", "0.281", "", "0", "2", "all", "1.0", "0.000000001"])
_PLACES = st.builds(
    Place,
    cluster=st.sampled_from(["prod", "elsewhere"]),
    namespace=_NAMES,
    cost_center=_NAMES,
    owner=_NAMES,
    service=_NAMES,
    ratio=_RATIOS,
)
_POD = st.builds(
    lambda place, total: Metered("pods", place, total, total, ZERO, ZERO, total, ZERO, ZERO, START, WINDOW.end),
    _PLACES,
    _AMOUNTS,
)
_REST = st.builds(
    lambda kind, total: Metered(kind, Place("prod"), total, total, ZERO, ZERO, ZERO, ZERO, ZERO, START, WINDOW.end),
    st.sampled_from(["idle", "unmounted"]),
    st.decimals(min_value=-100, max_value=10**6, places=5),
)


@given(
    pods=st.lists(_POD, max_size=12),
    rest=st.lists(_REST, max_size=3),
    by=st.sampled_from(BY),
    known=st.sets(st.sampled_from(["a", "b", "c"])),
)
def test_the_rows_of_any_allocation_add_up_to_the_bill(
    pods: list[Metered], rest: list[Metered], by: By, known: set[str]
) -> None:
    found = together([*pods, *rest])
    facts: dict[ServiceKey, ServiceFacts] = {
        key_of(one): ServiceFacts("dev", f"model-{one.place.namespace}", "nvidia-l4" if one.place.owner else "cpu")
        for one in found
        if one.place.service in known
    }
    made = statement_of(Meter(WINDOW, found), by, facts, ENVIRONMENTS)
    exact = sum((one.total for one in found), ZERO)
    assert made.bill == Decimal(rounded(exact)).scaleb(-2)
    assert sum((row.total for row in made.rows), ZERO) + made.undistributed == made.bill
    assert sum((row.weighted_total for row in made.rows), ZERO) + made.undistributed == made.bill
    assert made.metered + (made.idle or ZERO) + made.shared == made.bill
    assert sum((row.metered for row in made.rows), ZERO) == made.metered
    assert sum((part.amount for part in made.shared_parts), ZERO) == made.shared
    assert all(abs(row.metered - row.exact) < Decimal("0.01") for row in made.rows)
    assert len({row.name for row in made.rows}) == len(made.rows)


@given(st.lists(st.tuples(_AMOUNTS, st.decimals("0.001", 1, places=3)), max_size=9))
def test_weighting_moves_money_and_neither_makes_nor_loses_any(pool: list[tuple[Decimal, Decimal]]) -> None:
    costs, ratios = [cost for cost, _ in pool], [ratio for _, ratio in pool]
    assert sum(weighted(costs, ratios)) == sum(map(Fraction, costs))
    assert weighted(costs, [Decimal("0.15")] * len(costs)) == list(map(Fraction, costs))


@given(st.lists(st.decimals(-1000, 1000, places=5), max_size=20), st.booleans())
def test_each_amount_in_cents_is_its_own_rounded_up_or_down(amounts: list[Decimal], up: bool) -> None:
    exact = sum(map(Fraction, amounts), Fraction(0)) * 100
    total = -(-exact // 1) if up else exact // 1
    cents = in_cents(amounts, int(total))
    assert sum(cents) == total
    assert all(abs(cent - amount * 100) < 1 for cent, amount in zip(cents, amounts, strict=True))


def test_a_total_that_is_not_the_amounts_is_refused() -> None:
    with pytest.raises(ValueError, match="not the sum"):
        in_cents([Decimal("1.005")], 102)


# ---------------------------------------------------------------------------------------------------- by hand


def test_two_teams_on_equal_hardware_pay_by_active_parameters_beside_what_was_metered() -> None:
    """A 26B-A4B (3.8 of 25.2 billion parameters) and a 31B dense model hold one accelerator each for a day at $3.67 an
    hour. Weighted: 176.16 x 0.151 / 1.151 = 23.1107, and the other one pays the rest."""
    found = statement(service("88.08", "a4b", "team-a", "0.151"), service("88.08", "dense", "team-b", "1"))
    assert column(found, "total") == {"team-a": "88.08", "team-b": "88.08"}
    assert column(found, "weighted_total") == {"team-a": "23.11", "team-b": "153.05"}
    assert found.bill == Decimal("176.16")
    assert found.pools_weighted == 1


def test_idle_and_shared_costs_follow_what_each_is_charged_and_stand_undistributed_too() -> None:
    found = statement(
        service("30", "a", "one"),
        service("10", "b", "two"),
        metered("4", kind="idle"),
        metered("2", namespace="kube-system"),
        metered("0.4", kind="unmounted", namespace=""),
    )
    assert column(found, "idle") == {"one": "3.00", "two": "1.00"}
    assert column(found, "shared") == {"one": "1.80", "two": "0.60"}
    assert column(found, "total") == {"one": "34.80", "two": "11.60"}
    assert (found.metered, found.idle, found.shared, found.bill) == tuple(map(Decimal, ("40", "4", "2.4", "46.4")))
    assert {part.name: str(part.amount) for part in found.shared_parts} == {
        "pods without a cost centre in kube-system": "2.00",
        "unmounted volumes and load balancers": "0.40",
    }
    assert found.undistributed == 0


def test_three_equal_shares_of_a_dollar_are_a_dollar() -> None:
    found = statement(*(service("0.33333", name, name) for name in "abc"), metered("0.00001", kind="idle"))
    assert sorted(column(found, "total").values()) == ["0.33", "0.33", "0.34"]
    assert found.bill == Decimal("1.00")


def test_pools_of_different_accelerators_and_clusters_do_not_pay_for_each_other() -> None:
    pool = [service("10", "sparse", "one", "0.1"), service("10", "dense", "two", "1")]
    elsewhere = service("10", "dense", "three", "1", cluster="dev")
    found = statement(*pool, elsewhere)
    assert column(found, "weighted") == {"one": "1.82", "two": "18.18", "three": "10.00"}


@pytest.mark.parametrize("label", ["", "0", "1.5", "dense", "-0.1", "NaN", "1e-1", "0.15 "])
def test_a_label_that_is_not_a_share_leaves_the_cost_as_metered_and_says_so(label: str) -> None:
    assert read_ratio(label) is None
    found = statement(
        service("10", "a", "one", label), service("10", "b", "two", "1"), service("5", "c", "three", "0.5")
    )
    assert column(found, "weighted")["one"] == "10.00"
    assert "team-one/a have no usable label active-param-ratio" in texts(found)


def test_a_service_without_a_plan_is_not_weighted_and_named() -> None:
    found = statement_of(
        Meter(WINDOW, (service("10", "gone", "one", "0.1"), service("10", "b", "two"))), "model", {}, ()
    )
    assert [(row.name, row.unnamed) for row in found.rows] == [("(no model)", True)]
    assert "team-one/b, team-one/gone" in texts(found)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("cost-center", {"one", "two"}),
        ("owner", {"owner-of-one", "owner-of-two"}),
        ("service", {"team-one/a", "team-two/b"}),
        ("model", {"model-of-a", "model-of-b"}),
        ("environment", {"prod", "dev"}),
        ("namespace", {"team-one", "team-two"}),
    ],
)
def test_rows_are_by_what_was_asked_for(by: By, names: set[str]) -> None:
    other = service("1", "b", "two", namespace="team-two", cluster="dev")
    found = statement(service("1", "a", "one"), other, metered("1", namespace="kube-system"), by=by)
    assert {row.name for row in found.rows} == names


# ---------------------------------------------------------------------------------------------- what must be said


def test_negative_idle_is_shown_and_lowers_nobodys_share() -> None:
    found = statement(service("10", "a", "one"), metered("-0.5", kind="idle"))
    assert column(found, "total") == {"one": "10.00"}
    assert (found.idle, found.undistributed, found.bill) == (Decimal("-0.50"), Decimal("-0.50"), Decimal("9.50"))
    assert "Idle costs are negative (-0.50 USD)" in texts(found)


def test_negative_idle_of_one_day_is_not_hidden_by_that_of_another() -> None:
    found = statement(service("10", "a", "one"), metered("-5", kind="idle"), metered("8", kind="idle"))
    assert column(found, "idle") == {"one": "8.00"}
    assert (found.idle, found.undistributed, found.bill) == (Decimal("3.00"), Decimal("-5.00"), Decimal("13.00"))
    assert "Idle costs are negative (-5.00 USD) for a part of the window" in texts(found)


def test_a_negative_part_of_what_is_idle_is_named_where_the_whole_is_not_negative() -> None:
    mixed = replace(metered("4", kind="idle"), gpu=Decimal("-21.6"), cpu=Decimal("25.6"))
    found = statement(service("10", "a", "one"), mixed)
    assert (column(found, "idle"), found.bill) == ({"one": "4.00"}, Decimal("14.00"))
    assert "A part of the idle costs is negative (accelerators -21.60 USD), so they are too low" in texts(found)
    whole = statement(service("10", "a", "one"), replace(mixed, total=Decimal("-17.1")))
    assert "Idle costs are negative (-17.10 USD)" in texts(whole)
    assert "A part of" not in texts(whole)


def test_a_pool_before_a_swap_is_weighted_apart_from_the_pool_after_it() -> None:
    """The service was on an accelerator of its own, and then came to the other team's."""
    rows = [
        *(service("8000", "chat", "one"), service("250", "sparse", "two", "0.1")),
        *(
            replace(service(total, *of), part=1)
            for total, *of in (("250", "chat", "one"), ("250", "sparse", "two", "0.1"))
        ),
    ]
    accelerators = ["nvidia-h100-80gb", "nvidia-l4", "nvidia-l4", "nvidia-l4"]
    facts = {
        key_of(row): ServiceFacts("prod", "a-model", accelerator)
        for row, accelerator in zip(rows, accelerators, strict=True)
    }
    meter = Meter(WINDOW, together(rows), cuts=(START + timedelta(hours=12),))
    found = statement_of(meter, "cost-center", facts, ENVIRONMENTS)
    assert column(found, "weighted") == {"one": "8454.55", "two": "295.45"}
    assert "prod/chat (a-model on nvidia-h100-80gb, then a-model on nvidia-l4)" in texts(found)


def test_a_short_window_says_how_exact_its_hours_are() -> None:
    short = Window(START, START + timedelta(minutes=30))
    costs = (service("10", "a", "one"), metered("50", "idle"))
    assert "OpenCost looks every 5 minutes" in texts(statement_of(Meter(short, costs), "service", {}, ()))
    exact = Meter(short, costs, step=timedelta(minutes=1))
    assert "OpenCost looks" not in texts(statement_of(exact, "service", {}, ()))


def test_idle_costs_of_a_short_window_are_warned_of_except_at_the_local_meter() -> None:
    short, warned = Window(START, START + timedelta(minutes=55)), "Idle costs may be too high"
    costs = (service("10", "a", "one"), metered("50", "idle"))
    assert warned in texts(statement_of(Meter(short, costs), "service", {}, ()))
    assert warned not in texts(statement_of(Meter(WINDOW, costs), "service", {}, ()))
    local = texts(statement_of(Meter(short, costs, local=True), "service", {}, ()))
    assert warned not in local
    assert "nodes with accelerators are simulated" in local


def test_missing_idle_is_unknown_and_not_nothing() -> None:
    found = statement(service("10", "a", "one"), idle_known=False)
    assert found.idle is None
    assert "the bill lacks what nodes cost there" in texts(found)


def test_pods_without_any_label_charge_nobody_and_the_reason_is_told() -> None:
    found = statement(metered("10", namespace="team-one"), metered("1", kind="idle"))
    assert (found.rows, found.bill, found.undistributed) == ((), Decimal("11.00"), Decimal("11.00"))
    assert "--metric-labels-allowlist" in texts(found)


def test_services_without_a_cost_centre_are_a_row_that_says_it() -> None:
    found = statement(service("10", "a", ""))
    assert [(row.name, row.unnamed) for row in found.rows] == [("(no cost-center)", True)]
    assert "No service's pods carry the label cost-center" in texts(found)


def test_a_statement_names_the_times_that_are_not_in_the_bill() -> None:
    gap = Window(START, START + timedelta(hours=3))
    made = statement_of(Meter(WINDOW, (service("10", "a", "one"),), empty=(gap,)), "service", {}, ())
    assert f"OpenCost has no samples of {gap}" in texts(made)


def test_experts_touched_are_those_of_the_formula() -> None:
    shares: Sequence[float] = [experts_touched(128, 8, batch) for batch in (1, 8, 32)]
    assert [f"{share:.0%}" for share in shares] == ["6%", "40%", "87%"]

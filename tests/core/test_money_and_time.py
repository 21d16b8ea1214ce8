"""One spelling of money and of time."""

from __future__ import annotations

from decimal import Decimal

import pytest

from neuroscale.core.money_and_time import amount, amounts, duration, usd


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0", "0.00"),
        ("0.71", "0.71"),
        ("0.7", "0.70"),
        ("1.3536", "1.3536"),
        ("1.375", "1.375"),
        ("0.031611", "0.031611"),
        ("0.00001234", "0.00001234"),
        ("3.7600", "3.76"),
        ("100.005", "100.00"),
        ("1554.9", "1,554.90"),
        ("-518.3", "-518.30"),
    ],
)
def test_an_amount_keeps_the_decimals_that_matter(value: str, shown: str) -> None:
    assert amount(Decimal(value)) == shown


def test_the_currency_follows_one_amount_or_the_last_of_two() -> None:
    assert usd(Decimal("518.3"), Decimal("1554.9")) == "518.30 to 1,554.90 USD"
    assert usd(Decimal("0.5"), Decimal("0.5"), signed=True) == usd(Decimal("0.5"), signed=True) == "+0.50 USD"


def test_nothing_has_no_sign() -> None:
    assert amounts(Decimal(0), Decimal("1.5"), signed=True) == "0.00 to +1.50"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 s"),
        (0.00435, "4.35 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.234, "1.23 s"),
        (45, "45 s"),
        (119.4, "119 s"),
        (119.6, "2 min"),
        (410, "6 min 50 s"),
        (7199.7, "2 h"),
        (7290, "2 h 2 min"),
        (172799, "48 h"),
        (200000, "2 d 8 h"),
    ],
)
def test_a_time_has_three_digits_and_then_two_units(value: float, shown: str) -> None:
    assert duration(value) == shown

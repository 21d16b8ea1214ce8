"""The pictures of what services cost: what they say, and that the same figures give the same bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from neuroscale.core.errors import InputError
from neuroscale.metering.allocation import Meter, Metered, Place
from neuroscale.metering.comparison import Threshold, compare
from neuroscale.metering.services import Estimate, ServiceFacts, key_of
from neuroscale.metering.tokens import Counted, TokenCost
from neuroscale.metering.window import Window
from neuroscale.report.reconciliation_picture import write_reconciliation_picture
from neuroscale.report.token_cost_picture import by_model, write_token_cost_picture

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=100))
ZERO = Decimal(0)
CHAT = Metered(
    *("pods", Place("prod", "one", "cc", "ann", "chat", "1"), Decimal(640), ZERO, ZERO, ZERO),
    *(Decimal(300), ZERO, Decimal(100), START, WINDOW.end),
)


def tokens(model: str, cost: str, each: str | None = "1") -> TokenCost:
    counted = Counted(Decimal(3_000_000), Decimal(2_000_000), Decimal(9))
    price = None if each is None else Decimal(each)
    return TokenCost("one", "chat", model, Decimal(cost), counted, price, None, None, "" if each else "why")


def test_estimate_and_meter_stand_beside_each_other(tmp_path: Path) -> None:
    facts = {key_of(CHAT): ServiceFacts("prod", "a-model", "nvidia-l4")}
    plan = Estimate(Decimal(2), 2, 1, Decimal(8))
    found = compare(Meter(WINDOW, (CHAT,)), facts, {("prod", "one", "chat"): plan})
    for name in ("one.svg", "two.svg"):
        write_reconciliation_picture(found, Threshold(Decimal(50), Decimal(20)), tmp_path / name)
    text = (tmp_path / "one.svg").read_text()
    assert all(word in text for word in ("prod/chat", "+$240.00", "1 of 1 service differs by more than $50.00"))
    assert text == (tmp_path / "two.svg").read_text()


def test_a_models_price_is_that_of_all_its_services_with_a_known_one(tmp_path: Path) -> None:
    rows = [tokens("a", "10"), tokens("a", "30"), tokens("b", "50"), tokens("c", "1", None)]
    assert by_model(rows) == [("b", Decimal("10.00")), ("a", Decimal("4.00"))]
    write_token_cost_picture(rows, WINDOW, tmp_path / "tokens.svg")
    text = (tmp_path / "tokens.svg").read_text()
    assert all(word in text for word in ("$10.00", "$4.00", "1 service without a known price not drawn"))


def test_nothing_to_draw_is_a_picture_too_and_a_wrong_suffix_none(tmp_path: Path) -> None:
    write_token_cost_picture([], WINDOW, tmp_path / "none.png")
    assert (tmp_path / "none.png").stat().st_size > 1000
    with pytest.raises(InputError, match=r"Name a .svg or .png file"):
        write_token_cost_picture([], WINDOW, tmp_path / "none.txt")

"""The pictures of what services cost: what they say, and that the same figures give the same bytes."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from neuroscale.core.errors import InputError
from neuroscale.metering.allocation import Meter, Metered, Place
from neuroscale.metering.comparison import Threshold, compare
from neuroscale.metering.services import Estimate, Planned, Promise, ServiceFacts, key_of
from neuroscale.metering.tokens import Counted, TokenCost
from neuroscale.metering.window import Window
from neuroscale.report.picture_file import bar_axes
from neuroscale.report.reconciliation_view import write_reconciliation_picture
from neuroscale.report.token_cost_view import by_model, write_token_cost_picture

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=100))
ZERO = Decimal(0)
CHAT = Metered(
    *("pods", Place("prod", "one", "cc", "ann", "chat", "1"), Decimal(640), Decimal(640), ZERO, ZERO),
    *(Decimal(300), ZERO, Decimal(100), START, WINDOW.end),
)


def tokens(model: str, cost: str, each: str | None = "1") -> TokenCost:
    counted = Counted(Decimal(3_000_000), Decimal(2_000_000), Decimal(9))
    price = None if each is None else Decimal(each)
    return TokenCost("one", "chat", model, Decimal(cost), counted, price, None, None, "" if each else "why")


def test_estimate_and_meter_stand_beside_each_other(tmp_path: Path) -> None:
    facts = {key_of(CHAT): ServiceFacts("prod", "a-model", "nvidia-l4")}
    plan = Estimate(Decimal(2), 2, 1, Decimal(8))
    promise = Promise((Planned(WINDOW, plan),))
    found = compare(Meter(WINDOW, (CHAT,)), facts, {("prod", "one", "chat"): promise})
    for name in ("one.svg", "two.svg"):
        write_reconciliation_picture(found, Threshold(Decimal(50), Decimal(20)), tmp_path / name)
    text = (tmp_path / "one.svg").read_text()
    assert all(word in text for word in ("prod/chat", "+240.00", "1 of 1 service differs by more than 50.00 USD"))
    assert text == (tmp_path / "two.svg").read_text()


def test_a_service_that_cannot_be_compared_does_not_count_among_those_that_do_not_differ(tmp_path: Path) -> None:
    facts = {key_of(CHAT): ServiceFacts("prod", "a-model", "nvidia-l4")}
    found = compare(Meter(WINDOW, (CHAT,)), facts, {})
    write_reconciliation_picture(found, Threshold(Decimal(50), Decimal(20)), tmp_path / "one.svg")
    text = (tmp_path / "one.svg").read_text()
    assert "None of 0 compared services differs by more than 50.00 USD and 20 %. 1 service cannot be compared." in text
    assert "not drawn" not in text


def test_a_models_price_is_that_of_all_its_services_with_a_known_one(tmp_path: Path) -> None:
    rows = [tokens("a", "10"), tokens("a", "30"), tokens("b", "50"), tokens("c", "1", None)]
    assert by_model(rows) == [("b", Decimal("10.00")), ("a", Decimal("4.00"))]
    write_token_cost_picture(rows, WINDOW, tmp_path / "tokens.svg")
    text = (tmp_path / "tokens.svg").read_text()
    assert all(word in text for word in ("10.00", "4.00", "1 service without a known price not drawn"))


def test_a_picture_and_a_table_have_one_price_and_models_that_are_not_drawn_are_counted(tmp_path: Path) -> None:
    rows = [tokens(f"model-{number}", f"0.0{number}6") for number in range(15)]
    assert by_model(rows)[0] == ("model-9", Decimal("0.0192"))  # 0.096 over five millions, which is not 0.10 over them
    write_token_cost_picture(rows, WINDOW, tmp_path / "tokens.svg")
    assert "And 3 cheaper models not drawn." in (tmp_path / "tokens.svg").read_text()


def test_a_long_name_keeps_its_end_which_tells_quantised_variants_apart(tmp_path: Path) -> None:
    variants = [f"RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.{scheme}" for scheme in ("w8a8", "w4a16")]
    write_token_cost_picture([tokens(name, "1") for name in variants], WINDOW, tmp_path / "tokens.svg")
    text = (tmp_path / "tokens.svg").read_text()
    assert "...quantized.w8a8" in text
    assert "...uantized.w4a16" in text


def test_nothing_to_draw_is_a_picture_too_and_a_wrong_suffix_none(tmp_path: Path) -> None:
    write_token_cost_picture([], WINDOW, tmp_path / "none.png")
    assert (tmp_path / "none.png").stat().st_size > 1000
    with pytest.raises(InputError, match=r"Name a .svg or .png file"):
        write_token_cost_picture([], WINDOW, tmp_path / "none.txt")


@pytest.mark.parametrize("span", [0.0118, 96.08, 15352.56, 1995833])
def test_labels_of_the_axis_do_not_touch_each_other(span: float) -> None:
    figure = Figure(figsize=(8, 3), dpi=160)
    FigureCanvasAgg(figure)
    axes = bar_axes(figure, ["one"], span, right=0.72)
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert len(boxes) >= 2
    assert all(after.x0 - before.x1 > 4 for before, after in itertools.pairwise(boxes))

"""Cells of a benchmark: their requests, time and price, and which of them would measure nothing."""

from __future__ import annotations

from decimal import Decimal

import pytest

from neuroscale.bench.cells import START_SECONDS, Cell, Limits, Room, estimate, plan_cell
from neuroscale.planning.speed import Estimate, Load, SpeedUnderLoad

CELL = Cell(4, 256, 16)


def _speed(ttft: float, inter_token: float) -> SpeedUnderLoad:
    def value(each: float) -> Estimate:
        return Estimate(each, each, each)

    return SpeedUnderLoad(
        Load(4, 256, 16), "interpolated", (), ttft_mean=value(ttft), inter_token_mean=value(inter_token)
    )


def test_each_user_warms_up_once_and_then_asks_several_times() -> None:
    few, many = plan_cell(CELL, Limits(40), Room(), None), plan_cell(Cell(64, 256, 16), Limits(40), Room(), None)
    assert (few.warm_up, few.requests) == (4, 40)
    assert (many.warm_up, many.requests) == (64, 256)


def test_the_expected_time_is_that_of_all_rounds_and_the_limit_twice_that() -> None:
    planned = plan_cell(CELL, Limits(40), Room(), _speed(0.5, 0.1))
    assert planned.expected_seconds == 11 * (0.5 + 15 * 0.1)  # 44 requests of 4 users
    assert planned.seconds == 60.0  # at least a minute
    assert plan_cell(CELL, Limits(40), Room(), _speed(5.0, 1.0)).seconds == 2 * 11 * 20.0
    assert plan_cell(CELL, Limits(40, 17.0), Room(), _speed(5.0, 1.0)).seconds == 17.0
    assert plan_cell(CELL, Limits(40), Room(), None).expected_seconds is None


def test_a_cell_beyond_the_cache_or_the_longest_request_is_skipped_with_the_reason() -> None:
    beyond = plan_cell(CELL, Limits(), Room(2048, 3, "the server has room for 816 tokens"), None).skipped
    assert "holds 3 requests of 272 tokens at once (the server has room for 816 tokens)" in beyond
    assert "1 of 4 users would wait" in beyond
    assert "may have 200 tokens, and these have 272" in plan_cell(CELL, Limits(), Room(200), None).skipped
    assert plan_cell(CELL, Limits(), Room(272, 4, "x"), None).skipped == ""


def test_time_and_price_are_those_of_the_cells_that_run() -> None:
    runs = plan_cell(CELL, Limits(40, 100.0), Room(), _speed(0.5, 0.1))
    skipped = plan_cell(CELL, Limits(40, 100.0), Room(200), _speed(0.5, 0.1))
    total = estimate([runs, skipped], Limits(), Decimal(36))
    preparing = START_SECONDS + 52 * 256 * 60e-6  # the prompts are made before the first request
    assert total.expected_seconds == pytest.approx(22.0 + preparing)
    assert total.most_seconds == pytest.approx(100.0 + preparing)
    assert (total.expected_usd, total.most_usd) == (Decimal("0.43"), Decimal("1.21"))
    assert estimate([runs], Limits(total_seconds=60.0), Decimal(36)).most_seconds == 60.0
    unknown = estimate([runs, plan_cell(CELL, Limits(), Room(), None)], Limits(), None)
    assert (unknown.expected_seconds, unknown.expected_usd, unknown.most_usd) == (None, None, None)

"""guidellm's report of a cell: what it measured, and what of it is no measurement."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bench_lab import report_of
from neuroscale.bench.cells import Cell
from neuroscale.bench.reading import CellError, read_report

CELL = Cell(4, 256, 16)


def _read(change: Callable[[Any, Any], object] = lambda report, benchmark: None, planned: int = 12) -> Any:
    report = report_of(CELL)
    change(report, report["benchmarks"][0])
    return read_report(json.dumps(report).encode(), CELL, planned)


def test_the_figures_are_seconds_and_tokens_a_second_without_the_warm_up() -> None:
    figures = _read()
    assert (figures.ttft.mean, figures.ttft.p95) == (0.03, 0.06)
    assert figures.inter_token.mean == pytest.approx(1 / figures.user_rate)
    assert (figures.requests, len(figures.first_tokens), max(figures.first_tokens)) == (12, 12, 0.06)
    assert (figures.prompt_tokens, figures.answer_tokens) == (256.0, 16.0)
    assert not figures.saturated
    assert figures.notes == ("Of 12 requests, the p95 is the slowest one.",)


@pytest.mark.parametrize("value", [0, 0.0, None, float("nan"), -1.0, "0.5"])
def test_a_figure_that_is_missing_or_0_is_a_failure_and_never_a_measurement(value: Any) -> None:
    for name in ("output_tokens_per_second", "time_to_first_token_ms", "inter_token_latency_ms", "output_token_count"):

        def change(_: Any, benchmark: Any, name: str = name) -> None:
            benchmark["metrics"][name]["successful"]["mean"] = value

        with pytest.raises(CellError, match=f"measured nothing of {name}"):
            _read(change)


def test_a_failed_request_makes_the_cell_a_failure_with_the_servers_reason() -> None:
    def change(_: Any, benchmark: Any) -> None:
        benchmark["scheduler_state"]["errored_requests"] = 2
        benchmark["requests"]["errored"] = [{"info": {"error": "HTTPStatusError('503 Service Unavailable')"}}]

    with pytest.raises(CellError, match=r"2 of 18 requests failed: HTTPStatusError\('503 Service Unavailable'\)"):
        _read(change)


def test_too_few_requests_measure_nothing() -> None:
    def change(_: Any, benchmark: Any) -> None:
        benchmark["metrics"]["request_totals"]["successful"] = 4
        benchmark["scheduler_state"]["end_queuing_constraints"] = {"max_duration": {}}

    with pytest.raises(CellError, match=r"4 requests .* fewer than 5 measure nothing: its time was over"):
        _read(change)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "cannot be read"),
        (b"{}", "cannot be read"),
        (b'{"benchmarks": []}', "has no benchmark"),
        (b'{"benchmarks": [{}]}', "another shape"),
    ],
)
def test_a_report_of_another_shape_is_a_failure(text: bytes, told: str) -> None:
    with pytest.raises(CellError, match=told):
        read_report(text, CELL, 12)


def test_a_report_of_another_load_is_a_failure() -> None:
    with pytest.raises(CellError, match="another load"):
        read_report(json.dumps(report_of(Cell(8, 256, 16))).encode(), CELL, 12)


def test_short_answers_and_an_early_end_are_said() -> None:
    def change(_: Any, benchmark: Any) -> None:
        benchmark["metrics"]["output_token_count"]["successful"]["mean"] = 9.0
        benchmark["scheduler_state"]["end_queuing_constraints"] = {"max_duration": {}}

    notes = " ".join(_read(change, planned=40).notes)
    assert "Answers had 9 tokens, and 16 were asked for" in notes
    assert "after 12 of 40 requests" in notes


def test_an_end_by_over_saturation_is_known() -> None:
    def change(_: Any, benchmark: Any) -> None:
        benchmark["scheduler_state"]["end_queuing_constraints"] = {"over_saturation": {}}

    assert _read(change).saturated

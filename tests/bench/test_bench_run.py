"""Running cells: what is kept of a run that was broken off, and what is never run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench_lab import FakeClient
from neuroscale.bench.cells import Cell, Limits, PlannedCell, Room, plan_cell
from neuroscale.bench.guidellm import REPORT, Target
from neuroscale.bench.run import Bench, Outcome, combined, opened
from neuroscale.cluster.endpoint.metrics import Histogram, Snapshot
from neuroscale.core.errors import InputError

TARGET = Target("http://127.0.0.1:1", "tiny", None, "/models/tiny")
CELLS = [Cell(1, 256, 16), Cell(4, 256, 16), Cell(16, 256, 16)]
OF = {"endpoint": "local/tiny", "vllm_version": "0.32.0"}


def _planned(cell: Cell, **limits: Any) -> PlannedCell:
    return plan_cell(cell, Limits(**limits), Room(), None)


def _run(
    folder: Path,
    client: FakeClient,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    counters: Callable[[], Snapshot | None] = lambda: None,
    **limits: Any,
) -> list[Outcome]:
    bench = Bench(folder, client, TARGET, counters, 100.0, lambda _: lambda *_: None, clock)
    return [bench.measure(_planned(cell, **limits)) for cell in CELLS]


def test_a_finished_cell_is_not_run_again_and_its_figures_are_the_same(tmp_path: Path) -> None:
    first = FakeClient(fails={"u16-p256-a16"})
    before = _run(tmp_path, first)
    assert [outcome.state for outcome in before] == ["measured", "measured", "failed"]
    assert before[2].reason == "The server is gone."
    second = FakeClient()
    after = _run(tmp_path, second)
    assert second.ran == ["u16-p256-a16"]
    assert [outcome.earlier for outcome in after] == [True, True, False]
    assert [outcome.figures for outcome in after[:2]] == [outcome.figures for outcome in before[:2]]
    assert [outcome.report for outcome in after[:2]] == [outcome.report for outcome in before[:2]]


def test_a_cell_that_was_killed_before_its_end_is_run_again(tmp_path: Path) -> None:
    _run(tmp_path, FakeClient())
    (tmp_path / "cells" / "u1-p256-a16" / "outcome.json").unlink()  # written last
    report = tmp_path / "cells" / "u4-p256-a16" / REPORT
    report.write_text(report.read_text(encoding="utf-8")[:-200], encoding="utf-8")
    client = FakeClient()
    assert [outcome.state for outcome in _run(tmp_path, client)] == ["measured"] * 3
    assert client.ran == ["u1-p256-a16", "u4-p256-a16"]


def test_a_report_that_somebody_changed_does_not_count(tmp_path: Path) -> None:
    _run(tmp_path, FakeClient())
    report = tmp_path / "cells" / "u4-p256-a16" / REPORT
    faster = json.loads(report.read_text(encoding="utf-8"))
    faster["benchmarks"][0]["metrics"]["time_to_first_token_ms"]["successful"]["mean"] = 1.0
    report.write_text(json.dumps(faster), encoding="utf-8")
    client = FakeClient()
    _run(tmp_path, client)
    assert client.ran == ["u4-p256-a16"]


def test_figures_that_contradict_each_other_are_a_failure(tmp_path: Path) -> None:
    def change(report: Any) -> None:
        report["benchmarks"][0]["metrics"]["output_tokens_per_second"]["successful"]["mean"] = 1e6

    outcomes = _run(tmp_path, FakeClient(change=change))
    assert [outcome.state for outcome in outcomes] == ["failed"] * 3
    assert "1e+06 tokens/s in all are more than 1 users get" in outcomes[0].reason


def test_more_requests_than_before_are_measured_anew(tmp_path: Path) -> None:
    _run(tmp_path, FakeClient(), requests=40)
    client = FakeClient()
    _run(tmp_path, client, requests=80)
    assert len(client.ran) == 3


def test_beyond_over_saturation_no_more_users_are_tried(tmp_path: Path) -> None:
    def saturate(report: Any) -> None:
        benchmark = report["benchmarks"][0]
        if benchmark["config"]["strategy"]["streams"] == 4:
            benchmark["scheduler_state"]["end_queuing_constraints"] = {"over_saturation": {}}

    client = FakeClient(change=saturate)
    outcomes = _run(tmp_path, client)
    assert [outcome.state for outcome in outcomes] == ["measured", "over-saturated", "skipped"]
    assert outcomes[2].reason == "The server is over-saturated already with 4 users, 256 + 16 tokens."
    assert "u16-p256-a16" not in client.ran


def test_after_the_time_limit_no_cell_begins_and_that_is_said(tmp_path: Path) -> None:
    times = iter([0.0, 10.0, 101.0, 102.0])
    outcomes = _run(tmp_path, FakeClient(), clock=lambda: next(times))
    assert [outcome.state for outcome in outcomes] == ["measured", "not run", "not run"]
    assert "time limit of 100 s" in outcomes[1].reason


def test_the_servers_counters_are_those_of_the_cell_alone(tmp_path: Path) -> None:
    buckets = ((0.1, 100.0), (1.0, 200.0), (float("inf"), 200.0))
    looks = iter(
        Snapshot(
            ttft=Histogram(20.0 * look, 200.0 * look, tuple((bound, count * look) for bound, count in buckets)),
            prefix_queries=1000.0 * look,
            prefix_hits=100.0 * look,
        )
        for look in range(1, 9)
    )
    outcome = _run(tmp_path, FakeClient(), counters=lambda: next(looks))[0]
    assert outcome.server is not None
    assert outcome.server.ttft_mean == pytest.approx(0.1)
    assert outcome.server.ttft_p95 == pytest.approx(0.91)
    assert outcome.server.inter_token_mean is None
    assert outcome.server.prefix_hit_share == pytest.approx(0.1)
    assert "The server had 10% of the prompts' tokens in its prefix cache." in outcome.notes


def test_a_folder_holds_results_of_one_server_alone(tmp_path: Path) -> None:
    def refused(told: str, of: dict[str, str]) -> None:
        with pytest.raises(InputError, match=told), opened(tmp_path, of, again=False):
            pass

    with opened(tmp_path, OF, again=False):
        refused("a benchmark that runs now", OF)
    refused("results of another vllm version", {**OF, "vllm_version": "0.33.0"})
    _run(tmp_path, FakeClient())
    with opened(tmp_path, {**OF, "vllm_version": "0.33.0"}, again=True):
        client = FakeClient()
        _run(tmp_path, client)
    assert len(client.ran) == 3


def test_the_reports_are_joined_and_exported_by_guidellm(tmp_path: Path) -> None:
    client = FakeClient(fails={"u4-p256-a16"})
    bench = Bench(tmp_path, client, TARGET, lambda: None, 100.0, lambda _: lambda *_: None)
    for cell in CELLS:
        bench.measure(_planned(cell))
    report = combined(bench.reports(), client, tmp_path)
    assert report == tmp_path / REPORT
    assert client.exported == [report]
    whole = json.loads(report.read_text(encoding="utf-8"))
    assert [one["config"]["strategy"]["streams"] for one in whole["benchmarks"]] == [1, 16]
    assert combined([], client, tmp_path) is None

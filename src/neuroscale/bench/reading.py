"""Reads guidellm's report of one cell, and says what in it is no measurement.

A benchmark that measured nothing must never read as one that measured 0: each figure is there, finite and above 0, or
the cell has failed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from neuroscale.bench.cells import Cell
from neuroscale.catalog.measurements import MeasuredLoad
from neuroscale.core.printable import one_line

FEWEST_REQUESTS = 5
"""With fewer, a cell has failed: its figures would be those of single requests."""
_FEW = 20  # below, the p95 is the slowest request
_SHORT = 0.9  # of the answer tokens that were asked for
OVER_SATURATION = "over_saturation"


class CellError(Exception):
    """A cell has failed; the text is the reason, a sentence without its full stop."""


@dataclass(frozen=True)
class Spread:
    """Seconds over the requests of a cell."""

    mean: float
    p50: float
    p95: float


@dataclass(frozen=True)
class Figures:
    """What guidellm measured of a cell, without its warm-up.

    `prompt_tokens` and `answer_tokens`: means, as the server counted them. `ttft`: from the client's sending of a
    request to the first token of its answer. `inter_token`: over the requests, each with its own mean. Rates are tokens
    of answers a second. `first_tokens`: the TTFT of each request. `ended_by`: the name of what ended it.
    """

    prompt_tokens: float
    answer_tokens: float
    ttft: Spread
    inter_token: Spread
    user_rate: float
    total_rate: float
    requests: int
    seconds: float
    first_tokens: tuple[float, ...]
    ended_by: tuple[str, ...]
    guidellm_version: str
    notes: tuple[str, ...] = ()

    @property
    def saturated(self) -> bool:
        """Whether guidellm ended it because requests came faster than they were answered."""
        return OVER_SATURATION in self.ended_by


def read_report(text: bytes, cell: Cell, planned_requests: int) -> Figures:
    """The figures of guidellm's JSON report of a cell. Raises CellError if it holds no measurement of this cell."""
    try:
        report = json.loads(text)
        benchmarks = report["benchmarks"]
    except (ValueError, KeyError, TypeError) as error:
        raise CellError(f"guidellm's report cannot be read ({type(error).__name__})") from error
    if not benchmarks:
        raise CellError("guidellm's report has no benchmark: it ended before a request was answered")
    try:
        return _figures(report, benchmarks[0], cell, planned_requests)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise CellError(f"guidellm's report has another shape than that of its version here ({error!r})") from error


def measured_load(cell: Cell, figures: Figures, prefix_hit_share: float | None) -> MeasuredLoad:
    """The figures of a cell as a load of the catalog's measurements. Raises CellError if they contradict each other."""
    load = {
        "users": cell.users,
        "prompt_tokens": round(figures.prompt_tokens),
        "answer_tokens": round(figures.answer_tokens),
        "ttft_seconds": rounded(figures.ttft),
        "inter_token_seconds": rounded(figures.inter_token),
        "tokens_per_second": {"user": digits(figures.user_rate), "total": digits(figures.total_rate)},
        "requests": figures.requests,
        "failed_requests": 0,
        "prefix_hit_share": None if prefix_hit_share is None else round(prefix_hit_share, 4),
    }
    try:
        return MeasuredLoad.model_validate(load)
    except ValidationError as error:
        told = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise CellError(f"guidellm's figures contradict each other: {one_line(told, 300).rstrip('.')}") from error


def rounded(spread: Spread) -> dict[str, float]:
    """The seconds of a spread, to five digits."""
    return {name: digits(value) for name, value in dataclasses.asdict(spread).items()}


def digits(value: float) -> float:
    """The number to five digits."""
    return float(f"{value:.5g}")


def _figures(report: Mapping[str, Any], benchmark: Mapping[str, Any], cell: Cell, planned: int) -> Figures:
    strategy, metrics = benchmark["config"]["strategy"], benchmark["metrics"]
    if strategy["type_"] != "concurrent" or strategy["streams"] != cell.users:
        raise CellError(f"guidellm's report is of another load ({strategy['type_']}, {strategy['streams']} users)")
    failed = int(benchmark["scheduler_state"]["errored_requests"])
    if failed:
        of = failed + int(benchmark["scheduler_state"]["successful_requests"])
        raise CellError(f"{failed} of {of} requests failed: {_first_error(benchmark)}")
    ended_by = tuple(sorted(benchmark["scheduler_state"]["end_queuing_constraints"]))
    requests = int(metrics["request_totals"]["successful"])
    if requests < FEWEST_REQUESTS:
        raise CellError(
            f"{requests} requests were answered after the warm-up, and fewer than {FEWEST_REQUESTS} measure nothing"
            + (": its time was over" if "max_duration" in ended_by else "")
        )
    answers = _mean(metrics, "output_token_count")
    ttft, inter_token = _spread(metrics, "time_to_first_token_ms"), _spread(metrics, "inter_token_latency_ms")
    done = sorted(benchmark["requests"]["successful"], key=lambda one: one["request_end_time"])[-requests:]
    notes = []
    if answers < _SHORT * cell.answer_tokens:
        notes.append(f"Answers had {answers:.0f} tokens, and {cell.answer_tokens} were asked for: it ends them itself.")
    if requests < planned and "max_duration" in ended_by:
        notes.append(f"Its time was over after {requests} of {planned} requests.")
    if requests < _FEW:
        notes.append(f"Of {requests} requests, the p95 is the slowest one.")
    return Figures(
        prompt_tokens=_mean(metrics, "prompt_token_count"),
        answer_tokens=answers,
        ttft=ttft,
        inter_token=inter_token,
        user_rate=1 / inter_token.mean,
        total_rate=_mean(metrics, "output_tokens_per_second"),
        requests=requests,
        seconds=_positive(benchmark["duration"], "duration"),
        first_tokens=tuple(_positive(one["time_to_first_token_ms"], "TTFT") / 1000 for one in done),
        ended_by=ended_by,
        guidellm_version=str(report["metadata"]["guidellm_version"]),
        notes=tuple(notes),
    )


def _mean(metrics: Mapping[str, Any], name: str) -> float:
    return _positive(metrics[name]["successful"]["mean"], name)


def _spread(metrics: Mapping[str, Any], name: str) -> Spread:
    found = metrics[name]["successful"]
    percentiles = found["percentiles"]
    values = (found["mean"], percentiles["p50"], percentiles["p95"])
    return Spread(*(_positive(value, name) / 1000 for value in values))


def _positive(value: Any, name: str) -> float:
    """The figure. Raises CellError for a missing one, and for 0, which guidellm writes where it measured nothing."""
    if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise CellError(f"guidellm measured nothing of {name}: its report says {value!r}")
    return float(value)


def _first_error(benchmark: Mapping[str, Any]) -> str:
    for request in benchmark["requests"]["errored"] or ():
        if told := (request.get("info") or {}).get("error"):
            return one_line(str(told), 300).rstrip(".")
    return "guidellm's report does not say why"

"""Writes what a benchmark measured as values for programs: `bench.json`, from which a measurement is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from neuroscale.bench.cells import Cell
from neuroscale.bench.largest_load import LargestLoad
from neuroscale.bench.reading import Figures, digits, measured_load, rounded
from neuroscale.bench.run import Outcome
from neuroscale.core.money_and_time import duration
from neuroscale.planning.price import per_million_at
from neuroscale.planning.speed import Estimate, SpeedUnderLoad

RESULT = "bench.json"

Predict = Callable[[Cell], SpeedUnderLoad | None]


@dataclass(frozen=True)
class Subject:
    """What a benchmark measures: one replica. `model`: of the catalog, else as the server calls it. `vllm_args`: the
    words of its command that decide about speed or memory (None: not known). `hourly`: US dollars per hour."""

    service: str
    url: str
    model: str
    served_model: str
    revision: str | None
    accelerator: str | None
    count: int | None
    vllm_version: str
    vllm_args: tuple[str, ...] | None
    api: str
    prefix_caching: bool | None
    hourly: Decimal | None
    price_source: str
    promised_p95_ttft_seconds: float | None = None  # by the service's form


def as_mapping(
    subject: Subject,
    outcomes: Sequence[Outcome],
    predict: Predict,
    *,
    date: str,
    guidellm_version: str,
    report: str,
    largest: tuple[float, LargestLoad] | None = None,
) -> dict[str, Any]:
    """The values of `bench.json`: seconds, tokens a second, US dollars; null where nothing is known, and never 0.

    `report`: the digest of guidellm's report of all cells. `largest`: the promised p95 of TTFT, and what was found.
    """
    hourly = subject.hourly
    return {
        "schema_version": 1,
        **dataclasses.asdict(subject),
        "hourly": None if hourly is None else f"{hourly:.4f}",
        "date": date,
        "guidellm_version": guidellm_version,
        "report": report or None,
        "loads": [each for each in map(load_of, outcomes) if each is not None],
        "largest_load": None if largest is None else _largest(*largest),
        "cells": [_cell(outcome, predict(outcome.planned.cell), hourly) for outcome in outcomes],
    }


def load_of(outcome: Outcome) -> dict[str, Any] | None:
    """A measured cell as a load of the catalog's measurements; None for a repetition, and for what was not measured."""
    if outcome.state != "measured" or outcome.figures is None or outcome.planned.cell.run > 1:
        return None
    share = outcome.server.prefix_hit_share if outcome.server else None
    return measured_load(outcome.planned.cell, outcome.figures, share).model_dump(mode="json")


def short_text(values: Mapping[str, Any]) -> str:
    """What a benchmark of one cell says of a service that was just merged, beside its plan: a sentence or two. `values`
    are those of `bench.json`. Raises KeyError, TypeError and ValueError where they are not."""
    cell = values["cells"][0]
    measured = cell["measured"]
    if cell["state"] != "measured" or measured is None:
        return f"A short benchmark measured nothing: {cell['state']}. {cell['reason']}"
    users, promise = int(cell["users"]), values["promised_p95_ttft_seconds"]
    load = f"{'1 user' if users == 1 else f'{users} users'}, {int(cell['prompt_tokens']):,} tokens in and "
    load += f"{int(cell['answer_tokens']):,} out"
    p95, rate = float(measured["ttft_seconds"]["p95"]), float(measured["tokens_per_second"]["total"])
    asked = "" if promise is None else f"; the form asks for {duration(float(promise))}"
    told = (
        f"Measured on one replica with {load}: the first token came in {duration(p95)} for 95 in 100 of "
        f"{int(cell['requests'])} requests{asked}; {rate:.3g} tokens a second for all together."
    )
    plan = cell["predicted"]
    if plan is None:
        return f"{told} The plan has no estimate of them."
    expected = float(plan["ttft_seconds"]["p95"]["value"]), float(plan["tokens_per_second"]["total"]["value"])
    return f"{told} The plan's estimates are {duration(expected[0])} and {expected[1]:.3g} tokens a second."


def usd_per_million(hourly: Decimal | None, outcome: Outcome) -> Decimal | None:
    """US dollars of the replica for a million tokens of answers at the measured rate; None if one is unknown."""
    if hourly is None or outcome.figures is None or outcome.state != "measured":
        return None
    return per_million_at(hourly, outcome.figures.total_rate)


def _measured(figures: Figures) -> dict[str, Any]:
    return {
        "ttft_seconds": rounded(figures.ttft),
        "inter_token_seconds": rounded(figures.inter_token),
        "tokens_per_second": {"user": digits(figures.user_rate), "total": digits(figures.total_rate)},
    }


def _cell(outcome: Outcome, speed: SpeedUnderLoad | None, hourly: Decimal | None) -> dict[str, Any]:
    cell, figures, server = outcome.planned.cell, outcome.figures, outcome.server
    price = usd_per_million(hourly, outcome)
    return {
        **dataclasses.asdict(cell),
        "state": outcome.state,
        "reason": outcome.reason,
        "notes": list(outcome.notes),
        "date": outcome.date or None,
        "report": outcome.report or None,
        "requests": figures.requests if figures else None,
        "seconds": digits(figures.seconds) if figures else None,
        "measured": _measured(figures) if figures else None,
        "server": None
        if server is None
        else {
            "ttft_seconds": {"mean": _known(server.ttft_mean), "p95": _known(server.ttft_p95)},
            "inter_token_seconds": {"mean": _known(server.inter_token_mean), "p95": _known(server.inter_token_p95)},
            "prefix_hit_share": _known(server.prefix_hit_share),
        },
        "predicted": _predicted(speed),
        "usd_per_million_output_tokens": None if price is None else f"{price:.4f}",
    }


def _predicted(speed: SpeedUnderLoad | None) -> Mapping[str, Any] | None:
    if speed is None or speed.coverage == "unknown":
        return None
    figures = {
        "ttft_seconds": {"mean": speed.ttft_mean, "p50": speed.ttft_p50, "p95": speed.ttft_p95},
        "inter_token_seconds": {
            "mean": speed.inter_token_mean,
            "p50": speed.inter_token_p50,
            "p95": speed.inter_token_p95,
        },
        "tokens_per_second": {"user": speed.tokens_per_second_user, "total": speed.tokens_per_second_total},
    }
    return {"coverage": speed.coverage} | {
        name: {each: _estimate(value) for each, value in spread.items()} for name, spread in figures.items()
    }


def _estimate(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {name: digits(value) for name, value in dataclasses.asdict(estimate).items()}


def _largest(promise: float, found: LargestLoad) -> dict[str, Any]:
    return {
        "p95_ttft_seconds": promise,
        "users": found.users,
        "kept_runs": found.kept_runs,
        "missed_users": found.missed_users,
        "missed_runs": list(found.missed_runs),
        "late_share_at_most": None if found.late_share is None else digits(found.late_share),
        "sure": found.sure,
        "ended": found.ended,
        "trials": [
            {"users": one.users, "p95_ttft_seconds": digits(one.p95), "requests": one.requests, "late": one.late}
            for one in found.trials
        ],
    }


def _known(value: float | None) -> float | None:
    return None if value is None else digits(value)

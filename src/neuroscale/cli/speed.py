"""`neuroscale speed`: says how fast a model answers while several users ask at once."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroscale.catalog.model_lookup import load_model
from neuroscale.cli.options import (
    AcceleratorOption,
    ArgumentsOption,
    BandwidthOption,
    CountOption,
    InputsOption,
    JsonOption,
    MemoryOption,
    ModelOption,
    VersionOption,
    plain_console,
    print_json,
    say_source,
    split_words,
)
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.planning.fit import PINNED
from neuroscale.planning.fit_question import Question
from neuroscale.planning.speed import Estimate, Load
from neuroscale.planning.speed.load import MOST_USERS
from neuroscale.planning.speed_question import Answer, answer

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def as_mapping(result: Answer) -> dict[str, Any]:
    """The answer for programs: seconds and tokens a second, each with its band; null where nothing is known."""
    speed, load, fit = result.speed, result.speed.load, result.fit
    return {
        "schema_version": 1,
        "model": fit.model,
        "accelerator": fit.accelerator,
        "count": fit.count,
        "vllm_version": fit.version,
        "verdict": fit.verdict,
        "users": load.users,
        "prompt_tokens": load.prompt_tokens,
        "answer_tokens": load.answer_tokens,
        "requests_per_second": load.requests_per_second,
        "ttft_seconds": {
            "mean": _figure(speed.ttft_mean),
            "p50": _figure(speed.ttft_p50),
            "p95": _figure(speed.ttft_p95),
        },
        "inter_token_seconds": {
            "mean": _figure(speed.inter_token_mean),
            "p50": _figure(speed.inter_token_p50),
            "p95": _figure(speed.inter_token_p95),
        },
        "tokens_per_second": {
            "user": _figure(speed.tokens_per_second_user),
            "total": _figure(speed.tokens_per_second_total),
        },
        "largest_users": result.largest_users,
        "requests_at_once": result.replica.held if result.starts else None,
        "coverage": speed.coverage,
        "reasons": list(speed.reasons),
    }


def _figure(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {name: float(f"{value:.4g}") for name, value in dataclasses.asdict(estimate).items()}


def show_speed(
    model: ModelOption,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Tokens of each prompt.", min=1)],
    answer_tokens: Annotated[int, typer.Option("--answer-tokens", help="Tokens of each answer.", min=1)],
    users: Annotated[
        int,
        typer.Option(
            "--users", help="Users who ask at once, each again once the last answer is there.", min=1, max=MOST_USERS
        ),
    ] = 1,
    accelerator: AcceleratorOption = None,
    count: CountOption = None,
    vllm_args: ArgumentsOption = "",
    vllm_version: VersionOption = PINNED,
    memory_gib: MemoryOption = None,
    bandwidth_gbs: BandwidthOption = None,
    tflops: Annotated[
        float | None,
        typer.Option("--tflops", help="Its dense peak of 16-bit operations, in 10^12 a second."),
    ] = None,
    requests_per_second: Annotated[
        float | None,
        typer.Option("--requests-per-second", help="Requests that come in a second, whoever waits: an open load."),
    ] = None,
    p95_ttft: Annotated[
        float | None,
        typer.Option("--p95-ttft", help="Seconds within which 95 of 100 first tokens must come: tells for how many."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw the figures over the users into this file (.svg or .png).")
    ] = None,
    as_json: JsonOption = False,
    repository: InputsOption = None,
) -> int:
    """Say how fast a replica answers under a load: time to the first token, time between tokens, tokens a second. Exit
    status 1: the model does not start, its speed is unknown, or --p95-ttft is not kept."""
    from neuroscale.actions.open_repository import open_inputs

    for option, value in (("--requests-per-second", requests_per_second), ("--p95-ttft", p95_ttft)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError.at("the command line", option, f"{value:g} is not a number above 0", "Write one above 0.")
    if requests_per_second is not None:
        users = MOST_USERS
    opened = open_inputs(repository)
    say_source(opened.catalog_note)
    catalog = opened.catalog
    question = Question(
        model,
        accelerator,
        count,
        split_words(vllm_args),
        vllm_version,
        memory_gib,
        bandwidth_gbs,
        tflops=tflops,
        look_up=partial(load_model, catalog=catalog),
    )
    load = Load(users, prompt_tokens, answer_tokens, requests_per_second)
    result = answer(question, load, p95_ttft, catalog)
    if picture is not None:
        from neuroscale.report.speed_view import write_speed_picture

        write_speed_picture([result.under(each) for each in _ROWS], f"{result.fit.model} on {_where(result)}", picture)
    if as_json:
        print_json(as_mapping(result))
    else:
        from neuroscale.report.speed_view import print_speed

        rows = [result.under(each) for each in sorted({*_ROWS, users})] if requests_per_second is None else []
        print_speed(
            result.speed,
            rows,
            f"{result.fit.model} on {_where(result)}",
            p95_ttft,
            result.largest_users,
            plain_console(),
        )
    late = p95_ttft is not None and (result.speed.ttft_p95 is None or result.speed.ttft_p95.value > p95_ttft)
    return ExitStatus.FINDINGS if late or result.speed.coverage == "unknown" else ExitStatus.PASSED


def _where(result: Answer) -> str:
    return f"{result.fit.count} x {result.fit.accelerator}"

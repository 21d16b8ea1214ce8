"""`neuroscale speed`: says how fast a model answers while several users ask at once."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroscale.catalog import Catalog, ModelEntry
from neuroscale.cli.fit import (
    AcceleratorOption,
    ArgumentsOption,
    BandwidthOption,
    CountOption,
    MemoryOption,
    ModelOption,
    Question,
    VersionOption,
    asked,
    fitted,
)
from neuroscale.cli.options import JsonOption, RepositoryOption, plain_console, print_json
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.planning.fit import PINNED, Fit
from neuroscale.planning.measured import with_measured_speed
from neuroscale.planning.speed import Estimate, Load, ReplicaSpeed, SpeedUnderLoad
from neuroscale.planning.speed.load import MOST_USERS

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Answer:
    """The speed of a replica under a load, and the most users that keep a TTFT (None: not asked for, or unknown).
    `replica`: without what the catalog's `entry` of the model measured (None: the catalog lacks it)."""

    fit: Fit
    replica: ReplicaSpeed
    entry: ModelEntry | None
    speed: SpeedUnderLoad
    largest_users: int | None

    @property
    def starts(self) -> bool:
        return self.fit.verdict != "refused"

    def under(self, users: int) -> SpeedUnderLoad:
        """The speed under the same load with another number of users."""
        load = replace(self.speed.load, users=users, requests_per_second=None)
        return under(with_measured_speed(self.replica, self.entry, load), self.fit, load)


def answer(question: Question, load: Load, p95_ttft: float | None, catalog: Catalog) -> Answer:
    """The answer. Without --max-model-len in the arguments, requests may be as long as fits. Raises InputError."""
    said = asked(question, catalog)
    if said.arguments.max_model_len is None:
        said = replace(said, arguments=replace(said.arguments, max_model_len=-1))
    result = fitted(question, said)
    length = load.prompt_tokens + load.answer_tokens
    if result.verdict != "refused" and length > result.max_model_len:
        raise InputError.at(
            "the command line",
            "--prompt-tokens",
            f"prompt and answer have {length:,} tokens, and a request may have {result.max_model_len:,} here",
            f"Write at most {result.max_model_len} together, or raise --max-model-len in --vllm-args.",
        )
    arguments = replace(said.arguments, max_model_len=result.max_model_len)
    held = max(result.held(length), 1) * arguments.data_parallel_size
    # Other figures than the catalog's make another accelerator, which nobody measured.
    same = question.bandwidth_gbs is None and question.tflops is None
    entry = catalog.models.get(question.model) if same else None
    replica = ReplicaSpeed(said.facts, said.where, arguments, question.vllm_version, held)
    corrected = with_measured_speed(replica, entry, load)
    speed = under(corrected, result, load)
    largest = None
    if p95_ttft is not None and speed.coverage != "unknown":
        largest = corrected.largest_users(load.prompt_tokens, load.answer_tokens, p95_ttft_seconds=p95_ttft)
    return Answer(result, replica, entry, speed, largest)


def under(replica: ReplicaSpeed, result: Fit, load: Load) -> SpeedUnderLoad:
    """The speed under a load; unknown for a model that does not start."""
    if result.verdict == "refused":
        return SpeedUnderLoad(load, "unknown", (f"The model does not start there: {result.reasons[0]}",))
    return replica.under(load)


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
    repository: RepositoryOption = None,
) -> int:
    """Say how fast a replica answers under a load: time to the first token, time between tokens, tokens a second. Exit
    status 1: the model does not start, its speed is unknown, or --p95-ttft is not kept."""
    from neuroscale.cli.open_repository import open_repository

    for option, value in (("--requests-per-second", requests_per_second), ("--p95-ttft", p95_ttft)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError.at("the command line", option, f"{value:g} is not a number above 0", "Write one above 0.")
    if requests_per_second is not None:
        users = MOST_USERS
    question = Question(model, accelerator, count, vllm_args, vllm_version, memory_gib, bandwidth_gbs, tflops=tflops)
    load = Load(users, prompt_tokens, answer_tokens, requests_per_second)
    result = answer(question, load, p95_ttft, open_repository(repository).catalog)
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

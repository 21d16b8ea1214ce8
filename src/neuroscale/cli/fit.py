"""`neuroscale fit`: says whether a model fits an accelerator with given arguments of vLLM."""

from __future__ import annotations

import dataclasses
from functools import partial
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
    PictureOption,
    UsedOption,
    VariablesOption,
    VersionOption,
    plain_console,
    print_json,
    say_source,
    split_words,
)
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.planning.fit import PINNED, Fit
from neuroscale.planning.fit_question import Question, answer


def show_fit(
    model: ModelOption,
    accelerator: AcceleratorOption = None,
    count: CountOption = None,
    vllm_args: ArgumentsOption = "",
    vllm_version: VersionOption = PINNED,
    memory_gib: MemoryOption = None,
    bandwidth_gbs: BandwidthOption = None,
    used_gib: UsedOption = None,
    environment: VariablesOption = None,
    length: Annotated[
        int | None, typer.Option("--length", help="Tell how many requests of this many tokens fit at once.", min=1)
    ] = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
    repository: InputsOption = None,
) -> int:
    """Say whether a model fits an accelerator under vLLM, how much it serves at once, and why. Exit status 1: it does
    not."""
    from neuroscale.actions.open_repository import open_inputs

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
        used_gib,
        tuple(environment or ()),
        look_up=partial(load_model, catalog=catalog),
    )

    result = answer(question, catalog)
    if length is not None and length > result.max_model_len:
        raise InputError.at(
            "the command line",
            "--length",
            f"{length:,} tokens are more than a request may have here, which is {result.max_model_len:,}",
            f"Write at most {result.max_model_len}, or raise --max-model-len in --vllm-args.",
        )
    if picture is not None:
        from neuroscale.report.memory_picture import write_picture

        write_picture(result.memory_gib, f"{result.model} on {result.count} x {result.accelerator}", picture)
    if as_json:
        print_json(as_mapping(result, length))
    else:
        from neuroscale.report.plan_view import print_fit

        print_fit(result, plain_console(), length)
    return ExitStatus.FINDINGS if result.verdict == "refused" else ExitStatus.PASSED


def as_mapping(result: Fit, length: int | None = None) -> dict[str, Any]:
    """The answer for programs: GiB, tokens, and sentences."""
    memory = result.memory_gib.model_dump()
    return {
        "schema_version": 1,
        "verdict": result.verdict,
        "model": result.model,
        "accelerator": result.accelerator,
        "count": result.count,
        "vllm_version": result.version,
        "memory_gib": memory,
        "kv_cache_tokens": result.kv_cache_tokens,
        "max_concurrency": round(result.max_concurrency, 2),
        "max_model_len": result.max_model_len,
        "max_context": result.max_context,
        "max_context_band": list(result.context_band) if result.band_known else None,
        "within_error_band": bool(result.close),
        "confidence": result.confidence,
        "reasons": list(result.reasons),
        "error_band_gib": round(result.band_gib, 2) if result.band_known else None,
        "available_kv_cache_gib": round(result.available_gib, 2),
        "one_request_gib": round(result.request_gib, 2),
        "weights_gib": _rounded(result.weights_gib),
        "overhead_gib": _rounded(result.overhead_gib),
        "offload_seconds_per_step": result.seconds_per_step,
        "requests_at_once": None
        if length is None
        else {"length": length, "requests": round(result.at_once(length), 2)},
        "resolved": dataclasses.asdict(result.resolved),
        "log": list(result.log),
        "choices": [
            {**dataclasses.asdict(choice), "hourly": None if choice.hourly is None else f"{choice.hourly:.4f}"}
            for choice in result.choices
        ],
    }


def _rounded(parts: Any) -> dict[str, float]:
    return {name: round(size, 3) for name, size in parts.items()}

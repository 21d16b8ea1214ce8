"""Reads arguments of releases since 0.8 that the known version no longer has, as those releases did: `read_older`.

Sources: engine/arg_utils.py and entrypoints/openai/cli_args.py of vLLM 0.8.2, 0.8.5, 0.9.2, 0.10.2, 0.11.2, 0.13.0,
0.16.0, 0.19.1, 0.20.2, 0.23.0, 0.25.1 and 0.27.1. An argument stays a problem of the command in releases before 0.8,
and between the last of these releases that had it and the first that did not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neuroscale.vllm.argument_problems import ArgumentProblem

OLDEST = (0, 8, 0)
"""The first release whose arguments are read."""

Values = Mapping[str, Any]
Meaning = Callable[[str, Values], dict[str, Any] | None]
"""Makes the values that a text adds, by vLLM's own names; None if the text cannot be read."""


def _nothing(_text: str, _values: Values) -> dict[str, Any]:
    """The argument does not change the memory of an accelerator."""
    return {}


def _rope_scaling(text: str, values: Values) -> dict[str, Any] | None:
    """A JSON object, whose `type` was the older name of `rope_type` (patch_rope_scaling of transformers_utils)."""
    try:
        scaling = json.loads(text)
    except ValueError:
        return None
    if not isinstance(scaling, dict):
        return None
    named = {"rope_type": scaling["type"]} if "type" in scaling and "rope_type" not in scaling else {}
    return _override("rope_scaling", {**scaling, **named}, values)


def _rope_theta(text: str, values: Values) -> dict[str, Any] | None:
    try:
        return _override("rope_theta", float(text), values)
    except ValueError:
        return None


def _override(key: str, value: Any, values: Values) -> dict[str, Any]:
    return {"hf_overrides": {**(values.get("hf_overrides") or {}), key: value}}


def _redundant_experts(text: str, values: Values) -> dict[str, Any] | None:
    if not text.isdecimal():
        return None
    return {"eplb_config": {**(values.get("eplb_config") or {}), "num_redundant_experts": int(text)}}


def _draft(text: str, _values: Values) -> dict[str, Any]:
    return {"spec_model": text}


def _generation(text: str, _values: Values) -> dict[str, Any] | None:
    return {} if text in ("auto", "generate") else None


def _accelerator(text: str, _values: Values) -> dict[str, Any] | None:
    return {} if text in ("auto", "cuda") else None


def _limits(text: str, values: Values) -> dict[str, Any] | None:
    """`image=4,video=0` (nullable_kvs of engine/arg_utils.py); the spaces of a JSON text are not in it."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(equals and number.strip().isdecimal() for _, equals, number in pairs):
        return None
    said = {name.strip().lower(): int(number) for name, _, number in pairs}
    return {"limit_mm_per_prompt": {**(values.get("limit_mm_per_prompt") or {}), **said}}


def _encoder_data_parallel(_text: str, _values: Values) -> dict[str, Any]:
    return {"mm_encoder_tp_mode": "data"}


_FLAGS: dict[str, tuple[str, Meaning]] = {
    "--calculate-kv-scales": ("0.27.1", _nothing),
    "--disable-async-output-proc": ("0.9.2", _nothing),
    "--disable-frontend-multiprocessing": ("0.9.2", _nothing),
    "--disable-log-requests": ("0.16.0", _nothing),
    "--disable-mm-preprocessor-cache": ("0.11.2", _nothing),
    "--enable-multimodal-encoder-data-parallel": ("0.11.2", _encoder_data_parallel),
    "--enable-reasoning": ("0.9.2", _nothing),
    "--eplb-log-balancedness": ("0.11.2", _nothing),
    "--expand-tools-even-if-tool-choice-none": ("0.9.2", _nothing),
    "--guided-decoding-disable-additional-properties": ("0.9.2", _nothing),
    "--guided-decoding-disable-any-whitespace": ("0.9.2", _nothing),
    "--guided-decoding-disable-fallback": ("0.9.2", _nothing),
    "--multi-step-stream-outputs": ("0.9.2", _nothing),
    "--use-v2-block-manager": ("0.9.2", _nothing),
}
_WITH_A_VALUE: dict[str, tuple[str, Meaning]] = {
    "--device": ("0.9.2", _accelerator),
    "--eplb-step-interval": ("0.11.2", _nothing),
    "--eplb-window-size": ("0.11.2", _nothing),
    "--guided-decoding-backend": ("0.9.2", _nothing),
    "--limit-mm-per-prompt": ("0.9.2", _limits),
    "--logits-processor-pattern": ("0.16.0", _nothing),
    "--max-long-partial-prefills": ("0.25.1", _nothing),
    "--max-num-partial-prefills": ("0.25.1", _nothing),
    "--max-seq-len-to-capture": ("0.9.2", _nothing),
    "--num-lookahead-slots": ("0.11.2", _nothing),
    "--num-redundant-experts": ("0.11.2", _redundant_experts),
    "--num-speculative-tokens": ("0.8.2", _nothing),
    "--rope-scaling": ("0.10.2", _rope_scaling),
    "--rope-theta": ("0.10.2", _rope_theta),
    "--speculative-model": ("0.8.2", _draft),
    "--swap-space": ("0.16.0", _nothing),
    "--task": ("0.11.2", _generation),
    "--tokenizer-pool-extra-config": ("0.9.2", _nothing),
    "--tokenizer-pool-size": ("0.9.2", _nothing),
    "--tokenizer-pool-type": ("0.9.2", _nothing),
}
"""Arguments by their spelling with dashes: the last release that had each, and its meaning. Other old arguments are not
read, such as --num-scheduler-steps, which chose the first engine, --lora-extra-vocab-size and --cuda-graph-sizes."""


def read_older(
    given: Sequence[str], version: str, problems: Sequence[ArgumentProblem], values: Values
) -> tuple[list[ArgumentProblem], dict[str, Any]]:
    """The problems that remain, and the values with the meaning of the older arguments in the release `version`."""
    read, left = dict(values), []
    asked = _numbers(version)
    for problem in problems:
        meaning = _meaning(given, asked, problem, read) if asked >= OLDEST else None
        if meaning is None:
            left.append(problem)
        else:
            read |= meaning
    return left, read


def _meaning(
    given: Sequence[str], asked: tuple[int, ...], problem: ArgumentProblem, values: Values
) -> dict[str, Any] | None:
    if problem.place is None or problem.kind not in ("unknown", "removed", "value", "stray", "incomplete"):
        return None
    option, equals, text = given[problem.place].partition("=")
    option = "--" + option.removeprefix("--").replace("_", "-")
    if option in _FLAGS and problem.kind in ("unknown", "removed"):
        last, means = _FLAGS[option]
        return means("", values) if asked <= _numbers(last) and not equals else None
    if not given[problem.place].startswith("-") and problem.place:
        option, text = "--" + given[problem.place - 1].removeprefix("--").replace("_", "-"), given[problem.place]
    elif not equals and problem.place + 1 < len(given):
        text = given[problem.place + 1]
    if option not in _WITH_A_VALUE or not text:
        return None
    last, means = _WITH_A_VALUE[option]
    return means(text, values) if asked <= _numbers(last) else None


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()

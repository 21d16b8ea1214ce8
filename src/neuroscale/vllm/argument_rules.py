"""Finds faults of a command of vLLM by itself: names and numbers that vLLM refuses, and arguments that conflict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neuroscale.models.facts import ModelFacts
from neuroscale.vllm.argument_conflicts import check_together
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.command_faults import Fault, of_version
from neuroscale.vllm.json_fields import is_one_of, out_of_bounds

_LEAST: Mapping[str, int] = {
    "data_parallel_size_local": 0,
    "kv_cache_memory_bytes": 1,
    "sse_keep_alive_interval": 0,
}


def check_arguments(parsed: Parsed) -> Iterator[Fault]:
    """The faults that do not depend on the model: names, numbers, pairs of arguments, and arguments that a later
    version refuses."""
    values, read = parsed.values, parsed.arguments
    if not read.model and not any(problem.kind == "config" for problem in parsed.problems):
        default = parsed.snapshot.arguments["model"].default
        yield Fault("no-model", "model", f"names no model: vLLM serves its default, {default}", "Name the model.")
    for dest, value in values.items():
        argument = parsed.snapshot.arguments.get(dest)
        bounds = argument.limits if argument is not None else None
        if told := out_of_bounds(bounds or ({"minimum": _LEAST[dest]} if dest in _LEAST else {}), value):
            yield _out_of_range(parsed, dest, told)
    if read.max_model_len is not None and read.max_model_len < 1 and read.max_model_len != -1:
        yield _out_of_range(parsed, "max_model_len", f"{read.max_model_len} is less than 1")
    if parsed.value("enable_auto_tool_choice") and not parsed.value("tool_call_parser"):
        yield Fault(
            "tool-choice-without-parser",
            "enable_auto_tool_choice",
            "--enable-auto-tool-choice without --tool-call-parser: vLLM ends",
            "Add --tool-call-parser, or remove --enable-auto-tool-choice.",
        )
    if parsed.value("enable_log_outputs") and not parsed.value("enable_log_requests"):
        yield Fault(
            "outputs-without-requests",
            "enable_log_outputs",
            "--enable-log-outputs without --enable-log-requests: vLLM ends",
            "Add --enable-log-requests, or remove --enable-log-outputs.",
        )
    yield from of_version(parsed, _known_names(parsed))
    yield from of_version(parsed, check_together(parsed))
    for argument in parsed.snapshot.arguments.values():
        if argument.deprecated and argument.dest in values:
            told = f"{argument.flag} is deprecated: a later vLLM refuses it"
            yield Fault(
                "deprecated-argument", argument.dest, told, "Replace it before the next version.", refused=False
            )


def _out_of_range(parsed: Parsed, dest: str, told: str) -> Fault:
    flag = parsed.snapshot.arguments[dest].flag
    return Fault("argument-range", dest, f"{flag}: {told}", "Write a number that vLLM accepts.")


def _known_names(parsed: Parsed) -> Iterator[Fault]:
    """Names that argparse accepts as any text, and that the server refuses."""
    snapshot = parsed.snapshot
    for dest, known, plugin in (
        ("tool_call_parser", snapshot.tool_parsers, "tool_parser_plugin"),
        ("reasoning_parser", snapshot.reasoning_parsers, "reasoning_parser_plugin"),
        ("quantization", snapshot.quantization_methods, ""),
    ):
        name = parsed.values.get(dest)
        if name and name not in known and not (plugin and parsed.values.get(plugin)):
            yield Fault(
                f"unknown-{dest.replace('_', '-').replace('call-', '')}",
                dest,
                f"{snapshot.arguments[dest].flag}: vLLM {snapshot.version} does not know the name {name!r}",
                f"Write one of {', '.join(sorted(known))}.",
            )
    for argument in snapshot.arguments.values():
        name, names = parsed.values.get(argument.dest), argument.names
        if not name or names is None or is_one_of(names, name) or (names.get("dotted") and "." in name):
            continue
        yield Fault(
            "unknown-name",
            argument.dest,
            f"{argument.flag}: vLLM {snapshot.version} does not know the name {name!r}, and ends",
            f"Write one of {', '.join(names['enum'])}.",
        )


def check_batch(parsed: Parsed, facts: ModelFacts | None) -> Iterator[Fault]:
    """The faults of the tokens of a step. `facts`: give the longest context if the command names none."""
    read, tokens = parsed.arguments, parsed.arguments.max_num_batched_tokens
    longest = read.max_model_len
    if (longest is None or longest == -1) and facts is not None:
        longest = facts.default_context(windows=not parsed.value("disable_sliding_window"))
    threshold = parsed.values.get("long_prefill_token_threshold")
    if threshold and longest is not None and threshold > longest:
        yield Fault(
            "argument-range",
            "long_prefill_token_threshold",
            f"--long-prefill-token-threshold={threshold} is more than the {longest} tokens of a context: vLLM ends",
            f"Write at most {longest}, or remove it.",
        )
    if tokens is None:
        return
    if read.max_num_seqs is not None and tokens < read.max_num_seqs:
        yield Fault(
            "batched-tokens",
            "max_num_batched_tokens",
            f"--max-num-batched-tokens={tokens} is less than --max-num-seqs={read.max_num_seqs}: vLLM ends",
            f"Write at least {read.max_num_seqs}, or fewer requests at a time.",
        )
    whole = parsed.values.get("enable_chunked_prefill") is False
    if whole and longest is not None and tokens < longest:
        yield Fault(
            "whole-prompts",
            "max_num_batched_tokens",
            f"--max-num-batched-tokens={tokens} is less than the {longest} tokens of a context, and without chunked "
            "prefill a prompt must fit into one step: vLLM ends",
            f"Remove --no-enable-chunked-prefill, or write at least {longest}.",
        )

"""Finds faults of a command of vLLM beyond its spelling: in itself, for its model, and on its accelerators.

Each rule names what vLLM (release 0.32) does with such a command: most end its start, some let it answer wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from neuroscale.catalog import ModelEntry
from neuroscale.models.facts import ModelFacts
from neuroscale.vllm.accelerator_rules import Fault, Place, check_accelerator, check_dtype, check_support, of_version
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.known_arguments import is_one_of, out_of_bounds
from neuroscale.vllm.model_rules import check_model, check_parsers, check_shares

_ROLES = ("producer", "consumer", "both")


def check_together(parsed: Parsed) -> Iterator[Fault]:
    """Every fault that needs no model."""
    yield from _nodes(parsed)
    yield from _balancing(parsed)
    yield from _experts(parsed)
    yield from _transfer(parsed)
    yield from _adapters(parsed)
    yield from _serving(parsed)
    yield from _sections(parsed)


def _number(parsed: Parsed, dest: str, default: int = 1) -> int:
    value = parsed.values.get(dest)
    return value if isinstance(value, int) else default


def _section(parsed: Parsed, dest: str) -> dict[str, Any]:
    value = parsed.values.get(dest)
    return value if isinstance(value, dict) else {}


def _nodes(parsed: Parsed) -> Iterator[Fault]:
    tensor, pipeline = _number(parsed, "tensor_parallel_size"), _number(parsed, "pipeline_parallel_size")
    prefill, decode = _number(parsed, "prefill_context_parallel_size"), _number(parsed, "decode_context_parallel_size")
    data, nodes = _number(parsed, "data_parallel_size"), _number(parsed, "nnodes")
    if min(tensor, pipeline, prefill, decode, data, nodes) < 1:
        return  # the rule on ranges reports it
    wrong = tensor % decode if prefill == 1 else decode not in (1, prefill, tensor * prefill)
    if wrong:
        yield Fault(
            "parallel-sizes",
            "decode_context_parallel_size",
            f"--decode-context-parallel-size={decode} does not go with --tensor-parallel-size={tensor}"
            + (f" and --prefill-context-parallel-size={prefill}" if prefill > 1 else "")
            + ": vLLM ends",
            "Remove it, or write a size that divides --tensor-parallel-size.",
        )
    whole = tensor * pipeline * prefill * data
    if nodes > 1 and whole % nodes:
        message = f"--nnodes={nodes} does not divide the {whole} ranks of the parallel sizes: vLLM ends"
        yield Fault("parallel-sizes", "nnodes", message, "Remove --nnodes, or write a number that divides them.")
    rank = _number(parsed, "node_rank", 0)
    if nodes > 1 and not 0 <= rank < nodes:
        message = (
            f"--node-rank={rank} does not name a node: {nodes} nodes have the numbers 0 to {nodes - 1}, and vLLM ends"
        )
        yield Fault("parallel-sizes", "node_rank", message, f"Write a number from 0 to {nodes - 1}.")
    local = parsed.values.get("data_parallel_size_local")
    if isinstance(local, int) and local > data:
        message = f"--data-parallel-size-local={local} is more than --data-parallel-size={data}: vLLM ends"
        yield Fault("parallel-sizes", "data_parallel_size_local", message, f"Write at most {data}.")


def _balancing(parsed: Parsed) -> Iterator[Fault]:
    values, data, nodes = parsed.values, _number(parsed, "data_parallel_size"), _number(parsed, "nnodes")
    external, hybrid = bool(values.get("data_parallel_external_lb")), bool(values.get("data_parallel_hybrid_lb"))
    ranked = values.get("data_parallel_rank") is not None
    told = ""
    dest = "data_parallel_external_lb" if external else "data_parallel_rank"
    if hybrid and (external or ranked):
        told = "and --data-parallel-hybrid-lb do not go together"
    elif external and not ranked and not (data > 1 and nodes > 1):
        told = "names no rank of this server"
    elif (external or ranked) and data <= 1:
        told = "does not go without a --data-parallel-size of 2 or more"
    elif ranked and not 0 <= _number(parsed, "data_parallel_rank", 0) < data:
        told = f"does not name a rank: {data} ranks have the numbers 0 to {data - 1}"
    elif hybrid and values.get("data_parallel_size_local") is None and nodes <= 1:
        dest, told = "data_parallel_hybrid_lb", "does not go without --data-parallel-size-local"
    if told:
        fix = "Remove it, unless each data-parallel rank is served by a pod of its own."
        yield Fault("load-balancing", dest, f"{parsed.snapshot.arguments[dest].flag} {told}: vLLM ends", fix)


def _experts(parsed: Parsed) -> Iterator[Fault]:
    redundant = _section(parsed, "eplb_config").get("num_redundant_experts", 0)
    balanced = bool(parsed.value("enable_eplb"))
    ranks = (
        _number(parsed, "tensor_parallel_size")
        * _number(parsed, "prefill_context_parallel_size")
        * _number(parsed, "data_parallel_size")
    )
    if not balanced and redundant not in (0, "0"):
        message = (
            f"--eplb-config keeps {redundant} experts twice, and without --enable-eplb nothing uses them: vLLM ends"
        )
        yield Fault("expert-balancing", "eplb_config", message, "Remove it, or add --enable-eplb.")
    elif balanced and (not parsed.value("enable_expert_parallel") or ranks <= 1):
        yield Fault(
            "expert-balancing",
            "enable_eplb",
            "--enable-eplb balances experts over ranks, and "
            + ("the command has one rank" if parsed.value("enable_expert_parallel") else "does not spread them")
            + ": vLLM ends",
            "Remove it, or add --enable-expert-parallel and a --tensor-parallel-size of 2 or more.",
        )


def _transfer(parsed: Parsed) -> Iterator[Fault]:
    for dest, kind in (("kv_transfer_config", "kv"), ("ec_transfer_config", "ec")):
        section, flag = _section(parsed, dest), parsed.snapshot.arguments[dest].flag
        connector, role = section.get(f"{kind}_connector"), section.get(f"{kind}_role")
        if connector is not None and role is None:
            roles = ", ".join(f"{kind}_{role}" for role in _ROLES)
            message = f"{flag} names the connector {connector} and no role: vLLM ends"
            yield Fault("transfer-role", dest, message, f"Add {kind}_role: one of {roles}.")
        elif kind == "kv" and connector is not None and not section.get("kv_connector_module_path"):
            known = parsed.snapshot.kv_connectors
            if connector not in known:
                message = f"{flag}: vLLM {parsed.version} has no connector {connector!r}: it ends"
                fix = f"Write one of {', '.join(sorted(known))}, or kv_connector_module_path too."
                yield Fault("unknown-connector", dest, message, fix)
        elif kind == "kv" and role is not None and connector is None:
            yield Fault("transfer-role", dest, f"{flag} names a role and no connector: vLLM ends", "Add kv_connector.")


def _adapters(parsed: Parsed) -> Iterator[Fault]:
    if parsed.values.get("lora_modules") and not parsed.value("enable_lora"):
        message, fix = "--lora-modules without --enable-lora: vLLM ends", "Add --enable-lora, or remove --lora-modules."
        yield Fault("adapters-without-lora", "lora_modules", message, fix)


def _serving(parsed: Parsed) -> Iterator[Fault]:
    values = parsed.values
    servers = values.get("api_server_count")
    headless = bool(values.get("headless"))
    if headless and servers is not None and servers > 0:
        message, fix = f"--api-server-count={servers} and --headless: vLLM ends", "Remove one of them."
        yield Fault("answers-nobody", "api_server_count", message, fix)
    elif (headless or (servers is not None and servers < 1)) and not _one_of_several(parsed):
        message = f"{'--headless' if headless else f'--api-server-count={servers}'}: vLLM listens on no port"
        fix = "Remove it, unless another pod of the same server answers."
        yield Fault("answers-nobody", "headless" if headless else "api_server_count", message, fix)
    config = values.get("attention_config")
    if values.get("attention_backend") not in (None, "auto") and isinstance(config, dict) and config.get("backend"):
        message, fix = "--attention-backend and --attention-config.backend: vLLM ends", "Remove one of them."
        yield Fault("said-twice", "attention_backend", message, fix)
    extra = values.get("additional_config", {})
    if not isinstance(extra, dict):
        message = f"--additional-config={extra} is not a JSON object: vLLM ends"
        yield Fault("additional-config", "additional_config", message, "Write a JSON object, or remove it.")
    active, most = values.get("max_num_active_seqs"), values.get("max_num_seqs")
    if isinstance(active, int) and isinstance(most, int) and active > most:
        message = f"--max-num-active-seqs={active} is more than --max-num-seqs={most}: vLLM ends"
        yield Fault("argument-range", "max_num_active_seqs", message, f"Write at most {most}.")


def _sections(parsed: Parsed) -> Iterator[Fault]:
    """Faults between fields of one configuration."""
    profiler, folder = (_section(parsed, "profiler_config").get(key) for key in ("profiler", "torch_profiler_dir"))
    if (profiler == "torch") != bool(folder):
        message = "--profiler-config: profiler: torch and torch_profiler_dir do not go without each other: vLLM ends"
        yield Fault("settings-together", "profiler_config", message, "Write both, or remove them.")
    outputs = _section(parsed, "structured_outputs_config")
    backend = outputs.get("backend", "auto")
    for key, backends in (
        ("disable_any_whitespace", ("xgrammar", "guidance")),
        ("disable_additional_properties", ("guidance",)),
    ):
        if outputs.get(key) is True and backend not in backends:
            message = f"--structured-outputs-config: {key} does not go with the backend {backend}: vLLM ends"
            fix = f"Add the backend {' or '.join(backends)}."
            yield Fault("settings-together", "structured_outputs_config", message, fix)


def _one_of_several(parsed: Parsed) -> bool:
    """Whether the command mentions other pods of the same server."""
    named = ("data_parallel_start_rank", "data_parallel_address", "data_parallel_rank", "data_parallel_size_local")
    return _number(parsed, "nnodes") > 1 or any(parsed.values.get(dest) is not None for dest in named)


_LEAST: Mapping[str, int] = {"data_parallel_size_local": 0, "kv_cache_memory_bytes": 1, "sse_keep_alive_interval": 0}


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
        message = "--enable-auto-tool-choice without --tool-call-parser: vLLM ends"
        fix = "Add --tool-call-parser, or remove --enable-auto-tool-choice."
        yield Fault("tool-choice-without-parser", "enable_auto_tool_choice", message, fix)
    if parsed.value("enable_log_outputs") and not parsed.value("enable_log_requests"):
        message = "--enable-log-outputs without --enable-log-requests: vLLM ends"
        fix = "Add --enable-log-requests, or remove --enable-log-outputs."
        yield Fault("outputs-without-requests", "enable_log_outputs", message, fix)
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
            message = f"{snapshot.arguments[dest].flag}: vLLM {snapshot.version} does not know the name {name!r}"
            fix = f"Write one of {', '.join(sorted(known))}."
            yield Fault(f"unknown-{dest.replace('_', '-').replace('call-', '')}", dest, message, fix)
    for argument in snapshot.arguments.values():
        name, names = parsed.values.get(argument.dest), argument.names
        if not name or names is None or is_one_of(names, name) or (names.get("dotted") and "." in name):
            continue
        message = f"{argument.flag}: vLLM {snapshot.version} does not know the name {name!r}, and ends"
        yield Fault("unknown-name", argument.dest, message, f"Write one of {', '.join(names['enum'])}.")


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
        message = f"--max-num-batched-tokens={tokens} is less than --max-num-seqs={read.max_num_seqs}: vLLM ends"
        fix = f"Write at least {read.max_num_seqs}, or fewer requests at a time."
        yield Fault("batched-tokens", "max_num_batched_tokens", message, fix)
    whole = parsed.values.get("enable_chunked_prefill") is False
    if whole and longest is not None and tokens < longest:
        yield Fault(
            "whole-prompts",
            "max_num_batched_tokens",
            f"--max-num-batched-tokens={tokens} is less than the {longest} tokens of a context, and without chunked "
            "prefill a prompt must fit into one step: vLLM ends",
            f"Remove --no-enable-chunked-prefill, or write at least {longest}.",
        )


BY_ABSENCE = frozenset(
    {
        *("no-model", "tool-choice-without-parser", "outputs-without-requests", "adapters-without-lora"),
        *("parallel-sizes", "load-balancing", "expert-balancing", "answers-nobody"),
        *("context-parallelism", "whole-prompts"),
    }
)
"""Rules that report a missing argument: words that cannot be read may contain it."""


def check_command(
    parsed: Parsed,
    facts: ModelFacts | None = None,
    entry: ModelEntry | None = None,
    place: Place | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[Fault, ...]:
    """The faults of a command. A parameter of None leaves out the rules that need it. `entry`: the catalog's entry."""
    faults = [*check_arguments(parsed), *check_batch(parsed, facts)]
    if facts is not None:
        faults += check_model(parsed, facts, variables or {})
        faults += check_parsers(parsed, facts, entry)
        faults += check_shares(parsed, facts)
    if place is not None:
        faults += check_accelerator(parsed, place)
        if facts is not None:
            faults += check_dtype(parsed, facts, place.accelerator)
        if entry is not None:
            faults += check_support(entry, place.accelerator)
    return tuple(faults)

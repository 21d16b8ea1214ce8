"""What is wrong with a command of vLLM beside its spelling: with itself, for its model, and on its accelerators.

Each rule names what vLLM (release 0.32) does with such a command: most end its start, some let it answer wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from neuroscale.catalog import Accelerator, ModelEntry
from neuroscale.core.errors import InputError
from neuroscale.models.facts import ModelFacts
from neuroscale.models.overrides import with_overrides
from neuroscale.vllm.argument_conflicts import check_together
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.command_faults import Fault
from neuroscale.vllm.json_fields import is_one_of, out_of_bounds
from neuroscale.vllm.output_parsers import reasoning_of, tools_of
from neuroscale.vllm.quantization_rules import check_groups, check_quantization

TOPOLOGY = "cloud.google.com/gke-tpu-topology"
LARGEST_ITEM: Mapping[str, int] = {"gemma4": 2496}
"""Tokens of the largest image or video of the families that vLLM lets compute one in a single step only, by what their
model type begins with. Gemma 4: a video; a start with 2,048 fails (https://github.com/xbill9/gemma4-tips)."""

BY_ABSENCE = frozenset(
    {
        *("no-model", "tool-choice-without-parser", "outputs-without-requests", "adapters-without-lora"),
        *("parallel-sizes", "load-balancing", "expert-balancing", "answers-nobody"),
        *("context-parallelism", "whole-prompts"),
    }
)
"""Rules that words which cannot be read may satisfy."""
_LEAST: Mapping[str, int] = {
    "data_parallel_size_local": 0,
    "kv_cache_memory_bytes": 1,
    "sse_keep_alive_interval": 0,
}
_EACH_POD = frozenset(
    {
        "nnodes",
        "data_parallel_size_local",
        "data_parallel_rank",
        "data_parallel_start_rank",
        "data_parallel_hybrid_lb",
        "data_parallel_external_lb",
        "headless",
    }
)
"""Arguments of a command that each pod of a server has one of."""


@dataclass(frozen=True)
class Place:
    """Where a command runs: an accelerator, how many of it the pod has, and in how many such pods one server runs."""

    accelerator: Accelerator
    count: int
    pods: int = 1


def check_command(
    parsed: Parsed,
    facts: ModelFacts | None = None,
    entry: ModelEntry | None = None,
    place: Place | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[Fault, ...]:
    """Every fault that can be told by what is given; None leaves out what depends on it. `entry`: of the catalog."""
    faults = [*_of_itself(parsed), *_batch(parsed, facts)]
    if facts is not None:
        faults += _for_model(parsed, facts, variables or {})
        faults += _parsers(parsed, facts, entry)
        faults += _shares(parsed, facts)
    if place is not None:
        faults += _on(parsed, place)
        if entry is not None:
            faults += _supported(entry, place.accelerator)
    return tuple(faults)


def world_size(parsed: Parsed) -> int:
    """The accelerators of one server in all its pods: ranks of tensor, pipeline and context parallelism, by data."""
    return pod_ranks(parsed) * _number(parsed, "nnodes", 1)


def pod_ranks(parsed: Parsed) -> int:
    """The ranks that the command runs in one pod, of all replicas there."""
    return ranks(parsed) * local_data_parallel(parsed)


def ranks(parsed: Parsed) -> int:
    """The ranks of one replica inside a server that one pod (or node) holds."""
    read = parsed.arguments
    whole = (
        read.tensor_parallel_size * read.pipeline_parallel_size * _number(parsed, "prefill_context_parallel_size", 1)
    )
    return max(whole // _number(parsed, "nnodes", 1), 1)


def local_data_parallel(parsed: Parsed) -> int:
    """How many data-parallel replicas run in one pod."""
    if "data_parallel_rank" in parsed.values:
        return 1
    return _number(parsed, "data_parallel_size_local", 0) or parsed.arguments.data_parallel_size


def reaches_all_pods(parsed: Parsed) -> bool:
    """Whether one command runs in all pods of its server, where it has several."""
    return not _EACH_POD & set(parsed.values)


def _number(parsed: Parsed, dest: str, default: int) -> int:
    value = parsed.values.get(dest)
    return value if isinstance(value, int) and value > 0 else default


def _of_version(parsed: Parsed, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Remarks where the version is not known: what one version refuses may be right for another."""
    return (replace(fault, refused=fault.refused and parsed.exact) for fault in faults)


def _of_itself(parsed: Parsed) -> Iterator[Fault]:
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
    yield from _of_version(parsed, _known_names(parsed))
    yield from _of_version(parsed, check_together(parsed))
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
    """Names that argparse takes for any text, and the server refuses."""
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
                f"{snapshot.arguments[dest].flag}: vLLM {snapshot.version} has none of the name {name!r}",
                f"Write one of {', '.join(sorted(known))}.",
            )
    for argument in snapshot.arguments.values():
        name, names = parsed.values.get(argument.dest), argument.names
        if not name or names is None or is_one_of(names, name) or (names.get("dotted") and "." in name):
            continue
        yield Fault(
            "unknown-name",
            argument.dest,
            f"{argument.flag}: vLLM {snapshot.version} has none of the name {name!r}: vLLM ends",
            f"Write one of {', '.join(names['enum'])}.",
        )


def _batch(parsed: Parsed, facts: ModelFacts | None) -> Iterator[Fault]:
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


def _for_model(parsed: Parsed, facts: ModelFacts, variables: Mapping[str, str]) -> Iterator[Fault]:
    read = parsed.arguments
    yield from _of_version(parsed, _architecture(parsed, facts))
    yield from _length(parsed, facts, variables)
    yield from _images(parsed, facts)
    if read.enable_expert_parallel and facts.kind == "dense":
        yield Fault(
            "expert-parallelism",
            "enable_expert_parallel",
            f"--enable-expert-parallel for {facts.name}, which is dense: vLLM ends",
            "Remove --enable-expert-parallel.",
        )
    elif read.enable_expert_parallel and ranks(parsed) * read.data_parallel_size == 1:
        yield Fault(
            "expert-parallelism",
            "enable_expert_parallel",
            "--enable-expert-parallel does nothing on one accelerator: experts are spread over the ranks of tensor and "
            "data parallelism",
            "Remove it, or raise --tensor-parallel-size.",
            refused=False,
        )
    if facts.kind == "moe" and facts.model_type.startswith("gemma4") and read.data_parallel_size > 1:
        yield Fault(
            "data-parallelism",
            "data_parallel_size",
            f"--data-parallel-size={read.data_parallel_size} for a mixture of experts of Gemma 4: it crashes at its "
            "start (AssertionError: 1 != 36, vllm-project/vllm#38999)",
            "Remove the data-parallel arguments; add replicas or --tensor-parallel-size instead.",
        )
    yield from _ranks(parsed, facts)
    yield from _of_version(parsed, check_quantization(parsed, facts))


def _ranks(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    read, spread = parsed.arguments, _number(parsed, "decode_context_parallel_size", 1)
    alone = parsed.value("data_parallel_external_lb") or "data_parallel_rank" in parsed.values
    if facts.kind == "dense" and read.data_parallel_size > 1 and alone:
        yield Fault(
            "data-parallelism",
            "data_parallel_size",
            f"--data-parallel-size={read.data_parallel_size} with a rank or balancer of its own for {facts.name}, "
            "which is dense: vLLM ends",
            "Remove the data-parallel arguments and add replicas.",
        )
    latent = any(layers.kind == "latent" for layers in facts.cache)
    if spread > 1 and not latent and facts.kv_heads and spread > read.tensor_parallel_size // facts.kv_heads:
        yield Fault(
            "context-parallelism",
            "decode_context_parallel_size",
            f"--decode-context-parallel-size={spread} spreads the cache of {facts.name} over ranks that hold the same "
            f"of its {facts.kv_heads} KV heads, and there are not as many: vLLM ends",
            "Remove it, or raise --tensor-parallel-size.",
        )


def _architecture(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    snapshot = parsed.snapshot
    if not facts.architectures or snapshot.architectures & set(facts.architectures):
        return
    removed = next((name for name in facts.architectures if name in snapshot.removed_architectures), None)
    if removed is None:
        yield Fault(
            "architecture",
            "model",
            f"vLLM {parsed.version} has no {' or '.join(facts.architectures)}: at best it runs Transformers' own code",
            "Serve a model that it has, and measure this one first.",
            refused=False,
        )
        return
    own_code = bool(parsed.value("trust_remote_code"))
    yield Fault(
        "architecture",
        "model",
        f"vLLM {parsed.version} does not serve {removed} any more; {snapshot.removed_architectures[removed]} was the "
        "last version that did: " + ("at best it runs the model's own code" if own_code else "vLLM ends"),
        "Serve another model, or pin that version.",
        refused=not own_code and parsed.value("model_impl") != "terratorch",
    )


def _length(parsed: Parsed, facts: ModelFacts, variables: Mapping[str, str]) -> Iterator[Fault]:
    asked, overrides = parsed.arguments.max_model_len, parsed.arguments.hf_overrides
    if overrides:
        try:
            facts = with_overrides(facts, overrides)
        except InputError as error:
            told = " and ".join(f"{problem.field}: {problem.message}" for problem in error.problems)
            yield Fault("hf-overrides", "hf_overrides", f"--hf-overrides: {told}", "Write what a config may hold.")
            return
    most = facts.longest_context(windows=not parsed.arguments.disable_sliding_window)
    if asked is None or asked <= most:
        return
    forced = length_is_forced(parsed, variables)
    yield Fault(
        "context-length",
        "max_model_len",
        f"--max-model-len={asked} is more than the {most} tokens that {facts.name} reads"
        + (": what it answers beyond them is not known" if forced else ": vLLM ends"),
        f"Write --max-model-len={most} or less.",
        refused=not forced,
    )


def length_is_forced(parsed: Parsed, variables: Mapping[str, str]) -> bool:
    """Whether vLLM may take a longer context than the model's config says."""
    allowed = variables.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "").strip().lower()
    overridden = "hf_overrides" in parsed.values and not parsed.arguments.hf_overrides
    return overridden or allowed in ("1", "true")


def _images(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    read, limits = parsed.arguments, parsed.values.get("limit_mm_per_prompt")
    if isinstance(limits, dict):
        for kind, limit in limits.items():
            count = limit.get("count", 999) if isinstance(limit, dict) else limit
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                yield Fault(
                    "media-limit",
                    "limit_mm_per_prompt",
                    f"--limit-mm-per-prompt: {count!r} is no number of {kind}s",
                    "Write a whole number, 0 for none.",
                )
        if not facts.multimodal and any(limits.values()):
            yield Fault(
                "media-limit",
                "limit_mm_per_prompt",
                f"--limit-mm-per-prompt for {facts.name}, which takes text alone",
                "Remove it.",
                refused=False,
            )
    elif limits is not None:
        yield Fault(
            "media-limit", "limit_mm_per_prompt", "--limit-mm-per-prompt is not a JSON object", "Write one such as {}."
        )
    largest = next((size for family, size in LARGEST_ITEM.items() if facts.model_type.startswith(family)), None)
    tokens = read.max_num_batched_tokens
    text_alone = read.language_model_only or (read.images == 0 and read.videos == 0)
    if facts.multimodal and largest and tokens is not None and tokens < largest and not text_alone and read.videos != 0:
        yield Fault(
            "batched-tokens",
            "max_num_batched_tokens",
            f"--max-num-batched-tokens={tokens} is less than the {largest} tokens of a video of {facts.name}, which is "
            "computed in one step: vLLM ends",
            f"Write at least {largest}, or --limit-mm-per-prompt.video=0 with --limit-mm-per-prompt.image=0.",
        )


def _parsers(parsed: Parsed, facts: ModelFacts, entry: ModelEntry | None) -> Iterator[Fault]:
    """A parser that reads another family's format finds no tool call, or takes answers for reasoning."""
    serving = entry.serving if entry else None
    for dest, own, families in (
        ("tool_call_parser", serving.tool_call_parser if serving else None, tools_of),
        ("reasoning_parser", serving.reasoning_parser if serving else None, reasoning_of),
    ):
        name = parsed.values.get(dest)
        if not name or name == own:
            continue
        theirs = families(name)
        if own is None and (not theirs or facts.model_type.startswith(theirs)):
            continue
        what = "tool calls" if dest == "tool_call_parser" else "reasoning"
        reads = f", which reads that of {' and '.join(theirs)}" if theirs else ""
        yield Fault(
            "parser",
            dest,
            f"{parsed.snapshot.arguments[dest].flag}={name}{reads}: it does not understand the {what} of {facts.name}",
            f"Write {own}." if own else "Remove it, or write the parser of this model's family.",
        )


def _shares(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    """What tensor parallelism must divide."""
    size, read = parsed.arguments.tensor_parallel_size, parsed.arguments
    if size <= 1:
        return
    if facts.heads % size:
        yield _undivided("attention-heads", f"the {facts.heads} attention heads of {facts.name}", size)
        return
    for heads in sorted({layers.kv_heads for layers in facts.cache if layers.kind != "latent"}):
        if heads and heads % size and size % heads:
            yield _undivided("kv-heads", f"the {heads} KV heads of {facts.name}", size)
    spread = read.enable_expert_parallel
    for what, width in (
        ("MLP", facts.intermediate_size),
        ("experts", 0 if spread else facts.moe_intermediate_size),
    ):
        if width and width % size:
            yield _undivided("layer-width", f"the width {width} of the {what} of {facts.name}", size)
    yield from check_groups(parsed, facts, size, spread)


def _undivided(rule: str, what: str, size: int) -> Fault:
    return Fault(
        rule,
        "tensor_parallel_size",
        f"--tensor-parallel-size={size} does not divide {what}: vLLM ends",
        "Write a size that divides it.",
    )


def _on(parsed: Parsed, place: Place) -> Iterator[Fault]:
    accelerator = place.accelerator
    dtype = parsed.arguments.kv_cache_dtype
    known = set(accelerator.kv_cache_dtypes)
    if dtype.startswith("fp8") and "fp8" not in known:
        yield Fault(
            "kv-cache-dtype",
            "kv_cache_dtype",
            f"--kv-cache-dtype={dtype}: {accelerator.title} keeps no KV cache in fp8",
            "Remove --kv-cache-dtype, or choose an accelerator that does.",
        )
    elif not dtype.startswith("fp8") and dtype not in ("auto", "bfloat16", "float16"):
        yield Fault(
            "kv-cache-dtype",
            "kv_cache_dtype",
            f"--kv-cache-dtype={dtype}: whether {accelerator.title} can keep that is not known to the catalog",
            "Write auto or fp8, or measure it first.",
            refused=False,
        )
    if accelerator.family == "cpu":
        return
    yield from _count(parsed, place)


def _count(parsed: Parsed, place: Place) -> Iterator[Fault]:
    accelerator = place.accelerator
    used, there = pod_ranks(parsed), place.count
    if reaches_all_pods(parsed):
        there *= place.pods
    topology = accelerator.node_selector.get(TOPOLOGY, "")
    chips = prod(int(part) for part in topology.split("x")) if topology else 0
    size = parsed.arguments.tensor_parallel_size
    if accelerator.family == "tpu" and chips and size != chips:
        yield Fault(
            "tpu-topology",
            "tensor_parallel_size",
            f"--tensor-parallel-size={size} on a TPU slice of the topology {topology}: the model runs on all of its "
            f"{chips} chips or does not start",
            f"Write --tensor-parallel-size={chips}.",
        )
    elif used != there:
        more = used > there
        yield Fault(
            "accelerator-count",
            "tensor_parallel_size",
            f"the command runs on {used} accelerators and the pod asks for {there}: "
            + ("vLLM ends" if more else f"{there - used} of them idle and cost"),
            f"Ask for {used}, or change the parallel sizes to {there}.",
        )


def _supported(entry: ModelEntry, accelerator: Accelerator) -> Iterator[Fault]:
    if accelerator.family not in entry.serving.families:
        yield Fault(
            "accelerator-family",
            "model",
            f"{entry.name} is not known to run on {accelerator.title}",
            f"Choose an accelerator of the kinds {', '.join(entry.serving.families)}.",
        )
    if entry.checkpoint.quantization not in accelerator.quantizations:
        yield Fault(
            "quantization",
            "model",
            f"{entry.name} is quantised as {entry.checkpoint.quantization}, which {accelerator.title} does not compute",
            f"Choose a model that is one of {', '.join(accelerator.quantizations)}, or another accelerator.",
        )

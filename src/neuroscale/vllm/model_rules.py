"""Finds faults of a command of vLLM for the model that it serves.

Its lists hold the parsers that vLLM 0.32 (vllm/tool_parsers, vllm/reasoning) names for one family of models. Others
(hermes, pythonic, hf, xlam, deepseek_r1) read the format of many families, or of fine-tunes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neuroscale.catalog import ModelEntry
from neuroscale.core.errors import InputError
from neuroscale.models.cache_bytes import undivided
from neuroscale.models.facts import ModelFacts
from neuroscale.models.hf_overrides import with_overrides
from neuroscale.vllm.accelerator_rules import (
    Fault,
    check_groups,
    check_quantization,
    of_version,
    positive_number,
    ranks,
)
from neuroscale.vllm.arguments import Parsed

TOOLS: Mapping[str, tuple[str, ...]] = {
    "apertus": ("apertus",),
    "cohere_command3": ("cohere",),
    "cohere_command4": ("cohere",),
    "deepseek_v3": ("deepseek_v3",),
    "deepseek_v31": ("deepseek_v3",),
    "deepseek_v32": ("deepseek_v3", "deepseek_v32"),
    "ernie45": ("ernie4_5",),
    "functiongemma": ("gemma3",),
    "gemma4": ("gemma4",),
    "glm45": ("glm4_moe", "glm4v_moe"),
    "glm47": ("glm4_moe", "glm4v_moe"),
    "granite": ("granite",),
    "granite-20b-fc": ("gpt_bigcode", "granite"),
    "granite4": ("granite",),
    "hunyuan_a13b": ("hunyuan",),
    "internlm": ("internlm",),
    "jamba": ("jamba",),
    "kimi_k2": ("deepseek_v3", "kimi_k2"),
    "llama3_json": ("llama", "mllama"),
    "llama4_json": ("llama", "mllama"),
    "llama4_pythonic": ("llama4",),
    "minimax_m2": ("minimax_m2",),
    "mistral": ("mistral", "mixtral", "ministral", "pixtral", "llama"),
    "olmo3": ("olmo",),
    "openai": ("gpt_oss",),
    "phi4_mini_json": ("phi",),
    "qwen3_coder": ("qwen3",),
    "qwen3_xml": ("qwen3",),
    "seed_oss": ("seed_oss",),
}
"""The beginnings of the model types whose tool calls a parser reads, for parsers of one family."""
REASONING: Mapping[str, tuple[str, ...]] = {
    "cohere_command3": ("cohere",),
    "cohere_command4": ("cohere",),
    "ernie45": ("ernie4_5",),
    "gemma4": ("gemma4",),
    "glm45": ("glm4",),
    "glm47": ("glm4",),
    "granite": ("granite",),
    "hunyuan_a13b": ("hunyuan",),
    "kimi_k2": ("deepseek_v3", "kimi_k2"),
    "minimax_m2": ("minimax_m2",),
    "minimax_m2_append_think": ("minimax_m2",),
    "mistral": ("mistral", "mixtral", "ministral", "pixtral", "llama"),
    "olmo3": ("olmo",),
    "openai_gptoss": ("gpt_oss",),
    "qwen3": ("qwen",),
    "seed_oss": ("seed_oss",),
}
"""The same for reasoning."""


LARGEST_ITEM: Mapping[str, int] = {"gemma4": 2496}
"""Tokens of the largest image or video of families that must compute each in a single step, by the beginning of their
model type. Gemma 4: a video; a start with 2,048 fails (https://github.com/xbill9/gemma4-tips)."""


def check_model(parsed: Parsed, facts: ModelFacts, variables: Mapping[str, str]) -> Iterator[Fault]:
    """Faults of architecture, context, media, experts and quantisation. `variables`: the server's environment."""
    read = parsed.arguments
    yield from of_version(parsed, _architecture(parsed, facts))
    yield from _length(parsed, facts, variables)
    yield from _images(parsed, facts)
    if read.enable_expert_parallel and facts.kind == "dense":
        message = f"--enable-expert-parallel for {facts.name}, which is dense: vLLM ends"
        yield Fault("expert-parallelism", "enable_expert_parallel", message, "Remove --enable-expert-parallel.")
    elif read.enable_expert_parallel and ranks(parsed) * read.data_parallel_size == 1:
        message = (
            "--enable-expert-parallel does nothing on one accelerator: experts are spread over the ranks of tensor and "
            "data parallelism"
        )
        fix = "Remove it, or raise --tensor-parallel-size."
        yield Fault("expert-parallelism", "enable_expert_parallel", message, fix, refused=False)
    if facts.kind == "moe" and facts.model_type.startswith("gemma4") and read.data_parallel_size > 1:
        yield Fault(
            "data-parallelism",
            "data_parallel_size",
            f"--data-parallel-size={read.data_parallel_size} for a mixture of experts of Gemma 4: it crashes at the "
            "first request (AssertionError: 1 != 36, vllm-project/vllm#38999)",
            "Remove the data-parallel arguments; add replicas or --tensor-parallel-size instead.",
        )
    yield from _ranks(parsed, facts)
    yield from of_version(parsed, check_quantization(parsed, facts))


def _ranks(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    read, spread = parsed.arguments, positive_number(parsed, "decode_context_parallel_size", 1)
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
            f"of its {facts.kv_heads} KV heads, and needs at least as many of them: vLLM ends",
            "Remove it, or raise --tensor-parallel-size.",
        )


def _architecture(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    snapshot = parsed.snapshot
    if not facts.architectures or snapshot.architectures & set(facts.architectures):
        return
    removed = next((name for name in facts.architectures if name in snapshot.removed_architectures), None)
    if removed is None:
        message = (
            f"vLLM {parsed.version} has no {' or '.join(facts.architectures)}: at best it runs Transformers' own code"
        )
        fix = "Serve a model that it has, and measure this one first."
        yield Fault("architecture", "model", message, fix, refused=False)
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
    message = f"--max-model-len={asked} is more than the {most} tokens that {facts.name} reads" + (
        ": what it answers beyond them is not known" if forced else ": vLLM ends"
    )
    fix = f"Write --max-model-len={most} or less."
    yield Fault("context-length", "max_model_len", message, fix, refused=not forced)


def length_is_forced(parsed: Parsed, variables: Mapping[str, str]) -> bool:
    """Whether vLLM may allow a longer context than the model's config gives."""
    allowed = variables.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "").strip().lower()
    overridden = "hf_overrides" in parsed.values and not parsed.arguments.hf_overrides
    return overridden or allowed in ("1", "true")


def _images(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    read, limits = parsed.arguments, parsed.values.get("limit_mm_per_prompt")
    if isinstance(limits, dict):
        for kind, limit in limits.items():
            count = limit.get("count", 999) if isinstance(limit, dict) else limit
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                message = f"--limit-mm-per-prompt: {count!r} is not a number of {kind}s"
                yield Fault("media-limit", "limit_mm_per_prompt", message, "Write a whole number, 0 for none.")
        if not facts.multimodal and any(limits.values()):
            message, fix = f"--limit-mm-per-prompt for {facts.name}, which takes text alone", "Remove it."
            yield Fault("media-limit", "limit_mm_per_prompt", message, fix, refused=False)
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


def check_parsers(parsed: Parsed, facts: ModelFacts, entry: ModelEntry | None) -> Iterator[Fault]:
    """Faults of parsers: one for another family's format finds no tool calls, or takes answers for reasoning."""
    serving = entry.serving if entry else None
    for dest, own, families in (
        ("tool_call_parser", serving.tool_call_parser if serving else None, TOOLS),
        ("reasoning_parser", serving.reasoning_parser if serving else None, REASONING),
    ):
        name = parsed.values.get(dest)
        if not name or name == own:
            continue
        theirs = families.get(name, ())
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


def check_shares(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    """Faults of sizes that tensor parallelism must divide, and does not."""
    size, read = parsed.arguments.tensor_parallel_size, parsed.arguments
    if size <= 1:
        return
    if facts.heads % size:
        yield _undivided("attention-heads", f"the {facts.heads} attention heads of {facts.name}", size)
        return
    for heads in sorted({layers.kv_heads for layers in facts.cache if not layers.on_every_rank}):
        if heads and heads % size and size % heads:
            yield _undivided("kv-heads", f"the {heads} KV heads of {facts.name}", size)
    for what in dict.fromkeys(undivided(state, size) for state in facts.states):
        if what:
            yield _undivided("states", f"the {what} of {facts.name}", size)
    spread = read.enable_expert_parallel
    for what, width in (("MLP", facts.intermediate_size), ("experts", 0 if spread else facts.moe_intermediate_size)):
        if width and width % size:
            yield _undivided("layer-width", f"the width {width} of the {what} of {facts.name}", size)
    yield from check_groups(parsed, facts, size, spread)


def _undivided(rule: str, what: str, size: int) -> Fault:
    message, fix = f"--tensor-parallel-size={size} does not divide {what}: vLLM ends", "Write a size that divides it."
    return Fault(rule, "tensor_parallel_size", message, fix)

"""Finds arguments that vLLM refuses before it measures any memory."""

from __future__ import annotations

from neuroscale.models.cache_bytes import undivided
from neuroscale.models.facts import ModelFacts
from neuroscale.models.mixers import BLOCK as COMPRESSED_BLOCK
from neuroscale.planning.fit.argument_defaults import VIDEO_TOKENS, Resolved, looks_both_ways, prefix_caching
from neuroscale.planning.fit.drafts import draft_method
from neuroscale.planning.fit.kv_cache import is_compressed
from neuroscale.planning.fit.rank import Rank
from neuroscale.planning.fit.sparse import BLOCK as SPARSE_BLOCK
from neuroscale.planning.fit.sparse import has_indexer, no_kernels
from neuroscale.vllm.engine_arguments import EngineArguments

_WITHOUT_STAGES = "Mamba2ForCausalLM"
"""The planned architecture without SupportsPP in vLLM 0.32 (model_executor/models/mamba2.py)."""


def unsupported(rank: Rank) -> list[str]:
    """The reasons why vLLM would not start with these arguments with any memory, each as a complete sentence."""
    facts, device, arguments, resolved = rank.facts, rank.device, rank.arguments, rank.resolved
    ranks = arguments.tensor_parallel_size
    reasons = []
    if facts.config is not None and facts.config.get("speculators_model_type"):
        reasons.append(
            f"{facts.name} guesses tokens for another model (speculators_model_type): vLLM serves that model in its "
            "place. Plan the model that its speculators_config.verifier names."
        )
    if facts.heads % ranks:
        reasons.append(f"The {facts.heads} attention heads of {facts.name} cannot be split over {ranks} ranks.")
    reasons += _kv_heads(facts, facts.name, ranks)
    reasons += _draft(facts, arguments)
    if lacking := no_kernels(facts, device):
        reasons.append(lacking)
    if has_indexer(facts) and resolved.block_size % SPARSE_BLOCK:
        reasons.append(f"--block-size={resolved.block_size} is not a multiple of {SPARSE_BLOCK}, which indexers need.")
    reasons += _compressed(facts, arguments, resolved)
    reasons += _states(facts, arguments)
    reasons += _long_blocks(rank)
    reasons += _shared_context(facts, arguments, resolved)
    if arguments.pipeline_parallel_size > 1 and _WITHOUT_STAGES in facts.architectures:
        reasons.append(f"vLLM cannot deal the layers of {facts.name} ({facts.model_type}) to several stages.")
    elif arguments.pipeline_parallel_size > facts.num_layers:
        reasons.append(
            f"The {facts.num_layers} layers of {facts.name} cannot be dealt to {arguments.pipeline_parallel_size} "
            "stages."
        )
    if arguments.data_parallel_size > 1 and facts.experts and facts.model_type.startswith("gemma4"):
        reasons.append(
            "Mixtures of experts of Gemma 4 crash under data parallelism (vllm-project/vllm#38999): serve more "
            "replicas instead."
        )
    if resolved.max_num_batched_tokens < resolved.max_num_seqs:
        reasons.append(
            f"--max-num-batched-tokens ({resolved.max_num_batched_tokens}) is less than --max-num-seqs "
            f"({resolved.max_num_seqs})."
        )
    tokens = arguments.max_num_batched_tokens
    if tokens is not None and tokens < VIDEO_TOKENS and looks_both_ways(facts, arguments):
        reasons.append(
            f"A video takes up to {VIDEO_TOKENS:,} tokens, which {facts.name} computes in one step: "
            f"--max-num-batched-tokens={tokens} is less."
        )
    if resolved.kv_cache_dtype.startswith("fp8") and "fp8" not in device.kv_cache_dtypes:
        reasons.append(f"{device.title} cannot keep its KV cache as fp8.")
    return [*reasons, *rank.backends.against]


def _kv_heads(facts: ModelFacts, name: str, ranks: int) -> list[str]:
    return [
        f"The {heads} KV heads of {name} can neither be split over {ranks} ranks nor be copied to them evenly."
        for heads in sorted({layers.kv_heads for layers in facts.cache if not layers.on_every_rank})
        if max(heads, ranks) % min(heads, ranks)
    ]


def _draft(facts: ModelFacts, arguments: EngineArguments) -> list[str]:
    """The reasons why vLLM refuses the draft model or head beside the model."""
    draft, ranks, reasons = facts.draft, arguments.tensor_parallel_size, []
    if draft is None:
        return []
    if draft_method(arguments) == "draft_model" and draft.vocab_size != facts.vocab_size:
        reasons.append(
            f"The draft model {draft.name} has a vocabulary of {draft.vocab_size:,} tokens, and {facts.name} one of "
            f"{facts.vocab_size:,}: vLLM needs equally many."
        )
    if draft.heads % ranks:
        reasons.append(
            f"The {draft.heads} attention heads of the draft {draft.name} cannot be split over {ranks} ranks."
        )
    return reasons + _kv_heads(draft, f"the draft {draft.name}", ranks)


def _compressed(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> list[str]:
    """The arguments that attention over compressed tokens does not allow."""
    if not is_compressed(facts):
        return []
    ranks, reasons = arguments.tensor_parallel_size, []
    groups = int((facts.config or {}).get("o_groups") or 1)
    if groups % ranks:
        reasons.append(f"The {groups} output groups of {facts.name} cannot be split over {ranks} ranks.")
    if resolved.block_size != COMPRESSED_BLOCK:
        reasons.append(f"--block-size={resolved.block_size} cannot serve {facts.name}, which needs {COMPRESSED_BLOCK}.")
    if arguments.kv_cache_dtype != "auto" and not arguments.kv_cache_dtype.startswith("fp8"):
        reasons.append(f"--kv-cache-dtype={arguments.kv_cache_dtype} cannot serve {facts.name}: its cache has 8 bits.")
    return reasons


def _states(facts: ModelFacts, arguments: EngineArguments) -> list[str]:
    """The arguments that layers with a state do not allow."""
    ranks, reasons = arguments.tensor_parallel_size, []
    for state in facts.states:
        if what := undivided(state, ranks):
            reasons.append(f"The {what} of {facts.name} cannot be split over {ranks} ranks.")
    if facts.states and arguments.disable_hybrid_kv_cache_manager and facts.cache:
        reasons.append(
            f"--disable-hybrid-kv-cache-manager cannot serve {facts.name}: its states and its KV cache need that "
            "manager."
        )
    if facts.states and arguments.enable_chunked_prefill is False and prefix_caching(facts, arguments):
        reasons.append(
            f"--no-enable-chunked-prefill cannot serve {facts.name} with prefix caching, which keeps states at the "
            "ends of blocks: add --no-enable-prefix-caching."
        )
    return list(dict.fromkeys(reasons))


def _long_blocks(rank: Rank) -> list[str]:
    """The reason why a block beside states is too long for a step, where a release asks for that: for models whose
    states it keeps at the ends of blocks. Those of Mamba are, while tokens are guessed."""
    facts, arguments, resolved = rank.facts, rank.arguments, rank.resolved
    aligned = any(state.kind != "mamba2" for state in facts.states) or (facts.states and arguments.speculative)
    tokens, block = resolved.max_num_batched_tokens, resolved.block_size
    if not (rank.does.block_in_step and aligned and prefix_caching(facts, arguments)) or block <= tokens:
        return []
    return [
        f"A block of {facts.name} has {block:,} tokens, as large as its largest state, and a step of vLLM "
        f"{rank.version} must hold one while prefixes are cached: --max-num-batched-tokens is {tokens:,}. Write "
        f"--max-num-batched-tokens={block}, or add --no-enable-prefix-caching."
    ]


def too_long(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> list[str]:
    """The reason why vLLM would refuse the context, as a sentence; empty if it accepts it."""
    most = facts.longest_context(windows=not arguments.disable_sliding_window)
    if resolved.max_model_len <= most:
        return []
    by_window = " under --disable-sliding-window" if most < facts.max_position_embeddings else ""
    return [
        f"{facts.name} reads at most {most:,} tokens{by_window}, and --max-model-len is {resolved.max_model_len:,}."
    ]


def _shared_context(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> list[str]:
    """The conditions of --decode-context-parallel-size that the ranks do not meet."""
    shards, ranks, heads = arguments.decode_context_parallel_size, arguments.tensor_parallel_size, facts.kv_heads
    if shards <= 1:
        return []
    named = f"--decode-context-parallel-size={shards}"
    windows = resolved.hybrid and any(layers.window is not None for layers in facts.cache)
    kept = "compressed tokens" if is_compressed(facts) else "states" if facts.states else "windows" if windows else ""
    reasons = [f"{named} does not divide the {ranks} ranks of tensor parallelism."] if ranks % shards else []
    if kept:
        reasons.append(f"{named} cannot share the {kept} that layers of {facts.name} keep.")
    if any(not layers.on_every_rank for layers in facts.cache) and (
        shards * heads > ranks or facts.heads // heads % shards
    ):
        reasons.append(
            f"{named} needs {shards} ranks of tensor parallelism for each of the {heads} KV heads of {facts.name}, and "
            f"must divide the {facts.heads // heads} heads that read one."
        )
    return reasons

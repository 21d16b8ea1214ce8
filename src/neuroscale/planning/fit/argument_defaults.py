"""Fills every default of the version, the model and the card into the arguments of `vllm serve`."""

from __future__ import annotations

from neuroscale.models.facts import ModelFacts
from neuroscale.models.mixers import BLOCK as COMPRESSED_BLOCK
from neuroscale.planning.fit.device import Device, served_dtype
from neuroscale.planning.fit.drafts import WITHOUT_OVERLAP
from neuroscale.planning.fit.kv_cache import is_compressed
from neuroscale.planning.fit.result import Resolved
from neuroscale.planning.fit.sparse import BLOCK as SPARSE_BLOCK
from neuroscale.planning.fit.sparse import has_indexer, sparse_cache_dtype
from neuroscale.planning.fit.states import block_of_states, state_caches
from neuroscale.planning.fit.versions import Behaviour
from neuroscale.vllm.engine_arguments import EngineArguments
from neuroscale.vllm.model_rules import LARGEST_ITEM

BLOCK = 16
"""Tokens of a block on accelerators."""

CPU_BLOCK = 128
"""Tokens of a block on a CPU; 16 for latent attention, whose kernel does not take another size."""

VIDEO_TOKENS = LARGEST_ITEM["gemma4"]
"""Tokens of a video for Gemma 4, the largest item that it takes; vLLM computes it in one step."""

_LARGE_CARD_GIB = 70.0  # from that memory on, 8,192 tokens a step and 1,024 requests, but not on an A100


def resolve(
    facts: ModelFacts, device: Device, arguments: EngineArguments, does: Behaviour, asked_sequences: int | None = None
) -> Resolved:
    """Fills in the defaults as vLLM's engine/arg_utils.py and platforms do. `asked_sequences`: replaces the arguments'
    own number of requests."""
    length = arguments.max_model_len or facts.default_context(windows=not arguments.disable_sliding_window)
    tokens, sequences = _batch(device, arguments, does)
    asked_tokens, asked_sequences = arguments.max_num_batched_tokens, asked_sequences or arguments.max_num_seqs
    if arguments.performance_mode == "throughput":
        tokens, sequences = 2 * tokens, 2 * sequences
    sequences = asked_sequences or sequences
    if asked_tokens is None:
        if arguments.enable_chunked_prefill is False:
            tokens = max(length, tokens)  # a prompt is one step
        if does.image_in_one_step and looks_both_ways(facts, arguments):
            tokens = max(tokens, VIDEO_TOKENS)
        tokens = min(tokens, sequences * length)
    else:
        tokens = asked_tokens
    if asked_sequences is None:
        sequences = min(sequences, tokens)
    overlap = _overlaps(device, arguments)
    states = state_caches(facts, device, arguments)
    cache_dtype = _cache_dtype(facts, arguments)
    if has_indexer(facts):
        cache_dtype = sparse_cache_dtype(facts, device, arguments.kv_cache_dtype, cache_dtype)
    block = _block_size(facts, device, arguments)
    steps = arguments.pipeline_parallel_size
    if overlap:
        steps += 1
    return Resolved(
        utilization=arguments.gpu_memory_utilization or does.utilization,
        max_model_len=length,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        block_size=block_of_states(facts, device, arguments, states, cache_dtype, block),
        in_flight_tokens=tokens * (steps if does.steps_in_flight > 1 else 1),
        kv_cache_dtype=cache_dtype,
        async_scheduling=overlap,
        # tpu-inference keeps the whole context in windowed layers, too.
        hybrid=device.family != "tpu" and not arguments.disable_hybrid_kv_cache_manager,
        graphs=not arguments.enforce_eager and device.family in ("cuda", "rocm"),
        states=states,
    )


def _batch(device: Device, arguments: EngineArguments, does: Behaviour) -> tuple[int, int]:
    """Tokens and requests of a step."""
    # vLLM's defaults for a command without the arguments; a plan always writes them: planning/candidates.py.
    ranks = arguments.tensor_parallel_size * arguments.pipeline_parallel_size
    if device.family == "cpu":
        return 2048 * ranks, 128 * ranks
    if device.family == "tpu":
        return 1024, 256
    # In the container of a slice, NVML does not report the memory, which then counts as 0 (vllm-project/vllm#55381).
    memory = 0.0 if device.shared or device.slice_of else device.memory_gib or 0.0
    if does.huge_card_gib is not None and memory >= does.huge_card_gib:
        return 16384, 1024
    if memory >= _LARGE_CARD_GIB and "a100" not in f"{device.name} {device.title}".lower():
        return 8192, 1024
    return 2048, 256


def looks_both_ways(facts: ModelFacts, arguments: EngineArguments) -> bool:
    """Whether attention is bidirectional inside a video, so that one step must hold the whole video (Gemma 4)."""
    if not facts.multimodal or arguments.language_model_only or arguments.videos == 0:
        return False
    return facts.model_type.startswith("gemma4")


def _overlaps(device: Device, arguments: EngineArguments) -> bool:
    if device.family == "cpu":
        return False
    if arguments.async_scheduling is not None:
        return arguments.async_scheduling
    return arguments.speculative not in WITHOUT_OVERLAP


def _block_size(facts: ModelFacts, device: Device, arguments: EngineArguments) -> int:
    if is_compressed(facts):
        return arguments.block_size or COMPRESSED_BLOCK
    if has_indexer(facts):
        return arguments.block_size or SPARSE_BLOCK
    if device.family == "cpu":
        latent = any(layers.kind == "latent" for layers in facts.cache)
        return BLOCK if latent else arguments.block_size or CPU_BLOCK
    return arguments.block_size or BLOCK


def _cache_dtype(facts: ModelFacts, arguments: EngineArguments) -> str:
    if arguments.kv_cache_dtype != "auto":
        return arguments.kv_cache_dtype
    scheme = facts.quantization
    if scheme is not None and scheme.kv_cache is not None and scheme.method in ("modelopt", "compressed-tensors"):
        return scheme.kv_cache
    return served_dtype(facts, arguments)

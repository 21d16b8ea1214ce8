"""Fills every default of the version, the model and the card into the arguments of `vllm serve`.

Layers with a state add a page for each state, and blocks of attention of its size, as `_align_hybrid_block_size`
(platforms/interface.py), `MambaModelConfig` (model_executor/models/config.py) and `MambaSpec`
(v1/kv_cache_interface.py) of vLLM 0.32 do. All sizes are bytes of one rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neuroscale.models.cache_bytes import bytes_per_token, state_bytes
from neuroscale.models.facts import ModelFacts, StateLayers
from neuroscale.models.mixers import BLOCK as COMPRESSED_BLOCK
from neuroscale.planning.fit.device import Device, served_dtype
from neuroscale.planning.fit.drafts import WITHOUT_OVERLAP
from neuroscale.planning.fit.kv_cache import is_compressed
from neuroscale.planning.fit.sparse import BLOCK as SPARSE_BLOCK
from neuroscale.planning.fit.sparse import has_indexer, sparse_cache_dtype
from neuroscale.planning.fit.versions import Behaviour
from neuroscale.planning.fit.weights import predicts
from neuroscale.vllm.engine_arguments import EngineArguments
from neuroscale.vllm.model_rules import LARGEST_ITEM

BLOCK = 16
"""Tokens of a block on accelerators."""

CPU_BLOCK = 128
"""Tokens of a block on a CPU; 16 for latent attention, whose kernel does not take another size."""

VIDEO_TOKENS = LARGEST_ITEM["gemma4"]
"""Tokens of a video for Gemma 4, the largest item that it takes; vLLM computes it in one step."""

_LARGE_CARD_GIB = 70.0  # from that memory on, 8,192 tokens a step and 1,024 requests, but not on an A100

_KERNEL = 16  # tokens of the smallest block that attention takes on accelerators
_CPU_KERNEL = 32

_WITH_CHECKPOINT = "mamba2"
"""The kind that keeps a state at a block's end while a prompt goes on (`num_prefill_checkpoint_blocks`)."""


@dataclass(frozen=True)
class StateCache:
    """The states of `layers` layers."""

    page_bytes: int  # bytes of one state
    blocks: int  # the states that a request holds
    layers: int


@dataclass(frozen=True)
class Resolved:
    """The arguments with every default of the version and the card filled in."""

    utilization: float
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    # Tokens that are scheduled but not yet computed; windowed layers hold so many more of a request.
    in_flight_tokens: int
    kv_cache_dtype: str
    async_scheduling: bool
    hybrid: bool
    graphs: bool
    # The states that layers keep in place of keys and values, by kind; `block_size` follows from them, too.
    states: tuple[StateCache, ...] = ()


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


def state_caches(facts: ModelFacts, device: Device, arguments: EngineArguments) -> tuple[StateCache, ...]:
    """The cache of each kind of state. With prefix caching (vLLM's default beside attention), a request holds the state
    before the last block's end and the one that it computes, and with Mamba-2 one more; without it, a request holds
    one. Each guessed token adds one."""
    guessed = guessed_tokens(facts, arguments)
    caches = []
    for kind in facts.states:
        blocks = 1 + guessed
        if prefix_caching(facts, arguments):
            blocks = 2 + guessed + (kind.kind == _WITH_CHECKPOINT)
        caches.append(StateCache(_page(facts, kind, device, arguments), blocks, kind.layers))
    return tuple(caches)


def guessed_tokens(facts: ModelFacts, arguments: EngineArguments) -> int:
    """Tokens guessed in a step: the command's number, else the model's number of layers of multi-token prediction."""
    if arguments.speculative_tokens or not predicts(arguments):
        return arguments.speculative_tokens
    return sum(layers.layers for layers in facts.predicting if layers.kind != "indexer")


def prefix_caching(facts: ModelFacts, arguments: EngineArguments) -> bool:
    """Whether vLLM caches prefixes: by default if a layer has attention (`is_prefix_caching_supported` of
    config/model.py)."""
    said = arguments.enable_prefix_caching
    return bool(facts.cache) if said is None else said


def block_of_states(
    facts: ModelFacts,
    device: Device,
    arguments: EngineArguments,
    states: tuple[StateCache, ...],
    cache_dtype: str,
    block: int,
) -> int:
    """Tokens of a block of attention beside states: so many that it is as large as the largest state's page. `block`:
    the tokens of the block without states; `cache_dtype`: the dtype of keys and values."""
    if not states or not facts.cache:
        return block
    kernel = _CPU_KERNEL if device.family == "cpu" else _KERNEL
    step = max(kernel, block)
    token = max(bytes_per_token(layers, cache_dtype, ranks=arguments.tensor_parallel_size) for layers in facts.cache)
    largest = max(state.page_bytes for state in states)
    aligned = step * math.ceil(largest / (step * token))
    return max(block, kernel * math.ceil(aligned / kernel))


def _page(facts: ModelFacts, kind: StateLayers, device: Device, arguments: EngineArguments) -> int:
    dtype = served_dtype(facts, arguments)
    looked_back = dtype if arguments.mamba_cache_dtype == "auto" else arguments.mamba_cache_dtype
    recurrent = arguments.mamba_ssm_cache_dtype
    if device.family == "cpu" and recurrent == "auto" and kind.dtype is None:
        # True of processors with AVX-512 for bfloat16 (platforms/cpu.py); for others it never counts too little.
        recurrent = "float32"
    return state_bytes(
        kind,
        looked_back,
        recurrent,
        ranks=arguments.tensor_parallel_size,
        speculative_tokens=guessed_tokens(facts, arguments),
    )

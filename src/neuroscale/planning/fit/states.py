"""Computes what layers with a state add to the cache: a page for each state, and blocks of attention of its size.

Follows `_align_hybrid_block_size` (platforms/interface.py), `MambaModelConfig` (model_executor/models/config.py) and
`MambaSpec` (v1/kv_cache_interface.py) of vLLM 0.32. All sizes are bytes of one rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neuroscale.models.cache_bytes import bytes_per_token, state_bytes
from neuroscale.models.facts import ModelFacts, StateLayers
from neuroscale.planning.fit.device import Device, served_dtype
from neuroscale.planning.fit.weights import predicts
from neuroscale.vllm.engine_arguments import EngineArguments

_KERNEL = 16  # tokens of the smallest block that attention takes on accelerators
_CPU_KERNEL = 32

_WITH_CHECKPOINT = frozenset({"mamba2"})
"""Kinds that keep a state at a block's end while a prompt goes on (`num_prefill_checkpoint_blocks`)."""


@dataclass(frozen=True)
class StateCache:
    """The states of `layers` layers. `page_bytes`: bytes of one state; `blocks`: the states that a request holds."""

    page_bytes: int
    blocks: int
    layers: int


def state_caches(facts: ModelFacts, device: Device, arguments: EngineArguments) -> tuple[StateCache, ...]:
    """The cache of each kind of state. With prefix caching (vLLM's default beside attention), a request holds the state
    before the last block's end and the one that it computes, and with Mamba-2 one more; without it, a request holds
    one. Each guessed token adds one."""
    guessed = guessed_tokens(facts, arguments)
    caches = []
    for kind in facts.states:
        blocks = 1 + guessed
        if prefix_caching(facts, arguments):
            blocks = 2 + guessed + (kind.kind in _WITH_CHECKPOINT)
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

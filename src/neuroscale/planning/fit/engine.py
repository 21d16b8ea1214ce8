"""Whether a model starts on an accelerator, and what vLLM will print: see `fit`."""

from __future__ import annotations

import math

from neuroscale.models.facts import CacheLayers, ModelFacts
from neuroscale.planning.fit.defaults import resolve
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.kv_cache import LayerSpec, Pool, pool
from neuroscale.planning.fit.overhead import overhead
from neuroscale.planning.fit.result import Fit, Resolved
from neuroscale.planning.fit.versions import PINNED, Behaviour, behaviour
from neuroscale.planning.fit.weights import DTYPE_BYTES, rank_weights
from neuroscale.planning.plan import Memory
from neuroscale.vllm.engine import EngineArguments

GIB = 2**30


def fit(facts: ModelFacts, device: Device, arguments: EngineArguments, *, version: str = PINNED) -> Fit:
    """The verdict, the memory of the fullest rank, and what vLLM prints at its start.

    Pure. The number of accelerators is what the arguments' parallel sizes multiply to. Raises ValueError for a version
    that is none.
    """
    does = behaviour(version)
    resolved = resolve(facts, device, arguments, does)
    weights = rank_weights(facts, arguments)
    parts = overhead(facts, device, arguments, resolved, does)
    usable = device.memory_bytes * resolved.utilization
    if arguments.kv_cache_memory_bytes is not None:
        available = arguments.kv_cache_memory_bytes
    else:
        available = math.floor(usable - weights.total - sum(parts.values()))
    blocks = cache_pool(facts, arguments, resolved)
    request = blocks.request_bytes(resolved.max_model_len, resolved.in_flight_tokens)
    room = available - (blocks.block_bytes if does.spare_block else 0)
    starts = request <= room
    concurrency = (
        blocks.num_blocks(available) / blocks.blocks_per_request(resolved.max_model_len, resolved.in_flight_tokens)
        if starts
        else 0.0
    )
    tokens = printed_tokens(blocks, available, concurrency, resolved, does) if starts else 0
    kv_cache = available if starts else request
    total_overhead = sum(parts.values())
    band = 0.05 * usable / GIB
    margin = (room - request) / GIB
    return Fit(
        verdict="refused" if not starts else "tight" if margin < band else "fits",
        model=facts.name,
        accelerator=device.name,
        count=arguments.tensor_parallel_size * arguments.pipeline_parallel_size * arguments.data_parallel_size,
        version=version,
        resolved=resolved,
        memory_gib=Memory(
            weights=round(weights.total / GIB, 2),
            kv_cache=round(kv_cache / GIB, 2),
            overhead=round(total_overhead / GIB, 2),
            usable=round(usable / GIB, 2),
            free=round((usable - weights.total - total_overhead - kv_cache) / GIB, 2),
        ),
        total_gib=device.memory_gib,
        available_gib=available / GIB,
        request_gib=request / GIB,
        weights_gib={group: size / GIB for group, size in weights.by_group.items()},
        overhead_gib={part: size / GIB for part, size in parts.items()},
        band_gib=band,
        kv_cache_tokens=tokens,
        max_concurrency=concurrency,
        max_model_len=resolved.max_model_len,
        max_context=blocks.longest(room, resolved.in_flight_tokens, facts.max_position_embeddings),
        seconds_per_step=0.0
        if not weights.offloaded
        else weights.offloaded / (device.pcie_gb_s * 1e9)
        if device.pcie_gb_s
        else None,
        log=(),
        confidence="medium",
        reasons=(),
    )


def cache_pool(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> Pool:
    """The blocks of a rank. Raises PagesDiffer."""
    stages = arguments.pipeline_parallel_size
    layers = [
        (_spec(kind, arguments.tensor_parallel_size, resolved), math.ceil(kind.layers / stages)) for kind in facts.cache
    ]
    return pool(layers, hybrid=resolved.hybrid)


def printed_tokens(blocks: Pool, available: int, concurrency: float, resolved: Resolved, does: Behaviour) -> int:
    """'GPU KV cache size' as the version prints it."""
    if does.tokens_by_concurrency:
        return int(concurrency * resolved.max_model_len)
    smallest = min(group.spec.block_size for group in blocks.groups)
    return blocks.num_blocks(available) // len(blocks.groups) * smallest


def value_bytes(dtype: str) -> int:
    """Bytes of a value of the KV cache."""
    return DTYPE_BYTES.get(dtype, 1)


def _spec(kind: CacheLayers, ranks: int, resolved: Resolved) -> LayerSpec:
    width = value_bytes(resolved.kv_cache_dtype)
    heads = 1 if kind.kind == "latent" else math.ceil(kind.kv_heads / ranks)
    return LayerSpec(
        kind=kind.kind,
        block_size=resolved.block_size,
        bytes_per_token=heads * (kind.head_dim + kind.value_head_dim) * width,
        window=kind.window,
    )

"""Assembles the fullest rank of a server: the planner, `neuroscale fit` and the gate all compute their memory here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from neuroscale.models.cache_bytes import bytes_per_token
from neuroscale.models.facts import CacheLayers, ModelFacts
from neuroscale.planning.fit.argument_defaults import Resolved, resolve
from neuroscale.planning.fit.backends import Backends, judge
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.drafts import shape_of
from neuroscale.planning.fit.kv_cache import LayerSpec, PagesDiffer, Pool, is_compressed, packed_pool, pool
from neuroscale.planning.fit.overhead import Overhead, overhead
from neuroscale.planning.fit.versions import PINNED, Behaviour, behaviour
from neuroscale.planning.fit.weights import RankWeights, predicts, rank_weights, uncounted
from neuroscale.vllm.engine_arguments import EngineArguments


@dataclass(frozen=True)
class Rank:
    """What the fullest rank of a server computes, loads and keeps."""

    facts: ModelFacts
    device: Device
    arguments: EngineArguments  # `kv_cache_memory_bytes` is set if the command fixes the cache's size in any way
    version: str
    does: Behaviour
    resolved: Resolved
    weights: RankWeights
    beside: Overhead
    usable: int  # the bytes that vLLM may take
    pool: Pool | None  # the cache's blocks (None: vLLM cannot put the layers' caches into one)
    backends: Backends

    @property
    def taken(self) -> int:
        """Bytes of the weights and of what lies beside them in the share that vLLM takes."""
        return self.weights.total + sum(self.beside.counted.values())

    def computing(self, requests: int) -> Rank:
        """The same rank while that many requests are computed at once: weights and blocks do not depend on it."""
        resolved = resolve(self.facts, self.device, self.arguments, self.does, requests)
        beside = overhead(self.facts, self.device, self.arguments, resolved, self.does, _tables(self.pool))
        unchanged = self.facts, self.device, self.arguments, self.version, self.does
        return Rank(*unchanged, resolved, self.weights, beside, self.usable, self.pool, self.backends)


def assemble(facts: ModelFacts, device: Device, arguments: EngineArguments, version: str = PINNED) -> Rank:
    """The rank of a model on a device under the arguments of a version. Raises ValueError for a text that is not a
    version."""
    does = behaviour(version)
    if (unplanned := uncounted(facts, arguments)) != arguments.unplanned:
        arguments = replace(arguments, unplanned=unplanned)
    if facts.states and arguments.enable_prefix_caching is None and not does.prefixes_of_states:
        arguments = replace(arguments, enable_prefix_caching=False)
    if does.yarn_multiplied and facts.length_by_yarn is not None:
        facts = replace(facts, max_position_embeddings=facts.length_by_yarn, default_length=None)
    resolved = resolve(facts, device, arguments, does)
    backends = judge(facts, device, arguments, resolved, version)
    if backends.unjudged:
        arguments = replace(arguments, unplanned=(*arguments.unplanned, *backends.unjudged))
    blocks = _cache_pool(facts, arguments, resolved, does)
    if blocks and arguments.num_gpu_blocks_override is not None:
        fixed = arguments.num_gpu_blocks_override * blocks.block_bytes
        arguments = replace(arguments, kv_cache_memory_bytes=fixed)
    beside = overhead(facts, device, arguments, resolved, does, _tables(blocks))
    usable = math.floor(device.memory_bytes * _share(device, arguments, resolved))
    weights = rank_weights(facts, arguments)
    return Rank(facts, device, arguments, version, does, resolved, weights, beside, usable, blocks, backends)


def _tables(blocks: Pool | None) -> int:
    return len(blocks.groups) if blocks else 1


def _share(device: Device, arguments: EngineArguments, resolved: Resolved) -> float:
    """The share of the whole memory that vLLM may take: all of it on a CPU whose cache has a size of its own."""
    if device.family == "cpu" and arguments.kv_cache_memory_bytes is not None:
        return 1.0
    return resolved.utilization


def _cache_pool(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved, does: Behaviour) -> Pool | None:
    stages = arguments.pipeline_parallel_size
    if is_compressed(facts):
        return packed_pool([replace(kind, layers=math.ceil(kind.layers / stages)) for kind in facts.cache])
    kinds = _without_windows(facts.cache) if arguments.disable_sliding_window else facts.cache
    layers = [(_spec(kind, arguments, resolved, does), math.ceil(kind.layers / stages)) for kind in kinds]
    if predicts(arguments):
        # The last pipeline stage holds all layers of multi-token prediction.
        layers += [(_spec(kind, arguments, resolved, does), kind.layers) for kind in facts.predicting]
    if facts.draft is not None:
        layers += [(_spec(kind, arguments, resolved, does), kind.layers) for kind in facts.draft.cache]
    for state in resolved.states:
        spec = LayerSpec("state", resolved.block_size, 0, padded=state.page_bytes, held=state.blocks)
        layers.append((spec, math.ceil(state.layers / stages)))
    try:
        return pool(layers, hybrid=resolved.hybrid, padding_ratio=does.padding_ratio, padded=does.windows_padded)
    except PagesDiffer:
        return None


def _without_windows(cache: Sequence[CacheLayers]) -> tuple[CacheLayers, ...]:
    """The cache under --disable-sliding-window: layers keep the whole context, no longer than the shortest window."""
    alike: Counter[CacheLayers] = Counter()
    for kind in cache:
        whole = replace(kind, kind="full", window=None) if kind.kind == "sliding" else kind
        alike[replace(whole, layers=0)] += kind.layers
    return tuple(replace(kind, layers=layers) for kind, layers in alike.items())


def _spec(kind: CacheLayers, arguments: EngineArguments, resolved: Resolved, does: Behaviour) -> LayerSpec:
    block = resolved.block_size
    if kind.kind == "sliding" and does.window_block is not None:
        block = min(block, does.window_block)
    return LayerSpec(
        kind=kind.kind,
        block_size=block,
        bytes_per_token=bytes_per_token(kind, resolved.kv_cache_dtype, ranks=arguments.tensor_parallel_size),
        window=kind.window,
        shards=arguments.decode_context_parallel_size,
        shape=shape_of(kind, arguments.tensor_parallel_size),
    )

"""Counts the work of a step of one rank: bytes that it reads, operations, and bytes that ranks exchange.

A step computes some tokens of prompts, and one token for each request that is answered. A rank is one accelerator; it
holds the share of tensor (and expert) parallelism. With pipeline stages a token passes through all stages one after the
other while the stages work on different requests, so a rank counts as computing all layers for its share of requests;
the same is true of the ranks of data parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from neuroscale.models.cache_bytes import bytes_per_token, state_bytes
from neuroscale.models.facts import CacheLayers, Group, ModelFacts
from neuroscale.planning.fit.argument_defaults import Resolved
from neuroscale.planning.fit.device import served_dtype
from neuroscale.planning.fit.weights import rank_weights
from neuroscale.planning.speed.kinds import WeightType, weight_type
from neuroscale.vllm.engine_arguments import EngineArguments

_COMPUTED: tuple[Group, ...] = ("attention", "recurrent", "dense_mlp", "shared_experts", "router", "norm")
"""Groups that each token computes with. The embedding is looked up, and towers compute only images and sound."""

_INDEX_TOKENS = 2048
"""Tokens that an indexer chooses for each token, if the config does not say it (`index_topk` of DeepSeek V3.2)."""

_VALUE_DIM = 128
"""Values of a head of latent attention once they are unpacked (DeepSeek V2 and its successors)."""


@dataclass(frozen=True)
class Matrices:
    """Matrices of one type on one rank. `flops`: operations for a token. `experts`: routed ones, of which a batch of
    tokens touches a part."""

    type: WeightType
    bytes: float
    flops: float
    experts: bool = False


@dataclass(frozen=True)
class Reading:
    """The cache that layers read: `bytes` of each earlier token, of at most `window` of them (None: of all); and the
    operations of one token for each earlier one, while it is an answer's and while it is a prompt's."""

    bytes: float
    flops: float
    prompt_flops: float
    window: int | None
    latent: bool = False

    def seen(self, context: float) -> float:
        """The tokens that the token after `context` others reads."""
        return context if self.window is None else min(context, self.window)

    def pairs(self, prompt: float) -> float:
        """Pairs of tokens of a prompt that attend to each other."""
        if self.window is None or prompt <= self.window:
            return prompt * prompt / 2
        return prompt * self.window - self.window * self.window / 2


@dataclass(frozen=True)
class Work:
    """The work of one rank. Sizes are bytes; operations count a multiplication and an addition as two."""

    matrices: tuple[Matrices, ...]
    head: Matrices  # computes the output, once for each sampled token
    readings: tuple[Reading, ...]
    state_bytes: float  # read and written for each request and step
    missed: float  # the chance that a token's router chooses another expert than a given one (0: no experts)
    layers: int
    expert_layers: int
    hidden: int
    exchanged: float  # bytes that a token adds to the all-reduces of a step (0: one rank)
    ranks: int  # of tensor parallelism
    shares: int  # of the requests: data-parallel ranks and pipeline stages
    offloaded: float  # bytes of weights that cross PCIe in each step
    dealt: bool  # data-parallel ranks share the experts, so each computes a part of the others' tokens

    def kept(self, context: float) -> float:
        """The bytes that a request of so many tokens keeps in the cache; a state is read and written in each step."""
        return sum(part.bytes * part.seen(context) for part in self.readings) + self.state_bytes / 2


def work(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> Work:
    """The work of the fullest rank. `arguments` and `resolved` are those of the whole server."""
    ranks = arguments.tensor_parallel_size
    stages = arguments.pipeline_parallel_size
    served = replace(arguments, pipeline_parallel_size=1, speculative=None, enable_lora=False, cpu_offload_gib=0.0)
    held = rank_weights(replace(facts, draft=None), served).by_group
    whole = rank_weights(
        replace(facts, draft=None),
        replace(served, tensor_parallel_size=1, data_parallel_size=1, prefill_context_parallel_size=1),
    ).by_group
    params: dict[Group, float] = {}
    for tensor in facts.tensors:
        params[tensor.group] = params.get(tensor.group, 0.0) + tensor.params
    quantised = weight_type(facts, arguments.quantization)

    def matrices(group: Group) -> Matrices:
        size, count = float(held.get(group, 0)), params.get(group, 0.0)
        share = size / whole[group] if whole.get(group) else 1.0
        wide = count > 0 and size / (count * share) > 1.5
        routed = group == "routed_experts"
        used = facts.experts_per_token / facts.experts if routed and facts.experts else 1.0
        return Matrices("16-bit" if wide else quantised, size, 2.0 * count * share * used, experts=routed)

    by_type: dict[tuple[WeightType, bool], Matrices] = {}
    for group in (*_COMPUTED, "routed_experts"):
        if group in held:
            each = matrices(group)
            same = by_type.get((each.type, each.experts))
            if same is not None:
                each = replace(each, bytes=each.bytes + same.bytes, flops=each.flops + same.flops)
            by_type[each.type, each.experts] = each
    head = matrices("lm_head" if "lm_head" in held else "embedding")
    width = 2.0 if served_dtype(facts, arguments) != "float32" else 4.0
    layers = max(facts.num_layers, 1)
    expert_layers = _expert_layers(facts)
    return Work(
        matrices=tuple(by_type.values()),
        head=head,
        readings=tuple(_readings(facts, arguments, resolved)),
        state_bytes=2.0 * sum(state_bytes(kind, ranks=ranks) * kind.layers for kind in facts.states),
        missed=1.0 - facts.experts_per_token / facts.experts if facts.experts else 0.0,
        layers=layers,
        expert_layers=expert_layers,
        hidden=facts.hidden_size,
        exchanged=2.0 * layers * facts.hidden_size * width * 2.0 * (ranks - 1) / ranks,
        ranks=ranks,
        shares=stages * arguments.data_parallel_size,
        offloaded=float(rank_weights(replace(facts, draft=None), arguments).offloaded),
        dealt=facts.experts > 0 and arguments.data_parallel_size > 1,
    )


def _expert_layers(facts: ModelFacts) -> int:
    routers = [tensor.copies for tensor in facts.tensors if tensor.group == "router" and len(tensor.shape) == 2]
    return min(max(routers, default=0), facts.num_layers) if facts.experts else 0


def _readings(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> Iterator[Reading]:
    ranks = arguments.tensor_parallel_size
    kept = sum(kind.layers for kind in facts.cache if kind.kind in ("full", "sliding", "chunked"))
    attending = facts.num_layers - sum(kind.layers for kind in facts.states)
    # Layers that read another layer's cache read as much as the others on average.
    shared = max(attending / kept, 1.0) if kept else 1.0
    indexed = any(kind.kind == "indexer" for kind in facts.cache)
    chosen = (facts.config or {}).get("index_topk") if indexed else None
    for kind in facts.cache:
        size = bytes_per_token(kind, resolved.kv_cache_dtype, ranks=ranks) * kind.layers
        if kind.kind in ("full", "sliding", "chunked"):
            heads = facts.heads / ranks
            flops = 2.0 * heads * (kind.head_dim + kind.value_head_dim) * kind.layers
            window = None if arguments.disable_sliding_window else kind.window
            if kind.kind == "chunked" and kind.window:
                window = math.ceil(kind.window / 2)
            yield Reading(size * shared, flops * shared, flops * shared, window)
        else:
            yield _latent_reading(facts, kind, size, ranks, chosen if isinstance(chosen, int) else _INDEX_TOKENS)


def _latent_reading(facts: ModelFacts, kind: CacheLayers, size: float, ranks: int, chosen: int) -> Reading:
    """One vector for all heads: each head multiplies the query with it and adds it up (2 x 2 operations a value). In a
    prompt, keys and values are unpacked first (`forward_mha` of vLLM's mla_attention.py)."""
    indexed = any(other.kind == "indexer" for other in facts.cache)
    flops = 4.0 * facts.heads / ranks * kind.head_dim * kind.layers
    if kind.kind == "latent":
        unpacked = 2.0 * facts.heads / ranks * (facts.head_dim + _VALUE_DIM) * kind.layers
        return Reading(size, flops, flops if indexed else unpacked, chosen if indexed else None, latent=True)
    if kind.kind == "latent_window":
        return Reading(size, flops, flops, kind.window, latent=True)
    if kind.kind == "compressor":
        return Reading(size, 0.0, 0.0, kind.window, latent=True)
    # An indexer scores all tokens in 8 bits with few heads; compressed vectors stand for `ratio` tokens each.
    heads = 64.0 if kind.kind in ("indexer", "compressed_indexer") else facts.heads / ranks
    scored = 2.0 * heads * kind.head_dim * kind.layers / kind.ratio
    return Reading(size, scored, scored, None, latent=True)

"""Describes the parts of a decoder layer, and computes their weights and their KV cache.

The tensors have their names in the checkpoints. Each matrix is laid over the ranks as vLLM's layer of it does:
`ColumnParallelLinear` and `RowParallelLinear` split, `QKVParallelLinear` splits by heads, `ReplicatedLinear` copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from neuroscale.models.facts import CacheLayers, Group, Sharding, StateLayers
from neuroscale.models.mixers import CompressedAttention, Mixer
from neuroscale.models.weights import Weights

Reach = Literal["full", "sliding", "chunked"]


@dataclass(frozen=True)
class Attention:
    """Attention with keys and values for each KV head."""

    heads: int
    kv_heads: int
    head_dim: int
    reach: Reach = "full"
    window: int | None = None
    bias: bool = False
    output_bias: bool = False
    # The norm of queries and keys: one by `head`, one over `all` heads, or each head's own (`heads`).
    norm: Literal["", "head", "all", "heads"] = ""
    norm_bias: bool = False  # the norm has a bias
    norm_names: tuple[str, str] = ("q_norm", "k_norm")
    reads_other: bool = False  # the layer uses an earlier layer's keys and values, and has no matrices for them
    own_values: bool = True  # false if the keys serve as values
    sinks: bool = False
    gate: int = 0  # the number of values that weigh the output
    gated_queries: bool = False  # the matrix of the queries also makes a gate of their size
    turned: bool = True  # false if queries and keys get no rotary embedding
    fused: str = ""  # the name of the one tensor that holds queries, keys and values
    output: str = "o_proj"
    block: str = "self_attn"

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}{self.block}."
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if self.fused:
            # vLLM splits the two kinds of rows of this one tensor differently.
            out.linear(at + self.fused, "attention", (hidden, queries), "split", bias=self.bias)
            out.linear(at + self.fused, "attention", (hidden, 2 * keys), "kv_heads", bias=self.bias)
        else:
            asked = 2 * queries if self.gated_queries else queries
            out.linear(f"{at}q_proj", "attention", (hidden, asked), "split", bias=self.bias)
            if not self.reads_other:
                out.linear(f"{at}k_proj", "attention", (hidden, keys), "kv_heads", bias=self.bias)
                if self.own_values:
                    out.linear(f"{at}v_proj", "attention", (hidden, keys), "kv_heads", bias=self.bias)
        if self.gate:
            out.linear(f"{at}g_proj", "attention", (hidden, self.gate), "split")
        out.linear(
            at + self.output, "attention", (queries, hidden), "split", bias=self.output_bias, bias_sharding="replicated"
        )
        if self.norm:
            self._norms(out, at)
        if self.sinks:
            out.add(f"{at}sinks", "attention", (self.heads,), "split")

    def _norms(self, out: Weights, at: str) -> None:
        for name, heads in zip(self.norm_names, (self.heads, self.kv_heads), strict=True):
            if name == self.norm_names[1] and self.reads_other:
                continue
            shape = {"head": (self.head_dim,), "all": (heads * self.head_dim,), "heads": (heads, self.head_dim)}
            sharded = self.norm != "head"
            for part in ("weight", "bias") if self.norm_bias else ("weight",):
                out.add(f"{at}{name}.{part}", "norm", shape[self.norm], "split" if sharded else "replicated")

    def caches(self) -> tuple[CacheLayers, ...]:
        """The KV cache of this layer; empty if it reads another layer's cache."""
        if self.reads_other:
            return ()
        window = None if self.reach == "full" else self.window
        return (CacheLayers(self.reach, 1, self.kv_heads, self.head_dim, self.head_dim, window),)


@dataclass(frozen=True)
class Indexer:
    """Scores earlier tokens with `heads` small heads of `head_dim` values, so that attention reads the best `chosen`
    alone. Each rank has the whole of it."""

    heads: int
    head_dim: int
    chosen: int
    interleaved: bool = False  # its rotary embedding is attention's own

    def weights(self, out: Weights, at: str, hidden: int, query_rank: int) -> None:
        """Add them below `at`, such as `model.layers.0.self_attn.`."""
        at = f"{at}indexer."
        out.linear(f"{at}wq_b", "attention", (query_rank, self.heads * self.head_dim), "replicated")
        # vLLM keeps these two as one unquantised matrix, whatever the checkpoint has.
        out.linear(f"{at}wk", "attention", (hidden, self.head_dim), "replicated", convert=False)
        out.linear(f"{at}weights_proj", "attention", (hidden, self.heads), "replicated", convert=False)
        for part in ("weight", "bias"):
            out.add(f"{at}k_norm.{part}", "norm", (self.head_dim,), full_precision=True)


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: the cache holds `rank` + `rope_dim` values a token, whatever the number of heads."""

    heads: int
    rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int | None  # the rank to which queries are compressed (None: they are not)
    bias: bool = False
    block: str = "self_attn"
    # Chooses the tokens that the layer reads; without one, the layer reads all tokens, or those that an earlier layer's
    # indexer chose.
    indexer: Indexer | None = None

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}{self.block}."
        queries = self.heads * (self.nope_dim + self.rope_dim)
        if self.query_rank is None:
            out.linear(f"{at}q_proj", "attention", (hidden, queries), "split")
        else:
            out.linear(f"{at}q_a_proj", "attention", (hidden, self.query_rank), "replicated", bias=self.bias)
            out.add(f"{at}q_a_layernorm.weight", "norm", (self.query_rank,))
            out.linear(f"{at}q_b_proj", "attention", (self.query_rank, queries), "split")
        latent = self.rank + self.rope_dim
        out.linear(f"{at}kv_a_proj_with_mqa", "attention", (hidden, latent), "replicated", bias=self.bias)
        out.add(f"{at}kv_a_layernorm.weight", "norm", (self.rank,))
        expanded = self.heads * (self.nope_dim + self.value_dim)
        out.linear(f"{at}kv_b_proj", "attention", (self.rank, expanded), "split")
        values = self.heads * self.value_dim
        out.linear(f"{at}o_proj", "attention", (values, hidden), "split", bias=self.bias, bias_sharding="replicated")
        if self.indexer is not None and self.query_rank is not None:
            self.indexer.weights(out, at, hidden, self.query_rank)

    def caches(self) -> tuple[CacheLayers, ...]:
        """The KV caches of this layer: one vector a token, and the indexer's key."""
        latent = CacheLayers("latent", 1, 1, self.rank + self.rope_dim, 0)
        return (latent, CacheLayers("indexer", 1, 1, self.indexer.head_dim, 0)) if self.indexer else (latent,)


@dataclass(frozen=True)
class Mlp:
    """A feed-forward block. `gated`: three matrices (gate, up, down) instead of two. `fused`: gate and up in one."""

    width: int
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    gated: bool = True
    fused: str = ""
    bias: bool = False
    block: str = "mlp"
    group: Group = "dense_mlp"

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}{self.block}." if self.block else at
        gate, up, down = self.names
        if self.fused:
            out.linear(at + self.fused, self.group, (hidden, 2 * self.width), "split", bias=self.bias)
        else:
            for name in (gate, up) if self.gated else (up,):
                out.linear(at + name, self.group, (hidden, self.width), "split", bias=self.bias)
        out.linear(at + down, self.group, (self.width, hidden), "split", bias=self.bias, bias_sharding="replicated")


@dataclass(frozen=True)
class Experts:
    """Routed experts, of which each token takes `per_token`, and the other parts of their block."""

    count: int
    per_token: int
    width: int
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    # The names of the two tensors that hold all experts (gate and up in the first); otherwise `names` has the names of
    # each expert's tensors.
    fused: tuple[str, str] | None = None
    bias: bool = False
    block: str = "mlp"
    router: str = "gate"
    router_bias: bool = False
    full_router: bool = False  # vLLM keeps the router in float32, on some cards at least
    correction: str = ""  # the name of a bias in float32 that only the router uses
    shared: Mlp | None = None  # an expert that every token takes
    shared_gate: str = ""  # the vector that weighs it
    gated: bool = True
    # The number of values of a token that the routed experts compute with; two matrices with `latent_names` convert to
    # and from them.
    latent: int | None = None
    latent_names: tuple[str, str] = ("", "")

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}{self.block}." if self.block else at
        out.linear(
            at + self.router,
            "router",
            (hidden, self.count),
            "replicated",
            bias=self.router_bias,
            convert=False,
            full_precision=self.full_router,
        )
        if self.correction:
            out.add(at + self.correction, "router", (self.count,), full_precision=True)
        inner = self.latent or hidden
        if self.latent:
            into, back = self.latent_names
            out.linear(at + into, "router", (hidden, inner), "replicated")
            out.linear(at + back, "router", (inner, hidden), "replicated")
        if self.fused:
            first, second = self.fused
            self._expert(out, at + first, (inner, 2 * self.width))
            self._expert(out, at + second, (self.width, inner))
        else:
            gate, up, down = self.names
            for name in (gate, up) if self.gated else (up,):
                self._expert(out, f"{at}experts.{{}}.{name}", (inner, self.width))
            self._expert(out, f"{at}experts.{{}}.{down}", (self.width, inner))
        if self.shared:
            self.shared.weights(out, at, hidden)
        if self.shared_gate:
            out.linear(at + self.shared_gate, "shared_experts", (hidden, 1), "replicated", convert=False)

    def _expert(self, out: Weights, name: str, width: tuple[int, int]) -> None:
        out.linear(name, "routed_experts", width, "experts", bias=self.bias, copies=self.count)


@dataclass(frozen=True)
class Extra:
    """A tensor outside these blocks. `linear`: it is the matrix of a module, and `shape` its inputs and outputs."""

    name: str
    group: Group
    shape: tuple[int, ...]
    linear: bool = False
    sharding: Sharding = "replicated"
    full_precision: bool = False

    def weights(self, out: Weights, at: str) -> None:
        """Add it below `at`."""
        if self.linear:
            into, to = self.shape
            out.linear(at + self.name, self.group, (into, to), self.sharding)
        else:
            out.add(at + self.name, self.group, self.shape, self.sharding, full_precision=self.full_precision)


@dataclass(frozen=True)
class Layer:
    """A decoder layer."""

    attention: Attention | LatentAttention | CompressedAttention | None  # None if the layer has none
    blocks: tuple[Mlp | Experts, ...]
    # The names of its norms, of `hidden` values each.
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm_bias: bool = False  # the norms have biases
    extras: tuple[Extra, ...] = ()
    mixer: Mixer | None = None  # the block that keeps a state in place of attention, or beside it

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        if self.attention is not None:
            self.attention.weights(out, at, hidden)
        if self.mixer is not None:
            self.mixer.weights(out, at, hidden)
        for block in self.blocks:
            block.weights(out, at, hidden)
        for norm in self.norms:
            for part in ("weight", "bias") if self.norm_bias else ("weight",):
                out.add(f"{at}{norm}.{part}", "norm", (hidden,))
        for extra in self.extras:
            extra.weights(out, at)


def cache_of(layers: Iterable[Layer]) -> tuple[CacheLayers, ...]:
    """The KV caches of the layers, with equal ones as one entry; the entry with the most layers comes first."""
    attentions = (layer.attention for layer in layers if layer.attention is not None)
    found: Counter[CacheLayers] = Counter(cache for one in attentions for cache in one.caches())
    return tuple(replace(kind, layers=count) for kind, count in found.most_common())


def states_of(layers: Iterable[Layer]) -> tuple[StateLayers, ...]:
    """The states of the layers, with equal ones as one entry; the entry with the most layers comes first."""
    found = Counter(layer.mixer.state() for layer in layers if layer.mixer is not None)
    return tuple(replace(state, layers=count) for state, count in found.most_common())

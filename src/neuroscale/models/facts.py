"""Holds the facts that planning uses: a model's tensors, the contents of its KV cache, and how sure these are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Group = Literal[
    "embedding",
    "per_layer_embedding",
    "lm_head",
    "attention",
    "recurrent",
    "dense_mlp",
    "routed_experts",
    "shared_experts",
    "router",
    "norm",
    "vision",
    "audio",
    "projector",
    "mtp",
]
"""The purpose of a tensor. A tied model has no `lm_head`: the embedding's matrix computes the output. `mtp`: layers
that predict several tokens at once, which vLLM loads for speculative decoding alone; `recurrent`: weights of layers
that keep a state."""

TOWERS: tuple[Group, ...] = ("vision", "audio", "projector")

Sharding = Literal["replicated", "split", "vocabulary", "kv_heads", "experts", "state_groups"]
"""How vLLM lays a tensor over the ranks of tensor parallelism: whole on each, split evenly, or by padded rows of the
vocabulary. Others go by KV heads (replicated if there are fewer heads than ranks), by experts or their width, or by the
groups of a Mamba-2 layer (a group on each rank where the ranks do not divide them)."""

Dtype = Literal["bfloat16", "float16", "float32"]

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "half": 2, "float": 4}
"""Bytes of a value, by vLLM's names of dtypes."""

Basis = Literal["headers", "config", "estimate"]
"""The source of the bytes: the safetensors headers, the config of a known architecture, or that of an unknown one."""


@dataclass(frozen=True)
class Tensor:
    """`copies` weight tensors of one shape. `name` as in the checkpoint, `{}` for the numbers of layers and experts."""

    name: str
    group: Group
    shape: tuple[int, ...]
    copies: int
    sharding: Sharding
    linear: bool  # a matrix that quantisation methods convert; others keep the model's dtype
    full_precision: bool = False  # vLLM keeps it in float32, whatever the model's dtype

    @cached_property
    def params(self) -> int:
        """Parameters of all copies together."""
        return math.prod(self.shape) * self.copies


CacheKind = Literal[
    "full", "sliding", "chunked", "latent", "indexer", "latent_window", "compressed", "compressed_indexer", "compressor"
]
COMPRESSED: tuple[CacheKind, ...] = ("latent_window", "compressed", "compressed_indexer", "compressor")
"""The kinds of attention over compressed tokens."""


@dataclass(frozen=True)
class CacheLayers:
    """`layers` layers that keep the same in the KV cache; a layer that reads another layer's cache is not counted.
    `latent`: each layer keeps one vector of `head_dim` values a token, on every rank (multi-head latent attention;
    `kv_heads` is 1 and `value_head_dim` 0). `indexer`: the keys of an indexer, which chooses the tokens that latent
    attention reads: `head_dim` values of 8 bits a token, on every rank. Attention over compressed tokens
    (models/mixers.py) keeps, on every rank, the vectors of a window (`latent_window`), one for each `ratio` tokens
    (`compressed`) with an indexer's keys (`compressed_indexer`), and the inputs of the next one (`compressor`).
    Otherwise each layer keeps keys of `head_dim` and values of `value_head_dim` for each of the `kv_heads`."""

    kind: CacheKind
    layers: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window: int | None = None  # tokens of a sliding window or of a chunk
    ratio: int = 1

    @property
    def on_every_rank(self) -> bool:
        """Whether each rank of tensor parallelism keeps the whole of it."""
        return self.kind in ("latent", "indexer", *COMPRESSED)


StateKind = Literal["mamba2", "gated_delta"]
"""Mamba-2's state space, or a gated delta rule (Qwen3-Next, Qwen3.5)."""


@dataclass(frozen=True)
class StateLayers:
    """`layers` layers that keep a state of one size for each request, however long the request is. The state holds
    `heads` matrices of `rows` x `columns` values, and the inputs of a convolution over `kernel` tokens: for each token
    before the last one, `channels` values, and twice `group_width` for each of the `groups` that heads share."""

    kind: StateKind
    layers: int
    heads: int
    rows: int
    columns: int
    channels: int
    kernel: int
    groups: int = 0
    group_width: int = 0
    # The dtype of the matrices if the model sets one; vLLM's arguments override it (None: the dtype of the
    # convolution's inputs).
    dtype: Dtype | None = None


@dataclass(frozen=True)
class RotaryTable:
    """Sines and cosines of `rows` positions, `width` values each, in the model's dtype or in float32."""

    rows: int
    width: int
    full_precision: bool = False


@dataclass(frozen=True)
class Quantization:
    """`method` as config.json names it (gptq, awq, fp8, compressed-tensors, mxfp4, modelopt, bitsandbytes, ...)."""

    method: str
    bits: int  # of a weight
    # The number of weights that share a scale (None: one scale for each output row or tensor).
    group_size: int | None = None
    block: tuple[int, int] | None = None
    scale_bytes: int = 2  # bytes of a scale
    zero_points: bool = False  # each scale has a zero point of `bits` bits
    ignored: tuple[str, ...] = ()  # patterns of tensors that keep the model's dtype
    kv_cache: Literal["fp8", "nvfp4"] | None = None  # the dtype of the KV cache that the checkpoint asks for, if any
    other_bits: int | None = None  # of the matrices outside of routed experts, if they have another number of bits


@dataclass(frozen=True)
class ModelFacts:
    """The facts of a model, from its config and, if they are known, the headers of its files."""

    name: str
    model_type: str
    architectures: tuple[str, ...]
    kind: Literal["moe", "dense"]
    dtype: Dtype
    num_layers: int
    hidden_size: int
    vocab_size: int
    heads: int  # attention heads of the queries
    kv_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int  # the longest context that vLLM allows, in tokens
    experts: int
    experts_per_token: int  # 0 for dense models
    moe_intermediate_size: int
    tensors: tuple[Tensor, ...]
    cache: tuple[CacheLayers, ...]
    quantization: Quantization | None
    weight_bytes: Mapping[Group, int]  # bytes by group before tensor parallelism, from the files or counted
    basis: Basis
    multimodal: bool
    source: str
    notes: tuple[str, ...] = field(default=())  # the assumptions and omissions, as sentences
    # The same bytes by safetensors' names of dtypes or, where they are counted, by the name of the quantisation method.
    bytes_by_dtype: Mapping[str, int] = field(default_factory=dict)
    rotary: tuple[RotaryTable, ...] = ()
    default_length: int | None = None  # the context without --max-model-len (None: the longest)
    # The longest context in those releases of vLLM that multiply YaRN's original positions by its factor (None: the
    # same).
    length_by_yarn: int | None = None
    file_dtype: str | None = None  # the dtype of the weights in the files, if their headers are known
    parts_missing: bool = False  # `weight_bytes` lacks a tower
    states: tuple[StateLayers, ...] = ()  # the states that layers keep in place of, or beside, keys and values
    predicting: tuple[CacheLayers, ...] = ()  # the KV cache of layers of multi-token prediction, if they are served
    draft: ModelFacts | None = None  # the draft model or head that guesses tokens for this model, as vLLM loads it
    # The config.json that the facts come from.
    config: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def longest_context(self, *, windows: bool = True) -> int:
        """The most tokens of a request. `windows`: false if --disable-sliding-window makes the window the limit."""
        limits = [layers.window for layers in self.cache if layers.kind == "sliding" and layers.window]
        return min([self.max_position_embeddings, *([] if windows else limits)])

    def default_context(self, *, windows: bool = True) -> int:
        """The tokens of a request that a command without --max-model-len allows."""
        return min(self.default_length or self.max_position_embeddings, self.longest_context(windows=windows))

    @property
    def total_params(self) -> int:
        """Parameters of the language model without multi-token prediction: mostly what publishers call its size."""
        return sum(tensor.params for tensor in self.tensors if tensor.group not in ("mtp", *TOWERS))

    @property
    def tower_params(self) -> int:
        """Parameters of the towers for images and sound, and of the weights that join them to the language model."""
        return sum(tensor.params for tensor in self.tensors if tensor.group in TOWERS)

    @property
    def active_params(self) -> int:
        """The parameters that one token computes with, its input embedding and the chosen experts' share included.
        Neither convention counts tables that layers only look up, nor towers for images and sound."""
        away = ("per_layer_embedding", "mtp", "routed_experts", *TOWERS)
        whole = sum(tensor.params for tensor in self.tensors if tensor.group not in away)
        routed = sum(tensor.params for tensor in self.tensors if tensor.group == "routed_experts")
        return whole + (routed * self.experts_per_token // self.experts if self.experts else 0)

    @property
    def active_params_without_embedding(self) -> int:
        """`active_params` without the input embedding; the same number if that matrix computes the output, too."""
        tied = not any(tensor.group == "lm_head" for tensor in self.tensors)
        looked_up = sum(tensor.params for tensor in self.tensors if tensor.group == "embedding")
        return self.active_params - (0 if tied else looked_up)

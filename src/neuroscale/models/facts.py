"""What planning knows of a model: its tensors, what its layers keep in the KV cache, and how sure that is."""

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
"""What a tensor is for. `lm_head` is absent where it is the embedding's own matrix (tied); `mtp`: layers that predict
several tokens at once, which vLLM loads for speculative decoding alone; `recurrent`: of layers that keep a state."""

TOWERS: tuple[Group, ...] = ("vision", "audio", "projector")

Sharding = Literal["replicated", "split", "vocabulary", "kv_heads", "experts", "state_groups"]
"""How vLLM lays a tensor over the ranks of tensor parallelism: whole on each, split evenly, by rows of the vocabulary
(padded), by KV heads (replicated where there are fewer heads than ranks), by experts or their width, or by the groups
of a Mamba-2 layer (a group on each rank where the ranks do not divide them)."""

Dtype = Literal["bfloat16", "float16", "float32"]

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "half": 2, "float": 4}
"""Of a value, by vLLM's names."""

Basis = Literal["headers", "config", "estimate"]
"""Bytes as the safetensors headers tell them; counted from a config of a known architecture; or of an unknown one."""


@dataclass(frozen=True)
class Tensor:
    """`copies` weight tensors of one shape. `name` as in the checkpoint, `{}` for the numbers of layers and experts.

    `linear`: a matrix that quantisation methods convert; others keep the model's dtype.
    """

    name: str
    group: Group
    shape: tuple[int, ...]
    copies: int
    sharding: Sharding
    linear: bool

    @cached_property
    def params(self) -> int:
        """Of all copies."""
        return math.prod(self.shape) * self.copies


@dataclass(frozen=True)
class CacheLayers:
    """`layers` layers that keep the same in the KV cache; layers that read another one's cache are in none.

    `window`: tokens of a sliding window or of a chunk. `latent`: one vector of `head_dim` values a token, on every
    rank (multi-head latent attention; `kv_heads` is 1 and `value_head_dim` 0). Else keys of `head_dim` and values of
    `value_head_dim` for each of the `kv_heads`.
    """

    kind: Literal["full", "sliding", "chunked", "latent"]
    layers: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window: int | None = None


StateKind = Literal["mamba1", "mamba2", "gated_delta", "short_conv"]
"""Mamba's and Mamba-2's state space, a gated delta rule (Qwen3-Next), or a convolution alone (LFM2)."""


@dataclass(frozen=True)
class StateLayers:
    """`layers` layers that keep a state of one size for each request, however long the request is.

    The state is `heads` matrices of `rows` x `columns` values, and what a convolution over `kernel` tokens looks back
    at: `channels` values of each token before the last, and twice `group_width` for each of the `groups` that heads
    share. `dtype`: of the matrices, where the model says so and no argument does (None: as the convolution's).
    """

    kind: StateKind
    layers: int
    heads: int
    rows: int
    columns: int
    channels: int
    kernel: int
    groups: int = 0
    group_width: int = 0
    dtype: Dtype | None = None


@dataclass(frozen=True)
class RotaryTable:
    """Sines and cosines of `rows` positions, `width` values each, in the model's dtype or in float32."""

    rows: int
    width: int
    full_precision: bool = False


@dataclass(frozen=True)
class Quantization:
    """`method` as config.json names it (gptq, awq, fp8, compressed-tensors, mxfp4, modelopt, bitsandbytes, ...).

    `bits` of a weight; `group_size`: weights that share a scale (None: one for each output row or tensor);
    `scale_bytes` of one; `zero_points`: beside each scale one of `bits`. `ignored`: patterns of tensors that keep the
    model's dtype. `kv_cache`: how the checkpoint wants its KV cache kept, where it says so.
    """

    method: str
    bits: int
    group_size: int | None = None
    block: tuple[int, int] | None = None
    scale_bytes: int = 2
    zero_points: bool = False
    ignored: tuple[str, ...] = ()
    kv_cache: Literal["fp8", "nvfp4"] | None = None


@dataclass(frozen=True)
class ModelFacts:
    """A model as its config (and, where known, the headers of its files) tells it.

    `weight_bytes`: by group, as files or counting say, before tensor parallelism. `heads`: of attention (queries).
    `max_position_embeddings`: the longest context that vLLM allows; `default_length`: what it takes where none is asked
    for (None: the longest); `length_by_yarn`: what releases allow that multiply YaRN's first positions by its factor
    (None: the same). `parts_missing`: a tower is not in `weight_bytes`. `file_dtype`: of the weights in the files,
    where their headers are known. `states`: what layers keep in place of, or beside, keys and values.
    `predicting`: what layers of multi-token prediction keep, where they are served. `config`: what all this was read
    from.
    `experts_per_token`: 0 for dense models. `notes`: what was assumed or left out, as sentences. `bytes_by_dtype`: the
    same bytes by the names that safetensors gives dtypes, or by the quantisation method's where they are counted.
    """

    name: str
    model_type: str
    architectures: tuple[str, ...]
    kind: Literal["moe", "dense"]
    dtype: Dtype
    num_layers: int
    hidden_size: int
    vocab_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    experts: int
    experts_per_token: int
    moe_intermediate_size: int
    tensors: tuple[Tensor, ...]
    cache: tuple[CacheLayers, ...]
    quantization: Quantization | None
    weight_bytes: Mapping[Group, int]
    basis: Basis
    multimodal: bool
    source: str
    notes: tuple[str, ...] = field(default=())
    bytes_by_dtype: Mapping[str, int] = field(default_factory=dict)
    rotary: tuple[RotaryTable, ...] = ()
    default_length: int | None = None
    length_by_yarn: int | None = None
    file_dtype: str | None = None
    parts_missing: bool = False
    states: tuple[StateLayers, ...] = ()
    predicting: tuple[CacheLayers, ...] = ()
    config: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def longest_context(self, *, windows: bool = True) -> int:
        """The most tokens of a request. `windows`: false where --disable-sliding-window makes the window the limit."""
        limits = [layers.window for layers in self.cache if layers.kind == "sliding" and layers.window]
        return min([self.max_position_embeddings, *([] if windows else limits)])

    def default_context(self, *, windows: bool = True) -> int:
        """The tokens of a request that a command without --max-model-len allows."""
        return min(self.default_length or self.max_position_embeddings, self.longest_context(windows=windows))

    @property
    def total_params(self) -> int:
        """Of the language model, without multi-token prediction: what publishers mean by a model's size, mostly."""
        return sum(tensor.params for tensor in self.tensors if tensor.group not in ("mtp", *TOWERS))

    @property
    def tower_params(self) -> int:
        """Of the towers for images and sound, and of what joins them to the language model."""
        return sum(tensor.params for tensor in self.tensors if tensor.group in TOWERS)

    @property
    def active_params(self) -> int:
        """What one token computes with, its input embedding included: of the routed experts the share that is chosen.

        Tables that are only looked up layer by layer count in neither convention; towers for images and sound neither.
        """
        away = ("per_layer_embedding", "mtp", "routed_experts", *TOWERS)
        whole = sum(tensor.params for tensor in self.tensors if tensor.group not in away)
        routed = sum(tensor.params for tensor in self.tensors if tensor.group == "routed_experts")
        return whole + (routed * self.experts_per_token // self.experts if self.experts else 0)

    @property
    def active_params_without_embedding(self) -> int:
        """`active_params` without the input embedding; the same where that matrix computes the output, too."""
        tied = not any(tensor.group == "lm_head" for tensor in self.tensors)
        looked_up = sum(tensor.params for tensor in self.tensors if tensor.group == "embedding")
        return self.active_params - (0 if tied else looked_up)

"""Computes weights and states of layers that keep a state, and those of attention over compressed tokens.

Shapes and shardings follow vLLM 0.32: model_executor/layers/mamba (mamba_mixer2.py, gdn/qwen_gdn_linear_attn.py),
mamba_utils.py, and models/deepseek_v4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neuroscale.models.facts import CacheLayers, Dtype, StateLayers
from neuroscale.models.weights import Weights

INDEXED = 4
"""The ratio at which layers have an indexer."""


@dataclass(frozen=True)
class CompressedAttention:
    """Attention whose `heads` heads share one vector of `head_dim` values a token, of which `rope_dim` are turned."""

    heads: int
    head_dim: int
    rope_dim: int
    window: int
    # Tokens of a compressed vector (0: the layer reads its window alone). Queries are compressed to `query_rank`
    # values, and the output, in `groups` groups, to `output_rank` values each.
    ratio: int
    query_rank: int
    groups: int
    output_rank: int
    index_heads: int
    index_dim: int
    block: str = "attn"

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}{self.block}."
        out.linear(f"{at}wq_a", "attention", (hidden, self.query_rank), "replicated")
        out.linear(f"{at}wkv", "attention", (hidden, self.head_dim), "replicated")
        out.linear(f"{at}wq_b", "attention", (self.query_rank, self.heads * self.head_dim), "split")
        of_group = self.heads * self.head_dim // self.groups
        out.linear(f"{at}wo_a", "attention", (of_group, self.groups * self.output_rank), "split")
        out.linear(f"{at}wo_b", "attention", (self.groups * self.output_rank, hidden), "split")
        out.add(f"{at}q_norm.weight", "norm", (self.query_rank,))
        out.add(f"{at}kv_norm.weight", "norm", (self.head_dim,))
        # vLLM pads the heads of a rank to those of the whole layer.
        out.add(f"{at}attn_sink", "attention", (self.heads,), full_precision=True)
        if self.ratio:
            self._compressor(out, f"{at}compressor.", hidden, self.head_dim)
        if self.ratio == INDEXED:
            at = f"{at}indexer."
            out.linear(f"{at}wq_b", "attention", (self.query_rank, self.index_heads * self.index_dim), "replicated")
            out.linear(f"{at}weights_proj", "attention", (hidden, self.index_heads), "replicated", convert=False)
            self._compressor(out, f"{at}compressor.", hidden, self.index_dim)

    def _compressor(self, out: Weights, at: str, hidden: int, width: int) -> None:
        made = overlapping(self.ratio) * width
        out.add(f"{at}ape", "attention", (self.ratio, made), full_precision=True)
        for name in ("wkv", "wgate"):
            out.linear(at + name, "attention", (hidden, made), "replicated", convert=False)
        out.add(f"{at}norm.weight", "norm", (width,))

    def caches(self) -> tuple[CacheLayers, ...]:
        """The caches of this layer."""
        window = CacheLayers("latent_window", 1, 1, self.head_dim, 0, self.window)
        if not self.ratio:
            return (window,)
        widths = (self.head_dim, *([self.index_dim] if self.ratio == INDEXED else []))
        kept = overlapping(self.ratio) * self.ratio
        compressors = tuple(CacheLayers("compressor", 1, 1, width, 0, kept, self.ratio) for width in widths)
        vectors = CacheLayers("compressed", 1, 1, self.head_dim, 0, None, self.ratio)
        keys = CacheLayers("compressed_indexer", 1, 1, self.index_dim, 0, None, self.ratio)
        return (window, vectors, *([keys] if self.ratio == INDEXED else []), *compressors)


def overlapping(ratio: int) -> int:
    """How many compressed vectors a token goes into: at the ratio 4 neighbours overlap (`DeepseekCompressor`)."""
    return 2 if ratio == INDEXED else 1


BLOCK = 256
"""Tokens of a block of compressed vectors: the only size of vLLM's kernels for them."""
_WINDOW_BLOCK = 64
_COMPRESSOR_BLOCKS = {INDEXED: 4, 128: 8}
_ROW = 584
"""Bytes of a vector of 512 values in the format fp8_ds_mla: 448 in 8 bits, 64 in 16 bits, and 8 bytes of scales."""
_KEY_SCALED, _KEY_SCALE = 128, 4
_ALIGNED = 576
_FLOAT = 4


def page_of(kind: CacheLayers) -> tuple[int, int]:
    """The tokens of a block of one layer's cache, and the bytes of its page, in the format that FlashMLA reads. Source:
    `get_kv_cache_spec` in models/deepseek_v4/attention.py and compressor.py, and in
    v1/attention/backends/mla/sparse_swa.py of vLLM 0.32."""
    if kind.kind == "latent_window":
        return _WINDOW_BLOCK, _aligned(_WINDOW_BLOCK * _ROW)
    if kind.kind == "compressor":
        block = _COMPRESSOR_BLOCKS[kind.ratio]
        values = 2 * overlapping(kind.ratio) * kind.head_dim  # inputs and scores
        return block, _aligned(block * values * _FLOAT)
    key = kind.head_dim + kind.head_dim // _KEY_SCALED * _KEY_SCALE
    return BLOCK, _aligned(BLOCK // kind.ratio * (key if kind.kind == "compressed_indexer" else _ROW))


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNED) * _ALIGNED


@dataclass(frozen=True)
class GatedDelta:
    """A gated delta rule over `value_heads` matrices of `value_dim` x `key_dim` values (Qwen3-Next, Qwen3.5)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    # The checkpoint has one matrix for queries, keys, values and the gate, and one for the two vectors of each head;
    # otherwise it has four matrices.
    fused: bool
    dtype: Dtype | None = None  # as in `StateLayers`

    @property
    def channels(self) -> int:
        """Values of a token that the convolution reads: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}linear_attn."
        values = self.value_heads * self.value_dim
        parts = (
            (("in_proj_qkvz", self.channels + values), ("in_proj_ba", 2 * self.value_heads))
            if self.fused
            else (
                ("in_proj_qkv", self.channels),
                ("in_proj_z", values),
                ("in_proj_b", self.value_heads),
                ("in_proj_a", self.value_heads),
            )
        )
        for name, width in parts:
            out.linear(at + name, "recurrent", (hidden, width), "split")
        out.add(f"{at}conv1d.weight", "recurrent", (self.channels, 1, self.kernel), "split")
        out.add(f"{at}A_log", "recurrent", (self.value_heads,), "split", full_precision=True)
        out.add(f"{at}dt_bias", "recurrent", (self.value_heads,), "split")
        out.add(f"{at}norm.weight", "norm", (self.value_dim,))
        out.linear(f"{at}out_proj", "recurrent", (values, hidden), "split")

    def state(self) -> StateLayers:
        """The state of this layer."""
        size = (self.value_heads, self.value_dim, self.key_dim)
        return StateLayers("gated_delta", 1, *size, self.channels, self.kernel, dtype=self.dtype)


@dataclass(frozen=True)
class Mamba2:
    """Mamba-2: `heads` matrices of `head_dim` x `state_size` values."""

    inner: int  # values of a token inside the block
    heads: int
    head_dim: int
    state_size: int
    groups: int  # the heads of each share inputs and outputs
    kernel: int
    conv_bias: bool = True  # the convolution has a bias
    bias: bool = False  # the two matrices have biases
    norm: bool = True  # the output has a norm
    block: str = "mamba"
    dtype: Dtype | None = None  # as in `StateLayers`

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}{self.block}."
        shared = 2 * self.groups * self.state_size
        # vLLM splits the two kinds of rows of this one tensor differently.
        out.linear(f"{at}in_proj", "recurrent", (hidden, 2 * self.inner + self.heads), "split", bias=self.bias)
        out.linear(f"{at}in_proj", "recurrent", (hidden, shared), "state_groups", bias=self.bias)
        for rows, sharding in ((self.inner, "split"), (shared, "state_groups")):
            out.add(f"{at}conv1d.weight", "recurrent", (rows, 1, self.kernel), sharding)  # type: ignore[arg-type]
            if self.conv_bias:
                out.add(f"{at}conv1d.bias", "recurrent", (rows,), sharding)  # type: ignore[arg-type]
        for name in ("A_log", "D", "dt_bias"):
            out.add(at + name, "recurrent", (self.heads,), "split", full_precision=name == "A_log")
        if self.norm:
            out.add(f"{at}norm.weight", "norm", (self.inner,), "split")
        out.linear(
            f"{at}out_proj", "recurrent", (self.inner, hidden), "split", bias=self.bias, bias_sharding="replicated"
        )

    def state(self) -> StateLayers:
        """The state of this layer."""
        size, groups = (self.heads, self.head_dim, self.state_size), (self.groups, self.state_size)
        return StateLayers("mamba2", 1, *size, self.inner, self.kernel, *groups, self.dtype)


Mixer = GatedDelta | Mamba2

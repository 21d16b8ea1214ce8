"""Computes the weights and the KV caches of attention over compressed tokens (DeepSeek V4).

Each layer keeps the vectors of a short window of tokens. Layers with a `ratio` also keep one vector for each `ratio`
tokens, and the inputs from which the next one is made; of ratio 4, an indexer chooses the vectors that are read. The
names are the checkpoint's; the layout over the ranks is that of models/deepseek_v4 of vLLM 0.32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neuroscale.models.facts import CacheLayers
from neuroscale.models.weights import Weights

INDEXED = 4
"""The ratio at which layers have an indexer."""


@dataclass(frozen=True)
class CompressedAttention:
    """Attention whose `heads` heads share one vector of `head_dim` values a token, of which `rope_dim` are turned.

    `ratio`: tokens of a compressed vector (0: the layer reads its window alone). Queries are compressed to `query_rank`
    values, and the output, in `groups` groups, to `output_rank` values each.
    """

    heads: int
    head_dim: int
    rope_dim: int
    window: int
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
    """The tokens of a block of one layer's cache, and the bytes of its page, in the format that FlashMLA reads.

    Source: `get_kv_cache_spec` in models/deepseek_v4/attention.py and compressor.py, and in
    v1/attention/backends/mla/sparse_swa.py of vLLM 0.32.
    """
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

"""Computes the bytes that a token takes in the KV cache, and those of the state that layers keep for a request.

The shapes are those of `MambaStateShapeCalculator` of vLLM 0.32 (model_executor/layers/mamba/mamba_utils.py).
"""

from __future__ import annotations

import math

from neuroscale.models.facts import COMPRESSED, DTYPE_BYTES, CacheLayers, StateLayers
from neuroscale.models.mixers import page_of


def state_bytes(
    kind: StateLayers,
    dtype: str = "bfloat16",
    recurrent_dtype: str = "auto",
    *,
    ranks: int = 1,
    speculative_tokens: int = 0,
) -> int:
    """Bytes of one layer's state of one request, on one of `ranks` ranks of tensor parallelism. `dtype`: the dtype of
    the convolution's inputs; `recurrent_dtype`: the dtype of the matrices (auto: the model's choice, or else the same
    dtype). `speculative_tokens`: the guessed tokens that a step checks; the convolution keeps their inputs, too."""
    if recurrent_dtype == "auto":
        recurrent_dtype = kind.dtype or dtype
    looked_back = kind.kernel - 1 + speculative_tokens
    channels = kind.channels + 2 * kind.group_width * groups_on_all(kind, ranks)
    matrices = kind.heads // ranks * kind.rows * kind.columns
    return channels // ranks * looked_back * DTYPE_BYTES[dtype] + matrices * DTYPE_BYTES[recurrent_dtype]


def groups_on_all(kind: StateLayers, ranks: int) -> int:
    """The groups that all ranks hold together: one on each rank if the ranks do not divide the groups."""
    return kind.groups if kind.groups % ranks == 0 else ranks


def undivided(kind: StateLayers, ranks: int) -> str:
    """The part of a state that `ranks` ranks cannot divide, in words; empty if they can divide all of it."""
    if kind.heads % ranks:
        return f"{kind.heads} heads of the layers that keep a state"
    if kind.groups > 1 and kind.groups % ranks:
        return f"{kind.groups} groups of the layers that keep a state"
    if kind.channels % ranks:
        return f"{kind.channels} channels of the layers that keep a state"
    return ""


_INDEXED, _SCALE = 128, 4
"""Values of an indexer's key that share a scale, and its bytes (`Indexer` of model_executor/models/deepseek_v2.py)."""

SPARSE_CACHE, _SPARSE_ROW = "fp8_ds_mla", 656
"""The 8-bit format of sparse latent attention, and its bytes of a token, whatever the rank (`get_kv_cache_spec` of
model_executor/layers/attention/mla_attention.py)."""


def bytes_per_token(kind: CacheLayers, dtype: str = "bfloat16", *, ranks: int = 1) -> int:
    """Bytes of a token in the cache of one layer, on one of `ranks` ranks of tensor parallelism. `dtype`: the dtype of
    the cache. Without --kv-cache-dtype, a model of float32 keeps 16 bits, too. Attention over compressed tokens has one
    format, whatever the dtype. In a cache of an unknown dtype, each number counts as one byte."""
    if kind.kind in COMPRESSED:
        tokens, size = page_of(kind)
        return math.ceil(size / tokens)
    if kind.kind == "indexer":
        return kind.head_dim + kind.head_dim // _INDEXED * _SCALE
    if dtype == SPARSE_CACHE and kind.kind == "latent":
        return _SPARSE_ROW
    # In NVFP4, 16 values of half a byte share a scale of one.
    width = 9 / 16 if dtype.startswith("nvfp4") else DTYPE_BYTES.get(dtype, 1)
    # Latent layers have one head on every rank.
    return math.ceil(math.ceil(kind.kv_heads / ranks) * (kind.head_dim + kind.value_head_dim) * width)

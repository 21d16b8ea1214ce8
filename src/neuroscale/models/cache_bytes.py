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
    # Mamba keeps no inputs of guessed tokens; LFM2's layers do, and vLLM makes their pages without (models/lfm2.py).
    guessed = 0 if kind.kind in ("mamba1", "short_conv") else speculative_tokens
    looked_back = kind.kernel - 1 + guessed
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


_PACKED = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
    "ultraquant_4bit": (4, 4),
}
"""Bits of each number of a key, and of each number of a value (layers/quantization/turboquant/config.py)."""

_EDGES = 4
"""The number of layers (the first two and the last two) that keep the model's dtype where the others are packed."""

_SCALE = 4  # bytes of the scale that vLLM keeps for each head of each token (v1/attention/backends/triton_attn.py)

_INDEXED = 128  # values of an indexer's key that share a scale (`Indexer` of model_executor/models/deepseek_v2.py)

SPARSE_CACHE, _SPARSE_ROW = "fp8_ds_mla", 656
"""The 8-bit format of sparse latent attention, and its bytes of a token, whatever the rank (`get_kv_cache_spec` of
model_executor/layers/attention/mla_attention.py)."""


def bytes_per_token(
    kind: CacheLayers,
    dtype: str = "bfloat16",
    *,
    ranks: int = 1,
    model_dtype: str = "bfloat16",
    model_layers: int | None = None,
) -> int:
    """Bytes of a token in the cache of one layer, on one of `ranks` ranks of tensor parallelism. `dtype`: the dtype of
    the cache. Without --kv-cache-dtype, a model of float32 keeps 16 bits, too. With a packed dtype, the first two and
    the last two of the `model_layers` keep `model_dtype` (None: every layer is packed); the result is then the mean of
    all layers. Attention over compressed tokens has one format, whatever the dtype."""
    if kind.kind in COMPRESSED:
        tokens, size = page_of(kind)
        return math.ceil(size / tokens)
    if kind.kind == "indexer":
        return kind.head_dim + kind.head_dim // _INDEXED * _SCALE
    if dtype == SPARSE_CACHE and kind.kind == "latent":
        return _SPARSE_ROW
    of_head = _head_bytes(kind, dtype)
    if dtype in _PACKED and model_layers is not None:
        kept = min(_EDGES / model_layers, 1.0)
        of_head += kept * max(_head_bytes(kind, model_dtype) - of_head, 0.0)
    return math.ceil(math.ceil(kind.kv_heads / ranks) * of_head)


def _head_bytes(kind: CacheLayers, dtype: str) -> float:
    """Bytes of one head of one token: its key and its value. Latent layers have one head on every rank."""
    value = _bytes(kind.value_head_dim, dtype, is_key=False) if kind.value_head_dim else 0.0
    return _bytes(kind.head_dim, dtype, is_key=True) + value


def _bytes(size: int, dtype: str, *, is_key: bool) -> float:
    """Bytes of `size` numbers and their scales. In a cache of an unknown dtype, each number counts as one byte."""
    if dtype in DTYPE_BYTES:
        return size * DTYPE_BYTES[dtype]
    if dtype in _PACKED:
        bits = _PACKED[dtype][0 if is_key else 1]
        beside = 4 if not is_key else 0 if bits == 8 else 2
        return math.ceil(size * bits / 8) + beside
    if dtype.endswith("_per_token_head"):
        return size * (0.5 if dtype.startswith("int4") else 1.0) + _SCALE
    if dtype.startswith("nvfp4"):
        return size * 9 / 16  # 16 values of half a byte share a scale of one
    return float(size)

"""Bytes of a token in the KV cache, by --kv-cache-dtype."""

from __future__ import annotations

import math

from neuroscale.models.facts import DTYPE_BYTES, CacheLayers

_PACKED = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
    "ultraquant_4bit": (4, 4),
}
"""Bits of a key's and of a value's numbers (layers/quantization/turboquant/config.py)."""

_EDGES = 4
"""Layers, the first and the last two, that keep the model's dtype where the others are packed."""

_SCALE = 4
"""Bytes of the scale that each head of a token has of its own (v1/attention/backends/triton_attn.py)."""


def bytes_per_token(
    kind: CacheLayers,
    dtype: str = "bfloat16",
    *,
    ranks: int = 1,
    model_dtype: str = "bfloat16",
    model_layers: int | None = None,
) -> int:
    """Of one layer, on one of `ranks` ranks of tensor parallelism.

    `dtype`: of the cache; a model of float32 keeps 16 bits, too, where nothing else is asked for. Where it packs the
    values, the first and the last of the `model_layers` (None: no layer) keep `model_dtype`: this is their mean then.
    """
    of_head = _head_bytes(kind, dtype)
    if dtype in _PACKED and model_layers is not None:
        kept = min(_EDGES / model_layers, 1.0)
        of_head += kept * max(_head_bytes(kind, model_dtype) - of_head, 0.0)
    return math.ceil(math.ceil(kind.kv_heads / ranks) * of_head)


def _head_bytes(kind: CacheLayers, dtype: str) -> float:
    """Of one head of one token: its key and its value. Latent layers have one head on every rank."""
    value = _bytes(kind.value_head_dim, dtype, is_key=False) if kind.value_head_dim else 0.0
    return _bytes(kind.head_dim, dtype, is_key=True) + value


def _bytes(size: int, dtype: str, *, is_key: bool) -> float:
    """Of `size` numbers and what belongs to them. A kind of cache that is not known is taken for bytes."""
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

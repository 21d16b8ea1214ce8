"""What a key or a value takes in the KV cache, by --kv-cache-dtype."""

from __future__ import annotations

import math

from neuroscale.models.facts import CacheLayers
from neuroscale.planning.fit.weights import DTYPE_BYTES

PACKED = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
    "ultraquant_4bit": (4, 4),
}
"""Bits of a key's and of a value's numbers (layers/quantization/turboquant/config.py)."""

EDGES = 4
"""Layers, the first and the last two, that keep the model's dtype where the others are packed."""

_SCALE = 4
"""Bytes of the scale that each head of a token has of its own (v1/attention/backends/triton_attn.py)."""


def head_bytes(kind: CacheLayers, dtype: str) -> float:
    """Of one head of one token: its key and its value."""
    value = _bytes(kind.value_head_dim, dtype, is_key=False) if kind.value_head_dim else 0.0
    return _bytes(kind.head_dim, dtype, is_key=True) + value


def _bytes(size: int, dtype: str, *, is_key: bool) -> float:
    """Of `size` numbers and what belongs to them. A kind of cache that is not known is taken for bytes."""
    if dtype in DTYPE_BYTES:
        return size * DTYPE_BYTES[dtype]
    if dtype in PACKED:
        bits = PACKED[dtype][0 if is_key else 1]
        beside = 4 if not is_key else 0 if bits == 8 else 2
        return math.ceil(size * bits / 8) + beside
    if dtype.endswith("_per_token_head"):
        return size * (0.5 if dtype.startswith("int4") else 1.0) + _SCALE
    if dtype.startswith("nvfp4"):
        return size * 9 / 16  # 16 values of half a byte share a scale of one
    return float(size)

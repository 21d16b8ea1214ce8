"""Counts the bytes that a tensor takes in the model's files and in an accelerator's memory, quantised or not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuroscale.models.facts import DTYPE_BYTES, Quantization


def stored_bytes(shape: Sequence[int], copies: int, quantization: Quantization | None, dtype: str) -> int:
    """Bytes of `copies` tensors, with scales and zero points if they are quantised."""
    count = math.prod(shape)
    if quantization is None:
        return count * copies * DTYPE_BYTES[dtype]
    rows, columns = (shape[0], shape[1]) if len(shape) == 2 else (1, count)
    if quantization.block:
        scales = math.ceil(rows / quantization.block[0]) * math.ceil(columns / quantization.block[1])
    elif quantization.group_size:
        scales = rows * math.ceil(columns / quantization.group_size)
    else:
        scales = rows
    zeros = scales * quantization.bits / 8 if quantization.zero_points else 0
    return copies * (math.ceil(count * quantization.bits / 8 + zeros) + scales * quantization.scale_bytes)

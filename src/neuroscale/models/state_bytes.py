"""Computes the bytes of the state that layers keep for a request: `state_bytes`.

The shapes are those of `MambaStateShapeCalculator` of vLLM 0.32 (model_executor/layers/mamba/mamba_utils.py).
"""

from __future__ import annotations

from neuroscale.models.facts import DTYPE_BYTES, StateLayers


def state_bytes(
    kind: StateLayers,
    dtype: str = "bfloat16",
    recurrent_dtype: str = "auto",
    *,
    ranks: int = 1,
    speculative_tokens: int = 0,
) -> int:
    """Bytes of one layer's state of one request, on one of `ranks` ranks of tensor parallelism.

    `dtype`: the dtype of the convolution's inputs; `recurrent_dtype`: the dtype of the matrices (auto: the model's
    choice, or else the same dtype). `speculative_tokens`: the guessed tokens that a step checks; the convolution keeps
    their inputs, too.
    """
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

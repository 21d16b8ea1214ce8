"""Computes the sizes of vLLM's rotary embedding tables, which lie beside the weights and are whole on each rank."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuroscale.models.compressed_attention import CompressedAttention
from neuroscale.models.config_keys import Keys
from neuroscale.models.context import LONG, rope_factor, rope_kind, rope_scaling
from neuroscale.models.facts import RotaryTable
from neuroscale.models.layers import Attention, LatentAttention

_IN_FULL_PRECISION = ("gpt_oss",)
"""Model types whose table vLLM keeps in float32, whatever the model's dtype (model_executor/models/gpt_oss.py)."""
_WINDOWS_APART = ("gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified_text")
"""Model types whose windowed layers have a table of their own, with another base and without scaling."""
_TURNED_PART = {"qwen3_next": 0.25, "qwen3_5_text": 0.25, "qwen3_5_moe_text": 0.25}
"""The default share of a head that is rotated, from the classes of these model types in transformers."""
_STRETCHED = ("linear",)
"""Scalings whose tables have as many rows as the positions times their factor."""
_FROM_THE_ORIGINAL = ("yarn", "deepseek_yarn")
"""Scalings whose tables have as many rows as the positions of the first training times their factor."""


def rotary_tables(
    text: Keys, attentions: Sequence[Attention | LatentAttention | CompressedAttention], positions: int
) -> tuple[RotaryTable, ...]:
    """The tables of a language model that reads `positions` tokens: as in vLLM, layers with equal tables share one."""
    apart = text.model_type in _WINDOWS_APART
    found: dict[tuple[bool, int, int], RotaryTable] = {}
    for attention in dict.fromkeys(attentions):  # most layers are equal
        if isinstance(attention, CompressedAttention):
            # Layers with and without compressed tokens turn with other bases, and YaRN is for the former alone.
            rows = _rows(text, positions) if attention.ratio else positions
            found[bool(attention.ratio), rows, attention.rope_dim] = RotaryTable(rows, attention.rope_dim, True)
            continue
        if not attention.turned:
            continue
        windowed = apart and isinstance(attention, Attention) and attention.reach == "sliding"
        rows = positions if windowed else _rows(text, positions)
        width = _width(text, attention)
        table = RotaryTable(rows, width, full_precision=text.model_type in _IN_FULL_PRECISION)
        found[windowed, rows, width] = table
        if isinstance(attention, LatentAttention) and attention.indexer and not attention.indexer.interleaved:
            # The indexer turns other pairs of values, and so has a table of its own.
            found[True, rows, width] = table
    return tuple(found.values())


def _scaling(text: Keys) -> Keys | None:
    """The rotary scaling of the layers that see the whole context; None if the file has none."""
    said = rope_scaling(text)
    return None if said is None else said.section("full_attention") or said


def _rows(text: Keys, positions: int) -> int:
    scaling = _scaling(text)
    if scaling is not None and rope_kind(scaling) in LONG:
        # vLLM keeps one table for short prompts and one for long prompts.
        first = text.optional("original_max_position_embeddings") or scaling.optional(
            "original_max_position_embeddings"
        )
        return positions + (first or 0)
    if scaling is None or not isinstance(scaling.raw("factor"), int | float):
        return positions
    factor = rope_factor(scaling, 1.0)
    kind = rope_kind(scaling)
    if kind in _STRETCHED:
        return math.ceil(positions * factor)
    original = scaling.optional("original_max_position_embeddings")
    if kind in _FROM_THE_ORIGINAL and original:
        return math.ceil(original * factor)
    return positions


def _width(text: Keys, attention: Attention | LatentAttention) -> int:
    if isinstance(attention, LatentAttention):
        return attention.rope_dim
    if text.model_type in _WINDOWS_APART:
        # The table is as wide as the whole head, even if only a part of the head is rotated.
        return attention.head_dim
    whole = text.optional("rotary_dim")
    if whole:
        return min(whole, attention.head_dim)
    scaling = _scaling(text)
    for said in (text, scaling):
        part = said.raw("partial_rotary_factor") if said is not None else None
        if isinstance(part, int | float) and 0 < part <= 1:
            return int(attention.head_dim * part)
    return int(attention.head_dim * _TURNED_PART.get(text.model_type, 1.0))

"""Describes the decoder of a language model, which a family builds from a config.json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuroscale.models.keys import Keys
from neuroscale.models.layers import Extra, Layer


@dataclass(frozen=True)
class Decoder:
    """The text tower: its layers, and the tensors around them.

    `extras`: tensors below `model.`. `predicting`: layers of multi-token prediction; a checkpoint numbers them after
    the others, or has them below `predicting_at` without an embedding and an LM head of their own. `final_norm`: the
    names of the final norm's tensors. `estimated`: the layout is an assumption.
    """

    layers: tuple[Layer, ...]
    hidden: int
    experts: int = 0
    experts_per_token: int = 0
    extras: tuple[Extra, ...] = ()
    predicting: tuple[Layer, ...] = ()
    predicting_at: str = ""
    final_norm: tuple[str, ...] = ("norm.weight",)
    lm_head_bias: bool = False
    embedding_width: int | None = None
    estimated: bool = False
    notes: tuple[str, ...] = ()


Family = Callable[[Keys], Decoder]
"""Makes a decoder from the keys of a text tower. Raises InputError for a config that the family cannot have."""

"""Describes the decoder of a language model, which a family builds from a config.json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuroscale.models.config_keys import Keys
from neuroscale.models.layers import Extra, Layer


@dataclass(frozen=True)
class Decoder:
    """The text tower: its layers, and the tensors around them.

    `extras`: tensors below `model.`. `predicting`: layers of multi-token prediction; a checkpoint numbers them after
    the others, or has them below `predicting_at` without an embedding and an LM head of their own. `predicting_names`:
    the names, below `predicting_at`, of the matrix that joins an embedding and the output, and of three norms.
    `final_norm`: the names of the final norm's tensors. `estimated`: the layout is an assumption.
    """

    layers: tuple[Layer, ...]
    hidden: int
    experts: int = 0
    experts_per_token: int = 0
    extras: tuple[Extra, ...] = ()
    predicting: tuple[Layer, ...] = ()
    predicting_at: str = ""
    predicting_names: tuple[str, ...] = ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    final_norm: tuple[str, ...] = ("norm.weight",)
    lm_head_bias: bool = False
    embedding_width: int | None = None
    estimated: bool = False
    notes: tuple[str, ...] = ()


Family = Callable[[Keys], Decoder]
"""Makes a decoder from the keys of a text tower. Raises InputError for a config that the family cannot have."""

"""What a family makes of a config.json: the decoder of a language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuroscale.models.keys import Keys
from neuroscale.models.layers import Extra, Layer


@dataclass(frozen=True)
class Decoder:
    """The text tower: its layers, and the tensors around them.

    `extras`: below `model.`. `predicting`: layers of multi-token prediction, which a checkpoint numbers behind the
    others, or has below `predicting_at` with the embedding and the LM head of the others. `final_norm`: the names of
    its tensors. `estimated`: the layout is an assumption.
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
"""The keys of a text tower to its decoder. Raises InputError for a config that the family cannot have."""

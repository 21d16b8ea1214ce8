"""Counts towers of an unknown layout as plain layers of the sizes in the file."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from neuroscale.models.config_keys import Keys
from neuroscale.models.facts import Group
from neuroscale.models.towers.blocks import CLIP_BLOCK, add_blocks, add_projection
from neuroscale.models.weights import Weights

Certainty = Literal["known", "assumed", "missing"]
"""All layouts are known; or some are assumed to be plain layers; or some towers are not counted at all."""


def assume(c: Keys, section: str, group: Group, out: Weights, hidden: int, notes: list[str]) -> Certainty:
    """Count a tower of an unknown layout as plain layers of its sizes, and say so."""
    width = c.optional("hidden_size", "d_model", "width", "embed_dim", "n_embd", high=2**20)
    count = c.optional("num_hidden_layers", "encoder_layers", "layers", "depth", "num_layers", "n_layers", high=500)
    if width is None or count is None:
        notes.append(f"The weights of the tower in {section} are not counted: its layout is unknown here.")
        return "missing"
    inner = c.optional("intermediate_size", "encoder_ffn_dim", "mlp_dim", "ffn_dim", high=2**20) or 4 * width
    block = replace(CLIP_BLOCK, sharding="replicated", group=group)
    add_blocks(out, block, f"{section}.layers.", count, (width, inner))
    assume_projector(out, width, hidden)
    notes.append(f"The layout of the tower in {section} is unknown here: it is counted as {count} plain layers.")
    return "assumed"


def assume_projector(out: Weights, width: int, hidden: int) -> None:
    """Assumes how a tower is joined to the language model: four patches become one token, through two matrices."""
    add_projection(out, "projector.linear_1", (4 * width, hidden), bias=True, sharding="replicated")
    add_projection(out, "projector.linear_2", (hidden, hidden), bias=True, sharding="replicated")

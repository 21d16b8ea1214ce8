"""Builds Pixtral's tower for images."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import Block, add_blocks, add_norm, height_and_width, layer_count, size_of
from neuroscale.models.weights import Weights


def pixtral(c: Keys, out: Weights, _: int) -> int:
    """Pixtral, of Mistral."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    at = "vision_tower."
    rows, columns = height_and_width(c, "patch_size")
    out.add(f"{at}patch_conv.weight", "vision", (hidden, size_of(c, "num_channels"), rows, columns))
    add_norm(out, f"{at}ln_pre", "vision", hidden, bias=False)
    block = Block(
        ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        "attention.o_proj",
        ("feed_forward.gate_proj", "feed_forward.up_proj"),
        "feed_forward.down_proj",
        ("attention_norm", "ffn_norm"),
        bias=False,
        norm_bias=False,
    )
    add_blocks(out, block, f"{at}transformer.layers.", layer_count(c), (hidden, width))
    return hidden

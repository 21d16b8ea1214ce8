"""Builds Llama 4's tower for images."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import (
    Block,
    add_blocks,
    add_norm,
    add_projection,
    height_and_width,
    layer_count,
    patch_count,
    size_of,
)
from neuroscale.models.weights import Weights


def llama4(c: Keys, out: Weights, _: int) -> int:
    """Llama 4, with the adapter after its layers."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    at = "vision_model."
    rows, columns = height_and_width(c, "patch_size")
    out.add(f"{at}class_embedding", "vision", (hidden,))
    out.add(f"{at}positional_embedding_vlm", "vision", (patch_count(c) + 1, hidden))
    out.linear(f"{at}patch_embedding.linear", "vision", (size_of(c, "num_channels") * rows * columns, hidden), "split")
    for name in ("layernorm_pre", "layernorm_post"):
        add_norm(out, at + name, "vision", hidden)
    block = Block(
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.o_proj",
        ("mlp.fc1",),
        "mlp.fc2",
        ("input_layernorm", "post_attention_layernorm"),
    )
    add_blocks(out, block, f"{at}model.layers.", layer_count(c), (hidden, width))
    inner, outer = size_of(c, "projector_input_dim"), size_of(c, "projector_output_dim")
    add_projection(out, f"{at}vision_adapter.mlp.fc1", (width, inner), bias=False, group="vision")
    add_projection(out, f"{at}vision_adapter.mlp.fc2", (inner, outer), bias=False, group="vision")
    return size_of(c, "vision_output_dim")

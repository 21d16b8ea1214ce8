"""Builds GLM-4V's tower for images."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import (
    Block,
    add_blocks,
    add_norm,
    add_projection,
    layer_count,
    patch_count,
    size_of,
)
from neuroscale.models.towers.qwen import qwen_patches
from neuroscale.models.weights import Weights


def glm4v(c: Keys, out: Weights, _: int) -> int:
    """GLM-4V and GLM-4.5V."""
    hidden, given = size_of(c, "hidden_size"), size_of(c, "out_hidden_size")
    width = size_of(c, "intermediate_size")
    block = Block(
        ("attn.qkv",),
        "attn.proj",
        ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj",
        ("norm1", "norm2"),
        bias=c.flag("attention_bias"),
        output_bias=False,
        mlp_bias=False,
        norm_bias=False,
    )
    qwen_patches(c, out, hidden, size_of(c, "in_channels"), bias=True)
    out.add("visual.embeddings.position_embedding.weight", "vision", (patch_count(c), hidden))
    add_blocks(out, block, "visual.blocks.", layer_count(c, "depth"), (hidden, given))
    for name in ("post_conv_layernorm", "post_layernorm"):
        add_norm(out, f"visual.{name}", "vision", hidden, bias=False)
    merge = size_of(c, "spatial_merge_size")
    out.add("visual.downsample.weight", "projector", (given, hidden, merge, merge))
    out.add("visual.downsample.bias", "projector", (given,))
    at = "visual.merger."
    add_projection(out, f"{at}proj", (given, given), bias=False)
    add_norm(out, f"{at}post_projection_norm", "projector", given)
    for name in ("gate_proj", "up_proj"):
        add_projection(out, at + name, (given, width), bias=False)
    add_projection(out, f"{at}down_proj", (width, given), bias=False)
    return given

"""Builds Qwen's towers: for images from Qwen2-VL to Qwen3-VL, and for sound of Qwen2-Audio."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import (
    FUSED_BLOCK,
    GATED_BLOCK,
    Block,
    add_blocks,
    add_norm,
    add_projection,
    height_and_width,
    layer_count,
    size_of,
)
from neuroscale.models.weights import Weights


def qwen2(c: Keys, out: Weights, _: int) -> int:
    """Qwen2-VL."""
    hidden = size_of(c, "embed_dim")
    ratio = c.raw("mlp_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 64:
        raise c.problem("mlp_ratio", "is not a number from 0 to 64")
    qwen_patches(c, out, hidden, size_of(c, "in_channels", "in_chans"), bias=False)
    add_blocks(out, FUSED_BLOCK, "visual.blocks.", layer_count(c, "depth"), (hidden, int(hidden * ratio)))
    add_norm(out, "visual.merger.ln_q", "projector", hidden)
    merged = hidden * size_of(c, "spatial_merge_size") ** 2
    add_projection(out, "visual.merger.mlp.0", (merged, merged), bias=True)
    add_projection(out, "visual.merger.mlp.2", (merged, size_of(c, "hidden_size")), bias=True)
    return merged


def qwen2_5(c: Keys, out: Weights, _: int) -> int:
    """Qwen2.5-VL and Qwen2.5-Omni."""
    hidden = size_of(c, "hidden_size")
    qwen_patches(c, out, hidden, size_of(c, "in_channels", "in_chans"), bias=False)
    add_blocks(out, GATED_BLOCK, "visual.blocks.", layer_count(c, "depth"), (hidden, size_of(c, "intermediate_size")))
    add_norm(out, "visual.merger.ln_q", "projector", hidden, bias=False)
    merged = hidden * size_of(c, "spatial_merge_size") ** 2
    add_projection(out, "visual.merger.mlp.0", (merged, merged), bias=True)
    add_projection(out, "visual.merger.mlp.2", (merged, size_of(c, "out_hidden_size")), bias=True)
    return merged


def qwen3(c: Keys, out: Weights, _: int) -> int:
    """Qwen3-VL, which joins some of its layers to the language model, too."""
    hidden = size_of(c, "hidden_size")
    block = replace(FUSED_BLOCK, gate_up=("mlp.linear_fc1",), down="mlp.linear_fc2")
    qwen_patches(c, out, hidden, size_of(c, "in_channels"), bias=True)
    out.add("visual.pos_embed.weight", "vision", (size_of(c, "num_position_embeddings"), hidden))
    add_blocks(out, block, "visual.blocks.", layer_count(c, "depth"), (hidden, size_of(c, "intermediate_size")))
    merged = hidden * size_of(c, "spatial_merge_size") ** 2
    deep = c.integers("deepstack_visual_indexes", most=500) or ()
    mergers = ["visual.merger.", *(f"visual.deepstack_merger_list.{number}." for number in range(len(deep)))]
    for at in mergers:
        add_norm(out, f"{at}norm", "projector", hidden if at == mergers[0] else merged)
        add_projection(out, f"{at}linear_fc1", (merged, merged), bias=True)
        add_projection(out, f"{at}linear_fc2", (merged, size_of(c, "out_hidden_size")), bias=True)
    return merged


def qwen_patches(c: Keys, out: Weights, hidden: int, channels: int, *, bias: bool) -> None:
    """Adds the block that makes tokens of the patches of an image or a video."""
    rows, columns = height_and_width(c, "patch_size")
    shape = (hidden, channels, size_of(c, "temporal_patch_size"), rows, columns)
    out.add("visual.patch_embed.proj.weight", "vision", shape)
    if bias:
        out.add("visual.patch_embed.proj.bias", "vision", (hidden,))


def qwen2_audio(c: Keys, out: Weights, text: int) -> int:
    """Qwen2-Audio, with the weights that join it to the language model."""
    hidden, width = size_of(c, "d_model"), size_of(c, "encoder_ffn_dim")
    at = "audio_tower."
    out.add(f"{at}conv1.weight", "audio", (hidden, size_of(c, "num_mel_bins"), 3))
    out.add(f"{at}conv2.weight", "audio", (hidden, hidden, 3))
    for name in ("conv1.bias", "conv2.bias"):
        out.add(at + name, "audio", (hidden,))
    out.add(f"{at}embed_positions.weight", "audio", (size_of(c, "max_source_positions"), hidden))
    block = Block(
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.out_proj",
        ("fc1",),
        "fc2",
        ("self_attn_layer_norm", "final_layer_norm"),
        sharding="replicated",
        group="audio",
        unbiased="self_attn.k_proj",
    )
    add_blocks(out, block, f"{at}layers.", layer_count(c, "encoder_layers"), (hidden, width))
    add_norm(out, f"{at}layer_norm", "audio", hidden)
    out.linear("multi_modal_projector.linear", "projector", (hidden, text), "replicated", bias=True)
    return hidden

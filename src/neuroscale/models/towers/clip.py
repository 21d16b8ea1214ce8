"""Builds the towers for images of CLIP, of SigLIP, and of Idefics 3 and SmolVLM."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import (
    CLIP_BLOCK,
    add_blocks,
    add_norm,
    height_and_width,
    layer_count,
    patch_count,
    size_of,
)
from neuroscale.models.weights import Weights


def siglip(c: Keys, out: Weights, _: int) -> int:
    """SigLIP, with the head that pools its patches."""
    hidden, width = _siglip_body(c, out)
    if c.flag("vision_use_head", True):
        head = "vision_tower.head."
        out.add(f"{head}probe", "vision", (1, 1, hidden))
        out.add(f"{head}attention.in_proj_weight", "vision", (3 * hidden, hidden))
        out.add(f"{head}attention.in_proj_bias", "vision", (3 * hidden,))
        out.linear(f"{head}attention.out_proj", "vision", (hidden, hidden), "replicated", bias=True)
        add_norm(out, f"{head}layernorm", "vision", hidden)
        out.linear(f"{head}mlp.fc1", "vision", (hidden, width), "split", bias=True)
        out.linear(f"{head}mlp.fc2", "vision", (width, hidden), "split", bias=True)
    return hidden


def idefics3(c: Keys, out: Weights, _: int) -> int:
    """SigLIP without a head, as Idefics 3 and SmolVLM have it."""
    return _siglip_body(c, out)[0]


def _siglip_body(c: Keys, out: Weights) -> tuple[int, int]:
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    at = "vision_tower."
    rows, columns = height_and_width(c, "patch_size")
    channels = c.integer("num_channels", high=2**20, default=3)
    out.add(f"{at}embeddings.patch_embedding.weight", "vision", (hidden, channels, rows, columns))
    out.add(f"{at}embeddings.patch_embedding.bias", "vision", (hidden,))
    out.add(f"{at}embeddings.position_embedding.weight", "vision", (patch_count(c), hidden))
    add_blocks(out, CLIP_BLOCK, f"{at}encoder.layers.", layer_count(c), (hidden, width))
    add_norm(out, f"{at}post_layernorm", "vision", hidden)
    return hidden, width


def clip(c: Keys, out: Weights, _: int) -> int:
    """CLIP."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    at = "vision_tower."
    rows, columns = height_and_width(c, "patch_size")
    out.add(f"{at}embeddings.class_embedding", "vision", (hidden,))
    out.add(f"{at}embeddings.patch_embedding.weight", "vision", (hidden, size_of(c, "num_channels"), rows, columns))
    out.add(f"{at}embeddings.position_embedding.weight", "vision", (patch_count(c) + 1, hidden))
    add_norm(out, f"{at}pre_layrnorm", "vision", hidden)
    add_blocks(out, CLIP_BLOCK, f"{at}encoder.layers.", layer_count(c), (hidden, width))
    add_norm(out, f"{at}post_layernorm", "vision", hidden)
    return hidden

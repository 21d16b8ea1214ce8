"""Builds InternVL's tower for images, in the layout of transformers and in the publisher's own."""

from __future__ import annotations

from collections.abc import Sequence

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import Block, add_norm, height_and_width, layer_count, patch_count, size_of
from neuroscale.models.weights import Weights


def internvl(c: Keys, out: Weights, _: int) -> int:
    """InternVL as transformers has it."""
    hidden = size_of(c, "hidden_size")
    at = "vision_tower."
    rows, columns = height_and_width(c, "patch_size")
    out.add(f"{at}embeddings.cls_token", "vision", (1, 1, hidden))
    if c.flag("use_absolute_position_embeddings", True):
        out.add(f"{at}embeddings.position_embeddings", "vision", (1, patch_count(c) + 1, hidden))
    shape = (hidden, size_of(c, "num_channels"), rows, columns)
    out.add(f"{at}embeddings.patch_embeddings.projection.weight", "vision", shape)
    out.add(f"{at}embeddings.patch_embeddings.projection.bias", "vision", (hidden,))
    block = Block(
        ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        "attention.projection_layer",
        ("mlp.fc1",),
        "mlp.fc2",
        ("layernorm_before", "layernorm_after"),
        bias=c.flag("attention_bias"),
        output_bias=True,
        mlp_bias=True,
        norm_bias=c.text("norm_type", "layer_norm") == "layer_norm",
    )
    scales = ["lambda_1", "lambda_2"]
    if c.flag("use_qk_norm"):
        scales += ["attention.q_norm.weight", "attention.k_norm.weight"]
    _scaled(c, out, block, f"{at}encoder.layer.", scales)
    if not c.flag("use_mean_pooling", True):
        add_norm(out, f"{at}layernorm", "vision", hidden)
    return hidden


def intern_vit(c: Keys, out: Weights, _: int) -> int:
    """InternViT as the publisher's own code has it (vLLM's intern_vit.py)."""
    hidden, at = size_of(c, "hidden_size"), "vision_model."
    rows, columns = height_and_width(c, "patch_size")
    channels = c.integer("num_channels", high=2**20, default=3)
    out.add(f"{at}embeddings.class_embedding", "vision", (1, 1, hidden))
    out.add(f"{at}embeddings.position_embedding", "vision", (1, patch_count(c) + 1, hidden))
    out.add(f"{at}embeddings.patch_embedding.weight", "vision", (hidden, channels, rows, columns))
    out.add(f"{at}embeddings.patch_embedding.bias", "vision", (hidden,))
    block = Block(
        ("attn.qkv",),
        "attn.proj",
        ("mlp.fc1",),
        "mlp.fc2",
        ("norm1", "norm2"),
        bias=c.flag("qkv_bias"),
        output_bias=True,
        mlp_bias=True,
        norm_bias=c.text("norm_type", "rms_norm") == "layer_norm",
    )
    scales = ["ls1", "ls2"]
    if c.flag("qk_normalization", True):
        scales += ["attn.q_norm.weight", "attn.k_norm.weight"]
    _scaled(c, out, block, f"{at}encoder.layers.", scales)
    return hidden


def _scaled(c: Keys, out: Weights, block: Block, at: str, scales: Sequence[str]) -> None:
    """Blocks below `at` with `scales` of the hidden size beside each."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")

    def add(layer: int) -> None:
        block.weights(out, f"{at}{layer}.", hidden, width)
        for name in scales:
            out.add(f"{at}{layer}.{name}", "vision", (hidden,))

    out.alike(range(layer_count(c)), add)

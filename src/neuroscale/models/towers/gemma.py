"""Builds Gemma's towers for images."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import add_norm, layer_count, size_of
from neuroscale.models.weights import Weights


def gemma4(c: Keys, out: Weights, _: int) -> int:
    """Gemma 4."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    heads, head_dim = size_of(c, "num_attention_heads"), size_of(c, "head_dim")
    kv_heads = c.integer("num_key_value_heads", default=heads)
    at = "vision_tower."
    out.add(
        f"{at}patch_embedder.position_embedding_table", "vision", (2, size_of(c, "position_embedding_size"), hidden)
    )
    inputs = 3 * size_of(c, "patch_size") ** 2
    out.linear(f"{at}patch_embedder.input_proj", "vision", (inputs, hidden), "replicated")

    def add(layer: int) -> None:
        place = f"{at}encoder.layers.{layer}."
        for name, into, to in (
            ("self_attn.q_proj", hidden, heads * head_dim),
            ("self_attn.k_proj", hidden, kv_heads * head_dim),
            ("self_attn.v_proj", hidden, kv_heads * head_dim),
            ("self_attn.o_proj", heads * head_dim, hidden),
            ("mlp.gate_proj", hidden, width),
            ("mlp.up_proj", hidden, width),
            ("mlp.down_proj", width, hidden),
        ):
            out.linear(f"{place}{name}.linear", "vision", (into, to), "replicated")
        for name in ("self_attn.q_norm", "self_attn.k_norm"):
            add_norm(out, place + name, "vision", head_dim, bias=False)
        for name in (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ):
            add_norm(out, place + name, "vision", hidden, bias=False)

    out.alike(range(layer_count(c)), add)
    if c.flag("standardize"):
        for name in ("std_bias", "std_scale"):
            out.add(at + name, "vision", (hidden,))
    return hidden


def gemma4_unified(c: Keys, out: Weights, hidden: int) -> int:
    """Gemma 4 without separate towers: patches go into the language model without layers of their own."""
    width = size_of(c, "mm_embed_dim")
    inputs = 3 * (size_of(c, "patch_size") * size_of(c, "pooling_kernel_size")) ** 2
    at = "embed_vision."
    out.add(f"{at}pos_embedding", "vision", (size_of(c, "mm_posemb_size"), 2, width))
    add_norm(out, f"{at}patch_ln1", "vision", inputs)
    out.linear(f"{at}patch_dense", "vision", (inputs, width), "replicated", bias=True)
    for name in ("patch_ln2", "pos_norm"):
        add_norm(out, at + name, "vision", width)
    given = c.integer("output_proj_dims", high=2**20)
    out.linear(f"{at}multimodal_embedder.embedding_projection", "projector", (given, hidden), "replicated")
    return given


def gemma3n(c: Keys, out: Weights, hidden: int) -> int:
    """A convolutional tower from another library; its publisher gives 300 million parameters."""
    width = size_of(c, "hidden_size")
    out.add("vision_tower", "vision", (300_000_000,))
    embedder(c, out, "embed_vision.", width, hidden)
    return width


def embedder(c: Keys, out: Weights, at: str, width: int, hidden: int) -> None:
    """Adds the weights that join a tower of Gemma 3n to the language model, with a vocabulary of their own."""
    out.add(f"{at}embedding.weight", "projector", (size_of(c, "vocab_size"), width))
    for name in ("hard_embedding_norm", "soft_embedding_norm"):
        add_norm(out, at + name, "projector", width, bias=False)
    out.linear(f"{at}embedding_projection", "projector", (width, hidden), "replicated")

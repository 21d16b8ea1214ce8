"""Builds Gemma's towers for images and sound."""

from __future__ import annotations

from itertools import pairwise

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import add_norm, layer_count, size_of
from neuroscale.models.weights import Weights

_MEL_BINS = 128  # of the sound that the tower reads; its class has no key for them


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


def gemma4_audio(c: Keys, out: Weights, text: int) -> int:
    """Gemma 4: layers with attention and a convolution between two half feed-forwards."""
    hidden, heads = size_of(c, "hidden_size"), size_of(c, "num_attention_heads")
    channels, kernel = c.integers("subsampling_conv_channels", low=1, most=8) or (), size_of(c, "conv_kernel_size")
    # Convolutions before the layers, each of which halves the mel bins, and the matrix after them.
    before = "audio_tower.subsample_conv_projection."
    for number, (into, to) in enumerate(pairwise((1, *channels))):
        out.add(f"{before}layer{number}.conv.weight", "audio", (to, into, 3, 3))
        out.add(f"{before}layer{number}.norm.weight", "audio", (to,))
    flat = (channels[-1] if channels else 1) * (_MEL_BINS >> len(channels))
    out.linear(f"{before}input_proj_linear", "audio", (flat, hidden), "replicated")

    def add(layer: int) -> None:
        at = f"audio_tower.layers.{layer}."
        for half in ("feed_forward1", "feed_forward2"):
            out.linear(f"{at}{half}.ffw_layer_1.linear", "audio", (hidden, 4 * hidden), "replicated")
            out.linear(f"{at}{half}.ffw_layer_2.linear", "audio", (4 * hidden, hidden), "replicated")
            for name in ("pre_layer_norm", "post_layer_norm"):
                add_norm(out, f"{at}{half}.{name}", "audio", hidden, bias=False)
        out.add(f"{at}self_attn.per_dim_scale", "audio", (hidden // heads,))
        for name in ("q_proj.linear", "k_proj.linear", "v_proj.linear", "post.linear", "relative_k_proj"):
            out.linear(f"{at}self_attn.{name}", "audio", (hidden, hidden), "replicated")
        out.linear(f"{at}lconv1d.linear_start.linear", "audio", (hidden, 2 * hidden), "replicated")
        out.linear(f"{at}lconv1d.linear_end.linear", "audio", (hidden, hidden), "replicated")
        out.add(f"{at}lconv1d.depthwise_conv1d.weight", "audio", (hidden, 1, kernel))
        for name in ("lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out"):
            add_norm(out, at + name, "audio", hidden, bias=False)

    out.alike(range(layer_count(c)), add)
    given = size_of(c, "output_proj_dims")
    out.linear("audio_tower.output_proj", "audio", (hidden, given), "replicated", bias=True)
    out.linear("embed_audio.embedding_projection", "projector", (given, text), "replicated")
    return given


def gemma4_unified_audio(c: Keys, out: Weights, hidden: int) -> int:
    """Gemma 4 without separate towers: sound goes into the language model without layers of its own."""
    width = size_of(c, "audio_embed_dim")
    out.linear("embed_audio.embedding_projection", "projector", (width, hidden), "replicated")
    return width

"""Builds the decoders of Granite with experts or Mamba-2 layers."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import (
    Decoder,
    attentions_of,
    head_shape,
    hidden_size,
    kinds_of,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
    per_token,
    routed_experts,
)
from neuroscale.models.families.mamba import mamba2_of
from neuroscale.models.layers import Attention, Experts, Layer, Mlp


def granitemoe(c: Keys) -> Decoder:
    """Granite with experts, and with a shared one beside them."""
    count, chosen = needed_experts(c)
    experts = _experts(c, count, chosen)
    made = mixed_decoder(c, attentions_of(c, biases="attention_bias"), experts, None)
    shared = _shared(c)
    if shared is None:
        return made
    return replace(made, layers=tuple(replace(layer, blocks=(*layer.blocks, shared)) for layer in made.layers))


def _experts(c: Keys, count: int, chosen: int) -> Experts:
    return Experts(
        count,
        chosen,
        mlp_width(c),
        fused=("input_linear", "output_linear"),
        block="block_sparse_moe",
        router="router.layer",
    )


def _shared(c: Keys) -> Mlp | None:
    shared_width = c.optional("shared_intermediate_size", low=0) or 0
    if not shared_width:
        return None
    return Mlp(
        shared_width,
        ("gate_proj", "up_proj", "output_linear"),
        fused="input_linear",
        block="shared_mlp",
        group="shared_experts",
    )


def granitemoehybrid(c: Keys) -> Decoder:
    """Granite 4: Mamba-2 layers between attention layers; the models with experts have them in all layers."""
    count = routed_experts(c)
    experts = _experts(c, count, per_token(c, count)) if count else None
    shared = _shared(c)
    if shared is not None and experts is None:
        # Without experts, the shared block is the only feed-forward block of a token.
        shared = replace(shared, group="dense_mlp")
    blocks = tuple(block for block in (experts, shared) if block is not None)
    heads, kv_heads, _ = head_shape(c)
    bias = c.flag("attention_bias")
    attention = Attention(
        heads,
        kv_heads,
        hidden_size(c) // heads,
        bias=bias,
        output_bias=bias,
        turned=c.text("position_embedding_type") == "rope",
    )
    mixer = mamba2_of(c, c.integer("mamba_expand") * hidden_size(c))
    kinds = _kinds(c)
    layers = tuple(Layer(attention, blocks) if whole else Layer(None, blocks, mixer=mixer) for whole in kinds)
    return Decoder(layers, hidden_size(c))


def _kinds(c: Keys) -> list[bool]:
    """Which layers have attention."""
    count = layer_count(c)
    types = c.texts("layer_types", MOST_LAYERS) or c.texts("layers_block_type", MOST_LAYERS)
    if types is None or len(types) < count:
        raise c.problem("layer_types", f"must name the kind of each of the {count} layers")
    known = {"mamba": False, "linear_attention": False, "attention": True, "full_attention": True}
    return kinds_of(c, "layer_types", types, known)

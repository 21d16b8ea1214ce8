"""Builds the decoder of Laguna."""

from __future__ import annotations

from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import (
    full_every,
    head_shape,
    mixed_decoder,
    mlp_width,
    needed_experts,
    per_token,
    reaches,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.families.deepseek import CORRECTION
from neuroscale.models.layers import Attention, Experts, Mlp


def laguna(c: Keys) -> Decoder:
    """Laguna: layers with different numbers of heads, a gate after attention, one shared expert."""
    count, _ = needed_experts(c)
    _, kv_heads, head_dim = head_shape(c)
    kinds = reaches(c, full_every(1))
    heads = c.integers("num_attention_heads_per_layer", low=1) or (c.shape("num_attention_heads"),) * len(kinds)
    blocks = c.texts("mlp_layer_types", MOST_LAYERS) or ("dense", *("sparse",) * (len(kinds) - 1))
    for key, told in (("num_attention_heads_per_layer", heads), ("mlp_layer_types", blocks)):
        if len(told) < len(kinds):
            raise c.problem(key, f"names {len(told)} layers of {len(kinds)}")
    per_head = c.raw("gating") in (True, None, "per-head")
    bias = c.flag("attention_bias")
    attentions = [
        Attention(
            heads[layer],
            kv_heads,
            head_dim,
            reach,
            window,
            bias=bias,
            output_bias=bias,
            norm="head",
            gate=heads[layer] * (1 if per_head else head_dim),
        )
        for layer, (reach, window) in enumerate(kinds)
    ]
    shared = Mlp(mlp_width(c, "shared_expert_intermediate_size"), block="shared_experts", group="shared_experts")
    experts = Experts(
        count,
        per_token(c, count),
        mlp_width(c, "moe_intermediate_size"),
        correction=CORRECTION,
        shared=shared,
    )
    return mixed_decoder(c, attentions, experts, Mlp(mlp_width(c)), lambda layer: blocks[layer] == "dense")

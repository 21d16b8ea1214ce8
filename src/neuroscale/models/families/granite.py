"""Granite with experts; without them it has Llama's layout."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.families.common import attentions_of, mixed_decoder, mlp_width, needed_experts
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.keys import Keys
from neuroscale.models.layers import Experts, Mlp


def granitemoe(c: Keys) -> Decoder:
    """Granite with experts, and with a shared one beside them."""
    count, chosen = needed_experts(c)
    experts = Experts(
        count,
        chosen,
        mlp_width(c),
        fused=("input_linear", "output_linear"),
        block="block_sparse_moe",
        router="router.layer",
    )
    bias = c.flag("attention_bias")
    made = mixed_decoder(c, attentions_of(c, bias=bias, output_bias=bias), experts, None)
    shared_width = c.optional("shared_intermediate_size", low=0) or 0
    if not shared_width:
        return made
    shared = Mlp(
        shared_width,
        ("gate_proj", "up_proj", "output_linear"),
        fused="input_linear",
        block="shared_mlp",
        group="shared_experts",
    )
    return replace(made, layers=tuple(replace(layer, blocks=(*layer.blocks, shared)) for layer in made.layers))

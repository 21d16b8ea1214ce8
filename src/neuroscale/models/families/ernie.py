"""Builds the decoder of ERNIE 4.5."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    attentions_of,
    dense_decoder,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts, Mlp


def ernie(c: Keys) -> Decoder:
    """ERNIE 4.5, dense."""
    bias = c.flag("use_bias")
    return dense_decoder(c, attentions_of(c, bias=bias, output_bias=bias), Mlp(mlp_width(c), bias=bias))


def ernie_moe(c: Keys) -> Decoder:
    """ERNIE 4.5 with experts."""
    count, chosen = needed_experts(c)
    bias = c.flag("use_bias")
    width = mlp_width(c, "moe_intermediate_size")
    shared = c.optional("moe_num_shared_experts", low=0, high=2**10) or 0
    experts = Experts(
        count,
        chosen,
        width,
        full_router=True,
        correction="moe_statics.e_score_correction_bias",
        shared=Mlp(width * shared, block="shared_experts", bias=bias, group="shared_experts") if shared else None,
    )
    first = c.optional("moe_layer_start_index", low=0) or 0
    last = c.optional("moe_layer_end_index", low=-1)
    last = layer_count(c) - 1 if last is None or last < 0 else last
    interval = c.integer("moe_layer_interval", default=1)
    return mixed_decoder(
        c,
        attentions_of(c, bias=bias, output_bias=bias),
        experts,
        Mlp(mlp_width(c), bias=bias),
        lambda layer: not (first <= layer <= last and (layer + 1) % interval == 0),
    )

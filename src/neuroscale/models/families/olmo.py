"""Builds the decoders of OLMo and Molmo."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    NORMS_BEHIND,
    attentions_of,
    dense_decoder,
    full_every,
    half_width,
    mixed_decoder,
    mlp_width,
    needed_experts,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts, Mlp


def olmo(c: Keys) -> Decoder:
    """OLMo: its norms have no weights."""
    bias = c.flag("attention_bias")
    made = dense_decoder(c, attentions_of(c, bias=bias, output_bias=bias), Mlp(mlp_width(c)), ())
    return replace(made, final_norm=())


def olmo2(c: Keys) -> Decoder:
    """OLMo 2: norms after the blocks, and over all queries and keys."""
    bias = c.flag("attention_bias")
    return dense_decoder(c, attentions_of(c, bias=bias, output_bias=bias, norm="all"), Mlp(mlp_width(c)), NORMS_BEHIND)


def olmo3(c: Keys) -> Decoder:
    """OLMo 3: as OLMo 2, with a window in three layers of four."""
    bias = c.flag("attention_bias")
    attentions = attentions_of(c, full_every(4), bias=bias, output_bias=bias, norm="all")
    return dense_decoder(c, attentions, Mlp(mlp_width(c)), NORMS_BEHIND)


def olmoe(c: Keys) -> Decoder:
    """OLMoE."""
    count, chosen = needed_experts(c)
    bias = c.flag("attention_bias")
    attentions = attentions_of(c, bias=bias, output_bias=bias, norm="all")
    return mixed_decoder(c, attentions, Experts(count, chosen, mlp_width(c)), None)


def molmo(c: Keys) -> Decoder:
    """Molmo: `intermediate_size` counts gate and up together."""
    norm = "all" if c.flag("attention_layer_norm") else ""
    attentions = attentions_of(c, bias=c.flag("qkv_bias"), norm=norm)
    return dense_decoder(c, attentions, Mlp(half_width(c)))

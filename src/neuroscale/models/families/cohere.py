"""Builds the decoders of Command R and Command A."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import attentions_of, dense_decoder, full_every, mlp_width
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Mlp


def cohere(c: Keys) -> Decoder:
    """Command R: one norm a layer."""
    bias = c.flag("attention_bias")
    norm = "heads" if c.flag("use_qk_norm") else ""
    attentions = attentions_of(c, bias=bias, output_bias=bias, norm=norm)
    return dense_decoder(c, attentions, Mlp(mlp_width(c)), ("input_layernorm",))


def cohere2(c: Keys) -> Decoder:
    """Command R7B and Command A: a window in three layers of four, one token wider than its config says."""
    bias = c.flag("attention_bias")
    period = c.integer("sliding_window_pattern", low=1, default=4)
    attentions = [
        replace(attention, window=attention.window + 1 if attention.window else None)
        for attention in attentions_of(c, full_every(period), bias=bias, output_bias=bias)
    ]
    return dense_decoder(c, attentions, Mlp(mlp_width(c)), ("input_layernorm",))

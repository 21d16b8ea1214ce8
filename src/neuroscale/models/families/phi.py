"""Builds the decoders of Phi 3 and 4."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    NAMES_W1_W3_W2,
    attentions_of,
    dense_decoder,
    mixed_decoder,
    mlp_width,
    needed_experts,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts, Mlp


def phi3(c: Keys) -> Decoder:
    """Phi-3, Phi-3.5 and Phi-4: fused matrices."""
    return dense_decoder(c, attentions_of(c, fused="qkv_proj"), Mlp(mlp_width(c), fused="gate_up_proj"))


def phimoe(c: Keys) -> Decoder:
    """Phi-3.5-MoE and its smaller copies: norms with biases, and a bias of the output matrix."""
    count, chosen = needed_experts(c)
    experts = Experts(count, chosen, mlp_width(c), names=NAMES_W1_W3_W2, block="block_sparse_moe")
    bias = c.flag("attention_bias")
    made = mixed_decoder(c, attentions_of(c, bias=bias, output_bias=bias), experts, None, norm_bias=True)
    return replace(made, lm_head_bias=c.flag("lm_head_bias"))

"""Builds the decoder of GLM 4."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import attentions_of, dense_decoder, mixed_decoder, mlp_width, needed_experts
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.families.deepseek import deepseek_experts, predicting_layers
from neuroscale.models.layers import Layer, Mlp


def glm(c: Keys) -> Decoder:
    """GLM-4-9B of the first layout."""
    return dense_decoder(
        c, attentions_of(c, bias=c.flag("attention_bias", True)), Mlp(mlp_width(c), fused="gate_up_proj")
    )


def glm4(c: Keys) -> Decoder:
    """GLM-4-0414: norms before and after both blocks."""
    norms = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    attentions = attentions_of(c, bias=c.flag("attention_bias", True))
    return dense_decoder(c, attentions, Mlp(mlp_width(c), fused="gate_up_proj"), norms)


def glm4_moe(c: Keys) -> Decoder:
    """GLM-4.5 and its successors of that layout."""
    count, _ = needed_experts(c)
    experts = replace(deepseek_experts(c, count), full_router=True)
    norm = "head" if c.flag("use_qk_norm") else ""
    attentions = attentions_of(c, bias=c.flag("attention_bias"), norm=norm)
    leading = c.optional("first_k_dense_replace", low=0) or 0
    made = mixed_decoder(c, attentions, experts, Mlp(mlp_width(c)), lambda layer: layer < leading)
    return replace(made, predicting=predicting_layers(c, Layer(attentions[-1], (experts,))))

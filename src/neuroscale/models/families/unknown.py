"""Estimates a decoder of an unknown family."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    attentions_of,
    dense_decoder,
    mixed_decoder,
    mlp_width,
    per_token,
    routed_experts,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts, Mlp


def estimated(c: Keys) -> Decoder:
    """A model with the plain keys of Llama, and of Mixtral, Qwen or DeepSeek for experts."""
    gated = c.text("hidden_act") not in ("relu", "relu2", "squared_relu", "gelu", "gelu_new", "gelu_fast")
    attentions = attentions_of(
        c,
        bias=c.flag("attention_bias") or c.flag("qkv_bias") or c.flag("use_qkv_bias"),
        norm="head" if c.flag("use_qk_norm") or c.flag("qk_layernorm") else "",
    )
    count = routed_experts(c)
    if not count:
        return replace(dense_decoder(c, attentions, Mlp(mlp_width(c), gated=gated)), estimated=True)
    width = mlp_width(c, "moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    wide = c.optional("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", low=0, high=2**22) or 0
    shared_count = (
        c.optional("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", low=0, high=2**10) or 0
    )
    wide = wide or shared_count * width
    shared = Mlp(wide, block="shared_experts", group="shared_experts") if wide else None
    experts = Experts(count, per_token(c, count), width, shared=shared, gated=gated)
    leading = c.optional("first_k_dense_replace", "num_dense_layers", low=0) or 0
    dense = Mlp(mlp_width(c)) if leading else None
    return replace(mixed_decoder(c, attentions, experts, dense, lambda layer: layer < leading), estimated=True)

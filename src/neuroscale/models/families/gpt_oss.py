"""Builds the decoder of gpt-oss."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    Decoder,
    head_shape,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
    window_of,
)
from neuroscale.models.layers import Attention, Experts


def gpt_oss(c: Keys) -> Decoder:
    """gpt-oss: sinks, biases, a window in every second layer."""
    count, chosen = needed_experts(c)
    experts = Experts(
        count,
        chosen,
        mlp_width(c),
        fused=("experts.gate_up_proj", "experts.down_proj"),
        bias=True,
        router="router",
        router_bias=True,
    )
    heads, kv_heads, head_dim = head_shape(c)
    bias = c.flag("attention_bias", True)
    plain = Attention(heads, kv_heads, head_dim, bias=bias, output_bias=bias, sinks=True)
    window = window_of(c)
    # vLLM takes the window for every second layer, whatever layer_types says.
    windowed = replace(plain, reach="sliding", window=window) if window else plain
    attentions = [plain if layer % 2 else windowed for layer in range(layer_count(c))]
    return mixed_decoder(c, attentions, experts, None)

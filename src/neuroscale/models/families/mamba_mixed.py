"""Builds decoders with attention and Mamba: Falcon-H1 has both in each layer, Jamba one attention layer in eight."""

from __future__ import annotations

import math
from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import head_shape, hidden_size, layer_count, mlp_width, per_token
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Attention, Experts, Layer, Mlp
from neuroscale.models.mixers import Mamba1, Mamba2

_NORMS = ("input_layernorm", "pre_ff_layernorm")


def falcon_h1(c: Keys) -> Decoder:
    """Falcon-H1: attention and Mamba-2 side by side in each layer."""
    heads, kv_heads, head_dim = head_shape(c)
    inner = c.optional("mamba_d_ssm") or c.integer("mamba_expand") * hidden_size(c)
    states = c.integer("mamba_n_heads", high=2**16)
    mixer = Mamba2(
        inner,
        states,
        inner // states if c.raw("mamba_d_head") in ("auto", None) else c.integer("mamba_d_head", high=2**16),
        c.integer("mamba_d_state", high=2**16),
        c.integer("mamba_n_groups", high=2**16),
        c.integer("mamba_d_conv", high=2**10),
        conv_bias=c.flag("mamba_conv_bias", True),
        bias=c.flag("mamba_proj_bias"),
        norm=c.flag("mamba_rms_norm"),
    )
    layer = Layer(Attention(heads, kv_heads, head_dim), (Mlp(mlp_width(c), block="feed_forward"),), _NORMS, mixer=mixer)
    return Decoder((layer,) * layer_count(c), hidden_size(c), final_norm=("final_layernorm.weight",))


def jamba(c: Keys) -> Decoder:
    """Jamba: Mamba, and attention in one layer of each period; models with experts have them in every other layer."""
    hidden = hidden_size(c)
    heads, kv_heads, head_dim = head_shape(c)
    attention = Attention(heads, kv_heads, head_dim, turned=False)
    rank = c.raw("mamba_dt_rank")
    mixer = Mamba1(
        c.integer("mamba_expand") * hidden,
        c.integer("mamba_d_state", high=2**16),
        math.ceil(hidden / 16) if rank in ("auto", None) else c.integer("mamba_dt_rank", high=2**16),
        c.integer("mamba_d_conv", high=2**10),
        conv_bias=c.flag("mamba_conv_bias", True),
        bias=c.flag("mamba_proj_bias"),
        norms=True,
    )
    dense: Mlp | Experts = Mlp(mlp_width(c), block="feed_forward")
    count = c.integer("num_experts", high=2**16)
    chosen = per_token(c, count) if count > 1 else 0
    experts = Experts(count, chosen, mlp_width(c), block="feed_forward", router="router") if count > 1 else dense
    every, place = c.integer("expert_layer_period"), c.integer("expert_layer_offset", low=0)
    period, offset = c.integer("attn_layer_period"), c.integer("attn_layer_offset", low=0)
    layers = []
    for number in range(layer_count(c)):
        layer = Layer(None, (experts if number % every == place else dense,), _NORMS, mixer=mixer)
        layers.append(replace(layer, attention=attention, mixer=None) if number % period == offset else layer)
    return Decoder(tuple(layers), hidden, count if chosen else 0, chosen, final_norm=("final_layernorm.weight",))

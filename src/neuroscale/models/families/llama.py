"""Builds the decoders of Llama, and of the families that differ little from it."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import (
    NORMS_BEHIND,
    attentions_of,
    dense_decoder,
    full_every,
    head_shape,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
    routed_experts,
    window_of,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.families.unknown import estimated
from neuroscale.models.layers import Attention, Experts, Mlp


def llama(c: Keys) -> Decoder:
    """Llama, and the many that vLLM or transformers serve with its layout."""
    bias = c.flag("attention_bias")
    attentions = attentions_of(c, bias=bias, output_bias=bias)
    return dense_decoder(c, attentions, Mlp(mlp_width(c), bias=c.flag("mlp_bias")))


def seed_oss(c: Keys) -> Decoder:
    """Seed-OSS."""
    bias, output = c.flag("attention_bias", True), c.flag("attention_out_bias")
    return dense_decoder(c, attentions_of(c, bias=bias, output_bias=output), Mlp(mlp_width(c), bias=c.flag("mlp_bias")))


def exaone4(c: Keys) -> Decoder:
    """EXAONE 4: norms after the blocks."""
    period = c.optional("sliding_window_pattern", low=1) if _is_number(c, "sliding_window_pattern") else 4
    every = full_every(period or 4) if window_of(c) else None
    return dense_decoder(c, attentions_of(c, every, norm="head"), Mlp(mlp_width(c)), NORMS_BEHIND)


def _is_number(c: Keys, key: str) -> bool:
    return isinstance(c.raw(key), int)


def hunyuan(c: Keys) -> Decoder:
    """Hunyuan, dense."""
    bias = c.flag("attention_bias")
    attentions = attentions_of(
        c, bias=bias, output_bias=bias, norm="head", norm_names=("query_layernorm", "key_layernorm")
    )
    return dense_decoder(c, attentions, Mlp(mlp_width(c)))


def stablelm(c: Keys) -> Decoder:
    """StableLM 2."""
    if c.flag("use_parallel_residual") or c.flag("qk_layernorm"):
        raise c.problem("qk_layernorm", "this variant of StableLM is not planned", "Measure it under vLLM.")
    return dense_decoder(c, attentions_of(c, bias=c.flag("use_qkv_bias")), Mlp(mlp_width(c)), norm_bias=True)


def minicpm(c: Keys) -> Decoder:
    """MiniCPM: Llama's layout unless it has experts."""
    return estimated(c) if routed_experts(c) else llama(c)


def llama4(c: Keys) -> Decoder:
    """Llama 4: chunks in three layers of four, experts in every `interleave_moe_layer_step`th."""
    count, chosen = needed_experts(c)
    layers = layer_count(c)
    heads, kv_heads, head_dim = head_shape(c)
    rotary = c.integers("no_rope_layers", most=MOST_LAYERS)
    if not rotary:
        interval = c.integer("no_rope_layer_interval", default=4)
        rotary = tuple(int((layer + 1) % interval != 0) for layer in range(layers))
    if len(rotary) < layers:
        raise c.problem("no_rope_layers", f"names {len(rotary)} layers of {layers}")
    chunk = c.optional("attention_chunk_size", low=0) or None
    bias = c.flag("attention_bias")
    plain = Attention(heads, kv_heads, head_dim, bias=bias, output_bias=bias)
    chunked = replace(plain, reach="chunked", window=chunk) if chunk else plain
    step = c.integer("interleave_moe_layer_step", low=0, default=1)
    width = mlp_width(c)
    experts = Experts(
        count,
        chosen,
        width,
        fused=("experts.gate_up_proj", "experts.down_proj"),
        block="feed_forward",
        router="router",
        shared=Mlp(width, block="shared_expert", group="shared_experts"),
    )
    dense = Mlp(mlp_width(c, "intermediate_size_mlp"), block="feed_forward")
    attentions = [chunked if rotary[layer] else plain for layer in range(layers)]
    return mixed_decoder(c, attentions, experts, dense, lambda layer: not step or (layer + 1) % step != 0)

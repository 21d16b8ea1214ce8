"""Builds the decoders of Gemma, from the first to the fourth."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    NORMS_AROUND,
    Decoder,
    attentions_of,
    dense_decoder,
    full_every,
    head_shape,
    hidden_size,
    layer_count,
    mlp_width,
    per_token,
    reaches,
    routed_experts,
)
from neuroscale.models.layers import Attention, Experts, Extra, Layer, Mlp


def gemma(c: Keys) -> Decoder:
    """Gemma."""
    return dense_decoder(c, attentions_of(c, biases="attention_bias"), Mlp(mlp_width(c)))


def gemma2(c: Keys) -> Decoder:
    """Gemma 2: every second layer has a window."""
    return dense_decoder(c, attentions_of(c, full_every(2), biases="attention_bias"), Mlp(mlp_width(c)), NORMS_AROUND)


def gemma3(c: Keys) -> Decoder:
    """Gemma 3: five layers with a window to one without."""
    period = c.integer("sliding_window_pattern", low=1, default=6)
    attentions = attentions_of(c, full_every(period), biases="attention_bias", norm="head")
    return dense_decoder(c, attentions, Mlp(mlp_width(c)), NORMS_AROUND)


def gemma4(c: Keys) -> Decoder:
    """Gemma 4: global layers of their own shape, keys that serve as values, experts beside a dense block."""
    hidden = hidden_size(c)
    heads, kv_heads, head_dim = head_shape(c)
    wide = c.integer("global_head_dim", high=2**16, default=512)
    equal = c.flag("attention_k_eq_v")
    few = (c.optional("num_global_key_value_heads") if equal else None) or kv_heads
    own = _layers_with_cache(c)
    count = routed_experts(c)
    per_layer = c.optional("hidden_size_per_layer_input", low=0) or 0
    experts, extras = _gemma4_experts(c, count, hidden) if count else (None, ())
    kinds = reaches(c, full_every(6))
    kinds[-1] = ("full", None)  # the last layer has full attention, whatever layer_types says
    # Newer files write the shape of the global layers layer by layer.
    apart = c.section("per_layer_config")
    layers = []
    for number, (reach, window) in enumerate(kinds):
        shared = number >= own
        full = reach == "full"
        here = apart.section(str(number)) if apart else None
        layer_heads = (few if full else kv_heads) if apart is None else kv_heads
        layer_dim = (wide if full else head_dim) if apart is None else head_dim
        attention = Attention(
            heads,
            here.integer("num_key_value_heads", default=layer_heads, high=2**16) if here else layer_heads,
            here.integer("head_dim", default=layer_dim, high=2**16) if here else layer_dim,
            reach,
            window,
            bias=c.flag("attention_bias"),
            output_bias=c.flag("attention_bias"),
            norm="head",
            reads_other=shared,
            own_values=not (equal and full),
        )
        mlp = Mlp(mlp_width(c) * (2 if shared and c.flag("use_double_wide_mlp") else 1))
        beside = _per_layer_input(hidden, per_layer) if per_layer else ()
        norms: tuple[str, ...] = NORMS_AROUND
        if experts:
            norms = (
                *norms,
                "post_feedforward_layernorm_1",
                "post_feedforward_layernorm_2",
                "pre_feedforward_layernorm_2",
            )
        scalar = Extra("layer_scalar", "norm", (1,))
        layers.append(Layer(attention, (mlp, experts) if experts else (mlp,), norms, extras=(*extras, *beside, scalar)))
    around = _per_layer_table(c, hidden, per_layer) if per_layer else ()
    return Decoder(tuple(layers), hidden, extras=around)


def _gemma4_experts(c: Keys, count: int, hidden: int) -> tuple[Experts, tuple[Extra, ...]]:
    experts = Experts(
        count,
        per_token(c, count),
        mlp_width(c, "moe_intermediate_size", "expert_intermediate_size"),
        fused=("experts.gate_up_proj", "experts.down_proj"),
        block="",
        router="router.proj",
    )
    scales = (Extra("router.scale", "router", (hidden,)), Extra("router.per_expert_scale", "router", (count,)))
    return experts, scales


def _layers_with_cache(c: Keys) -> int:
    count = layer_count(c)
    shared = c.optional("num_kv_shared_layers", low=0) or 0
    if shared >= count:
        raise c.problem("num_kv_shared_layers", f"{shared} is not less than the {count} layers")
    return count - shared


def _per_layer_input(hidden: int, width: int) -> tuple[Extra, ...]:
    return (
        Extra("per_layer_input_gate", "dense_mlp", (hidden, width), linear=True),
        Extra("per_layer_projection", "dense_mlp", (width, hidden), linear=True),
        Extra("post_per_layer_input_norm.weight", "norm", (hidden,)),
    )


def _per_layer_table(c: Keys, hidden: int, width: int) -> tuple[Extra, ...]:
    all_layers = layer_count(c) * width
    rows = c.integer("vocab_size_per_layer_input", "vocab_size", high=2**26)
    return (
        Extra("embed_tokens_per_layer.weight", "per_layer_embedding", (rows, all_layers), sharding="vocabulary"),
        Extra("per_layer_model_projection", "dense_mlp", (hidden, all_layers), linear=True, sharding="split"),
        Extra("per_layer_projection_norm.weight", "norm", (width,)),
    )

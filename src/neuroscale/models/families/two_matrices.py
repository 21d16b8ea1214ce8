"""Builds the decoders whose dense block has two matrices instead of three: one up and one down, without a gate."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import Decoder, attentions_of, dense_decoder, hidden_size, layer_count, mlp_width
from neuroscale.models.layers import Attention, Extra, Mlp


def apertus(c: Keys) -> Decoder:
    """Apertus: two matrices in the dense block, whose activation has two numbers of its own."""
    attentions = attentions_of(c, biases="attention_bias", norm="head")
    made = dense_decoder(
        c, attentions, Mlp(mlp_width(c), gated=False), ("attention_layernorm", "feedforward_layernorm")
    )
    numbers = (Extra("mlp.act_fn.alpha_p", "dense_mlp", (1,)), Extra("mlp.act_fn.alpha_n", "dense_mlp", (1,)))
    return replace(made, layers=tuple(replace(layer, extras=numbers) for layer in made.layers))


def arcee(c: Keys) -> Decoder:
    """Arcee AFM: two matrices in the dense block."""
    attentions = attentions_of(c, biases="attention_bias")
    return dense_decoder(c, attentions, Mlp(mlp_width(c), gated=False, bias=c.flag("mlp_bias")))


def falcon(c: Keys) -> Decoder:
    """Falcon: one tensor of queries, keys and values, an MLP of four times the hidden size, attention beside it."""
    hidden, heads = hidden_size(c), c.shape("num_attention_heads", high=2**16)
    inner = c.optional("ffn_hidden_size", high=2**22) or 4 * hidden
    if inner != 4 * hidden:
        message, fix = f"{inner} is not four times hidden_size, as vLLM's Falcon has it", "Measure it under vLLM."
        raise c.problem("ffn_hidden_size", message, fix)
    newer, bias = c.flag("new_decoder_architecture"), c.flag("bias")
    kv_heads = 1 if c.flag("multi_query", True) else heads
    if newer:
        kv_heads = c.integer("num_kv_heads", high=2**16, default=heads)
    if hidden % heads or heads % kv_heads:
        raise c.problem("num_attention_heads", f"{heads} heads cannot share {hidden} values and {kv_heads} KV heads")
    names = {"fused": "query_key_value", "output": "dense", "block": "self_attention"}
    attention = Attention(heads, kv_heads, hidden // heads, bias=bias, output_bias=bias, **names)  # type: ignore[arg-type]
    norms: tuple[str, ...] = ("input_layernorm",)
    if newer and c.optional("num_ln_in_parallel_attn") in (None, 2):
        norms = ("ln_attn", "ln_mlp")
    elif not (newer or c.flag("parallel_attn", True)):
        norms = ("input_layernorm", "post_attention_layernorm")
    mlp = Mlp(inner, ("", "dense_h_to_4h", "dense_4h_to_h"), gated=False, bias=bias)
    made = dense_decoder(c, [attention] * layer_count(c), mlp, norms, norm_bias=True)
    return replace(made, final_norm=("ln_f.weight", "ln_f.bias"))


def nemotron(c: Keys) -> Decoder:
    """Nemotron and Minitron, dense: two matrices in the dense block, norms with biases."""
    attentions = attentions_of(c, biases="attention_bias")
    return dense_decoder(c, attentions, Mlp(mlp_width(c), gated=False, bias=c.flag("mlp_bias")), norm_bias=True)


def opt(c: Keys) -> Decoder:
    """OPT: learned positions, biases everywhere."""
    hidden = hidden_size(c)
    if c.integer("word_embed_proj_dim", default=hidden) != hidden or not c.flag("do_layer_norm_before", True):
        raise c.problem("word_embed_proj_dim", "this variant of OPT is not planned", "Measure it under vLLM.")
    bias = c.flag("enable_bias", True)
    mlp = Mlp(mlp_width(c, "ffn_dim"), ("", "fc1", "fc2"), gated=False, bias=bias, block="")
    norms = ("self_attn_layer_norm", "final_layer_norm")
    made = dense_decoder(
        c, attentions_of(c, bias=bias, output_bias=bias, output="out_proj"), mlp, norms, norm_bias=True
    )
    positions = Extra("embed_positions.weight", "embedding", (c.integer("max_position_embeddings") + 2, hidden))
    return replace(made, extras=(positions,), final_norm=("final_layer_norm.weight", "final_layer_norm.bias"))


def starcoder2(c: Keys) -> Decoder:
    """StarCoder 2: two matrices in the dense block, biases everywhere."""
    bias = c.flag("use_bias", True)
    mlp = Mlp(mlp_width(c), ("", "c_fc", "c_proj"), gated=False, bias=bias)
    return dense_decoder(c, attentions_of(c, bias=bias, output_bias=bias), mlp, norm_bias=True)

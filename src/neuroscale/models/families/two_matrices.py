"""Builds the decoders whose dense block has two matrices instead of three: one up and one down, without a gate."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import Decoder, attentions_of, dense_decoder, hidden_size, mlp_width
from neuroscale.models.layers import Extra, Mlp


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

"""Builds the decoder of DeepSeek V4: attention over compressed tokens, experts in each layer, several residual streams.

Follows models/deepseek_v4/nvidia/model.py of vLLM 0.32. Layers of multi-token prediction are not counted.
"""

from __future__ import annotations

from neuroscale.models.compressed_attention import CompressedAttention
from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import hidden_size, layer_count, mlp_width, per_token, routed_experts
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts, Extra, Layer, Mlp

RATIOS = (0, 1, 4, 128)
"""The ratios that vLLM's compressor has; 0 and 1 are a layer without one."""


def deepseek_v4(c: Keys) -> Decoder:
    """DeepSeek V4 without towers."""
    count, hidden = layer_count(c), hidden_size(c)
    ratios = c.integers("compress_ratios", low=0, most=MOST_LAYERS) or ()
    # The file may name the ratios of the layers of multi-token prediction, too.
    if len(ratios) < count:
        raise c.problem("compress_ratios", f"has {len(ratios)} numbers for {count} layers")
    if unknown := sorted(set(ratios[:count]) - set(RATIOS)):
        raise c.problem("compress_ratios", f"has the ratio {unknown[0]}, and vLLM 0.32 has 4 and 128")
    if c.optional("vision_n_layers", low=0, high=MOST_LAYERS):
        raise c.problem("vision_n_layers", "says that the model has a tower for images, which is not planned")
    streams = c.integer("hc_mult", high=64)
    hashed = c.integer("num_hash_layers", low=0, default=0)
    attentions = {ratio: _attention(c, ratio if ratio > 1 else 0) for ratio in set(ratios[:count])}
    blocks = {by_table: _experts(c, hashed=by_table) for by_table in (False, True)}
    mixing = _streams(streams, hidden)
    extras = {False: mixing, True: (*mixing, _table(c, blocks[True]))}
    layers = tuple(
        Layer(attentions[ratio], (blocks[layer < hashed],), ("attn_norm", "ffn_norm"), extras=extras[layer < hashed])
        for layer, ratio in enumerate(ratios[:count])
    )
    experts = blocks[False]
    return Decoder(layers, hidden, experts.count, experts.per_token, extras=_head(streams, hidden))


def _attention(c: Keys, ratio: int) -> CompressedAttention:
    return CompressedAttention(
        heads=c.shape("num_attention_heads", high=2**16),
        head_dim=c.integer("head_dim", high=2**16),
        rope_dim=c.integer("qk_rope_head_dim", high=2**16),
        window=c.integer("sliding_window", high=2**24),
        ratio=ratio,
        query_rank=c.integer("q_lora_rank", high=2**20),
        groups=c.integer("o_groups", high=2**10),
        output_rank=c.integer("o_lora_rank", high=2**20),
        index_heads=c.integer("index_n_heads", high=2**16),
        index_dim=c.integer("index_head_dim", high=2**16),
    )


def _experts(c: Keys, *, hashed: bool) -> Experts:
    """The experts of a layer; layers whose experts a table chooses by the token have no correcting bias."""
    count, width = routed_experts(c), mlp_width(c, "moe_intermediate_size")
    shared = c.optional("n_shared_experts", low=0, high=2**10) or 0
    names = ("w1", "w3", "w2")
    corrected = c.text("topk_method") == "noaux_tc" and not hashed
    return Experts(
        count,
        per_token(c, count),
        width,
        names=names,
        block="ffn",
        correction="gate.e_score_correction_bias" if corrected else "",
        shared=Mlp(width * shared, names=names, block="shared_experts", group="shared_experts") if shared else None,
    )


def _table(c: Keys, experts: Experts) -> Extra:
    """The table that names the experts of each token of the vocabulary: whole numbers of four bytes."""
    shape = (c.integer("vocab_size", high=2**24), experts.per_token)
    return Extra("ffn.gate.tid2eid", "router", shape, full_precision=True)


def _streams(streams: int, hidden: int) -> tuple[Extra, ...]:
    """The float32 tensors that mix the residual streams before and after attention and experts."""
    mixed = (2 + streams) * streams
    return tuple(
        Extra(f"hc_{block}_{name}", "norm", shape, full_precision=True)
        for block in ("attn", "ffn")
        for name, shape in (("fn", (mixed, streams * hidden)), ("base", (mixed,)), ("scale", (3,)))
    )


def _head(streams: int, hidden: int) -> tuple[Extra, ...]:
    """The float32 tensors that join the streams before the LM head."""
    shapes = (("fn", (streams, streams * hidden)), ("base", (streams,)), ("scale", (1,)))
    return tuple(Extra(f"hc_head_{name}", "norm", shape, full_precision=True) for name, shape in shapes)

"""Builds the decoders of DeepSeek, GLM-5 and families with latent attention, and of DeepSeek V4.

DeepSeek V4 follows models/deepseek_v4/nvidia/model.py of vLLM 0.32, without layers of multi-token prediction.
"""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import (
    NAMES_W1_W3_W2,
    Decoder,
    hidden_size,
    layer_count,
    mixed_decoder,
    mlp_width,
    per_token,
    routed_experts,
    shared_experts,
)
from neuroscale.models.layers import Experts, Extra, Indexer, LatentAttention, Layer, Mlp
from neuroscale.models.mixers import CompressedAttention

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
    return Decoder(layers, hidden, extras=_head(streams, hidden))


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
    names = NAMES_W1_W3_W2
    corrected = c.text("topk_method") == "noaux_tc" and not hashed
    return Experts(
        count,
        per_token(c, count),
        width,
        names=names,
        block="ffn",
        correction="gate.e_score_correction_bias" if corrected else "",
        shared=shared_experts(width * shared, names=names),
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


CORRECTION = "gate.e_score_correction_bias"
"""The name of the bias that vLLM uses only to choose experts."""


_SHARING = 1, 2
"""The defaults of `index_topk_freq` and `index_skip_topk_offset` in vLLM (model_executor/models/deepseek_v2.py)."""


def deepseek(c: Keys) -> Decoder:
    """DeepSeek V2 to V3.2, Kimi K2, GLM-5: latent attention, leading dense layers, shared experts; with `index_topk`,
    indexers choose the tokens that attention reads."""
    return _latent_moe(c)


def glm4_moe_lite(c: Keys) -> Decoder:
    """GLM-4.7-Flash: DeepSeek's layout."""
    return _latent_moe(c)


def _latent_attention(c: Keys, *, query_rank: int | None, bias: bool = False) -> LatentAttention:
    return LatentAttention(
        c.shape("num_attention_heads", high=2**16),
        rank=c.integer("kv_lora_rank", high=2**20),
        rope_dim=c.integer("qk_rope_head_dim", high=2**16),
        nope_dim=c.integer("qk_nope_head_dim", high=2**16),
        value_dim=c.integer("v_head_dim", high=2**16),
        query_rank=query_rank,
        bias=bias,
    )


def _latent_moe(c: Keys) -> Decoder:
    plain = _latent_attention(c, query_rank=c.optional("q_lora_rank", high=2**20), bias=c.flag("attention_bias"))
    indexed = _indexed(c, plain)
    attentions = [indexed if own else plain for own in _own_indexers(c)]
    count = routed_experts(c)
    if not count:
        return Decoder(tuple(Layer(attention, (Mlp(mlp_width(c)),)) for attention in attentions), hidden_size(c))
    # DeepSeek V2 chooses without the correcting bias.
    corrected = c.text("topk_method", "noaux_tc" if c.model_type != "deepseek_v2" else "") == "noaux_tc"
    experts = deepseek_experts(c, count, corrected=corrected)
    leading = c.integer("first_k_dense_replace", low=0, default=1 if c.model_type == "glm4_moe_lite" else 0)
    frequency = c.integer("moe_layer_freq", default=1)
    made = mixed_decoder(
        c, attentions, experts, Mlp(mlp_width(c)), lambda layer: layer < leading or layer % frequency != 0
    )
    return replace(made, predicting=predicting_layers(c, Layer(indexed, (experts,))))


def _indexed(c: Keys, attention: LatentAttention) -> LatentAttention:
    """The attention with its indexer, if the file has one."""
    chosen = c.optional("index_topk", high=2**20)
    if chosen is None:
        return attention
    if attention.query_rank is None:
        raise c.problem("q_lora_rank", "is missing, and the indexer reads the queries of that rank")
    indexer = Indexer(
        c.integer("index_n_heads", high=2**16),
        c.integer("index_head_dim", high=2**16),
        chosen,
        c.flag("indexer_rope_interleave"),
    )
    return replace(attention, indexer=indexer)


def _own_indexers(c: Keys) -> list[bool]:
    """Which layers have an indexer of their own: the others read the tokens that an earlier layer's chose."""
    count = layer_count(c)
    said = c.raw("index_topk_pattern")
    pattern = c.texts("index_topk_pattern", MOST_LAYERS) if isinstance(said, list) else c.text("index_topk_pattern")
    if said is not None and pattern is not None:
        return [layer >= len(pattern) or pattern[layer] != "S" for layer in range(count)]
    every = c.integer("index_topk_freq", default=_SHARING[0])
    offset = c.integer("index_skip_topk_offset", low=0, default=_SHARING[1])
    return [max(layer - offset + 1, 0) % every == 0 for layer in range(count)]


def deepseek_experts(c: Keys, count: int, *, corrected: bool = True) -> Experts:
    """`count` routed experts, and the shared experts as one. `corrected`: the correcting bias helps to choose them."""
    width = mlp_width(c, "moe_intermediate_size")
    shared = c.optional("n_shared_experts", low=0, high=2**10) or 0
    return Experts(
        count,
        per_token(c, count),
        width,
        correction=CORRECTION if corrected else "",
        shared=shared_experts(width * shared),
    )


def predicting_layers(c: Keys, like: Layer) -> tuple[Layer, ...]:
    """The layers of multi-token prediction, if the file itself says that its checkpoint has them."""
    if not c.written("num_nextn_predict_layers"):
        return ()
    return (like,) * (c.optional("num_nextn_predict_layers", low=0, high=100) or 0)

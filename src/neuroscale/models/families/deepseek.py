"""Builds the decoders of DeepSeek, GLM-5, and families with this layout: latent attention, leading dense layers,
shared experts.
"""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import (
    attentions_of,
    hidden_size,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
    per_token,
    routed_experts,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts, Indexer, LatentAttention, Layer, Mlp

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


def dots1(c: Keys) -> Decoder:
    """dots.llm1."""
    count, _ = needed_experts(c)
    experts = deepseek_experts(c, count)
    full_below = c.integer("max_window_layers", low=0, default=layer_count(c))
    bias = c.flag("attention_bias")
    attentions = attentions_of(c, lambda layer: layer < full_below, bias=bias, output_bias=bias, norm="head")
    leading = c.optional("first_k_dense_replace", low=0) or 0
    return mixed_decoder(c, attentions, experts, Mlp(mlp_width(c)), lambda layer: layer < leading)


def _latent_moe(c: Keys) -> Decoder:
    heads = c.shape("num_attention_heads", high=2**16)
    plain = LatentAttention(
        heads,
        rank=c.integer("kv_lora_rank", high=2**20),
        rope_dim=c.integer("qk_rope_head_dim", high=2**16),
        nope_dim=c.integer("qk_nope_head_dim", high=2**16),
        value_dim=c.integer("v_head_dim", high=2**16),
        query_rank=c.optional("q_lora_rank", high=2**20),
        bias=c.flag("attention_bias"),
    )
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
        c,
        attentions,
        experts,
        Mlp(mlp_width(c)),
        lambda layer: layer < leading or layer % frequency != 0,
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
        shared=Mlp(width * shared, block="shared_experts", group="shared_experts") if shared else None,
    )


def predicting_layers(c: Keys, like: Layer) -> tuple[Layer, ...]:
    """The layers of multi-token prediction, if the file itself says that its checkpoint has them."""
    if not c.written("num_nextn_predict_layers"):
        return ()
    return (like,) * (c.optional("num_nextn_predict_layers", low=0, high=100) or 0)

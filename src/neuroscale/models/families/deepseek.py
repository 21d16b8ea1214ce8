"""DeepSeek, and families with its layout: latent attention, leading dense layers, shared experts."""

from __future__ import annotations

from dataclasses import replace

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
from neuroscale.models.keys import Keys
from neuroscale.models.layers import Experts, LatentAttention, Layer, Mlp

CORRECTION = "gate.e_score_correction_bias"
"""The name of the bias that vLLM uses only to choose experts."""


def deepseek(c: Keys) -> Decoder:
    """DeepSeek V2 and V3, Kimi K2: latent attention, leading dense layers, shared experts."""
    if c.has("index_topk") and c.raw("index_topk") is not None:
        raise c.problem(
            "index_topk",
            "attention that an indexer with a cache of its own makes sparse is not planned",
            "Measure this model under vLLM.",
        )
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
    attention = LatentAttention(
        heads,
        rank=c.integer("kv_lora_rank", high=2**20),
        rope_dim=c.integer("qk_rope_head_dim", high=2**16),
        nope_dim=c.integer("qk_nope_head_dim", high=2**16),
        value_dim=c.integer("v_head_dim", high=2**16),
        query_rank=c.optional("q_lora_rank", high=2**20),
        bias=c.flag("attention_bias"),
    )
    count = routed_experts(c)
    if not count:
        return Decoder(tuple(Layer(attention, (Mlp(mlp_width(c)),)) for _ in range(layer_count(c))), hidden_size(c))
    # DeepSeek V2 chooses without the correcting bias.
    corrected = c.text("topk_method", "noaux_tc" if c.model_type != "deepseek_v2" else "") == "noaux_tc"
    experts = deepseek_experts(c, count, corrected=corrected)
    leading = c.integer("first_k_dense_replace", low=0, default=1 if c.model_type == "glm4_moe_lite" else 0)
    frequency = c.integer("moe_layer_freq", default=1)
    made = mixed_decoder(
        c,
        [attention] * layer_count(c),
        experts,
        Mlp(mlp_width(c)),
        lambda layer: layer < leading or layer % frequency != 0,
    )
    return replace(made, predicting=predicting_layers(c, Layer(attention, (experts,))))


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

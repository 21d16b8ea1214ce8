"""Builds the decoders of Llama, and of the families that differ little from it."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import (
    NAMES_W1_W3_W2,
    NORMS_BEHIND,
    Decoder,
    attentions_of,
    dense_decoder,
    estimated,
    full_every,
    half_width,
    head_shape,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
    per_token,
    reaches,
    routed_experts,
    shared_experts,
    window_of,
)
from neuroscale.models.families.deepseek import CORRECTION, deepseek_experts, predicting_layers
from neuroscale.models.layers import Attention, Experts, Layer, Mlp


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


def mistral(c: Keys) -> Decoder:
    """Mistral and Ministral: no biases; one window for all layers, or a list of layer types."""
    return dense_decoder(c, attentions_of(c), Mlp(mlp_width(c)))


def mixtral(c: Keys) -> Decoder:
    """Mixtral."""
    count, chosen = needed_experts(c)
    experts = Experts(count, chosen, mlp_width(c), names=NAMES_W1_W3_W2, block="block_sparse_moe")
    return mixed_decoder(c, attentions_of(c), experts, None)


def olmo(c: Keys) -> Decoder:
    """OLMo: its norms have no weights."""
    made = dense_decoder(c, attentions_of(c, biases="attention_bias"), Mlp(mlp_width(c)), ())
    return replace(made, final_norm=())


def olmo2(c: Keys) -> Decoder:
    """OLMo 2: norms after the blocks, and over all queries and keys."""
    return dense_decoder(c, attentions_of(c, biases="attention_bias", norm="all"), Mlp(mlp_width(c)), NORMS_BEHIND)


def olmo3(c: Keys) -> Decoder:
    """OLMo 3: as OLMo 2, with a window in three layers of four."""
    attentions = attentions_of(c, full_every(4), biases="attention_bias", norm="all")
    return dense_decoder(c, attentions, Mlp(mlp_width(c)), NORMS_BEHIND)


def olmoe(c: Keys) -> Decoder:
    """OLMoE."""
    count, chosen = needed_experts(c)
    attentions = attentions_of(c, biases="attention_bias", norm="all")
    return mixed_decoder(c, attentions, Experts(count, chosen, mlp_width(c)), None)


def molmo(c: Keys) -> Decoder:
    """Molmo: `intermediate_size` counts gate and up together."""
    norm = "all" if c.flag("attention_layer_norm") else ""
    attentions = attentions_of(c, bias=c.flag("qkv_bias"), norm=norm)
    return dense_decoder(c, attentions, Mlp(half_width(c)))


def phi3(c: Keys) -> Decoder:
    """Phi-3, Phi-3.5 and Phi-4: fused matrices."""
    return dense_decoder(c, attentions_of(c, fused="qkv_proj"), Mlp(mlp_width(c), fused="gate_up_proj"))


def phimoe(c: Keys) -> Decoder:
    """Phi-3.5-MoE and its smaller copies: norms with biases, and a bias of the output matrix."""
    count, chosen = needed_experts(c)
    experts = Experts(count, chosen, mlp_width(c), names=NAMES_W1_W3_W2, block="block_sparse_moe")
    made = mixed_decoder(c, attentions_of(c, biases="attention_bias"), experts, None, norm_bias=True)
    return replace(made, lm_head_bias=c.flag("lm_head_bias"))


def cohere(c: Keys) -> Decoder:
    """Command R: one norm a layer."""
    norm = "heads" if c.flag("use_qk_norm") else ""
    attentions = attentions_of(c, biases="attention_bias", norm=norm)
    return dense_decoder(c, attentions, Mlp(mlp_width(c)), ("input_layernorm",))


def cohere2(c: Keys) -> Decoder:
    """Command R7B and Command A: a window in three layers of four, one token wider than its config says."""
    period = c.integer("sliding_window_pattern", low=1, default=4)
    attentions = [
        replace(attention, window=attention.window + 1 if attention.window else None)
        for attention in attentions_of(c, full_every(period), biases="attention_bias")
    ]
    return dense_decoder(c, attentions, Mlp(mlp_width(c)), ("input_layernorm",))


def glm(c: Keys) -> Decoder:
    """GLM-4-9B of the first layout."""
    return dense_decoder(
        c, attentions_of(c, bias=c.flag("attention_bias", True)), Mlp(mlp_width(c), fused="gate_up_proj")
    )


def glm4(c: Keys) -> Decoder:
    """GLM-4-0414: norms before and after both blocks."""
    norms = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    attentions = attentions_of(c, bias=c.flag("attention_bias", True))
    return dense_decoder(c, attentions, Mlp(mlp_width(c), fused="gate_up_proj"), norms)


def glm4_moe(c: Keys) -> Decoder:
    """GLM-4.5 and its successors of that layout."""
    count, _ = needed_experts(c)
    experts = replace(deepseek_experts(c, count), full_router=True)
    norm = "head" if c.flag("use_qk_norm") else ""
    attentions = attentions_of(c, bias=c.flag("attention_bias"), norm=norm)
    leading = c.optional("first_k_dense_replace", low=0) or 0
    made = mixed_decoder(c, attentions, experts, Mlp(mlp_width(c)), lambda layer: layer < leading)
    return replace(made, predicting=predicting_layers(c, Layer(attentions[-1], (experts,))))


def ernie(c: Keys) -> Decoder:
    """ERNIE 4.5, dense."""
    bias = c.flag("use_bias")
    return dense_decoder(c, attentions_of(c, bias=bias, output_bias=bias), Mlp(mlp_width(c), bias=bias))


def ernie_moe(c: Keys) -> Decoder:
    """ERNIE 4.5 with experts."""
    count, chosen = needed_experts(c)
    bias = c.flag("use_bias")
    width = mlp_width(c, "moe_intermediate_size")
    shared = c.optional("moe_num_shared_experts", low=0, high=2**10) or 0
    experts = Experts(
        count,
        chosen,
        width,
        full_router=True,
        correction="moe_statics.e_score_correction_bias",
        shared=shared_experts(width * shared, bias=bias),
    )
    first = c.optional("moe_layer_start_index", low=0) or 0
    last = c.optional("moe_layer_end_index", low=-1)
    last = layer_count(c) - 1 if last is None or last < 0 else last
    interval = c.integer("moe_layer_interval", default=1)
    return mixed_decoder(
        c,
        attentions_of(c, bias=bias, output_bias=bias),
        experts,
        Mlp(mlp_width(c), bias=bias),
        lambda layer: not (first <= layer <= last and (layer + 1) % interval == 0),
    )


def minimax_m2(c: Keys) -> Decoder:
    """MiniMax M2: full attention, norms over all queries and keys."""
    count, chosen = needed_experts(c)
    experts = Experts(
        count,
        chosen,
        mlp_width(c),
        names=NAMES_W1_W3_W2,
        block="block_sparse_moe",
        full_router=True,
        correction="e_score_correction_bias",
    )
    return mixed_decoder(c, attentions_of(c, norm="all"), experts, None)


def laguna(c: Keys) -> Decoder:
    """Laguna: layers with different numbers of heads, a gate after attention, one shared expert."""
    count, _ = needed_experts(c)
    _, kv_heads, head_dim = head_shape(c)
    kinds = reaches(c, full_every(1))
    heads = c.integers("num_attention_heads_per_layer", low=1) or (c.shape("num_attention_heads"),) * len(kinds)
    blocks = c.texts("mlp_layer_types", MOST_LAYERS) or ("dense", *("sparse",) * (len(kinds) - 1))
    for key, told in (("num_attention_heads_per_layer", heads), ("mlp_layer_types", blocks)):
        if len(told) < len(kinds):
            raise c.problem(key, f"names {len(told)} layers of {len(kinds)}")
    per_head = c.raw("gating") in (True, None, "per-head")
    bias = c.flag("attention_bias")
    attentions = [
        Attention(
            heads[layer],
            kv_heads,
            head_dim,
            reach,
            window,
            bias=bias,
            output_bias=bias,
            norm="head",
            gate=heads[layer] * (1 if per_head else head_dim),
        )
        for layer, (reach, window) in enumerate(kinds)
    ]
    shared = Mlp(mlp_width(c, "shared_expert_intermediate_size"), block="shared_experts", group="shared_experts")
    experts = Experts(
        count, per_token(c, count), mlp_width(c, "moe_intermediate_size"), correction=CORRECTION, shared=shared
    )
    return mixed_decoder(c, attentions, experts, Mlp(mlp_width(c)), lambda layer: blocks[layer] == "dense")


def llama(c: Keys) -> Decoder:
    """Llama, and the many that vLLM or transformers serve with its layout."""
    attentions = attentions_of(c, biases="attention_bias")
    return dense_decoder(c, attentions, Mlp(mlp_width(c), bias=c.flag("mlp_bias")))


def seed_oss(c: Keys) -> Decoder:
    """Seed-OSS."""
    bias, output = c.flag("attention_bias", True), c.flag("attention_out_bias")
    return dense_decoder(c, attentions_of(c, bias=bias, output_bias=output), Mlp(mlp_width(c), bias=c.flag("mlp_bias")))


def exaone4(c: Keys) -> Decoder:
    """EXAONE 4: norms after the blocks."""
    period = c.optional("sliding_window_pattern", low=1) if isinstance(c.raw("sliding_window_pattern"), int) else 4
    every = full_every(period or 4) if window_of(c) else None
    return dense_decoder(c, attentions_of(c, every, norm="head"), Mlp(mlp_width(c)), NORMS_BEHIND)


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

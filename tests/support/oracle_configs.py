"""Configurations of models for comparing the planner with vLLM and transformers: only their shapes, not their files.

TINY: small enough to start on a CPU, with the structure of each family's attention and experts. FULL: the published
sizes of real models (the numbers in a config.json).
"""

from __future__ import annotations

from typing import Any

import oracle_hybrids
import oracle_sparse

Config = dict[str, Any]

_SLIDING, _FULL = "sliding_attention", "full_attention"
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_TWO_ROPES = {_SLIDING: _ROPE, _FULL: {"rope_type": "default", "rope_theta": 1000000.0}}
_GEMMA4_ROPES = {
    _SLIDING: _ROPE,
    _FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}


def _of(architecture: str, model_type: str, *parts: Config, **numbers: Any) -> Config:
    found: Config = {"architectures": [architecture], "model_type": model_type}
    for part in (*parts, numbers):
        found.update(part)
    return found


_SMALL: Config = {
    "vocab_size": 512,
    "dtype": "bfloat16",
    "max_position_embeddings": 4096,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SMALL_EXPERTS: Config = {"num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
_SMALL_MLA: Config = {
    **_SMALL_EXPERTS,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 2,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
}
_SMALL_GEMMA4: Config = {
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 12,
    "layer_types": ([_SLIDING] * 5 + [_FULL]) * 2,
    "sliding_window": 128,
    "head_dim": 32,
    "global_head_dim": 64,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "rope_parameters": _GEMMA4_ROPES,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 512,
    "num_kv_shared_layers": 0,
    "use_double_wide_mlp": False,
    "enable_moe_block": False,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
}

TINY: dict[str, Config] = {
    "llama": _of("LlamaForCausalLM", "llama", _SMALL, head_dim=32),
    "mistral": _of("MistralForCausalLM", "mistral", _SMALL, head_dim=32, sliding_window=256),
    "qwen2": _of("Qwen2ForCausalLM", "qwen2", _SMALL),
    "qwen3": _of("Qwen3ForCausalLM", "qwen3", _SMALL, head_dim=64),
    "qwen3_moe": _of(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        _SMALL,
        _SMALL_EXPERTS,
        head_dim=64,
        num_experts=8,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
    "mixtral": _of(
        "MixtralForCausalLM", "mixtral", _SMALL, num_local_experts=4, num_experts_per_tok=2, sliding_window=None
    ),
    "gemma2": _of(
        "Gemma2ForCausalLM",
        "gemma2",
        _SMALL,
        num_hidden_layers=5,
        head_dim=32,
        sliding_window=256,
        query_pre_attn_scalar=64,
        hidden_activation="gelu_pytorch_tanh",
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        tie_word_embeddings=True,
    ),
    "gemma3": _of(
        "Gemma3ForCausalLM",
        "gemma3_text",
        _SMALL,
        num_hidden_layers=8,
        layer_types=[_SLIDING] * 5 + [_FULL] + [_SLIDING] * 2,
        head_dim=32,
        sliding_window=128,
        query_pre_attn_scalar=64,
        hidden_activation="gelu_pytorch_tanh",
        rope_parameters=_TWO_ROPES,
        tie_word_embeddings=True,
    ),
    "gemma4": _of("Gemma4ForCausalLM", "gemma4_text", _SMALL, _SMALL_GEMMA4),
    "gemma4_moe": _of(
        "Gemma4ForCausalLM",
        "gemma4_text",
        _SMALL,
        _SMALL_GEMMA4,
        enable_moe_block=True,
        num_experts=8,
        top_k_experts=2,
        moe_intermediate_size=64,
    ),
    "gemma4_shared": _of(
        "Gemma4ForCausalLM",
        "gemma4_text",
        _SMALL,
        _SMALL_GEMMA4,
        num_hidden_layers=10,
        layer_types=([_SLIDING] * 4 + [_FULL]) * 2,
        num_key_value_heads=1,
        num_global_key_value_heads=None,
        attention_k_eq_v=False,
        hidden_size_per_layer_input=32,
        num_kv_shared_layers=4,
        use_double_wide_mlp=True,
    ),
    "deepseek_v2": _of(
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        _SMALL,
        _SMALL_MLA,
        scoring_func="softmax",
        topk_method="group_limited_greedy",
    ),
    "deepseek_v3": _of(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        _SMALL,
        _SMALL_MLA,
        scoring_func="sigmoid",
        topk_method="noaux_tc",
        num_nextn_predict_layers=1,
    ),
    "gpt_oss": _of(
        "GptOssForCausalLM",
        "gpt_oss",
        _SMALL,
        num_hidden_layers=6,
        layer_types=[_SLIDING, _FULL] * 3,
        intermediate_size=128,
        head_dim=64,
        sliding_window=128,
        num_local_experts=8,
        num_experts_per_tok=2,
        attention_bias=True,
        swiglu_limit=7.0,
        max_position_embeddings=131072,
        rope_parameters=_YARN,
    ),
    "llama4": _of(
        "Llama4ForCausalLM",
        "llama4_text",
        _SMALL,
        num_hidden_layers=8,
        intermediate_size=64,
        intermediate_size_mlp=256,
        head_dim=32,
        attention_chunk_size=256,
        num_local_experts=4,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        no_rope_layers=[1, 1, 1, 0, 1, 1, 1, 0],
        use_qk_norm=True,
        attn_temperature_tuning=True,
    ),
    "glm4_moe": _of(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        _SMALL,
        _SMALL_EXPERTS,
        num_hidden_layers=4,
        head_dim=64,
        partial_rotary_factor=0.5,
        n_routed_experts=8,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        routed_scaling_factor=1.0,
        use_qk_norm=True,
        attention_bias=True,
        num_nextn_predict_layers=1,
    ),
    "phimoe": _of(
        "PhiMoEForCausalLM",
        "phimoe",
        _SMALL,
        intermediate_size=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        attention_bias=True,
        lm_head_bias=True,
        sliding_window=None,
        router_jitter_noise=0.01,
        input_jitter_noise=0.01,
    ),
    "granitemoe": _of(
        "GraniteMoeForCausalLM",
        "granitemoe",
        _SMALL,
        intermediate_size=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        embedding_multiplier=12.0,
        logits_scaling=6.0,
        residual_multiplier=0.22,
        attention_multiplier=0.0156,
        tie_word_embeddings=True,
    ),
    **oracle_hybrids.TINY,
}


def _published(  # the words of config.json, in its order of importance
    layers: int, hidden: int, mlp: int, heads: int, kv_heads: int, vocabulary: int, positions: int, **more: Any
) -> Config:
    return {
        "dtype": "bfloat16",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "tie_word_embeddings": False,
        **more,
    }


_SIGLIP: Config = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_channels": 3,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
_LLAMA4_VISION: Config = {
    "model_type": "llama4_vision_model",
    "hidden_size": 1408,
    "image_size": 336,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_channels": 3,
    "num_hidden_layers": 34,
    "patch_size": 14,
    "pixel_shuffle_ratio": 0.5,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 4096,
}


def _gemma4_vision(layers: int, hidden: int, mlp: int, heads: int, head: int, **more: Any) -> Config:
    return {
        "model_type": "gemma4_vision",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": head,
        "global_head_dim": head,
        "patch_size": 16,
        "pooling_kernel_size": 3,
        "position_embedding_size": 10240,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        **more,
    }


def _gemma4(text: Config, vision: Config, audio: Config | None = None) -> Config:
    shared = {
        "model_type": "gemma4_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "head_dim": 256,
        "global_head_dim": 512,
        "rope_parameters": _GEMMA4_ROPES,
        "vocab_size_per_layer_input": 262144,
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False,
        "enable_moe_block": False,
        "attention_k_eq_v": True,
    }
    return _of(
        "Gemma4ForConditionalGeneration",
        "gemma4",
        dtype="bfloat16",
        tie_word_embeddings=True,
        text_config={**shared, **text, "tie_word_embeddings": True},
        vision_config=vision,
        audio_config=audio,
    )


_BIG_VISION = _gemma4_vision(27, 1152, 4304, 16, 72, standardize=True, use_clipped_linears=False)
_LARGE_MLA: Config = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_layer_freq": 1,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    },
}

_FALCON: Config = {"dtype": "bfloat16", "vocab_size": 65024, "multi_query": True, "parallel_attn": True, "bias": False}
_IDEFICS_VISION: Config = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
}

COUNTED: dict[str, Config] = {
    "Falcon-7B": _of(
        "FalconForCausalLM", "falcon", _FALCON, num_hidden_layers=32, hidden_size=4544, num_attention_heads=71
    ),
    "Falcon-40B": _of(
        "FalconForCausalLM",
        "falcon",
        _FALCON,
        num_hidden_layers=60,
        hidden_size=8192,
        num_attention_heads=128,
        num_kv_heads=8,
        new_decoder_architecture=True,
    ),
    "Idefics3-8B": _of(
        "Idefics3ForConditionalGeneration",
        "idefics3",
        dtype="bfloat16",
        scale_factor=2,
        tie_word_embeddings=False,
        text_config={**_published(32, 4096, 14336, 32, 8, 128259, 131072), "model_type": "llama"},
        vision_config={**_IDEFICS_VISION, "model_type": "idefics3_vision", "image_size": 364},
    ),
    "SmolVLM2-2.2B": _of(
        "SmolVLMForConditionalGeneration",
        "smolvlm",
        dtype="bfloat16",
        scale_factor=3,
        tie_word_embeddings=False,
        text_config={**_published(24, 2048, 8192, 32, 32, 49280, 8192), "model_type": "llama"},
        vision_config={**_IDEFICS_VISION, "model_type": "smolvlm_vision", "image_size": 384},
    ),
}
"""Published sizes of models of which only the number of parameters is compared."""

FULL: dict[str, Config] = {
    "Llama-3.1-8B": _of("LlamaForCausalLM", "llama", _published(32, 4096, 14336, 32, 8, 128256, 131072)),
    "Qwen2.5-7B": _of("Qwen2ForCausalLM", "qwen2", _published(28, 3584, 18944, 28, 4, 152064, 32768)),
    "Qwen3-8B": _of("Qwen3ForCausalLM", "qwen3", _published(36, 4096, 12288, 32, 8, 151936, 40960, head_dim=128)),
    "Qwen3-30B-A3B": _of(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        _published(48, 2048, 6144, 32, 4, 151936, 40960, head_dim=128),
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        norm_topk_prob=True,
    ),
    "Mistral-7B-v0.3": _of(
        "MistralForCausalLM", "mistral", _published(32, 4096, 14336, 32, 8, 32768, 32768, sliding_window=None)
    ),
    "Mixtral-8x7B": _of(
        "MixtralForCausalLM",
        "mixtral",
        _published(32, 4096, 14336, 32, 8, 32000, 32768),
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None,
    ),
    "gemma-2-9b": _of(
        "Gemma2ForCausalLM",
        "gemma2",
        _published(42, 3584, 14336, 16, 8, 256000, 8192, head_dim=256),
        sliding_window=4096,
        query_pre_attn_scalar=256,
        hidden_activation="gelu_pytorch_tanh",
        tie_word_embeddings=True,
    ),
    "gemma-3-12b": _of(
        "Gemma3ForConditionalGeneration",
        "gemma3",
        dtype="bfloat16",
        mm_tokens_per_image=256,
        text_config={
            **_published(48, 3840, 15360, 16, 8, 262208, 131072, head_dim=256, model_type="gemma3_text"),
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
            "query_pre_attn_scalar": 256,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "tie_word_embeddings": True,
        },
        vision_config=_SIGLIP,
    ),
    "gemma-4-12B": _gemma4(
        {
            **_published(48, 3840, 15360, 16, 8, 262144, 262144, num_global_key_value_heads=1, sliding_window=1024),
            "layer_types": ([_SLIDING] * 5 + [_FULL]) * 8,
        },
        _BIG_VISION,
    ),
    "gemma-4-26B-A4B": _gemma4(
        {
            **_published(30, 2816, 2112, 16, 8, 262144, 262144, num_global_key_value_heads=2, sliding_window=1024),
            "layer_types": ([_SLIDING] * 5 + [_FULL]) * 5,
            "enable_moe_block": True,
            "num_experts": 128,
            "top_k_experts": 8,
            "moe_intermediate_size": 704,
        },
        _BIG_VISION,
    ),
    "gemma-4-E2B": _gemma4(
        {
            **_published(35, 1536, 6144, 8, 1, 262144, 131072, sliding_window=512),
            "layer_types": ([_SLIDING] * 4 + [_FULL]) * 7,
            "attention_k_eq_v": False,
            "hidden_size_per_layer_input": 256,
            "num_kv_shared_layers": 20,
            "use_double_wide_mlp": True,
        },
        _gemma4_vision(16, 768, 3072, 12, 64, standardize=False, use_clipped_linears=True),
        {
            "model_type": "gemma4_audio",
            "hidden_size": 1024,
            "num_hidden_layers": 12,
            "num_attention_heads": 8,
            "attention_chunk_size": 12,
            "attention_context_left": 13,
            "attention_context_right": 0,
            "conv_kernel_size": 5,
            "output_proj_dims": 1536,
            "subsampling_conv_channels": [128, 32],
            "use_clipped_linears": True,
        },
    ),
    "DeepSeek-V2-Lite": _of(
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        _published(27, 2048, 10944, 16, 16, 102400, 163840),
        _LARGE_MLA,
        q_lora_rank=None,
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        topk_method="greedy",
        scoring_func="softmax",
        norm_topk_prob=False,
        routed_scaling_factor=1.0,
    ),
    "DeepSeek-V3": _of(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        _published(61, 7168, 18432, 128, 128, 129280, 163840),
        _LARGE_MLA,
        q_lora_rank=1536,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        n_group=8,
        topk_group=4,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        num_nextn_predict_layers=1,
    ),
    "Llama-4-Scout": _of(
        "Llama4ForConditionalGeneration",
        "llama4",
        dtype="bfloat16",
        text_config={
            **_published(48, 5120, 8192, 40, 8, 202048, 10485760, head_dim=128, model_type="llama4_text"),
            "intermediate_size_mlp": 16384,
            "attention_chunk_size": 8192,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1,
            "use_qk_norm": True,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 16.0,
                "high_freq_factor": 1.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
            },
        },
        vision_config=_LLAMA4_VISION,
    ),
    "gpt-oss-20b": _of(
        "GptOssForCausalLM",
        "gpt_oss",
        _published(24, 2880, 2880, 64, 8, 201088, 131072, head_dim=64),
        layer_types=[_SLIDING, _FULL] * 12,
        sliding_window=128,
        num_local_experts=32,
        num_experts_per_tok=4,
        attention_bias=True,
        rope_parameters=_YARN,
    ),
    "GLM-4.5": _of(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        _published(92, 5120, 12288, 96, 8, 151552, 131072, head_dim=128),
        attention_bias=True,
        partial_rotary_factor=0.5,
        use_qk_norm=True,
        n_routed_experts=160,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=1536,
        first_k_dense_replace=3,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        num_nextn_predict_layers=1,
    ),
    "Phi-3.5-MoE": _of(
        "PhiMoEForCausalLM",
        "phimoe",
        _published(32, 4096, 6400, 32, 8, 32064, 131072),
        num_local_experts=16,
        num_experts_per_tok=2,
        attention_bias=True,
        lm_head_bias=True,
        sliding_window=131072,
    ),
    "granite-3.0-1b-a400m": _of(
        "GraniteMoeForCausalLM",
        "granitemoe",
        _published(24, 1024, 512, 16, 8, 49155, 4096),
        num_local_experts=32,
        num_experts_per_tok=8,
        attention_multiplier=0.015625,
        embedding_multiplier=12.0,
        residual_multiplier=0.22,
        logits_scaling=6.0,
        tie_word_embeddings=True,
    ),
    **oracle_hybrids.FULL,
    **oracle_sparse.FULL,
}

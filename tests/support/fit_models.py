"""Models and cards for tests of the memory engine: the keys of the publishers' configs that decide about memory."""

from __future__ import annotations

from typing import Any

from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Device

H100 = Device("nvidia-h100-80gb", "NVIDIA H100 SXM 80GB", "cuda", 79.19, 3350, 64, counts=(1, 2, 4, 8))
A100 = Device(
    "nvidia-a100-80gb", "NVIDIA A100 80GB", "cuda", 79.25, 2039, 32, counts=(1, 2, 4, 8), kv_cache_dtypes=("auto",)
)
H200 = Device("nvidia-h200-141gb", "NVIDIA H200 SXM 141GB", "cuda", 139.8, 4800, 64, counts=(1, 2, 4, 8))
L4 = Device("nvidia-l4", "NVIDIA L4", "cuda", 21.96, 300, 31.5, counts=(1, 2, 4, 8))
RTX_3090 = Device("rtx-3090", "NVIDIA RTX 3090", "cuda", 23.57, 936, 32)
GB10 = Device("gb10", "NVIDIA GB10 (DGX Spark)", "cuda", 121.6, 273)
V6E = Device("tpu-v6e", "Google TPU v6e", "tpu", 31.24, 1638)
CPU = Device("cpu", "CPU", "cpu", 16.0)

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "torch_dtype": "bfloat16",
    "vocab_size": 102400,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
}
_GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "torch_dtype": "bfloat16",
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
}
_GEMMA4: dict[str, Any] = {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "torch_dtype": "bfloat16",
    "vocab_size": 262144,
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "moe_intermediate_size": 704,
    "num_experts": 128,
    "top_k_experts": 8,
    "enable_moe_block": True,
    "num_hidden_layers": 30,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_global_key_value_heads": 2,
    "head_dim": 256,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
    "sliding_window": 1024,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
    "max_position_embeddings": 262144,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "tie_word_embeddings": True,
}


def llama_8b(**changes: Any) -> ModelFacts:
    """Llama 3.1 8B."""
    return read_config({**LLAMA, **changes}, "Llama-3.1-8B-Instruct")


def llama_70b() -> ModelFacts:
    """Llama 3.1 70B."""
    return llama_8b(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64)


def qwen3_30b_a3b() -> ModelFacts:
    """Qwen3 30B-A3B, Instruct 2507."""
    return read_config(_QWEN3, "Qwen3-30B-A3B-Instruct-2507")


def deepseek_v2_lite(**more: Any) -> ModelFacts:
    """DeepSeek V2 Lite: latent attention, shared experts."""
    return read_config({**_DEEPSEEK, **more}, "DeepSeek-V2-Lite-Chat")


def gpt_oss_20b() -> ModelFacts:
    """gpt-oss-20b in mxfp4."""
    return read_config(_GPT_OSS, "gpt-oss-20b")


def gpt_oss_120b() -> ModelFacts:
    """gpt-oss-120b in mxfp4."""
    layers = {"num_hidden_layers": 36, "layer_types": ["sliding_attention", "full_attention"] * 18}
    return read_config({**_GPT_OSS, **layers, "num_local_experts": 128}, "gpt-oss-120b")


def gemma4_26b_a4b() -> ModelFacts:
    """The text tower of Gemma 4 26B-A4B: layers with windows beside full attention, with two head sizes."""
    return read_config(_GEMMA4, "gemma-4-26B-A4B-it")

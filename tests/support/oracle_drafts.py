"""Configurations of tiny draft models and EAGLE heads, for comparing the planner with vLLM: only their shapes."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

_HEAD: Config = {
    "model_type": "llama",
    "vocab_size": 512,
    "dtype": "bfloat16",
    "max_position_embeddings": 2048,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DRAFTS: dict[str, Config] = {
    "head of the first generation": {**_HEAD, "architectures": ["LlamaForCausalLM"]},
    "head with fewer tokens": {**_HEAD, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 256},
    "head of another library": {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "draft_vocab_size": 320,
        "norm_before_residual": True,
        "norm_before_fc": True,
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "transformer_layer_config": {**_HEAD, "model_type": "qwen3", "head_dim": 64, "num_key_value_heads": 2},
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "model", "architectures": ["LlamaForCausalLM"]},
        },
    },
    "small model": {
        **_HEAD,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 32,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
    },
}

"""Families whose keys say something else than Llama's: the sizes that their publishers tell, or a refusal in words."""

from __future__ import annotations

from typing import Any

import pytest

from fit_models import LLAMA
from neuroscale.core.errors import InputError
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts

EXAONE = {**LLAMA, "model_type": "exaone", "architectures": ["ExaoneForCausalLM"], "num_layers": 32}
EXAONE |= {"vocab_size": 102400}
MINICPM = {**LLAMA, "model_type": "minicpm", "architectures": ["MiniCPMForCausalLM"], "hidden_size": 2304}
MINICPM |= {"num_hidden_layers": 40, "num_attention_heads": 36, "num_key_value_heads": 36, "intermediate_size": 5760}
MINICPM |= {"vocab_size": 122753}
MOLMO = {**LLAMA, "model_type": "molmo", "architectures": ["MolmoForCausalLM"], "hidden_size": 3584}
MOLMO |= {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 37888}
MOLMO |= {"vocab_size": 152064, "qkv_bias": True}
for _config, _lost in ((EXAONE, "num_hidden_layers"), (MINICPM, "tie_word_embeddings")):
    del _config[_lost]


def read(config: dict[str, Any]) -> ModelFacts:
    return read_config(config, "model")


@pytest.mark.parametrize(
    ("config", "billions", "kv_heads", "longest"),
    [
        pytest.param(EXAONE, 7.8184, 8, 131072, id="exaone-3.5-7.8b"),
        pytest.param(MINICPM, 2.7249, 36, 131072, id="minicpm-2b"),
        pytest.param(MOLMO, 7.6156, 4, 131072, id="molmo-7b-d"),
    ],
)
def test_these_are_counted_as_their_publishers_count(
    config: dict[str, Any], billions: float, kv_heads: int, longest: int
) -> None:
    facts = read(config)
    assert facts.total_params / 1e9 == pytest.approx(billions, rel=0.0005)
    assert {layers.kv_heads for layers in facts.cache} == {facts.kv_heads} == {kv_heads}
    assert facts.longest_context() == longest


def test_a_tower_of_which_a_file_says_nothing_is_missing() -> None:
    facts = read(MOLMO)
    assert facts.parts_missing
    assert any("molmo" in note for note in facts.notes)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**LLAMA, "architectures": ["QWenLMHeadModel"], "model_type": "qwen"}, "model_type"),
        ({**LLAMA, "architectures": ["FalconForCausalLM"], "model_type": "falcon"}, "model_type"),
        ({**LLAMA, "architectures": ["JambaForCausalLM"], "model_type": "jamba"}, "model_type"),
        ({**LLAMA, "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear"}, "model_type"),
        ({**LLAMA, "architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text"}, "model_type"),
        ({**LLAMA, "architectures": ["Grok1ModelForCausalLM"], "model_type": "grok-1"}, "model_type"),
        ({**LLAMA, "architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe"}, "model_type"),
        (
            {**LLAMA, "architectures": ["BailingMoeLinearV2ForCausalLM"], "model_type": "bailing_moe_linear"},
            "model_type",
        ),
        ({**MINICPM, "num_experts": 8}, "num_experts_per_tok"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_its_key(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read(config)
    assert caught.value.problems[0].field == field

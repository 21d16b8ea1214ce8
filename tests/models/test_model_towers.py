"""Towers for images and sound: counted where their layout is known, assumed where it is not, and never left out
without a word."""

from __future__ import annotations

from typing import Any

import pytest

from fit_models import H100, LLAMA
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.models.headers import Header
from neuroscale.planning.fit import fit
from neuroscale.planning.replica_memory import measured
from neuroscale.vllm.engine_arguments import EngineArguments

TEXT = {key: value for key, value in LLAMA.items() if key != "architectures"}
QWEN = {**TEXT, "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28}
QWEN |= {"num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 151674}
SIGLIP = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27}
SIGLIP |= {"patch_size": 14, "image_size": 364}
INTERN = {"model_type": "intern_vit_6b", "patch_size": 14, "image_size": 448, "hidden_size": 1024}
INTERN |= {"intermediate_size": 4096, "num_hidden_layers": 24, "qkv_bias": True, "qk_normalization": False}
INTERN |= {"norm_type": "layer_norm"}
LARGE = {"model_type": "intern_vit_6b", "patch_size": 14, "image_size": 448, "hidden_size": 3200}
LARGE |= {"intermediate_size": 12800, "num_hidden_layers": 45, "qkv_bias": False, "qk_normalization": True}


def read(model_type: str, headers: list[Header] | None = None, **changes: Any) -> ModelFacts:
    config = {"model_type": model_type, "architectures": ["Theirs"], "torch_dtype": "bfloat16", **changes}
    return read_config(config, "model", headers=headers)


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        # As their publishers tell: 304 million and 5.54 billion of InternViT, with what joins them to the text.
        ({"model_type": "internvl_chat", "llm_config": QWEN, "vision_config": INTERN}, 0.3316),
        ({"model_type": "internvl_chat", "llm_config": {**QWEN, "hidden_size": 8192}, "vision_config": LARGE}, 5.709),
        ({"model_type": "idefics3", "text_config": TEXT, "vision_config": SIGLIP, "scale_factor": 2}, 0.4321),
        (
            {
                "model_type": "smolvlm",
                "text_config": {**TEXT, "hidden_size": 2048},
                "vision_config": {**SIGLIP, "model_type": "smolvlm_vision", "image_size": 384},
                "scale_factor": 3,
            },
            0.4338,
        ),
    ],
)
def test_towers_of_these_wrappers_are_counted(config: dict[str, Any], billions: float) -> None:
    facts = read(**config)
    assert facts.basis == "config"
    assert facts.tower_params / 1e9 == pytest.approx(billions, rel=0.001)


@pytest.mark.parametrize(
    ("section", "sizes", "billions"),
    [
        ("vision_config", {"model_type": "moonvit", **SIGLIP}, 0.4470),
        ("vision_config", {"model_type": "vision", "width": 1152, "layers": 27}, 0.4660),
        (
            "audio_config",
            {"model_type": "theirs", "d_model": 1280, "encoder_layers": 32, "encoder_ffn_dim": 5120},
            0.6674,
        ),
        ("speech_config", {"hidden_size": 1280, "num_hidden_layers": 32}, 0.6674),
    ],
)
def test_a_tower_of_an_unknown_layout_is_estimated_by_its_sizes(
    section: str, sizes: dict[str, Any], billions: float
) -> None:
    facts = read("theirs_vl", None, text_config=TEXT, **{section: sizes})
    assert facts.basis == "estimate"
    assert facts.tower_params / 1e9 == pytest.approx(billions, rel=0.01)
    assert any(section in note and "unknown" in note for note in facts.notes)
    assert fit(facts, H100, EngineArguments(max_model_len=8192)).confidence == "low"


@pytest.mark.parametrize(
    "changes",
    [
        {"vision_config": {"model_type": "theirs"}},
        {"img_processor": {"name": "clip"}},
        {"embd_layer": {"image": 1}},
        # Behind a tower that is not counted, one that is.
        {
            "vision_config": {"model_type": "theirs"},
            "speech_config": {"hidden_size": 1280, "num_hidden_layers": 32},
        },
    ],
)
def test_a_model_with_a_tower_of_unknown_sizes_is_at_best_tight(changes: Any) -> None:
    facts = read_config({**LLAMA, **changes}, "model")
    assert facts.basis == "estimate"
    result = fit(facts, H100, EngineArguments(max_model_len=8192))
    assert result.verdict == "tight"
    assert any("tower are not counted" in reason for reason in result.reasons)
    assert fit(measured(facts, 20), H100, EngineArguments(max_model_len=8192)).verdict == "fits"


def test_headers_tell_the_bytes_of_a_tower_of_an_unknown_layout() -> None:
    headers = [Header("vision_tower.theirs.weight", "BF16", (1000, 1000), 2_000_000)]
    facts = read("theirs_vl", headers, text_config=TEXT, vision_config={"model_type": "theirs"})
    assert (facts.basis, facts.weight_bytes, facts.parts_missing) == ("headers", {"vision": 2_000_000}, False)

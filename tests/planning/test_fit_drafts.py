"""A draft model or EAGLE head takes weights and a part of the KV cache; one that is not known is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fit_models import H100, LLAMA
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Fit, draft_method, fit, with_draft
from neuroscale.vllm.engine_arguments import EngineArguments, engine_arguments

HEAD: dict[str, Any] = {
    **LLAMA,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
    "draft_vocab_size": 32000,
}
SMALL: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "head_dim": 64,
    "tie_word_embeddings": True,
}


def arguments(model: str = "org/head", method: str | None = "eagle3", **more: Any) -> EngineArguments:
    config = {"model": model, "num_speculative_tokens": 3, **({"method": method} if method else {}), **more}
    return engine_arguments({"model": "org/llama", "speculative_config": config, "max_model_len": 8192})


def llama() -> ModelFacts:
    return read_config(LLAMA, "llama")


def planned(told: EngineArguments, draft: dict[str, Any] | None = None) -> Fit:
    facts = llama() if draft is None else with_draft(llama(), read_config(draft, "draft"), told)
    return fit(facts, H100, told)


def test_a_head_takes_its_weights_and_a_layer_of_the_cache() -> None:
    told = arguments()
    plain, guessing = planned(replace(told, speculative=None, draft="", unplanned=())), planned(told, HEAD)
    hidden, width, keys = 4096, 14336, 8 * 128
    layer = 2 * hidden * (hidden + 2 * keys) + hidden * hidden + 3 * hidden * width
    around = 3 * hidden * hidden + 32000 * hidden
    tables = 32000 * 8 + 8192 * 128 * 2 + 4 * hidden * 2
    assert guessing.weights_gib["draft"] * 2**30 == pytest.approx(2 * (layer + around) + tables, rel=1e-6)
    assert guessing.request_gib == pytest.approx(plain.request_gib * 33 / 32)
    assert (plain.confidence, guessing.confidence) == ("medium", "medium")
    assert not any("does not count" in reason for reason in guessing.reasons)


def test_a_draft_model_takes_all_of_its_weights_and_layers() -> None:
    told = arguments("org/small", None)
    plain, guessing = planned(replace(told, speculative=None, draft="", unplanned=())), planned(told, SMALL)
    whole = fit(read_config(SMALL, "small"), H100, EngineArguments(max_model_len=8192))
    assert guessing.weights_gib["draft"] == pytest.approx(sum(whole.weights_gib.values()))
    assert guessing.request_gib == pytest.approx(plain.request_gib + whole.request_gib)


@pytest.mark.parametrize(
    ("draft", "method"),
    [
        ({**HEAD, "architectures": ["MedusaModel"]}, "eagle3"),
        ({**HEAD, "quantization_config": {"quant_method": "fp8"}}, "eagle3"),
        ({**SMALL, "architectures": ["OtherForCausalLM"], "model_type": "other"}, "draft_model"),
        (HEAD, "dflash"),
    ],
)
def test_a_draft_whose_layers_are_not_known_is_named_with_low_confidence(draft: dict[str, Any], method: str) -> None:
    result = planned(arguments(method=method), draft)
    assert result.confidence == "low"
    assert any("does not count" in reason and "org/head" in reason for reason in result.reasons)
    assert "draft" not in result.weights_gib


def test_a_draft_model_with_another_vocabulary_is_refused() -> None:
    result = planned(arguments("org/small", None), {**SMALL, "vocab_size": 128000})
    assert result.verdict == "refused"
    assert "128,000 tokens" in result.reasons[0]


def test_a_draft_whose_heads_cannot_be_split_is_refused() -> None:
    told = replace(arguments(), tensor_parallel_size=8)
    result = planned(told, {**HEAD, "num_attention_heads": 20, "num_key_value_heads": 20})
    assert any("20 attention heads of the draft" in reason for reason in result.against)
    told = replace(arguments("org/small", None), tensor_parallel_size=4)
    result = planned(told, {**SMALL, "num_attention_heads": 24, "num_key_value_heads": 6})
    assert any("6 KV heads of the draft" in reason for reason in result.against)


def test_a_head_alone_is_refused_and_the_model_to_plan_is_named() -> None:
    config = {"speculators_model_type": "eagle3", "transformer_layer_config": HEAD, "draft_vocab_size": 32000}
    result = fit(read_config({**config, "architectures": ["Eagle3DraftModel"]}, "head"), H100, EngineArguments())
    assert result.verdict == "refused"
    assert any("speculators_config.verifier" in reason for reason in result.against)


def test_draws_from_the_drafts_probabilities_are_not_counted() -> None:
    result = planned(arguments(draft_sample_method="probabilistic"), HEAD)
    assert result.confidence == "low"


@pytest.mark.parametrize(
    ("told", "method"),
    [
        (arguments("org/small", None), "draft_model"),
        (arguments("org/EAGLE-head", None), "eagle"),
        (arguments("org/EAGLE3-head", None), "eagle3"),
        (arguments("org/head", "eagle"), "eagle"),
        (arguments("org/x-dflash", None), None),
        (arguments("org/llama", "mtp"), None),
        (arguments(quantization="fp8"), None),
        (arguments(kv_cache_dtype="fp8"), None),
        (arguments(draft_tensor_parallel_size=2), None),
    ],
)
def test_vllm_finds_the_method_by_the_command_or_the_drafts_name(told: EngineArguments, method: str | None) -> None:
    assert draft_method(told) == method


def test_steps_do_not_overlap_while_the_prompt_itself_is_searched() -> None:
    told = engine_arguments({"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}})
    result = planned(replace(told, max_model_len=8192))
    assert not result.resolved.async_scheduling
    assert any("from which ngram guesses tokens" in reason for reason in result.reasons)

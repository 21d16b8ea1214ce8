"""--hf-overrides that change how long a context a model reads: what vLLM 0.32.0 took for the same on its start."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fit_models import H100, LLAMA
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Fit, fit
from neuroscale.vllm.accelerator_rules import Fault
from neuroscale.vllm.arguments import parse_arguments
from neuroscale.vllm.command_rules import check_command

QWEN = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "max_position_embeddings": 40960}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1000000}
LONG = {"rope_parameters": YARN, "max_position_embeddings": 131072}


def fitted(overrides: Any, *words: str, facts: ModelFacts | None = None, version: str = "0.32.0") -> Fit:
    parsed = parse_arguments(["--hf-overrides", json.dumps(overrides), *words], version)
    return fit(facts or read_config(QWEN, "qwen"), H100, parsed.arguments, version=version)


def faults(overrides: Any, *words: str) -> dict[str, Fault]:
    parsed = parse_arguments(["--model=qwen", "--hf-overrides", json.dumps(overrides), *words], "0.32.0")
    return {fault.rule: fault for fault in check_command(parsed, read_config(QWEN, "qwen"))}


@pytest.mark.parametrize(
    ("overrides", "longest"),
    [
        (LONG, 131072),
        ({"rope_scaling": YARN, "max_position_embeddings": 131072}, 131072),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 163840),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 163840),
        ({"max_position_embeddings": 8192}, 8192),
        ({"model_max_length": 65536}, 65536),
        ({"rope_theta": 5}, 40960),
    ],
)
def test_the_longest_context_is_that_of_the_overridden_config(overrides: Any, longest: int) -> None:
    result = fitted(overrides)
    assert (result.verdict, result.max_model_len, result.confidence) == ("fits", longest, "medium")
    assert not faults(overrides, f"--max-model-len={longest}")
    too_long = f"--max-model-len={longest + 1}"
    assert f"at most {longest:,}" in fitted(overrides, too_long).reasons[0]
    assert faults(overrides, too_long)["context-length"].refused


def test_a_scaling_of_the_file_can_be_taken_away() -> None:
    stretched = read_config({**QWEN, "rope_scaling": {"type": "linear", "factor": 4}}, "qwen")
    assert stretched.longest_context() == 163840
    assert fitted({"rope_scaling": None}, facts=stretched).max_model_len == 40960


def test_a_section_is_merged_and_keys_beside_it_do_nothing() -> None:
    text = {key: value for key, value in QWEN.items() if key != "architectures"}
    nested = read_config({"model_type": "theirs_vl", "torch_dtype": "bfloat16", "text_config": text}, "vl")
    assert fitted({"text_config": {"max_position_embeddings": 1000}}, facts=nested).max_model_len == 1000
    assert fitted({"max_position_embeddings": 1000}, facts=nested).max_model_len == 40960


def test_weights_stay_those_that_are_known() -> None:
    facts = replace(read_config(QWEN, "qwen"), weight_bytes={"attention": 2**30}, basis="headers")
    assert fitted({"rope_theta": 5}, facts=facts).weights_gib["attention"] == 1


def test_releases_before_0_30_multiply_an_overridden_yarn() -> None:
    assert fitted({"rope_parameters": YARN}, version="0.29.0").max_model_len == 131072
    assert fitted({"rope_parameters": YARN}).max_model_len == 40960


@pytest.mark.parametrize("overrides", [{"num_hidden_layers": 4}, {"text_config": {"vocab_size": 1}}, {**LONG, "a": 1}])
def test_what_else_is_overridden_is_said_and_makes_the_answer_unsure(overrides: Any) -> None:
    result = fitted(overrides)
    assert result.confidence == "low"
    assert any("--hf-overrides" in reason for reason in result.reasons)


@pytest.mark.parametrize(
    "overrides",
    [
        {"rope_parameters": {"factor": 2.0}},
        {"rope_parameters": {"full_attention": {"factor": 2.0}}},
        {"max_position_embeddings": "many"},
        {"rope_scaling": {"rope_type": "linear", "factor": -1}},
    ],
)
def test_overrides_that_no_config_holds_are_refused(overrides: Any) -> None:
    result = fitted(overrides)
    assert result.verdict == "refused"
    assert result.reasons[0].startswith("--hf-overrides") or "with --hf-overrides" in result.reasons[0]
    assert faults(overrides)["hf-overrides"].refused

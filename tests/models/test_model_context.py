"""How long a context a model reads, and in which dtype: what vLLM 0.32.0 made of the same files on its start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fit_models import H100, L4, LLAMA
from neuroscale.core.errors import InputError
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.models.headers import Header
from neuroscale.planning.fit import fit
from neuroscale.planning.fit.device import served_dtype
from neuroscale.vllm.arguments import parse_arguments
from neuroscale.vllm.command_rules import check_command
from neuroscale.vllm.engine_arguments import EngineArguments

PHI: dict[str, Any] = {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "torch_dtype": "bfloat16",
    "hidden_size": 3072,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 8192,
    "vocab_size": 32064,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "sliding_window": 262144,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.0] * 48},
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def read(**changes: Any) -> ModelFacts:
    return read_config({**LLAMA, **changes}, "model")


def linear(factor: Any, kind: str = "linear", key: str = "rope_type") -> dict[str, Any]:
    return {"rope_scaling": {key: kind, "factor": factor}, "max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({}, 131072),
        (linear(4.0), 32768),
        (linear(4.0, key="type"), 32768),
        (linear(2.0, "dynamic"), 16384),
        (linear(None), 8192),
        (linear(8.0, "llama3"), 8192),
        (linear(4.0, "yarn"), 8192),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 1e6}}, 524288),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": 8192, "seq_length": 4096}, 4096),
        ({"max_position_embeddings": 8192, "seq_len": 2048}, 2048),
    ],
)
def test_the_longest_context_follows_the_scaling_and_model_max_length(changes: Any, longest: int) -> None:
    facts = read(**changes)
    assert facts.max_position_embeddings == facts.default_context() == longest


def test_files_of_gemma_3_count_the_scaled_positions() -> None:
    assert read(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], **linear(8.0)).longest_context() == 8192


@pytest.mark.parametrize("factor", ["4", True, 0, -1, 2**21, []])
def test_a_factor_that_is_none_is_named(factor: Any) -> None:
    with pytest.raises(InputError, match=r"rope_scaling\.factor"):
        read(**linear(factor))


def test_long_and_short_factors_allow_the_long_context_only_where_it_is_asked_for() -> None:
    facts = read_config(PHI, "phi")
    assert (facts.max_position_embeddings, facts.default_context()) == (131072, 4096)
    assert fit(facts, L4, EngineArguments()).max_model_len == 4096
    assert fit(facts, L4, EngineArguments(max_model_len=-1)).max_model_len == 4096
    assert fit(facts, L4, EngineArguments(max_model_len=8192)).verdict == "fits"
    assert any("4,096" in sentence for sentence in fit(facts, L4, EngineArguments()).reasons)


def test_tables_for_short_and_for_long_prompts_are_both_kept() -> None:
    (table,) = read_config(PHI, "phi").rotary
    assert table.rows == 131072 + 4096


def test_a_longer_context_than_the_scaled_one_is_refused() -> None:
    facts = read(**linear(4.0))
    assert fit(facts, H100, EngineArguments(max_model_len=32768)).verdict == "fits"
    assert "at most 32,768" in fit(facts, H100, EngineArguments(max_model_len=32769)).reasons[0]


@pytest.mark.parametrize(("version", "longest"), [("0.32.0", 40960), ("0.29.0", 131072), ("0.10.2", 131072)])
def test_releases_before_0_30_multiply_the_first_positions_of_yarn(version: str, longest: int) -> None:
    facts = read(max_position_embeddings=40960, rope_scaling=YARN)
    assert fit(facts, H100, EngineArguments(), version=version).max_model_len == longest


def test_without_its_window_a_model_reads_no_more_than_that() -> None:
    facts = read(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=4096)
    arguments = EngineArguments(disable_sliding_window=True)
    short = fit(facts, H100, arguments)
    assert short.max_model_len == 4096
    assert short.pool is not None
    assert [group.spec.kind for group in short.pool.groups] == ["full"]
    refused = fit(facts, H100, replace(arguments, max_model_len=8192))
    assert "at most 4,096 tokens under --disable-sliding-window" in refused.reasons[0]
    parsed = parse_arguments(["--disable-sliding-window", "--max-model-len=8192"], "0.32.0")
    (fault,) = [fault for fault in check_command(parsed, facts) if fault.rule == "context-length"]
    assert fault.refused
    assert "4096" in fault.fix


@pytest.mark.parametrize(
    ("written", "asked", "served"),
    [
        ("float32", "auto", "bfloat16"),
        ("float32", "float32", "float32"),
        ("float16", "auto", "float16"),
        ("bfloat16", "float16", "float16"),
    ],
)
def test_checkpoints_in_float32_are_halved_unless_float32_is_asked_for(written: str, asked: Any, served: str) -> None:
    facts, arguments = read(torch_dtype=written), EngineArguments(dtype=asked, max_model_len=8192)
    assert served_dtype(facts, arguments) == served
    found = fit(facts, H100, arguments)
    same = fit(read(torch_dtype=served), H100, replace(arguments, dtype="auto" if served != "float32" else "float32"))
    assert found.resolved.kv_cache_dtype == served
    assert (found.memory_gib.weights, found.overhead_gib) == (same.memory_gib.weights, same.overhead_gib)


def test_weights_are_converted_from_what_the_files_hold_whatever_the_config_says() -> None:
    facts = read(torch_dtype="float32")
    halves = [
        Header(tensor.name.replace("{}", str(layer)), "BF16", tensor.shape, 2 * tensor.params // tensor.copies)
        for tensor in facts.tensors
        for layer in range(tensor.copies)
    ]
    from_files = read_config({**LLAMA, "torch_dtype": "float32"}, "model", headers=halves)
    arguments = EngineArguments(max_model_len=8192)
    assert fit(from_files, H100, arguments).memory_gib.weights == fit(facts, H100, arguments).memory_gib.weights

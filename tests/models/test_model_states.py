"""Models whose layers keep a state: their layers, the state of a request, and what of their files is refused."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoints import LLAMA
from neuroscale.core.errors import InputError, Problem
from neuroscale.models.cache_bytes import state_bytes
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.models.facts_json import as_mapping
from oracle_hybrids import FULL, TINY


def read(config: Any, **changes: Any) -> ModelFacts:
    return read_config({**config, **changes}, "model")


def refused(config: Any, **changes: Any) -> Problem:
    with pytest.raises(InputError) as caught:
        read(config, **changes)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("name", "total", "active", "with_attention", "with_state"),
    [
        # As their publishers say it: billions of parameters, active ones, and kinds of layers.
        ("Qwen3-Next-80B-A3B", 80, 3, 12, 36),
        ("Qwen3.5-27B", 27, 27, 16, 48),
        ("Nemotron-3-Super-120B-A12B", 120, 12, 8, 40),
        ("granite-4.0-h-small", 32, 9, 4, 36),
    ],
)
def test_a_hybrid_has_its_publishers_size_and_its_two_kinds_of_layers(
    name: str, total: int, active: int, with_attention: int, with_state: int
) -> None:
    facts = read(FULL[name])
    assert facts.total_params / 1e9 == pytest.approx(total, rel=0.02)
    assert facts.active_params / 1e9 == pytest.approx(active, rel=0.3, abs=1)
    assert [layers.layers for layers in facts.cache] == [with_attention]
    assert [layers.layers for layers in facts.states] == [with_state]
    assert facts.basis == "config"


def test_a_state_has_the_bytes_of_its_matrices_and_of_what_its_convolution_looks_back_at() -> None:
    (delta,) = read(FULL["Qwen3.5-27B"]).states
    looked_back = (2 * 16 * 128 + 48 * 128) * 3
    assert state_bytes(delta) == looked_back * 2 + 48 * 128 * 128 * 4
    assert state_bytes(delta, ranks=4) == state_bytes(delta) // 4
    assert state_bytes(delta, recurrent_dtype="bfloat16") == looked_back * 2 + 48 * 128 * 128 * 2
    assert state_bytes(delta, speculative_tokens=2) == looked_back // 3 * 5 * 2 + 48 * 128 * 128 * 4


def test_a_group_of_mamba_2_is_on_every_rank_that_has_none_of_its_own() -> None:
    (state,) = read(FULL["granite-4.0-h-small"]).states
    assert state_bytes(state, ranks=4) == (8192 // 4 + 2 * 128) * 3 * 2 + 128 // 4 * 64 * 128 * 2
    (grouped,) = read(FULL["Nemotron-3-Super-120B-A12B"]).states
    assert state_bytes(grouped, ranks=4) == (8192 + 2 * 8 * 128) // 4 * 3 * 2 + 128 // 4 * 64 * 128 * 4


def test_the_state_of_nemotron_is_kept_in_32_bits_unless_its_file_says_otherwise() -> None:
    assert read(TINY["nemotron_h"]).states[0].dtype == "float32"
    assert read(TINY["nemotron_h"], mamba_ssm_cache_dtype="bfloat16").states[0].dtype == "bfloat16"
    assert read(TINY["qwen3_next"]).states[0].dtype is None
    assert read(TINY["qwen3_5"], mamba_ssm_dtype=None).states[0].dtype is None


def test_lists_of_layers_say_the_same_as_patterns_do() -> None:
    by_letters = read(TINY["nemotron_h"])
    names = {"M": "mamba", "-": "mlp", "*": "attention"}
    pattern = TINY["nemotron_h"]["hybrid_override_pattern"]
    by_names = {key: value for key, value in TINY["nemotron_h"].items() if key != "hybrid_override_pattern"}
    listed = read(by_names, layers_block_type=[names[letter] for letter in pattern])
    assert (listed.states, listed.cache, listed.tensors) == (by_letters.states, by_letters.cache, by_letters.tensors)
    next_one = read(TINY["qwen3_next"], full_attention_interval=2)
    assert next_one.states[0].layers == next_one.cache[0].layers == 2


def test_falcon_h1_keeps_both_in_each_layer() -> None:
    falcon = read(TINY["falcon_h1"])
    assert (falcon.num_layers, falcon.states[0].layers, falcon.cache[0].layers) == (4, 4, 4)


def test_granite_4_without_states_is_no_hybrid() -> None:
    facts = read(TINY["granite_hybrid"], layer_types=["attention"] * 4, num_local_experts=0)
    assert (facts.states, facts.kind, "recurrent" in facts.weight_bytes) == ((), "dense", False)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("nemotron_h", {"hybrid_override_pattern": "M*X"}, "'X'"),
        ("nemotron_h", {"hybrid_override_pattern": None}, "the kind of each layer is not known"),
        ("nemotron_h", {"mamba_ssm_cache_dtype": "int8"}, "float32"),
        ("nemotron_h", {"block_configs": [{}]}, "differ one by one"),
        ("qwen3_5", {"mamba_ssm_dtype": "int8"}, "float32"),
        ("qwen3_5", {"layer_types": ["sliding_attention"] * 8}, "sliding_attention"),
        ("qwen3_next", {"layer_types": ["full_attention"]}, "names 1 layers of 4"),
        ("granite_hybrid", {"layer_types": None}, "kind of each of the 4 layers"),
        ("granite_hybrid", {"layer_types": ["rwkv"] * 4}, "rwkv"),
    ],
)
def test_a_layer_or_a_dtype_that_is_not_known_is_refused_by_its_key(name: str, changes: Any, words: str) -> None:
    assert words in refused(TINY[name], **changes).message


def test_a_state_beside_another_familys_layers_is_refused() -> None:
    # vLLM goes by the class, whose layers know no state.
    assert "hybrid" in refused(LLAMA, linear_conv_kernel_dim=4).message


def test_programs_read_the_state_of_a_request() -> None:
    (told,) = as_mapping(read(FULL["Qwen3.5-27B"]))["state_groups"]
    assert told == {
        "kind": "gated_delta",
        "layers": 48,
        "bytes_per_request": 48 * (10240 * 3 * 2 + 48 * 128 * 128 * 4),
        "dtype": "float32",
        "heads": 48,
    }
    assert as_mapping(read(LLAMA))["state_groups"] == []

"""The cache of models with states: pages that fit both, what a request holds, and what vLLM refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fit_models import H100, RTX_3090, V6E
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Device, Fit, fit
from neuroscale.planning.fit.kv_cache import LayerSpec, PagesDiffer, pool
from neuroscale.vllm.engine_arguments import EngineArguments, engine_arguments
from oracle_hybrids import FULL

GIB = 2**30


def qwen() -> ModelFacts:
    return read_config(FULL["Qwen3.5-27B"], "Qwen3.5-27B")


def planned(**arguments: Any) -> Fit:
    told = {"max_model_len": 32768, "tensor_parallel_size": 4, "kv_cache_memory_bytes": 10 * GIB, "max_num_seqs": 64}
    return fit(qwen(), H100, EngineArguments(**{**told, **arguments}))


@pytest.mark.parametrize(
    ("model", "arguments", "block"),
    [
        # 'Setting attention block size to ... tokens' of public logs.
        ("Qwen3.5-27B", {}, 784),
        ("Qwen3-Next-80B-A3B", {}, 544),
        ("Qwen3-Next-80B-A3B", {"mamba_ssm_cache_dtype": "float32"}, 1056),
        ("Qwen3.5-27B", {"kv_cache_dtype": "fp8"}, 1568),
    ],
)
def test_blocks_grow_until_they_are_as_large_as_a_state(model: str, arguments: Any, block: int) -> None:
    told = EngineArguments(max_model_len=8192, tensor_parallel_size=2, **arguments)
    assert fit(read_config(FULL[model], model), H100, told).resolved.block_size == block


@pytest.mark.parametrize(
    ("version", "changes", "refused"),
    [
        ("0.24.0", {}, True),
        ("0.26.0", {}, True),
        ("0.26.0", {"max_num_batched_tokens": 4192}, False),
        ("0.26.0", {"enable_prefix_caching": False}, False),
        # Without being asked, releases before 0.24 cache no prefixes beside states; since 0.27 a block may be longer.
        ("0.23.0", {}, False),
        ("0.23.0", {"enable_prefix_caching": True}, True),
        ("0.27.0", {}, False),
        ("0.32.0", {}, False),
    ],
)
def test_a_block_beside_states_must_fit_into_a_step_where_the_release_asks_for_it(
    version: str, changes: Any, refused: bool
) -> None:
    """'In Mamba cache align mode, block_size (4176) must be <= max_num_batched_tokens (2048).'"""
    facts = read_config(FULL["Qwen3.5-27B"], "Qwen3.5-27B")
    arguments = replace(EngineArguments(max_model_len=8192, max_num_seqs=8, block_size=4176), **changes)
    arguments = replace(arguments, max_num_batched_tokens=changes.get("max_num_batched_tokens", 2048))
    against = fit(facts, H100, arguments, version=version).against
    told = [sentence for sentence in against if "--max-num-batched-tokens=4176" in sentence]
    assert bool(told) == refused
    assert not refused or "--no-enable-prefix-caching" in told[0]


def test_a_request_holds_two_states_while_prefixes_are_cached_and_one_without() -> None:
    # 42 blocks of 784 tokens; three groups of 16 layers with a state beside the 16 with attention.
    page = 784 * 2 * 256 * 2
    with_prefixes, without = planned(), planned(enable_prefix_caching=False)
    assert with_prefixes.request_gib * GIB == 16 * page * (42 + 3 * 2)
    assert without.request_gib * GIB == 16 * page * (42 + 3)
    assert with_prefixes.max_concurrency < without.max_concurrency


@pytest.mark.parametrize(("version", "states"), [("0.19.0", 1), ("0.23.0", 1), ("0.24.0", 2), ("0.32.0", 2)])
def test_versions_before_0_24_cache_prefixes_beside_states_only_when_asked(version: str, states: int) -> None:
    facts = read_config(FULL["Qwen3.5-27B"], "Qwen3.5-27B")
    told = EngineArguments(max_model_len=8192, tensor_parallel_size=2)
    kept, asked = (
        fit(facts, H100, replace(told, enable_prefix_caching=said), version=version).resolved.states[0].blocks
        for said in (None, True)
    )
    assert (kept, asked) == (states, 2)


def test_a_request_to_a_model_of_states_alone_holds_one_state_however_long_it_is() -> None:
    facts = read_config(FULL["Mamba-Codestral-7B"], "Mamba-Codestral")
    # 64 layers: 3 inputs of a convolution over 8,192 + 2 x 8 x 128 channels, and 128 matrices of 64 x 128.
    state = 64 * 2 * (3 * (8192 + 2 * 8 * 128) + 128 * 64 * 128)
    told = EngineArguments(max_num_seqs=16)
    short, long = (fit(facts, H100, replace(told, max_model_len=length)) for length in (1024, 262144))
    assert short.request_gib * GIB == long.request_gib * GIB == state
    cached = fit(facts, H100, replace(told, max_model_len=1024, enable_prefix_caching=True))
    assert cached.request_gib * GIB == 3 * state
    assert fit(facts, H100, told).max_model_len == 2048


def test_guessed_tokens_take_a_state_each() -> None:
    plain, guessing = planned(), planned(speculative="mtp", speculative_tokens=2)
    assert guessing.request_gib > plain.request_gib
    assert guessing.resolved.states[0].blocks == plain.resolved.states[0].blocks + 2


def test_the_command_says_how_many_tokens_are_guessed_and_how_states_are_kept() -> None:
    said = engine_arguments(
        {
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
            "mamba_ssm_cache_dtype": "float32",
            "enable_prefix_caching": False,
        }
    )
    assert (said.speculative_tokens, said.mamba_ssm_cache_dtype, said.enable_prefix_caching) == (3, "float32", False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tensor_parallel_size": 3}, "48 heads of the layers that keep a state"),
        ({"disable_hybrid_kv_cache_manager": True}, "--disable-hybrid-kv-cache-manager"),
        ({"decode_context_parallel_size": 2}, "cannot share the states"),
        ({"enable_chunked_prefill": False}, "--no-enable-prefix-caching"),
    ],
)
def test_what_vllm_does_not_do_with_states_is_refused(arguments: Any, words: str) -> None:
    facts = qwen()
    if arguments.get("tensor_parallel_size") == 3:
        facts = replace(facts, states=tuple(replace(state, heads=40) for state in facts.states))
        words = "40 heads of the layers that keep a state"
    told = EngineArguments(**{"max_model_len": 4096, "tensor_parallel_size": 4, **arguments})
    result = fit(facts, H100, told)
    assert result.verdict == "refused"
    assert any(words in sentence for sentence in result.against)


def test_more_requests_than_blocks_that_hold_states_are_refused_with_the_most_that_start() -> None:
    facts = qwen()
    told = EngineArguments(max_model_len=8192, kv_cache_memory_bytes=10 * GIB, tensor_parallel_size=4)
    refused = fit(facts, H100, told)
    assert refused.pool is not None
    most = 10 * GIB // refused.pool.block_bytes
    assert (refused.verdict, most < refused.resolved.max_num_seqs) == ("refused", True)
    assert any(f"Write --max-num-seqs={most} or less" in sentence for sentence in refused.against)
    assert fit(facts, H100, replace(told, max_num_seqs=most)).verdict != "refused"
    assert fit(facts, H100, replace(told, enforce_eager=True)).verdict != "refused"


@pytest.mark.parametrize(
    ("version", "sequences", "verdict"),
    [
        # What releases before 0.18 did is not judged.
        ("0.15.0", 256, "tight"),
        # 128 blocks. Graphs that are too large are left out (vllm#34571).
        ("0.18.0", 256, "fits"),
        ("0.19.1", 256, "fits"),
        # 'max_num_seqs exceeds available Mamba cache blocks' (vllm#38270).
        ("0.20.0", 256, "refused"),
        ("0.20.0", 128, "fits"),
        ("0.28.0", 256, "refused"),
        ("0.32.0", 256, "refused"),
    ],
)
def test_blocks_for_states_are_asked_for_by_the_releases_that_do(version: str, sequences: int, verdict: str) -> None:
    page = 784 * 2 * 256 * 2
    told = EngineArguments(
        max_model_len=8192, tensor_parallel_size=4, kv_cache_memory_bytes=128 * 16 * page, max_num_seqs=sequences
    )
    result = fit(qwen(), H100, told, version=version)
    assert result.verdict == verdict
    assert any("blocks that hold states" in sentence for sentence in result.against) == (verdict == "refused")


def test_the_number_of_requests_to_write_instead_surely_starts() -> None:
    told = EngineArguments(max_model_len=8192, gpu_memory_utilization=0.82)
    refused = fit(qwen(), H100, told)
    (most,) = (int(word) for word in re.findall(r"Write --max-num-seqs=(\d+)", refused.against[0]))
    assert fit(qwen(), H100, replace(told, max_num_seqs=most)).verdict == "fits"


def test_states_on_a_workstation_card_may_lack_gib_for_each_request() -> None:
    """Qwen3.8-27B in fp8 has 939 blocks with 0.92 of an RTX PRO 6000 (vllm-project/recipes#831)."""
    card = Device("rtx-pro-6000", "NVIDIA RTX PRO 6000", "cuda", 94.97, 1597)
    weights = {group: size // 2 for group, size in qwen().weight_bytes.items()}
    halved = replace(qwen(), weight_bytes=weights)
    many, few = (fit(halved, card, EngineArguments(max_model_len=8192, max_num_seqs=count)) for count in (1024, 256))
    assert (many.verdict, many.close, few.verdict) == ("tight", "estimate", "fits")
    assert many.band_gib > few.band_gib + 9


def test_states_of_mamba_that_older_releases_keep_at_each_block_are_not_counted_and_said() -> None:
    facts = read_config(FULL["Mamba-Codestral-7B"], "Mamba-Codestral")
    told = EngineArguments(max_num_seqs=16, max_model_len=2048, enable_prefix_caching=True)
    assert [fit(facts, H100, told, version=one).verdict for one in ("0.27.0", "0.28.0")] == ["tight", "fits"]
    plain = replace(told, enable_prefix_caching=False)
    assert fit(facts, H100, plain, version="0.27.0").verdict == "fits"


def test_layers_that_guess_tokens_keep_their_own_keys_and_values_and_weights() -> None:
    config = {**FULL["Qwen3.5-27B"]}
    config["text_config"] = {**config["text_config"], "mtp_num_hidden_layers": 1}
    facts = read_config(config, "Qwen3.5-27B")
    told = EngineArguments(max_model_len=8192, tensor_parallel_size=2, kv_cache_memory_bytes=10 * GIB, max_num_seqs=64)
    plain, guessing = fit(facts, H100, told), fit(facts, H100, replace(told, speculative="mtp", speculative_tokens=1))
    assert fit(facts, H100, replace(told, speculative="mtp")).resolved.states == guessing.resolved.states
    assert plain.pool is not None
    assert guessing.pool is not None
    assert [group.layers for group in plain.pool.groups] == [16] * 4
    assert [group.layers for group in guessing.pool.groups] == [17, 16, 16, 16]
    assert "mtp" in guessing.weights_gib
    assert "mtp" not in plain.weights_gib


def test_only_the_version_and_the_cards_whose_states_were_read_are_planned_with_confidence() -> None:
    arguments = EngineArguments(max_model_len=8192, tensor_parallel_size=4)
    assert fit(qwen(), H100, arguments).confidence == "medium"
    assert fit(qwen(), RTX_3090, arguments, version="0.19.0").confidence == "low"
    assert fit(qwen(), H100, arguments, version="0.20.0").confidence == "high"
    mamba = read_config(FULL["Mamba-Codestral-7B"], "Mamba-Codestral")
    plain = EngineArguments(max_num_seqs=16, max_model_len=2048, enable_prefix_caching=False)
    assert [fit(mamba, H100, plain, version=one).confidence for one in ("0.28.0", "0.32.0")] == ["low", "medium"]
    assert fit(qwen(), V6E, arguments).confidence == "low"


def test_states_are_padded_to_the_page_of_other_layers_and_have_no_table_with_them() -> None:
    state = LayerSpec("state", 16, 0, padded=1000, held=2)
    full = LayerSpec("full", 16, 128)
    made = pool([(full, 2), (state, 6)], hybrid=True)
    assert [group.page_bytes for group in made.groups] == [2 * 2048] * 4
    assert made.blocks_per_request(100, 1) == 7 + 3 * 2
    assert pool([(state, 6)], hybrid=True).request_bytes(10**6, 1) == 6 * 1000 * 2
    with pytest.raises(PagesDiffer):
        pool([(full, 2), (state, 6)], hybrid=False)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"method": "ngram", "num_speculative_tokens": 3}, "from which ngram guesses tokens"),
        ({"method": "suffix", "num_speculative_tokens": 3}, ""),
        ({"method": "mtp", "num_speculative_tokens": 1}, ""),
        ({"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}, "the draft model org/head"),
        ({"model": "org/small", "num_speculative_tokens": 3}, "the draft model org/small"),
    ],
)
def test_a_draft_model_is_not_counted_and_the_models_own_layers_are(config: Any, told: str) -> None:
    facts = read_config(FULL["Nemotron-3-Super-120B-A12B"], "Nemotron-3-Super")
    arguments = engine_arguments({"model": "org/nemotron", "speculative_config": config})
    result = fit(facts, H100, replace(arguments, tensor_parallel_size=8, max_model_len=8192))
    said = [one for one in result.reasons if "does not count" in one]
    assert (bool(said), result.confidence == "low") == (bool(told), bool(told))
    assert told in "".join(said)


def test_layers_that_guess_tokens_are_not_counted_where_the_file_describes_none() -> None:
    arguments = EngineArguments(speculative="mtp", speculative_tokens=1, tensor_parallel_size=4, max_model_len=8192)
    result = fit(qwen(), H100, arguments)
    assert result.confidence == "low"
    assert any("layers of multi-token prediction, which the model's config.json" in one for one in result.reasons)


@pytest.mark.parametrize(
    ("model", "arguments", "told"),
    [
        ("Mamba-Codestral-7B", EngineArguments(pipeline_parallel_size=2, max_model_len=4096), "to several stages"),
    ],
)
def test_what_the_models_own_code_refuses_is_refused(model: str, arguments: EngineArguments, told: str) -> None:
    result = fit(read_config(FULL[model], model), H100, arguments)
    assert result.verdict == "refused"
    assert any(told in one for one in result.against)

"""The KV cache as vLLM divides it: blocks, groups, and the tokens that it prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fit_models import (
    GB10,
    H100,
    RTX_3090,
    V6E,
    deepseek_v2_lite,
    gemma4_26b_a4b,
    gpt_oss_120b,
    llama_8b,
    qwen3_30b_a3b,
)
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Device, fit
from neuroscale.planning.fit.kv_cache import LayerSpec, PagesDiffer, pool
from neuroscale.vllm.engine_arguments import EngineArguments

GIB = 2**30


@pytest.mark.parametrize(
    ("facts", "device", "version", "arguments", "available", "tokens"),
    [
        # tests/ground_truth: 'Available KV cache memory' and 'GPU KV cache size' of one start each.
        (llama_8b(), H100, "0.17.1", EngineArguments(max_model_len=32768), 55.79, 457_024),
        (llama_8b(), H100, "0.19.0", EngineArguments(max_model_len=8192, kv_cache_dtype="fp8"), 58.11, 952_032),
        (llama_8b(), H100, "0.19.0", EngineArguments(max_model_len=8192, tensor_parallel_size=4), 67.44, 2_209_792),
        (deepseek_v2_lite(), H100, "0.19.0", EngineArguments(max_model_len=8192), 43.61, 1_505_552),
        (
            gpt_oss_120b(),
            H100,
            "0.10.1.1",
            EngineArguments(max_model_len=16384, tensor_parallel_size=4),
            45.32,
            2_640_144,
        ),
        (
            qwen3_30b_a3b(),
            H100,
            "0.12.0",
            EngineArguments(max_model_len=40960, tensor_parallel_size=2),
            41.68,
            910_464,
        ),
        # The same model before and after the log line changed.
        (
            gemma4_26b_a4b(),
            GB10,
            "0.20.0",
            EngineArguments(max_model_len=8192, max_num_batched_tokens=4096),
            44.03,
            192_368,
        ),
        (
            gemma4_26b_a4b(),
            GB10,
            "0.25.1",
            EngineArguments(max_model_len=262144, max_num_seqs=32, max_num_batched_tokens=2496),
            84.68,
            3_912_140,
        ),
    ],
)
def test_the_tokens_that_vllm_printed_follow_from_the_memory_that_it_printed(
    facts: ModelFacts, device: Device, version: str, arguments: EngineArguments, available: float, tokens: int
) -> None:
    given = replace(arguments, kv_cache_memory_bytes=round(available * GIB))
    result = fit(facts, replace(device, memory_gib=400.0), given, version=version)
    # The log rounds the memory to 0.01 GiB.
    assert result.kv_cache_tokens == pytest.approx(tokens, rel=0.01 / available + 1e-4)


def test_a_tpu_keeps_the_whole_context_in_windowed_layers() -> None:
    config = {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "torch_dtype": "bfloat16",
        "vocab_size": 262144,
        "hidden_size": 1536,
        "intermediate_size": 6144,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
        "num_kv_shared_layers": 20,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144,
        "use_double_wide_mlp": True,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    }
    arguments = EngineArguments(
        max_model_len=32768, max_num_batched_tokens=4096, kv_cache_memory_bytes=round(19.77 * GIB)
    )
    # A start of gemma-4-E2B-it on one v6e chip: 19.77 GiB, 1,151,744 tokens.
    result = fit(read_config(config, "gemma-4-E2B-it"), V6E, arguments, version="0.26.1")
    assert result.kv_cache_tokens == pytest.approx(1_151_744, rel=1e-3)
    assert (result.verdict, result.confidence) == ("tight", "low")


def test_kinds_of_layers_share_blocks_as_vllm_groups_them() -> None:
    full = LayerSpec("full", 16, 4096)
    window = LayerSpec("sliding", 16, 4096, 1024)
    assert [group.layers for group in pool([(full, 8), (window, 40)], hybrid=True).groups] == [8] * 6
    # 12 and 13: one more layer of the smaller kind wastes less than groups of one.
    assert [group.layers for group in pool([(full, 13), (window, 12)], hybrid=True).groups] == [13, 12]
    older = pool([(full, 13), (window, 12)], hybrid=True, padding_ratio=None)
    assert [group.layers for group in older.groups] == [7, 6, 12]


def test_smaller_pages_hold_more_tokens_and_odd_ones_are_padded() -> None:
    full = LayerSpec("full", 16, 4096)
    twice = pool([(full, 5), (LayerSpec("sliding", 16, 8192, 1024), 25)], hybrid=True)
    assert {(group.spec.kind, group.spec.block_size) for group in twice.groups} == {("full", 32), ("sliding", 16)}
    odd = pool([(full, 5), (LayerSpec("sliding", 16, 6000, 1024), 5)], hybrid=True)
    assert [group.page_bytes for group in odd.groups] == [5 * 96000, 5 * 96000]
    with pytest.raises(PagesDiffer):
        pool([(full, 5), (LayerSpec("sliding", 16, 6000, 1024), 5)], hybrid=True, padded=False)


def test_without_the_hybrid_manager_windows_keep_the_whole_context() -> None:
    arguments = EngineArguments(max_model_len=32768, max_num_seqs=16)
    with_it = fit(gemma4_26b_a4b(), H100, arguments)
    without = fit(gemma4_26b_a4b(), H100, replace(arguments, disable_hybrid_kv_cache_manager=True))
    assert without.max_concurrency < with_it.max_concurrency
    # 25 windowed layers and 5 full ones, each of 8,192 or 4,096 bytes a token in 2 bytes a value.
    assert without.request_gib == pytest.approx(32768 * (25 * 8192 + 5 * 4096) / GIB, rel=1e-3)


def test_the_longest_context_is_what_vllm_would_estimate() -> None:
    # Llama 3.1 8B on an RTX 3090 stopped with 2.89 GiB: 'max seq len (29000) is larger than ... 23648'.
    arguments = EngineArguments(max_model_len=29000, kv_cache_memory_bytes=round(2.89 * GIB))
    refused = fit(llama_8b(), RTX_3090, arguments, version="0.10.0")
    assert refused.pool is not None
    assert refused.pool.longest(round(2.89 * GIB), 0, 29000) == pytest.approx(23648, abs=128)


@pytest.mark.parametrize(
    ("block", "version", "tokens"),
    [
        # Printed by a start of vLLM 0.29.0 with 8.56 GiB, a step of 2,048 tokens and --block-size=48.
        (48, "0.29.0", 27_946),
        # Blocks of 16 tokens need no padding beside those of 128, and 0.24 and 0.30 give all layers the same blocks.
        (128, "0.29.0", 41_000),
        (48, "0.24.0", 40_000),
        (48, "0.30.0", 40_000),
    ],
)
def test_windows_beside_another_head_size_have_the_blocks_of_their_release(
    block: int, version: str, tokens: int
) -> None:
    arguments = EngineArguments(
        max_model_len=4096,
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        block_size=block,
        kv_cache_memory_bytes=round(8.56 * 2**30),
    )
    result = fit(gemma4_26b_a4b(), replace(H100, memory_gib=200.0), arguments, version=version)
    if version != "0.24.0":  # which kept the tokens of one step alone
        assert result.kv_cache_tokens == pytest.approx(tokens, rel=0.025)
    sizes = {group.spec.block_size for group in result.pool.groups} if result.pool else set()
    assert sizes == {(48, "0.29.0"): {16, 48}, (128, "0.29.0"): {64, 128}}.get((block, version), {48, 96})

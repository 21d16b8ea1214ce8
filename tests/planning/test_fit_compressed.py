"""DeepSeek V4: windows, compressed tokens of two ratios, their indexers, experts in 4 bits, and what is not known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from neuroscale.core.errors import InputError
from neuroscale.core.units import GIB
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Device, fit
from neuroscale.planning.fit.kv_cache import packed_pool
from neuroscale.vllm.engine_arguments import EngineArguments
from oracle_sparse import FULL

H200 = Device(name="nvidia-h200-141gb", title="NVIDIA H200", family="cuda", memory_gib=139.8, kv_cache_dtypes=("fp8",))
A100 = Device(name="nvidia-a100-80gb", title="NVIDIA A100 80GB", family="cuda", memory_gib=79.25)
CPU = Device(name="cpu", title="this machine", family="cpu", memory_gib=1000.0)
FLASH = FULL["DeepSeek-V4-Flash"]


def flash(**changes: Any) -> ModelFacts:
    return read_config(json.loads(json.dumps({**FLASH, **changes})), "DeepSeek-V4-Flash")


def test_the_parameters_are_the_published_ones_and_experts_take_half_a_byte() -> None:
    facts = flash()
    assert facts.total_params == pytest.approx(284e9, rel=0.005)
    assert facts.active_params_without_embedding == pytest.approx(13e9, rel=0.03)
    experts = sum(one.params for one in facts.tensors if one.group == "routed_experts")
    # Half a byte, and a byte of scale for 32 of them.
    assert facts.weight_bytes["routed_experts"] == experts * (1 / 2 + 1 / 32)
    eight = flash(expert_dtype="fp8").weight_bytes["routed_experts"]
    assert eight == pytest.approx(experts, rel=0.001)


def test_pages_of_different_sizes_share_blocks_and_a_request_takes_what_others_measured() -> None:
    pool = packed_pool(flash().cache)
    assert [(group.layers, group.page_bytes) for group in pool.groups] == [
        (22, 22 * 37_440),
        (21, 21 * 37_440),
        (62, 21 * (37_440 + 8_640) + 20 * 1_728),
        (42, 21 * (32_832 + 8_640)),
        (20, 20 * 32_832),
    ]
    # A start of another version printed 6.66 GiB (tests/ground_truth, deepseek-v4-flash-2xgh200-too-long).
    assert pool.request_bytes(30_000, 16_384) / GIB == pytest.approx(6.66, rel=0.05)


def test_a_start_is_tight_with_low_confidence_and_says_why() -> None:
    found = fit(flash(), H200, EngineArguments(tensor_parallel_size=2, max_model_len=30_000))
    assert (found.verdict, found.confidence) == ("tight", "low")
    assert (found.resolved.kv_cache_dtype, found.resolved.block_size) == ("fp8_ds_mla", 256)
    assert any("kernels for compressed tokens" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("device", "arguments", "told"),
    [
        (H200, {"kv_cache_dtype": "bfloat16"}, "its cache has 8 bits"),
        (H200, {"block_size": 64}, "which needs 256"),
        (H200, {"tensor_parallel_size": 16}, "8 output groups"),
        (H200, {"decode_context_parallel_size": 2, "tensor_parallel_size": 2}, "cannot share the compressed tokens"),
        (A100, {}, "need a Hopper or Blackwell card"),
        (CPU, {}, "on a CPU are not planned"),
    ],
)
def test_what_vllm_refuses_or_nobody_planned_is_refused(device: Device, arguments: dict[str, Any], told: str) -> None:
    found = fit(flash(), device, EngineArguments(max_model_len=4096, **arguments))
    assert found.verdict == "refused"
    assert any(told in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"compress_ratios": [0, 4]}, "2 numbers for 43 layers"),
        ({"compress_ratios": [8] * 44}, "vLLM 0.32 has 4 and 128"),
        ({"vision_n_layers": 24}, "tower for images"),
    ],
)
def test_a_file_of_another_layout_is_refused_with_the_key(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        flash(**changes)

"""Whether a model fits, why it does not, and what does instead."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fit_models import (
    A100,
    CPU,
    GB10,
    H100,
    L4,
    RTX_3090,
    V6E,
    gemma4_26b_a4b,
    gpt_oss_120b,
    llama_8b,
    llama_70b,
    qwen3_30b_a3b,
)
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Device, Fit, OtherCandidates, choices, fit
from neuroscale.planning.fit.device import family_of
from neuroscale.planning.fit.versions import behaviour
from neuroscale.vllm.engine_arguments import EngineArguments


@pytest.mark.parametrize(
    ("facts", "device", "arguments", "version"),
    [
        # Starts that ended in 'CUDA out of memory' or without space for a cache (tests/ground_truth).
        (llama_70b(), H100, EngineArguments(), "0.19.0"),
        (gpt_oss_120b(), H100, EngineArguments(), "0.14.1"),
        (
            qwen3_30b_a3b(),
            L4,
            EngineArguments(tensor_parallel_size=4, max_model_len=8192, gpu_memory_utilization=0.7),
            "0.9.2",
        ),
    ],
)
def test_what_ended_out_of_memory_is_refused_with_the_numbers_that_do_not_add_up(
    facts: ModelFacts, device: Device, arguments: EngineArguments, version: str
) -> None:
    refused = fit(facts, device, arguments, version=version)
    assert refused.verdict == "refused"
    assert (refused.kv_cache_tokens, refused.max_concurrency) == (0, 0.0)
    memory = refused.memory_gib
    assert memory.free == pytest.approx(memory.usable - memory.weights - memory.overhead - memory.kv_cache, abs=0.005)
    assert memory.free < 0
    assert f"({-memory.free:.2f} GiB short)" in refused.reasons[0]


def test_a_context_that_is_too_long_is_refused_with_the_one_that_starts() -> None:
    refused = fit(llama_8b(), L4, EngineArguments(max_model_len=65536, max_num_seqs=16))
    assert refused.verdict == "refused"
    assert f"the estimated maximum model length is {refused.max_context}" in refused.log[-1]
    longest = EngineArguments(max_model_len=refused.max_context, max_num_seqs=16)
    assert fit(llama_8b(), L4, longest).verdict == "tight"
    one_more = replace(longest, max_model_len=refused.max_context + 1)
    assert fit(llama_8b(), L4, one_more).verdict == "refused"
    assert fit(llama_8b(), L4, replace(longest, max_model_len=-1)).max_model_len == refused.max_context


@pytest.mark.parametrize(
    ("facts", "device", "arguments", "why"),
    [
        (llama_8b(), H100, EngineArguments(tensor_parallel_size=3), "cannot be split over 3 ranks"),
        (llama_8b(), H100, EngineArguments(max_model_len=200_000), "reads at most 131,072 tokens"),
        (llama_8b(), A100, EngineArguments(kv_cache_dtype="fp8"), "cannot keep its KV cache as fp8"),
        (llama_8b(), H100, EngineArguments(max_num_batched_tokens=64, max_num_seqs=128), "is less than --max-num-seqs"),
        (gemma4_26b_a4b(), H100, EngineArguments(data_parallel_size=2), "vllm-project/vllm#38999"),
        (llama_8b(), H100, EngineArguments(gpu_memory_utilization=1.0), "is more than is free"),
        (llama_8b(), H100, EngineArguments(kv_cache_memory_bytes=70 * 2**30), "runs out of memory while it starts"),
        (llama_8b(), replace(H100, memory_gib=None), EngineArguments(), "is not known"),
        (
            replace(gemma4_26b_a4b(), multimodal=True),
            H100,
            EngineArguments(max_num_batched_tokens=2048),
            "A video takes up to 2,496 tokens",
        ),
    ],
)
def test_what_vllm_refuses_on_any_memory_is_said_first(
    facts: ModelFacts, device: Device, arguments: EngineArguments, why: str
) -> None:
    refused = fit(facts, device, arguments)
    assert refused.verdict == "refused"
    assert why in refused.reasons[0]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        *(("AMD Instinct MI300X", "rocm"), ("amd-mi325x", "rocm"), ("Radeon RX 7900 XTX", "rocm"), ("mi300x", "rocm")),
        *(("RX 9070 XT", "rocm"), ("tpu-v5e-1", "tpu"), ("NVIDIA GeForce RTX 4090", "cuda"), ("nvidia-l4", "cuda")),
        *(("NVIDIA RTX 6000 Ada", "cuda"), ("GTX 1080", "cuda"), ("rtx-3060", "cuda"), ("", "cuda"), ("cpu", "cpu")),
    ],
)
def test_the_kind_of_an_accelerator_is_read_from_its_name(name: str, family: str) -> None:
    assert family_of(name) == family


def test_rocm_is_never_planned_with_confidence() -> None:
    """Its overhead was measured nowhere: an RX 9070 XT left 0.34 GiB where figures of CUDA say 1.14."""
    mi300x = Device("mi300x", "AMD Instinct MI300X", "rocm", 191.98, 5300)
    for version in ("0.14.1", "0.20.0", "0.32.0"):
        result = fit(llama_8b(), mi300x, EngineArguments(max_model_len=8192), version=version)
        assert (result.verdict, result.confidence) == ("tight", "low")
        assert any(reason.startswith("Tight: what its kernels") for reason in result.reasons)
        assert any(reason.startswith("Not measured: ") for reason in result.reasons)


def test_a_little_room_is_tight_and_says_how_sure_the_estimate_is() -> None:
    tight = fit(llama_8b(), L4, EngineArguments(max_model_len=28000, max_num_seqs=64))
    assert tight.verdict == "tight"
    assert any(reason.startswith("Tight:") and f"{tight.band_gib:.2f} GiB" in reason for reason in tight.reasons)
    assert fit(llama_8b(), L4, EngineArguments(max_model_len=8192, max_num_seqs=64)).verdict == "fits"


def test_a_refusal_within_the_error_of_the_estimate_is_told_apart_from_a_sure_one() -> None:
    longest = fit(llama_8b(), L4, EngineArguments(max_model_len=8192, max_num_seqs=64)).max_context
    near = fit(llama_8b(), L4, EngineArguments(max_model_len=longest + 16, max_num_seqs=64))
    assert (near.verdict, near.close) == ("refused", "estimate")
    assert any(reason.startswith("Close:") and f"{near.band_gib:.2f} GiB" in reason for reason in near.reasons)
    far = fit(llama_8b(), L4, EngineArguments(max_model_len=131_072, max_num_seqs=64))
    assert (far.verdict, far.close) == ("refused", "")
    assert not any(reason.startswith("Close:") for reason in far.reasons)
    # What the memory does not decide is sure.
    split = fit(llama_8b(), L4, EngineArguments(max_model_len=longest + 16, max_num_seqs=64, tensor_parallel_size=3))
    assert (split.verdict, split.close) == ("refused", "")
    blocks = fit(llama_8b(), H100, EngineArguments(max_model_len=8192, num_gpu_blocks_override=511))
    assert (blocks.verdict, blocks.close) == ("refused", "")


def test_a_share_that_is_hardly_more_than_what_is_free_is_close() -> None:
    over = fit(llama_8b(), H100, EngineArguments(max_model_len=8192, gpu_memory_utilization=0.995))
    assert (over.verdict, over.close) == ("refused", "estimate")
    assert not fit(llama_8b(), H100, EngineArguments(max_model_len=8192, gpu_memory_utilization=1.0)).close


def test_a_cache_whose_size_is_said_is_tight_by_what_is_left_beside_it() -> None:
    def beside(gib: float) -> str:
        return fit(
            llama_8b(), L4, EngineArguments(max_model_len=8192, kv_cache_memory_bytes=round(gib * 2**30))
        ).verdict

    # 8,192 tokens need exactly 1 GiB and a spare block, and that is said: nothing is estimated about it.
    assert [beside(1.01), beside(5.0), beside(8.0)] == ["fits", "tight", "refused"]


def _spark(share: float | None = None, used: float | None = None) -> Fit:
    """Of 119.63 GiB that a GB10 shares with its host 109.66 were free, so vLLM's default share failed."""
    spark = replace(GB10, memory_gib=119.63, used_gib=used)
    return fit(llama_8b(), spark, EngineArguments(max_model_len=8192, gpu_memory_utilization=share))


def test_the_default_share_of_a_memory_that_the_host_shares_is_refused() -> None:
    default = _spark()
    assert (default.verdict, default.close) == ("refused", "held")
    assert "about 9.9 GiB are held by the host" in default.reasons[0]
    # Between what four hosts left free and what the best did, nobody can tell; below all of them it starts.
    unsure = _spark(0.85)
    assert (unsure.verdict, unsure.close) == ("tight", "held")
    assert any("--used-gib" in reason for reason in unsure.reasons)
    assert _spark(0.8).verdict == "fits"
    assert (_spark(0.97).verdict, _spark(0.97).close) == ("refused", "")
    found = choices(default, llama_8b(), GB10, EngineArguments(max_model_len=8192), OtherCandidates())
    assert ("--gpu-memory-utilization=0.83",) in [choice.arguments for choice in found]


def test_no_share_that_a_lean_host_leaves_free_is_surely_refused() -> None:
    """Three starts on a GB10 took 0.95 of 121 GiB under 0.19, where graphs come on top (tests/ground_truth)."""
    spark = replace(GB10, memory_gib=121.0)
    arguments = EngineArguments(max_model_len=8192, gpu_memory_utilization=0.95)
    lean = fit(llama_8b(), spark, arguments, version="0.19.0")
    assert lean.later_gib["graphs"] > 0
    assert (lean.verdict, lean.close) == ("refused", "held")
    more = replace(arguments, gpu_memory_utilization=0.96)
    assert (fit(llama_8b(), spark, more, version="0.19.0").verdict, fit(llama_8b(), spark, more).close) == (
        "refused",
        "",
    )


def test_what_other_programs_hold_is_asked_for() -> None:
    assert _spark(0.85, used=9.5).verdict == "fits"
    assert (_spark(0.85, used=40).verdict, _spark(0.85, used=40).close) == ("refused", "")
    card = Device("rtx-5090", "NVIDIA GeForce RTX 5090", "cuda", 31.84)
    arguments = EngineArguments(max_model_len=8192, gpu_memory_utilization=0.95)
    alone = fit(llama_8b(), card, arguments)
    assert (alone.verdict, alone.close) == ("tight", "held")
    assert any("--used-gib" in reason for reason in alone.reasons)
    # Under WSL2 30.12 GiB were free, and 0.95 failed by 0.13 GiB.
    beside_windows = fit(llama_8b(), replace(card, used_gib=1.22), arguments)
    assert (beside_windows.verdict, beside_windows.close) == ("refused", "estimate")
    assert "is more than is free" in beside_windows.reasons[0]
    assert not any("--used-gib" in reason for reason in beside_windows.reasons)


@pytest.mark.parametrize(
    ("gib", "share", "verdict"),
    # 6.93 of 8.0, 10.79 of 11.99 and 30.12 of 31.84 GiB were free under Windows.
    [(8.0, 0.9, "tight"), (8.0, 0.8, "fits"), (31.84, 0.92, "fits"), (31.84, 0.95, "tight"), (23.57, 0.92, "fits")],
)
def test_a_desktop_may_hold_a_part_of_a_workstation_card(gib: float, share: float, verdict: str) -> None:
    card = Device("card", "NVIDIA GeForce RTX 3070", "cuda", gib, 448)
    small = llama_8b(hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=8)
    arguments = EngineArguments(max_model_len=2048, gpu_memory_utilization=share)
    result = fit(small, card, arguments)
    assert (result.verdict, result.close) == (verdict, "held" if verdict == "tight" else "")
    assert any("such as a desktop" in sentence for sentence in result.reasons) == (verdict == "tight")
    assert fit(small, replace(card, used_gib=0.0), arguments).verdict == "fits"
    assert fit(small, replace(card, used_gib=1.2), replace(arguments, gpu_memory_utilization=0.99)).close == ""
    # A model that surely lacks more is not close, whatever a desktop holds.
    assert fit(llama_70b(), card, arguments).close == ""


def test_a_small_slice_has_a_wide_band_and_may_hold_a_whole_context() -> None:
    part = Device("mig-1g.5gb", "NVIDIA A100 MIG 1g.5gb", "cuda", 4.75, 2039)
    small = llama_8b(hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=8)
    usual, half = (EngineArguments(max_model_len=2048, gpu_memory_utilization=share) for share in (0.92, 0.85))
    assert (fit(small, part, usual).verdict, fit(small, part, usual).close) == ("tight", "held")
    lean, whole = (fit(small, each, half) for each in (part, replace(part, name="card", title="card")))
    assert (lean.verdict, whole.verdict) == ("fits", "fits")
    assert lean.band_gib == pytest.approx(2 * whole.band_gib + 0.5)


def test_towers_and_states_above_the_usual_share_of_a_card_were_not_measured() -> None:
    """A start with more than 0.92 of an A100 or an RTX 5090 is then never sure; of an H100 some were measured."""
    vision = replace(gemma4_26b_a4b(), multimodal=True, weight_bytes={**gemma4_26b_a4b().weight_bytes, "vision": 2**30})
    told = EngineArguments(max_model_len=8192, gpu_memory_utilization=0.95)
    high = fit(vision, A100, told)
    assert (high.verdict, high.close) == ("tight", "")
    assert any("a tower for images" in sentence and "0.92" in sentence for sentence in high.reasons)
    assert fit(vision, A100, replace(told, gpu_memory_utilization=0.92)).verdict == "fits"
    assert fit(vision, A100, replace(told, language_model_only=True)).verdict == "fits"
    assert fit(vision, H100, told).verdict == "fits"
    assert fit(llama_8b(), A100, told).verdict == "fits"


@pytest.mark.parametrize("free", [60.87, 60.33, 60.85])
def test_a_card_that_another_process_holds_is_refused_at_once(free: float) -> None:
    """Three starts of vLLM 0.19.0 on an H100 of 79.19 GiB that ended so (left out of tests/ground_truth's verdicts)."""
    held = replace(H100, used_gib=79.19 - free - 0.5)
    refused = fit(llama_8b(), held, EngineArguments(max_model_len=8192), version="0.19.0")
    assert (refused.verdict, refused.close) == ("refused", "")
    assert "--gpu-memory-utilization=0.9 of 79.19 GiB is more than is free" in refused.reasons[0]
    assert fit(llama_8b(), H100, EngineArguments(max_model_len=8192), version="0.19.0").verdict == "fits"


def test_a_slice_of_a_card_has_a_small_context() -> None:
    part = Device("mig-1g.10gb", "NVIDIA H100 MIG 1g.10gb", "cuda", 9.75, 3350)
    arguments = EngineArguments(max_model_len=2048, gpu_memory_utilization=0.97)
    small = llama_8b(hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=8)
    whole = replace(part, name="card", title="card")
    assert (part.slice_of, whole.slice_of, L4.slice_of) == (1, None, None)
    assert [fit(small, each, arguments).verdict for each in (part, whole)] == ["tight", "refused"]
    assert fit(small, part, arguments, version="0.19.0").confidence == "medium"


def test_a_large_slice_has_the_batch_of_a_small_card() -> None:
    """Its memory cannot be asked for ('Insufficient Permissions'), which counts as none (vllm-project/vllm#55381)."""
    part = Device("nvidia-h200-mig-4g.71gb", "NVIDIA H200 MIG 4g.71gb", "cuda", 70.5, 4800)
    found = [fit(llama_8b(), each, EngineArguments(max_model_len=8192)).resolved for each in (part, H100)]
    assert [(one.max_num_seqs, one.max_num_batched_tokens) for one in found] == [(256, 2048), (1024, 8192)]


def test_the_longest_context_comes_with_what_the_error_of_the_estimate_makes_of_it() -> None:
    result = fit(llama_8b(), L4, EngineArguments(max_model_len=8192, max_num_seqs=64))
    least, most = result.context_band
    assert least < result.max_context < most
    a_token = 131_072 / 2**30
    assert (most - least) * a_token == pytest.approx(2 * result.band_gib, abs=0.005)
    assert any(f"{least:,} to {most:,}" in reason for reason in result.reasons)
    # What the model reads bounds it, whatever the memory.
    assert fit(llama_8b(), H100, EngineArguments(max_model_len=8192)).context_band == (131_072, 131_072)


def test_offloaded_weights_leave_the_accelerator_and_cross_pcie_in_every_step() -> None:
    refused = fit(qwen3_30b_a3b(), H100, EngineArguments(max_model_len=200_000))
    assert refused.verdict == "refused"
    offloaded = fit(qwen3_30b_a3b(), H100, EngineArguments(max_model_len=200_000, cpu_offload_gib=16))
    assert offloaded.verdict == "fits"
    assert offloaded.memory_gib.weights == pytest.approx(refused.memory_gib.weights - 16, abs=0.01)
    assert offloaded.seconds_per_step == pytest.approx(16 * 2**30 / 64e9)
    assert any("crosses PCIe in every step: 268 ms" in reason for reason in offloaded.reasons)


def test_a_cpu_serves_from_the_space_that_it_is_given() -> None:
    arguments = EngineArguments(max_model_len=2048, kv_cache_memory_bytes=4 * 2**30, dtype="bfloat16")
    small = llama_8b(hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8)
    result = fit(small, CPU, arguments)
    assert (result.available_gib, result.resolved.block_size) == (4.0, 128)
    assert fit(small, replace(CPU, memory_gib=5.0), arguments).verdict == "refused"


def test_requests_of_another_length_are_counted_in_whole_blocks() -> None:
    result = fit(llama_8b(), H100, EngineArguments(max_model_len=8192))
    assert result.at_once(8192) == pytest.approx(result.max_concurrency)
    assert result.at_once(4096) == pytest.approx(2 * result.max_concurrency)
    assert result.at_once(1) == pytest.approx(result.at_once(16))
    assert fit(llama_70b(), L4, EngineArguments()).at_once(100) == 0.0


def test_the_log_is_worded_as_the_version_words_it() -> None:
    arguments = EngineArguments(max_model_len=8192)
    assert fit(llama_8b(), H100, arguments, version="0.19.0").log == (
        "Model loading took 14.99 GiB memory",
        "Available KV cache memory: 54.16 GiB",
        "GPU KV cache size: 443,632 tokens",
        "Maximum concurrency for 8,192 tokens per request: 54.15x",
    )
    assert len(fit(llama_8b(), H100, arguments).log) == 3


def _around(*devices: Device) -> OtherCandidates:
    hourly = {"nvidia-l4": Decimal("0.7"), "nvidia-h100-80gb": Decimal("11")}
    model = qwen3_30b_a3b()
    halves = {group: size // 2 for group, size in model.weight_bytes.items()}
    copy = replace(model, name="qwen-fp8", weight_bytes=halves)
    return OtherCandidates((copy,), devices, lambda name, count: hourly[name] * count if name in hourly else None)


def test_a_refusal_names_what_starts_cheapest_first() -> None:
    arguments = EngineArguments(max_model_len=16384, max_num_seqs=64)
    refused = fit(qwen3_30b_a3b(), L4, arguments)
    found = choices(refused, qwen3_30b_a3b(), L4, arguments, _around(H100, A100))
    assert [(choice.accelerator, choice.accelerator_count) for choice in found] == [
        ("nvidia-l4", 4),
        ("nvidia-h100-80gb", 1),
        ("nvidia-a100-80gb", 1),
    ]
    assert [choice.hourly for choice in found] == [Decimal("2.8"), Decimal("11"), None]
    assert found[0].arguments == ("--tensor-parallel-size=4",)


def test_a_context_that_is_too_long_can_be_shortened_or_kept_in_8_bits() -> None:
    arguments = EngineArguments(max_model_len=40000, max_num_seqs=64)
    refused = fit(llama_8b(), L4, arguments)
    found = choices(refused, llama_8b(), L4, arguments, _around())
    said = [choice.arguments for choice in found]
    assert said[0] == (f"--max-model-len={refused.max_context // 16 * 16}",)
    assert said[1] == ("--kv-cache-dtype=fp8",)
    for choice in found:
        assert choice.max_context >= 256


CARDS = st.sampled_from([H100, A100, L4, RTX_3090, V6E])
ARGUMENTS = st.builds(
    EngineArguments,
    max_model_len=st.sampled_from([1024, 8192, 40960]),
    max_num_seqs=st.sampled_from([None, 16, 256]),
    tensor_parallel_size=st.sampled_from([1, 2, 4]),
    gpu_memory_utilization=st.sampled_from([None, 0.8, 0.9]),
    enforce_eager=st.booleans(),
)


def _sum(result: Fit) -> float:
    memory = result.memory_gib
    return memory.weights + memory.kv_cache + memory.overhead + memory.free


@settings(deadline=None)
@given(CARDS, ARGUMENTS, st.sampled_from(["0.8.5", "0.12.0", "0.19.1", "0.25.1", "0.32.0"]))
def test_parts_add_up_and_more_memory_never_hurts(device: Device, arguments: EngineArguments, version: str) -> None:
    for facts in (llama_8b(), gemma4_26b_a4b(), gpt_oss_120b()):
        result = fit(facts, device, arguments, version=version)
        assert _sum(result) == pytest.approx(result.memory_gib.usable, abs=0.006)
        larger = replace(device, memory_gib=(device.memory_gib or 0.0) * 1.01)
        more = fit(facts, larger, replace(arguments, max_num_seqs=result.resolved.max_num_seqs), version=version)
        if (
            result.verdict != "refused"
            and result.resolved.max_num_batched_tokens == more.resolved.max_num_batched_tokens
        ):
            assert more.verdict != "refused"
            assert more.max_concurrency >= result.max_concurrency


@pytest.mark.parametrize(
    ("text", "sampler"),
    [("0.16.0", "sorted"), ("v0.17.1", "filtered"), ("0.19.2rc1.dev134+gfe9c3d6c5", "filtered"), ("1.0", "filtered")],
)
def test_any_spelling_of_a_version_is_placed(text: str, sampler: str) -> None:
    assert behaviour(text).sampler == sampler


def test_what_is_no_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="latest"):
        behaviour("latest")

"""Weights, overhead and defaults of one rank, against starts that others measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fit_models import (
    A100,
    CPU,
    GB10,
    H100,
    H200,
    L4,
    RTX_3090,
    deepseek_v2_lite,
    gemma4_26b_a4b,
    gpt_oss_20b,
    gpt_oss_120b,
    llama_8b,
    qwen3_30b_a3b,
)
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Device, fit
from neuroscale.planning.fit.argument_defaults import resolve
from neuroscale.planning.fit.overhead import graph_sizes
from neuroscale.planning.fit.versions import behaviour
from neuroscale.planning.fit.weights import rank_weights
from neuroscale.planning.replica_memory import served_facts
from neuroscale.vllm.engine_arguments import EngineArguments, Unplanned, engine_arguments, with_variables
from platform_repository import CATALOG

FLOAT_8 = {"dynamic": False, "num_bits": 8, "type": "float"}
W8A8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": FLOAT_8}},
    "ignore": ["lm_head"],
}


@pytest.mark.parametrize(
    ("facts", "arguments", "loaded"),
    [
        # 'Model loading took ... GiB' (tests/ground_truth): sines and cosines of all positions are in it.
        (llama_8b(), EngineArguments(), 14.9889),
        (llama_8b(), EngineArguments(tensor_parallel_size=2), 7.51),
        (llama_8b(), EngineArguments(tensor_parallel_size=4), 3.77),
        (llama_8b(), EngineArguments(pipeline_parallel_size=2), 7.51),
        (llama_8b(), EngineArguments(pipeline_parallel_size=4), 4.26),
        (llama_8b(), EngineArguments(dtype="float32"), 29.98),
        (qwen3_30b_a3b(), EngineArguments(), 56.9342),
        (qwen3_30b_a3b(), EngineArguments(quantization="fp8"), 29.08),
        (deepseek_v2_lite(), EngineArguments(), 29.43),
        # Experts in mxfp4 are padded for the kernels.
        (gpt_oss_20b(), EngineArguments(), 13.72),
        (gpt_oss_120b(), EngineArguments(), 65.9651),
        (gpt_oss_120b(), EngineArguments(tensor_parallel_size=4), 17.2217),
    ],
)
def test_the_weights_of_a_rank_are_what_vllm_loaded(
    facts: ModelFacts, arguments: EngineArguments, loaded: float
) -> None:
    result = fit(facts, replace(H100, memory_gib=200.0), arguments, version="0.19.0")
    # Latent attention misses half a percent that vLLM 0.19 held beside its parameters and tables.
    assert result.memory_gib.weights == pytest.approx(loaded, rel=0.006)


@pytest.mark.parametrize(
    ("facts", "arguments", "version", "activations", "beside"),
    [
        # The profiler of vLLM 0.19.0 on an H100 (github:jgchn/llm-d-planner): peak of activations, non-torch memory.
        (llama_8b(), EngineArguments(), "0.19.0", 1.89, 0.25),
        (llama_8b(), EngineArguments(tensor_parallel_size=2), "0.19.0", 1.89, 2.07),
        (llama_8b(), EngineArguments(tensor_parallel_size=4), "0.19.0", 1.89, 2.13),
        (deepseek_v2_lite(), EngineArguments(), "0.19.0", 1.93, 0.26),
        (gpt_oss_20b(), EngineArguments(), "0.19.0", 2.87, 0.25),
        (qwen3_30b_a3b(), EngineArguments(), "0.19.0", 2.68, 0.27),
        # Logits were sorted before 0.17.
        (qwen3_30b_a3b(), EngineArguments(), "0.10.2", 5.58, 0.07),
        (llama_8b(), EngineArguments(), "0.11.0", 4.76, 0.13),
        (gpt_oss_20b(), EngineArguments(), "0.11.0", 7.38, 0.13),
    ],
)
def test_activations_and_buffers_are_what_vllms_profiler_found(
    facts: ModelFacts, arguments: EngineArguments, version: str, activations: float, beside: float
) -> None:
    result = fit(facts, H100, replace(arguments, max_model_len=8192), version=version)
    found = dict(result.overhead_gib)
    assert found.pop("activations") == pytest.approx(activations, abs=0.06)
    assert sum(found.values()) == pytest.approx(beside, abs=0.1)


FP8_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def test_quantised_latent_attention_keeps_a_copy_to_decode_with() -> None:
    """27 layers of 512 x 16 x (128 + 128) values, in 16 bits, split over the ranks."""
    copies = 27 * 512 * 16 * 256 * 2

    def attention(facts: ModelFacts, **arguments: Any) -> int:
        return rank_weights(facts, EngineArguments(**arguments)).by_group["attention"]

    plain, scaled = deepseek_v2_lite(), deepseek_v2_lite(quantization_config=FP8_BLOCKS)
    assert attention(plain) == plain.weight_bytes["attention"]
    assert attention(scaled) == scaled.weight_bytes["attention"] + copies
    assert attention(plain, quantization="fp8") == pytest.approx(plain.weight_bytes["attention"] / 2 + copies, rel=0.01)
    kept = deepseek_v2_lite(quantization_config={**FP8_BLOCKS, "modules_to_not_convert": ["self_attn"]})
    assert attention(kept) == plain.weight_bytes["attention"]


@pytest.mark.parametrize(
    ("facts", "device", "arguments", "version", "available"),
    [
        (llama_8b(), A100, EngineArguments(max_model_len=32768), "0.17.1", 55.79),
        (
            qwen3_30b_a3b(),
            A100,
            EngineArguments(max_model_len=131072, max_num_seqs=16, gpu_memory_utilization=0.9),
            "0.26.1",
            13.84,
        ),
        (qwen3_30b_a3b(), H200, EngineArguments(max_model_len=16000, gpu_memory_utilization=0.5), "0.15.0", 6.71),
        (qwen3_30b_a3b(), H100, EngineArguments(max_model_len=6144), "0.10.2", 8.68),
        (
            qwen3_30b_a3b(),
            H100,
            EngineArguments(max_model_len=40960, tensor_parallel_size=2, max_num_seqs=64),
            "0.12.0",
            41.68,
        ),
        (
            qwen3_30b_a3b(),
            H100,
            EngineArguments(max_model_len=8192, max_num_seqs=64, quantization="fp8", gpu_memory_utilization=0.92),
            "0.22.1",
            42.54,
        ),
        (gpt_oss_20b(), A100, EngineArguments(gpu_memory_utilization=0.65), "0.19.0", 36.56),
        (
            llama_8b(),
            L4,
            EngineArguments(max_model_len=32000, max_num_seqs=128, gpu_memory_utilization=0.92),
            "0.11.0",
            4.75,
        ),
        (gpt_oss_20b(), GB10, EngineArguments(max_model_len=8192, gpu_memory_utilization=0.25), "0.13.0", 12.94),
    ],
)
def test_the_memory_for_the_cache_is_what_vllm_printed_within_the_band(
    facts: ModelFacts, device: Device, arguments: EngineArguments, version: str, available: float
) -> None:
    result = fit(facts, device, arguments, version=version)
    assert result.available_gib == pytest.approx(available, abs=result.band_gib)
    assert result.verdict != "refused"


@pytest.mark.parametrize(
    ("device", "version", "tokens", "requests", "share"),
    [
        (H100, "0.32.0", 8192, 1024, 0.92),
        (replace(H100, memory_gib=178.0), "0.32.0", 16384, 1024, 0.92),
        (replace(H100, memory_gib=178.0), "0.27.1", 8192, 1024, 0.92),
        (A100, "0.32.0", 2048, 256, 0.92),
        (L4, "0.32.0", 2048, 256, 0.92),
        (GB10, "0.25.1", 2048, 256, 0.92),
        (H100, "0.19.1", 8192, 1024, 0.9),
        (CPU, "0.32.0", 2048, 128, 0.92),
    ],
)
def test_defaults_follow_the_card_and_the_version(
    device: Device, version: str, tokens: int, requests: int, share: float
) -> None:
    resolved = resolve(llama_8b(), device, EngineArguments(max_model_len=8192), behaviour(version))
    assert (resolved.max_num_batched_tokens, resolved.max_num_seqs, resolved.utilization) == (tokens, requests, share)


def test_tokens_in_flight_double_where_steps_overlap() -> None:
    def in_flight(version: str, **changes: object) -> int:
        arguments = replace(EngineArguments(max_num_batched_tokens=4096), **changes)  # type: ignore[arg-type]
        return resolve(gemma4_26b_a4b(), H100, arguments, behaviour(version)).in_flight_tokens

    assert in_flight("0.25.1") == 4096
    assert in_flight("0.32.0") == 8192
    assert in_flight("0.32.0", async_scheduling=False) == 4096
    assert in_flight("0.32.0", pipeline_parallel_size=2) == 3 * 4096


def test_graphs_are_captured_for_twice_the_requests_and_up_to_512() -> None:
    # vLLM's list for 512: 1, 2, 4, 8 to 248 in eights, 256 to 512 in sixteens.
    assert len(graph_sizes(1024)) == len(graph_sizes(256)) == 51
    assert graph_sizes(32) == (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64)
    assert graph_sizes(1) == (1, 2)


def test_graphs_are_taken_off_the_cache_since_0_20_and_came_on_top_before() -> None:
    newer = fit(llama_8b(), L4, EngineArguments(max_model_len=8192, gpu_memory_utilization=0.9), version="0.21.0")
    older = fit(llama_8b(), L4, EngineArguments(max_model_len=8192, gpu_memory_utilization=0.9), version="0.19.1")
    assert newer.overhead_gib["graphs"] == older.later_gib["graphs"] > 0.5
    assert "graphs" not in fit(llama_8b(), L4, EngineArguments(enforce_eager=True)).overhead_gib


def test_graphs_that_find_no_memory_end_the_start() -> None:
    full = EngineArguments(max_model_len=4096, gpu_memory_utilization=0.96)
    refused = fit(llama_8b(), RTX_3090, full, version="0.19.1")
    assert refused.verdict == "refused"
    assert "take 0.65 GiB after the cache has its share, and 0.44 GiB are left" in refused.against[0]
    assert fit(llama_8b(), RTX_3090, replace(full, max_num_seqs=16), version="0.19.1").verdict != "refused"


@pytest.mark.parametrize(
    ("scheme", "version", "kept"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "0.32.0", "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": FLOAT_8}, "0.32.0", "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, "0.32.0", "bfloat16"),
        ({**W8A8, "kv_cache_scheme": FLOAT_8}, "0.32.0", "fp8"),
        ({**W8A8, "kv_cache_scheme": None}, "0.32.0", "bfloat16"),
    ],
)
def test_a_checkpoint_may_say_how_its_cache_is_kept(scheme: dict[str, Any], version: str, kept: str) -> None:
    facts = llama_8b(quantization_config=scheme)
    assert resolve(facts, H100, EngineArguments(), behaviour(version)).kv_cache_dtype == kept
    said = EngineArguments(kv_cache_dtype="fp8_e5m2")
    assert resolve(facts, H100, said, behaviour(version)).kv_cache_dtype == "fp8_e5m2"


def _gemma4_e4b() -> ModelFacts:
    return served_facts(CATALOG.models["google/gemma-4-E4B-it"])


def test_a_tower_goes_only_where_every_input_that_it_reads_is_switched_off() -> None:
    facts = _gemma4_e4b()
    whole = set(rank_weights(facts, EngineArguments()).by_group)

    def gone(of: ModelFacts = facts, **limits: int) -> set[str]:
        return whole - set(rank_weights(of, EngineArguments(**limits)).by_group)  # type: ignore[arg-type]

    assert gone(images=0) == gone(videos=0) == set()
    assert gone(audios=0) == {"audio"}
    assert gone(images=0, videos=0) == {"vision"}
    assert gone(images=0, videos=0, audios=0) == {"vision", "audio", "projector"}
    assert gone(language_model_only=True) == {"vision", "audio", "projector"}
    # A family that takes no video has none to switch off.
    assert gone(replace(facts, architectures=("Gemma3nForConditionalGeneration",)), images=0) == {"vision"}


def test_what_joins_a_tower_to_the_model_goes_with_it() -> None:
    facts = _gemma4_e4b()

    def projector(**limits: int) -> int:
        return rank_weights(facts, EngineArguments(**limits)).by_group.get("projector", 0)  # type: ignore[arg-type]

    assert projector(audios=0) + projector(images=0, videos=0) == projector()
    assert 0 < projector(audios=0) < projector()


def test_the_memory_of_images_is_reserved_while_any_tower_is_there() -> None:
    facts = _gemma4_e4b()

    def activations(**limits: int) -> float:
        eager = EngineArguments(max_num_batched_tokens=8192, max_num_seqs=16, enforce_eager=True)
        return fit(facts, H100, replace(eager, **limits)).overhead_gib["activations"]  # type: ignore[arg-type]

    assert activations(audios=0) == activations(images=0, videos=0) == activations()
    assert activations(images=0, videos=0, audios=0) < activations()


def test_the_tower_of_qwen3_5_is_tried_with_its_largest_image_whatever_the_weights_are() -> None:
    def activations(name: str, **arguments: Any) -> float:
        settings = EngineArguments(max_model_len=32768, max_num_seqs=1, max_num_batched_tokens=2048, **arguments)
        return fit(CATALOG.models[name].facts, H100, settings).overhead_gib["activations"]

    plain, packed = (activations(name) for name in ("Qwen/Qwen3.6-27B", "nvidia/Qwen3.6-27B-NVFP4"))
    # 65,536 patches of 1,152 and 4,304 values and 1,536 input values each, and 16,384 tokens of 5,120, at 2 bytes.
    assert plain == packed == pytest.approx(2.52, abs=0.01)
    assert activations("Qwen/Qwen3.6-27B", images=0, videos=0, enforce_eager=True) < 0.5
    # The ranks share the MLP of the tower, unless each takes other images.
    shared = activations("Qwen/Qwen3.6-27B", tensor_parallel_size=4)
    assert shared == pytest.approx(1.34, abs=0.01)
    assert activations("Qwen/Qwen3.6-27B", tensor_parallel_size=4, mm_encoder_tp_mode="data") == plain


def test_the_compiler_copies_the_embedding_of_a_model_that_looks_tokens_up_in_its_graph() -> None:
    """A pod compiles anew: 1.04 GiB beside the lasting memory for Qwen2.5-7B, whose embedding has 1.02 GiB."""

    def activations(version: str = "0.29.0", **arguments: Any) -> float:
        few = EngineArguments(max_num_seqs=16, max_num_batched_tokens=2048, max_model_len=4096, **arguments)
        return fit(llama_8b(), H100, few, version=version).overhead_gib["activations"]

    whole = 128256 * 4096 * 2 / 2**30
    assert activations() == pytest.approx(whole)
    assert activations(tensor_parallel_size=2) == pytest.approx(whole / 2)
    # PyTorch 2.11 compiles otherwise, an eager model is not compiled, and a cache of a fixed size comes afterwards.
    assert activations("0.26.0") < whole / 2
    assert activations(enforce_eager=True) < whole / 2
    assert activations(kv_cache_memory_bytes=2**31) < whole / 2
    # A model that takes images looks its tokens up before the graph.
    assert fit(_gemma4_e4b(), H100, EngineArguments(max_num_seqs=16)).overhead_gib["activations"] < 1.0


def test_flashinfer_keeps_a_workspace_for_each_group_of_layers() -> None:
    def available(facts: ModelFacts, **arguments: Any) -> float:
        return fit(facts, H100, EngineArguments(max_model_len=4096, **arguments), version="0.29.0").available_gib

    workspace = 394 / 1024
    for facts, tables in ((llama_8b(), 1), (gpt_oss_20b(), 2)):
        taken = available(facts) - available(facts, attention_backend="FLASHINFER")
        assert taken == pytest.approx(tables * workspace, abs=0.001)


def test_a_command_that_captures_fewer_graphs_has_more_room() -> None:
    def graphs(**arguments: Any) -> float:
        return fit(llama_8b(), H100, EngineArguments(max_model_len=4096, **arguments)).overhead_gib["graphs"]

    assert graphs(largest_graph=16) == pytest.approx(graphs() * 5 / 51)
    assert graphs(max_num_seqs=8) == graphs(largest_graph=16)


def test_offloading_leaves_the_embedding_and_the_head_on_the_accelerator() -> None:
    loaded = rank_weights(llama_8b(), EngineArguments(cpu_offload_gib=100))
    stays = loaded.by_group["embedding"] + loaded.by_group["lm_head"] + loaded.by_group["rotary"]
    assert loaded.total == stays > 1.9 * 2**30


def test_experts_that_do_not_divide_evenly_fill_the_first_ranks_more() -> None:
    """60 experts on 8 ranks: 8, 8, 8, 8, 7, 7, 7, 7."""
    facts = replace(qwen3_30b_a3b(), experts=60)
    spread = EngineArguments(tensor_parallel_size=8, enable_expert_parallel=True)
    loaded = rank_weights(facts, spread).by_group["routed_experts"]
    assert loaded == pytest.approx(facts.weight_bytes["routed_experts"] * 8 / 60, rel=1e-6)
    assert not fit(replace(facts, kv_heads=8, heads=32), H100, replace(spread, tensor_parallel_size=4)).against


@pytest.mark.parametrize(
    ("facts", "quantization", "loaded"),
    [
        (llama_8b(), "fp8_per_tensor", 8.49),
        (llama_8b(), "fp8_per_block", 8.49),
        (llama_8b(), "mxfp8", 8.69),
        (llama_8b(), "mxfp4", 5.45),
        # Experts alone are converted, and this one has none.
        (llama_8b(), "experts_int8", 14.99),
        (llama_8b(), "int8_per_channel_weight_only", 14.99),
        (llama_8b(), "nvfp4_per_token", 14.99),
        (qwen3_30b_a3b(), "int8_per_channel_weight_only", 29.93),
        (qwen3_30b_a3b(), "nvfp4_per_token", 18.12),
    ],
)
def test_weights_that_are_converted_as_they_are_loaded(facts: ModelFacts, quantization: str, loaded: float) -> None:
    total = rank_weights(facts, EngineArguments(quantization=quantization)).total / 2**30
    assert total == pytest.approx(loaded, abs=0.02)


def test_layers_that_predict_several_tokens_are_loaded_for_their_method_alone() -> None:
    facts = deepseek_v2_lite()
    facts = replace(facts, weight_bytes={**facts.weight_bytes, "mtp": 2**30})

    def has(speculative: str | None) -> bool:
        arguments = EngineArguments(model="deepseek", speculative=speculative)
        return "mtp" in rank_weights(facts, arguments).by_group

    assert [has(None), has("ngram"), has("eagle3"), has("deepseek_mtp"), has("deepseek")] == [
        *(False, False, False),
        *(True, True),
    ]


def test_towers_are_whole_on_every_rank_that_shares_out_images() -> None:
    facts = _gemma4_e4b()
    split = [replace(one, sharding="split") if one.group == "vision" else one for one in facts.tensors]
    facts = replace(facts, tensors=tuple(split))

    def vision(mode: Any) -> int:
        arguments = EngineArguments(tensor_parallel_size=2, mm_encoder_tp_mode=mode)
        return rank_weights(facts, arguments).by_group["vision"]

    assert vision("data") == facts.weight_bytes["vision"] == 2 * vision("weights")


@pytest.mark.parametrize(
    ("arguments", "tokens", "requests"),
    [
        (EngineArguments(), 8192, 1024),
        (EngineArguments(enable_chunked_prefill=True), 8192, 1024),
        (EngineArguments(enable_chunked_prefill=False), 131072, 1024),
        (EngineArguments(enable_chunked_prefill=False, max_model_len=4096), 8192, 1024),
        (EngineArguments(enable_chunked_prefill=False, max_num_batched_tokens=131072), 131072, 1024),
        (EngineArguments(performance_mode="throughput"), 16384, 2048),
        (EngineArguments(performance_mode="throughput", max_num_seqs=64), 16384, 64),
    ],
)
def test_prompts_in_one_step_and_throughput_make_steps_larger(
    arguments: EngineArguments, tokens: int, requests: int
) -> None:
    resolved = resolve(llama_8b(), H100, arguments, behaviour("0.32.0"))
    assert (resolved.max_num_batched_tokens, resolved.max_num_seqs) == (tokens, requests)


def test_a_step_of_a_whole_prompt_needs_as_much_as_one_that_is_asked_for() -> None:
    whole = EngineArguments(enable_chunked_prefill=False, max_model_len=32768)
    asked = EngineArguments(max_num_batched_tokens=32768, max_model_len=32768)
    assert fit(llama_8b(), L4, whole).verdict == fit(llama_8b(), L4, asked).verdict == "refused"


def test_a_number_of_blocks_is_the_cache_that_there_is() -> None:
    def with_blocks(blocks: int) -> Any:
        return fit(llama_8b(), H100, EngineArguments(max_model_len=8192, num_gpu_blocks_override=blocks))

    # 512 blocks for one request, and one that is never used.
    assert with_blocks(512).verdict == "refused"
    assert "cache of --num-gpu-blocks-override=512" in with_blocks(512).reasons[0]
    assert with_blocks(513).verdict != "refused"
    assert with_blocks(1024).kv_cache_tokens == 16384
    assert "runs out of memory" in with_blocks(1_000_000).reasons[0]


def test_ranks_that_share_a_context_hold_the_more_of_it() -> None:
    facts = deepseek_v2_lite()
    alone = EngineArguments(tensor_parallel_size=8, max_model_len=65536)
    before, after = fit(facts, H100, alone), fit(facts, H100, replace(alone, decode_context_parallel_size=8))
    assert after.request_gib == pytest.approx(before.request_gib / 8)
    assert after.kv_cache_tokens == pytest.approx(8 * before.kv_cache_tokens, rel=0.001)


@pytest.mark.parametrize(
    ("facts", "ranks", "shards", "why"),
    [
        (deepseek_v2_lite(), 4, 3, "does not divide the 4 ranks"),
        (llama_8b(), 8, 2, "needs 2 ranks of tensor parallelism for each of the 8 KV heads"),
        (gpt_oss_20b(), 8, 2, "cannot share the windows"),
        (llama_8b(), 16, 2, ""),
        (deepseek_v2_lite(), 4, 4, ""),
    ],
)
def test_a_context_is_shared_only_as_vllm_can(facts: ModelFacts, ranks: int, shards: int, why: str) -> None:
    arguments = EngineArguments(tensor_parallel_size=ranks, decode_context_parallel_size=shards, max_model_len=4096)
    against = fit(facts, H100, arguments).against
    assert why in against[0] if why else not against


@pytest.mark.parametrize("dtype", ["turboquant_4bit_nc", "int8_per_token_head"])
def test_a_cache_whose_size_is_not_known_is_not_judged_but_weights_are(dtype: str) -> None:
    arguments = engine_arguments({"max_model_len": 4096, "kv_cache_dtype": dtype})
    result = fit(llama_8b(), H100, arguments)
    assert dtype in result.unjudged
    assert (result.verdict, result.confidence) == ("tight", "low")
    too_large = fit(llama_8b(), replace(H100, memory_gib=12.0), arguments)
    assert (too_large.verdict, too_large.unjudged) == ("refused", "")


@pytest.mark.parametrize(
    ("dtype", "of_a_token"),
    [
        ("bfloat16", 131072),
        ("fp8", 65536),
        ("fp8_e5m2", 65536),
        ("nvfp4", 36864),
    ],
)
def test_a_token_takes_what_its_kind_of_cache_keeps(dtype: str, of_a_token: int) -> None:
    result = fit(llama_8b(), H100, EngineArguments(kv_cache_dtype=dtype, max_model_len=4096))
    assert result.pool is not None
    assert result.pool.block_bytes / 16 == of_a_token


def test_what_of_memory_is_not_counted_is_said_and_makes_the_answer_less_sure() -> None:
    plain = EngineArguments(max_model_len=8192)
    counted = fit(llama_8b(), L4, plain, version="0.19.0")
    unsure = fit(
        llama_8b(), L4, replace(plain, unplanned=(Unplanned("enable_lora", "its adapters"),)), version="0.19.0"
    )
    assert (counted.confidence, unsure.confidence) == ("high", "low")
    assert (counted.verdict, unsure.verdict) == ("fits", "tight")
    told = "lanning with --enable-lora does not count its adapters"
    first, *others = counted.reasons
    assert unsure.reasons == (first, f"Tight: p{told}, so the start may fail.", *others, f"P{told}.")


def test_room_for_lora_adapters_is_kept_beside_the_matrices_of_layers() -> None:
    """81,920 sides of matrices in each of 32 layers, and those of the two matrices of the vocabulary."""
    arguments = EngineArguments(enable_lora=True, max_loras=8, max_lora_rank=128)
    whole = (81920 * 32 + 2 * (128256 + 4096)) * 128 * 2 * 8
    assert rank_weights(llama_8b(), arguments).by_group["lora"] == whole
    split = rank_weights(llama_8b(), replace(arguments, tensor_parallel_size=2)).by_group["lora"]
    assert split < whole < 2 * split
    assert fit(llama_8b(), L4, replace(arguments, max_model_len=8192)).verdict == "refused"
    assert "lora" not in rank_weights(llama_8b(), EngineArguments()).by_group


@pytest.mark.parametrize(("rank", "gib"), [(16, 1.55), (64, 6.19)])
def test_each_expert_has_room_for_lora_adapters(rank: int, gib: float) -> None:
    """`w13_lora_a_stacked` and its like (lora/layers/fused_moe.py): a gate, an up and a down projection of 2,048 by 768
    for each of 128 experts in 48 layers."""
    arguments = EngineArguments(enable_lora=True, max_lora_rank=rank, max_model_len=4096)
    experts = []
    for changes in ({}, {"tensor_parallel_size": 2}, {"tensor_parallel_size": 2, "enable_expert_parallel": True}):
        asked = replace(arguments, **changes)  # type: ignore[arg-type]
        facts = qwen3_30b_a3b()
        others = tuple(tensor for tensor in facts.tensors if tensor.group != "routed_experts")
        whole, without = rank_weights(facts, asked), rank_weights(replace(facts, tensors=others), asked)
        experts.append(whole.by_group["lora"] - without.by_group["lora"])
    assert experts[0] == 48 * 128 * 3 * (2048 + 768) * rank * 2
    assert experts[0] / 2**30 == pytest.approx(gib, abs=0.01)
    assert experts[1] == 48 * 128 * (3 * 768 / 2 + 3 * 2048) * rank * 2
    assert experts[2] == experts[0] / 2
    assert fit(qwen3_30b_a3b(), H100, arguments).confidence == "medium"


def test_the_second_runner_takes_no_room_for_graphs_before_0_29() -> None:
    """Its `profile_cudagraph_memory` returned 0 (vllm-project/vllm#49224): they come on top, and may not fit."""
    arguments = EngineArguments(max_model_len=8192, gpu_memory_utilization=0.9)
    for version, part in (("0.22.1", "counted"), ("0.26.0", "later"), ("0.28.0", "later"), ("0.29.0", "counted")):
        result = fit(llama_8b(), L4, arguments, version=version)
        assert ("graphs" in result.overhead_gib, "graphs" in result.later_gib) == (part == "counted", part == "later")
    high = replace(arguments, gpu_memory_utilization=0.96)
    assert [fit(llama_8b(), L4, high, version=one).verdict for one in ("0.26.0", "0.29.0")] == ["refused", "fits"]
    assert fit(llama_8b(), H100, arguments, version="0.26.0").confidence == "medium"
    assert fit(llama_8b(), H100, arguments, version="0.22.1").confidence == "high"
    # The first runner, which others with experts had until then, counted them.
    assert "graphs" in fit(gpt_oss_20b(), H100, arguments, version="0.26.0").overhead_gib
    assert "graphs" in fit(deepseek_v2_lite(), H100, arguments, version="0.26.0").later_gib


def test_rocm_counts_graphs_since_0_21() -> None:
    card = Device("mi300x", "AMD Instinct MI300X", "rocm", 191.98, 5300)
    found = [fit(gpt_oss_20b(), card, EngineArguments(), version=one).later_gib for one in ("0.20.2", "0.21.0")]
    assert ["graphs" in later for later in found] == [True, False]


def test_graphs_are_captured_twice_with_adapters() -> None:
    """For requests with an adapter, and without (cudagraph_specialize_lora of config/compilation.py)."""

    def graphs(version: str, **arguments: Any) -> float:
        result = fit(llama_8b(), L4, EngineArguments(max_model_len=2048, **arguments), version=version)
        return {**result.overhead_gib, **result.later_gib}["graphs"]

    plain = graphs("0.19.0")
    assert graphs("0.19.0", enable_lora=True, max_lora_rank=64) == pytest.approx(2 * plain)


@pytest.mark.parametrize(
    ("family", "space", "cache"), [("cpu", "4", 4 * 2**30), ("cpu", "0", None), ("cuda", "4", None)]
)
def test_a_variable_sizes_the_cache_on_a_cpu_alone(family: str, space: str, cache: int | None) -> None:
    arguments = with_variables(EngineArguments(), {"VLLM_CPU_KVCACHE_SPACE": space}, family)
    assert arguments.kv_cache_memory_bytes == cache
    sized = with_variables(EngineArguments(kv_cache_memory_bytes=5), {"VLLM_CPU_KVCACHE_SPACE": space}, family)
    assert sized.kv_cache_memory_bytes == (cache or 5)


def test_variables_decide_about_graphs_and_the_runner() -> None:
    def asked(version: str = "0.32.0", **variables: str) -> tuple[bool, bool, tuple[str, ...]]:
        arguments = with_variables(EngineArguments(max_model_len=8192), variables, H100.family)
        result = fit(llama_8b(), H100, arguments, version=version)
        beside = {**result.overhead_gib, **result.later_gib}
        return "graphs" in result.overhead_gib, "token counts" in beside, tuple(one.dest for one in arguments.unplanned)

    off, first = {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert asked() == (True, True, ())
    assert asked(**off) == (False, True, ())
    assert asked(**first) == (True, False, ())
    assert asked("0.26.0") == (False, True, ())
    assert asked("0.26.0", **first) == (True, False, ())
    assert asked("0.19.1", VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS="1") == (True, False, ())
    assert asked("0.16.0", VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS="1") == (False, False, ())
    assert asked(VLLM_USE_V1="1", VLLM_MLA_DISABLE="1")[2] == ("VLLM_MLA_DISABLE",)
    assert asked(VLLM_USE_V2_MODEL_RUNNER="yes")[2] == ("VLLM_USE_V2_MODEL_RUNNER",)


@pytest.mark.parametrize(
    ("facts", "version", "arguments"),
    [
        (llama_8b(), "0.9.0", EngineArguments()),
        (llama_8b(), "0.11.0", EngineArguments(enable_lora=True)),
        (llama_8b(), "0.15.1", EngineArguments(quantization="fp8")),
    ],
)
def test_what_no_measured_start_of_an_older_release_had_is_not_judged(
    facts: ModelFacts, version: str, arguments: EngineArguments
) -> None:
    older, newer = (
        fit(facts, H100, replace(arguments, max_model_len=8192), version=one) for one in (version, "0.18.0")
    )
    assert (older.verdict, older.confidence) == ("tight", "low")
    assert any("is not known here" in reason or "first release that is judged" in reason for reason in older.reasons)
    assert newer.verdict == "fits"


def _qwen_vl() -> ModelFacts:
    """Qwen2.5-VL-7B-Instruct."""
    vision = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584}
    return read_config(
        {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "model_type": "qwen2_5_vl",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
            "torch_dtype": "bfloat16",
            "max_position_embeddings": 128000,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
            "vision_config": {**vision, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
        },
        "Qwen2.5-VL-7B-Instruct",
    )


def test_the_largest_video_is_tried_and_takes_more_than_the_weights() -> None:
    """0.22 of an A100 under 0.23.0: 'Available KV cache memory: -14.28 GiB' (a public log)."""
    card = replace(A100, memory_gib=79.25)
    result = fit(_qwen_vl(), card, EngineArguments(gpu_memory_utilization=0.22), version="0.23.0")
    assert result.available_gib == pytest.approx(-14.28, abs=result.band_gib)
    assert result.available_gib == pytest.approx(-14.28, abs=0.4)


def test_a_video_is_as_large_as_the_context_and_goes_where_none_is_taken() -> None:
    def activations(version: str = "0.32.0", **arguments: Any) -> float:
        return fit(_qwen_vl(), H100, EngineArguments(**arguments), version=version).overhead_gib["activations"]

    image = activations(max_model_len=16_384)
    assert activations(videos=0) == pytest.approx(image, abs=0.3)
    pair = activations(max_model_len=32_768) - image
    assert 2.0 < pair < 2.3
    assert activations() - image == pytest.approx(6 * pair, rel=0.05)


def test_a_video_of_qwen3_vl_is_smaller_than_its_largest_image() -> None:
    """vLLM 0.32 counts 16,384 tokens for the image and 12,288 for the video, and tries the larger one."""
    facts = served_facts(CATALOG.models["Qwen/Qwen3-VL-8B-Instruct"])

    def activations(**arguments: Any) -> float:
        asked = EngineArguments(max_model_len=32_768, **arguments)
        return fit(facts, H100, asked, version="0.32.0").overhead_gib["activations"]

    assert activations() == activations(videos=0) == activations(images=1, videos=1)
    assert activations(images=0, videos=0) < activations(images=0) < activations()
    tower = activations() - activations(images=0, videos=0)
    assert activations(images=0) - activations(images=0, videos=0) == pytest.approx(0.75 * tower, rel=0.1)


def test_ranks_that_share_experts_talk_to_each_other() -> None:
    """Qwen3-Coder-480B on eight H20 leaves 3.8 GiB less than without that (tests/ground_truth)."""

    def beside(facts: ModelFacts) -> float:
        arguments = EngineArguments(data_parallel_size=8, max_model_len=8192)
        return fit(facts, H200, arguments, version="0.10.1").overhead_gib.get("communication", 0.0)

    assert beside(qwen3_30b_a3b()) == pytest.approx(2.2)
    assert beside(llama_8b()) == 0.0

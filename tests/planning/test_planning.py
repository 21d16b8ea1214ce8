"""Plans: what was measured elsewhere comes out, and what cannot work is refused with its numbers."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from examples import examples, some_where_fewer_are_asked
from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.settings import Environment
from neuroscale.core.errors import InputError
from neuroscale.core.units import GIB
from neuroscale.core.yaml_io import dump
from neuroscale.planning import replica_memory
from neuroscale.planning.fit import Device, device, fit
from neuroscale.planning.plan import Alternative, Plan, dump_plan, load_plan
from neuroscale.planning.planner import PLANNER_VERSION, TEMPLATE_VERSION, plan, request_digest
from neuroscale.planning.vllm_flags import architecture
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.request.service_request import Override, Request, dump_request, load_request
from neuroscale.vllm.engine_arguments import EngineArguments
from platform_repository import CATALOG, SETTINGS, SNAPSHOT
from roots import ROOT

E2B = "google/gemma-4-E2B-it"
MOE = "google/gemma-4-26B-A4B-it"
MOE_QAT = "google/gemma-4-26B-A4B-it-qat-w4a16-ct"
DENSE = "google/gemma-4-31B-it"
DENSE_QAT = "google/gemma-4-31B-it-qat-w4a16-ct"


def ask(model: str, **changes: Any) -> Request:
    overrides = changes.pop("overrides", {})
    answers = {
        "schema_version": 1,
        "service": "support-chat",
        "model": model,
        "team": "team-alpha",
        "environment": "prod",
        "concurrent_users": 4,
        "longest_prompt_tokens": 4000,
        "longest_answer_tokens": 500,
        "p95_ttft_seconds": 10,
        "availability": "standard",
        "overrides": [
            {"field": field, "value": value, "reason": "a test", "expires": "2027-01-31"}
            for field, value in overrides.items()
        ],
    }
    return load_request(dump(answers | changes), "request.yaml")


def planned(model: str, **changes: Any) -> Plan:
    return plan(ask(model, **changes), CATALOG, SETTINGS)


@cache
def of_the_catalog() -> Sequence[tuple[Environment, Plan]]:
    """The plan of each model of the catalog in each environment."""
    return [
        (there, planned(model, environment=name))
        for model in some_where_fewer_are_asked(sorted(CATALOG.models))
        for name, there in SETTINGS.environments.items()
    ]


def forced(accelerator: str, count: int, **more: Any) -> dict[str, Any]:
    return {"accelerator": accelerator, "accelerator_count": count} | more


# What is known from running systems.


def test_the_4bit_26b_a4b_fits_one_l4_with_the_cache_that_was_measured() -> None:
    made = planned(
        MOE_QAT,
        longest_prompt_tokens=15000,
        longest_answer_tokens=1000,
        environment="dev",
        overrides=forced("nvidia-l4", 1, kv_cache_dtype="fp8"),
    )
    assert made.verdict in ("fits", "tight")
    # That start had vLLM's defaults for the rest, and 7,097 blocks of 16 tokens in groups of 5 layers at 8 bits.
    arguments = EngineArguments(max_model_len=16384, gpu_memory_utilization=0.9, kv_cache_dtype="fp8")
    facts, card = replica_memory.served_facts(CATALOG.models[MOE_QAT]), device(CATALOG.accelerators["nvidia-l4"])
    found = fit(facts, card, arguments, version="0.23.0")
    measured = 7097 * 16 * 5 * 8 * 256 * 2 / GIB
    assert found.available_gib == pytest.approx(measured, abs=found.band_gib)


def test_one_l4_is_what_the_planner_picks_for_the_4bit_26b_a4b() -> None:
    made = planned(MOE_QAT)
    assert (made.accelerator, made.accelerator_count, made.replicas.min) == ("nvidia-l4", 1, 1)
    assert made.verdict in ("fits", "tight")
    assert made.confidence == "medium", "nobody has measured a start of this version of vLLM"
    # 4 vCPU, 32 GiB and one L4 by the second, as the provider charges them.
    assert made.cost.hourly == Decimal("1.3536")
    assert made.cost.monthly_min == Decimal("988.13")


def test_the_4bit_31b_is_refused_on_one_l4_with_its_numbers_and_choices_that_work() -> None:
    made = planned(DENSE_QAT, overrides=forced("nvidia-l4", 1))
    assert made.verdict == "refused"
    assert made.memory_gib.free < 0
    assert (made.accelerator, made.accelerator_count) == ("nvidia-l4", 1)
    text = made.reasons[0]
    # 21.67 GiB of files, and the sines and cosines of 262,144 positions.
    assert "weights 22.11 GiB" in text
    assert "19.76 GiB are usable" in text
    assert {choice.accelerator for choice in made.alternatives} >= {"nvidia-l4", "nvidia-rtx-pro-6000"}
    prices = [choice.hourly for choice in made.alternatives if choice.hourly is not None]
    assert prices == sorted(prices)


def test_the_4bit_31b_runs_on_a_larger_card_when_nobody_forces_the_l4() -> None:
    made = planned(DENSE_QAT)
    assert made.verdict != "refused"
    assert (made.accelerator, made.accelerator_count) != ("nvidia-l4", 1)


def test_the_26b_in_16_bits_does_not_fit_one_l4_and_names_its_4bit_copy() -> None:
    made = planned(MOE, overrides=forced("nvidia-l4", 1))
    assert made.verdict == "refused"
    assert MOE_QAT in {choice.model for choice in made.alternatives}


@pytest.mark.parametrize("card", ["nvidia-a100-80gb", "nvidia-h100-80gb"])
def test_the_31b_in_16_bits_fits_one_80_gb_card(card: str) -> None:
    assert planned(DENSE, overrides=forced(card, 1)).verdict in ("fits", "tight")


def test_vllms_own_maximum_concurrency_of_the_12b_is_reproduced() -> None:
    facts = CATALOG.models["google/gemma-4-12B-it-qat-w4a16-ct"].facts
    card = Device("rtx-3090", "NVIDIA RTX 3090", "cuda", 23.57)
    for length, gib, concurrency in ((32768, 11.0, 6.96), (65536, 11.0, 5.29), (131072, 10.99, 3.57)):
        arguments = EngineArguments(
            max_model_len=length, max_num_batched_tokens=2496, kv_cache_memory_bytes=round(gib * GIB)
        )
        assert fit(facts, card, arguments, version="0.23.0").max_concurrency == pytest.approx(concurrency, rel=0.005)


def test_the_cache_of_the_tiny_models_is_what_vllm_printed() -> None:
    for name in ("tiny-llama", "tiny-qwen3-moe"):
        arguments = EngineArguments(max_model_len=2048, kv_cache_memory_bytes=GIB, dtype="bfloat16")
        found = fit(CATALOG.models[name].facts, device(CATALOG.accelerators["cpu"]), arguments)
        assert found.kv_cache_tokens == 1_048_576


@pytest.mark.parametrize(
    ("model", "full", "windowed"),
    [
        (E2B, 6144, 12288),
        ("google/gemma-4-E4B-it", 16384, 40960),
        (MOE, 20480, 204800),
        (DENSE, 81920, 819200),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 131072, 0),
        ("deepseek-ai/DeepSeek-V3", 70272, 0),
        ("Qwen/Qwen3-30B-A3B", 98304, 0),
        ("meta-llama/Llama-3.1-8B-Instruct", 131072, 0),
        ("openai/gpt-oss-20b", 24576, 24576),
    ],
)
def test_bytes_per_token_of_the_cache_are_the_published_ones(model: str, full: int, windowed: int) -> None:
    found = {True: 0, False: 0}
    for layers in CATALOG.models[model].facts.cache:
        values = layers.kv_heads * (layers.head_dim + layers.value_head_dim)
        found[layers.window is not None] += 2 * layers.layers * values
    assert (found[False], found[True]) == (full, windowed)


@pytest.mark.parametrize(
    ("model", "total", "active"),
    [
        (E2B, 4.63, 2.28),
        ("google/gemma-4-E4B-it", 7.46, 4.64),
        (MOE, 25.23, 3.82),
        (DENSE, 30.70, 30.70),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.70, 12.88),
        ("deepseek-ai/DeepSeek-V3", 671.03, 37.55),
        ("Qwen/Qwen3-30B-A3B", 30.53, 3.35),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03, 8.03),
        ("openai/gpt-oss-20b", 20.91, 4.19),
    ],
)
def test_parameters_are_counted_from_the_config(model: str, total: float, active: float) -> None:
    facts = CATALOG.models[model].facts
    assert facts.total_params / 1e9 == pytest.approx(total, abs=0.011)
    assert facts.active_params / 1e9 == pytest.approx(active, abs=0.011)


def test_the_tiny_models_are_counted_exactly() -> None:
    # Embedding 2048 x 128; a layer: attention 49,152, MLP or experts, norms; and the last norm.
    assert CATALOG.models["tiny-llama"].facts.total_params == 262_144 + 4 * (49_152 + 159_744 + 256) + 128
    moe = CATALOG.models["tiny-qwen3-moe"].facts
    assert moe.total_params == 2 * 262_144 + 4 * (49_152 + 64 + 256 + 1024 + 8 * 24_576) + 128
    assert moe.total_params - moe.active_params == 4 * 6 * 24_576


def test_moe_or_dense_follows_the_config_and_not_the_name() -> None:
    kinds = {name: architecture(model.facts).kind for name, model in CATALOG.models.items()}
    assert kinds[MOE] == kinds[MOE_QAT] == kinds["tiny-qwen3-moe"] == "moe"
    assert kinds[DENSE] == kinds[E2B] == kinds["tiny-llama"] == "dense"
    assert architecture(CATALOG.models[MOE].facts).active_ratio == 0.151


def test_the_probe_waits_longer_than_the_slow_start_that_was_measured() -> None:
    made = planned(MOE_QAT)
    assert made.startup.expected_seconds >= 664 + 99
    assert made.startup.probe_budget_seconds > made.startup.expected_seconds + 300


def test_the_pod_has_the_host_memory_that_loading_takes() -> None:
    made = planned(MOE_QAT)
    assert made.resources.memory_gib == 32
    assert made.resources.accelerator_resource == "nvidia.com/gpu"
    assert made.resources.node_selector == {"cloud.google.com/gke-accelerator": "nvidia-l4"}


# The arguments.


def test_every_argument_is_one_flag_and_value_and_parallelism_is_never_over_data() -> None:
    for _, made in of_the_catalog():
        assert all(argument.startswith("--") and " " not in argument for argument in made.vllm_args)
        assert not any("data-parallel" in argument for argument in made.vllm_args)
        names = [argument.split("=")[0] for argument in made.vllm_args]
        assert len(names) == len(set(names))
        split_experts = made.architecture.kind == "moe" and made.tensor_parallel_size > 1
        assert ("--enable-expert-parallel" in names) == split_experts
        assert ("--enable-auto-tool-choice" in names) == ("--tool-call-parser" in names)


def test_the_context_leaves_room_for_an_answer_to_the_longest_prompt() -> None:
    made = planned(MOE_QAT, longest_prompt_tokens=16384, longest_answer_tokens=1)
    assert made.max_model_len > 16385
    assert f"--max-model-len={made.max_model_len}" in made.vllm_args


def test_a_hub_model_names_its_revision_and_a_stored_one_its_folder() -> None:
    hub = planned("google/gemma-4-12B-it-qat-w4a16-ct")
    assert hub.model_source == "hf://google/gemma-4-12B-it-qat-w4a16-ct"
    assert "--revision=1d2c2d7f2466070e69d6fb3fd5ce9a7d75f2f6ee" in hub.vllm_args
    assert not hub.needs_hugging_face_token
    assert planned("meta-llama/Llama-3.1-8B-Instruct").needs_hugging_face_token
    stored = planned(MOE_QAT)
    assert stored.model_source == "gs://neuroscale-models/gemma-4-26B-A4B-it-qat-w4a16-ct"
    assert "--model=/mnt/models" in stored.vllm_args
    assert not stored.needs_hugging_face_token


def test_the_local_environment_serves_the_tiny_models_on_the_cpu() -> None:
    made = planned("tiny-qwen3-moe", environment="local", longest_prompt_tokens=500, longest_answer_tokens=300)
    assert (made.accelerator, made.runtime.name) == ("cpu", "neuroscale-vllm-cpu")
    assert made.verdict == "fits"
    assert made.environment_variables["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert made.resources.accelerator_resource == ""
    assert made.cost.hourly is None
    assert "--enforce-eager" in made.vllm_args


def test_a_large_model_is_refused_in_the_local_environment() -> None:
    assert planned(DENSE, environment="local").verdict == "refused"


# Refusals and notes.


def test_a_context_beyond_the_model_is_refused_with_a_shorter_one_that_works() -> None:
    made = planned("Qwen/Qwen3-30B-A3B", longest_prompt_tokens=60000)
    assert made.verdict == "refused"
    assert "at most 40960" in " ".join(made.reasons)
    assert any("Shorten the longest prompt" in choice.change for choice in made.alternatives)


def test_a_refusal_within_the_error_of_the_estimate_is_told_from_a_sure_one() -> None:
    told = {}
    one = {"accelerator": "nvidia-l4", "accelerator_count": 1, "kv_cache_dtype": "auto"}
    for prompt in range(26_000, 42_000, 1000):
        made = planned("meta-llama/Llama-3.1-8B-Instruct", longest_prompt_tokens=prompt, overrides=one)
        short = re.search(r"\(([\d.]+) GiB short\)(.*)", made.reasons[0])
        if short:
            told[float(short[1])] = short[2]
    band = float(re.search(r"less than the ([\d.]+) GiB", told[min(told)])[1])  # type: ignore[index]
    assert {short < band for short in told} == {True, False}
    assert all(("the start may succeed" in words) is (short < band) for short, words in told.items())


def test_a_refusal_on_an_unmeasured_accelerator_says_that_its_error_is_not_known() -> None:
    made = planned("google/gemma-4-31B-it", environment="dev", overrides={"accelerator": "tpu-v6e-1"})
    assert made.verdict == "refused"
    assert "may be off on such an accelerator is not known" in " ".join(made.reasons)


def test_a_first_token_that_no_hardware_makes_is_refused_with_the_time_it_takes() -> None:
    made = planned(DENSE, longest_prompt_tokens=100_000, p95_ttft_seconds=0.05)
    assert made.verdict == "refused"
    assert "first token" in " ".join(made.reasons)
    assert made.alternatives


def test_unknown_figures_lower_the_confidence_and_are_named() -> None:
    made = planned("deepseek-ai/DeepSeek-V3")
    assert made.confidence == "medium"
    assert any("counts its weights from its config" in reason for reason in made.reasons)
    # The price lists know eight H200 in one machine, and no price of one.
    no_price = planned(DENSE, overrides={"accelerator": "nvidia-h200-141gb", "accelerator_count": 1})
    assert no_price.cost.hourly is None
    assert any("a price of" in reason for reason in no_price.reasons)


def test_high_availability_needs_two_replicas() -> None:
    assert planned(MOE_QAT, concurrent_users=1).replicas.min == 1
    made = planned(MOE_QAT, concurrent_users=1, availability="high")
    assert (made.replicas.min, made.replicas.max) == (2, 2)
    assert any("high availability" in reason for reason in made.reasons)


def test_the_reasons_say_why_the_next_cheaper_choice_does_not_do() -> None:
    text = " ".join(planned(DENSE).reasons)
    assert "The next cheaper choice" in text
    assert "GiB short" in text
    assert all(reason.endswith((".", "test")) for reason in planned(DENSE).reasons)


def test_a_tight_plan_says_why() -> None:
    made = planned(
        MOE_QAT, concurrent_users=16, longest_prompt_tokens=8000, longest_answer_tokens=1000, environment="dev"
    )
    assert made.verdict == "tight"
    assert any(reason.startswith("Tight: ") for reason in made.reasons)


def with_model(name: str, **changes: Any) -> Catalog:
    """The catalog with some fields of a model's parts changed."""
    model = CATALOG.models[name]
    parts: dict[str, Any] = {}
    for part, values in changes.items():
        if part == "config":
            parts[part] = {**model.config, "text_config": {**model.config["text_config"], **values}}
        else:
            parts[part] = getattr(model, part).model_copy(update=values)
    models = {**CATALOG.models, name: model.model_copy(update=parts)}
    return Catalog(models, CATALOG.accelerators, CATALOG.prices, CATALOG.runtimes, CATALOG.teams)


def test_a_plan_takes_no_more_of_a_shared_memory_than_is_surely_free() -> None:
    shared = CATALOG.accelerators["nvidia-l4"].model_copy(update={"title": "NVIDIA GB10"})
    accelerators = {**CATALOG.accelerators, "nvidia-l4": shared}
    catalog = Catalog(CATALOG.models, accelerators, CATALOG.prices, CATALOG.runtimes, CATALOG.teams)
    request = ask(MOE_QAT, overrides=forced("nvidia-l4", 2))
    for read, share in ((CATALOG, 0.9), (catalog, 0.83)):
        flags = plan(request, read, SETTINGS).vllm_args
        assert f"--gpu-memory-utilization={share}" in flags


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"serving": {"families": ("tpu",)}}, "is not known to run on NVIDIA L4"),
        ({"serving": {"minimum_vllm_version": "0.100.0"}}, "needs vLLM 0.100.0"),
        ({"config": {"num_attention_heads": 15, "num_key_value_heads": 5}}, "15 attention heads"),
        ({"checkpoint": {"quantization_group_size": 999}}, "quantised in groups of 999"),
    ],
)
def test_what_vllm_cannot_do_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    request = ask(MOE_QAT, overrides=forced("nvidia-l4", 2))
    made = plan(request, with_model(MOE_QAT, **changes), SETTINGS)
    assert made.verdict == "refused"
    assert words in " ".join(made.reasons)


def test_a_stored_model_is_refused_where_the_environment_has_no_store() -> None:
    environment = SETTINGS.environments["prod"]
    bare = environment.model_copy(update={"models": environment.models.model_copy(update={"store": None})})
    other = SETTINGS.model_copy(update={"environments": {**SETTINGS.environments, "prod": bare}})
    made = plan(ask(MOE_QAT), CATALOG, other)
    assert made.verdict == "refused"
    assert "model store" in " ".join(made.reasons)


# Overrides.


def test_overrides_are_honoured_and_shown_with_what_was_planned() -> None:
    made = planned(
        MOE_QAT,
        overrides=forced(
            "nvidia-h100-80gb",
            2,
            **{
                "replicas.min": 2,
                "replicas.max": 3,
                "max_model_len": 8192,
                "max_num_seqs": 5,
                "gpu_memory_utilization": 0.8,
                "kv_cache_dtype": "fp8",
            },
        ),
    )
    assert (made.accelerator, made.accelerator_count, made.tensor_parallel_size) == ("nvidia-h100-80gb", 2, 2)
    assert (made.replicas.min, made.replicas.max, made.max_model_len) == (2, 3, 8192)
    assert {
        "--tensor-parallel-size=2",
        "--max-model-len=8192",
        "--max-num-seqs=5",
        "--gpu-memory-utilization=0.8",
        "--kv-cache-dtype=fp8",
    } <= set(made.vllm_args)
    shown = {override.field: (override.value, override.planned) for override in made.overrides}
    assert shown["accelerator"] == ("nvidia-h100-80gb", "nvidia-l4")
    assert shown["replicas.min"] == (2, "1")
    assert sum(reason.startswith("Override:") for reason in made.reasons) == 8
    # Nothing scales to the third replica, so no amount counts it.
    assert made.cost.hourly is not None
    assert made.cost.monthly_max == made.cost.monthly_min == made.cost.hourly * 730


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (forced("nvidia-l4", 3), "can hold 1, 2, 4, 8"),
        ({"accelerator": "cpu"}, "does not offer CPU"),
        (forced("tpu-v6e-1", 1), "cannot serve compressed-tensors-w4a16 weights"),
        ({"accelerator": "nvidia-a100-80gb", "kv_cache_dtype": "fp8"}, "cannot keep its KV cache as fp8"),
        ({"max_model_len": 1_000_000}, "reads at most 262144"),
        ({"max_model_len": 16}, "The override of max_model_len is 16, and prompt and answer of the form may have"),
        ({"max_num_seqs": 1, "replicas.max": 2}, "At most 2 replicas"),
        ({"replicas.min": 100}, "the environment allows 32"),
    ],
)
def test_an_override_that_cannot_work_is_refused_and_not_replaced(overrides: dict[str, Any], words: str) -> None:
    made = planned(MOE_QAT, overrides=overrides)
    assert made.verdict == "refused"
    assert words in " ".join(made.reasons)
    if "accelerator" in overrides:
        assert made.accelerator == overrides["accelerator"]


def test_overrides_that_let_users_wait_make_a_plan_tight_and_say_how_many() -> None:
    ask_for = {"concurrent_users": 64, "longest_prompt_tokens": 2000, "longest_answer_tokens": 200}
    roomy = forced("nvidia-h100-80gb", 1)
    assert planned(MOE_QAT, **ask_for, overrides=roomy).verdict == "fits"
    made = planned(MOE_QAT, **ask_for, overrides={**roomy, "max_num_seqs": 1, "replicas.min": 2, "replicas.max": 2})
    assert made.verdict == "tight"
    assert "2 x 1 user is less than the 64 asked for, by the overrides: 62 of them wait" in " ".join(made.reasons)


def test_a_context_that_the_longest_request_does_not_fit_is_refused_with_the_smallest_that_works() -> None:
    ask_for = {"longest_prompt_tokens": 2000, "longest_answer_tokens": 200}

    def of(tokens: int, **more: Any) -> Plan:
        return planned(
            MOE_QAT, **{**ask_for, **more}, overrides={**forced("nvidia-h100-80gb", 1), "max_model_len": tokens}
        )

    assert of(2199).verdict == "refused"
    assert of(2199).reasons[0].endswith("may have 2200 tokens: override it with at least 2336, or remove it.")
    between = of(2200)
    assert between.verdict == "tight"
    assert any("shorter than the 2336 that the longest prompt" in reason for reason in between.reasons)
    assert of(2336).verdict == "fits"
    # No context works where the model reads less than the request needs, so none is named.
    beyond = of(16, longest_prompt_tokens=400_000)
    assert beyond.reasons[0].endswith("tokens: remove it.")
    assert "reads at most 262144" in beyond.reasons[1]


def test_one_replica_is_not_the_high_availability_that_the_form_asks_for() -> None:
    overrides = {**forced("nvidia-h100-80gb", 1), "replicas.min": 1}
    made = planned(MOE_QAT, availability="high", overrides=overrides)
    assert made.verdict == "tight"
    assert any("asks for high availability" in reason for reason in made.reasons)
    assert planned(MOE_QAT, overrides=overrides).verdict == "fits"


def test_fewer_replicas_than_needed_are_honoured_and_said() -> None:
    made = planned(MOE_QAT, concurrent_users=200, overrides=forced("nvidia-l4", 1, **{"replicas.min": 1}))
    assert made.replicas.min == 1
    assert any("wait in the queue" in reason for reason in made.reasons)


# Purity, files and locks.


def test_every_model_in_every_environment_gives_a_plan_or_a_refusal_with_reasons() -> None:
    for environment, made in of_the_catalog():
        assert made.reasons
        assert made.accelerator in environment.accelerators
        if made.verdict == "refused":
            continue
        parts = made.memory_gib
        assert parts.free >= 0
        total = parts.weights + parts.kv_cache + parts.overhead + parts.free
        assert total == pytest.approx(parts.usable, abs=0.02)
        assert not made.alternatives


def test_the_alternatives_of_a_refusal_really_work() -> None:
    made = planned(DENSE_QAT, overrides=forced("nvidia-l4", 1))
    assert made.alternatives
    for choice in made.alternatives:
        again = planned(choice.model, overrides=forced(choice.accelerator, choice.accelerator_count))
        assert again.verdict != "refused"
        assert again.cost.hourly == choice.hourly


def test_the_same_request_gives_the_same_plan_and_the_file_round_trips() -> None:
    for model in (MOE_QAT, DENSE_QAT, "deepseek-ai/DeepSeek-V3"):
        request = ask(model, overrides={"accelerator": "nvidia-l4"})
        made = plan(request, CATALOG, SETTINGS)
        assert plan(load_request(dump_request(request), "request.yaml"), load_catalog(SNAPSHOT), SETTINGS) == made
        text = dump_plan(made)
        assert load_plan(text, "plan.yaml") == made
        assert dump_plan(load_plan(text, "plan.yaml")) == text


def test_a_gemma_4_mixture_of_experts_gets_its_own_runtime_and_its_dense_sisters_the_general_one() -> None:
    names = {model: planned(model).runtime.name for model in CATALOG.models if "gemma-4" in model}
    assert {model for model, name in names.items() if name == "neuroscale-vllm-gemma4-moe"} == {
        model for model in names if "A4B" in model
    }
    assert {name for model, name in names.items() if "A4B" not in model} <= {"neuroscale-vllm", "neuroscale-vllm-tpu"}


def test_the_lock_names_what_the_plan_depends_on() -> None:
    request = ask(MOE_QAT)
    lock = plan(request, CATALOG, SETTINGS, template_version="9.9.9").lock
    assert lock.catalog_digest == CATALOG.digest
    assert lock.request_digest == request_digest(request)
    assert (lock.planner_version, lock.template_version) == (PLANNER_VERSION, "9.9.9")
    assert planned(MOE_QAT).lock.template_version == TEMPLATE_VERSION
    assert lock.entries.pop(f"settings/{request.environment}").startswith("sha256:")
    assert lock.entries == {
        key: CATALOG.entry_digest(key)
        for key in (
            f"model/{MOE_QAT}",
            "accelerator/nvidia-l4",
            "price/google-cloud",
            "runtime/neuroscale-vllm-gemma4-moe",
            "team/team-alpha",
        )
    }


def test_a_changed_price_changes_the_lock_and_the_cost(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "platform" / "catalog", tmp_path / "platform" / "catalog")
    prices = tmp_path / "platform/catalog/prices/google-cloud.yaml"
    prices.write_text(prices.read_text().replace('"0.72"', '"0.80"'))
    before, after = planned(MOE_QAT), plan(ask(MOE_QAT), load_catalog(FolderSnapshot(tmp_path)), SETTINGS)
    assert after.lock.catalog_digest != before.lock.catalog_digest
    assert after.cost.hourly == Decimal("1.4336")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("verdict: tight", "verdict: great", "verdict"),
        ("  weights: 15.31", "  weights: heavy", "memory_gib.weights"),
        ('  hourly: "1.3536"', "  hourly: 1.3536", "cost.hourly"),
        ("accelerator_count: 1", "accelerator_cuont: 1", "accelerator_cuont"),
    ],
)
def test_a_malformed_plan_names_field_and_line(old: str, new: str, field: str) -> None:
    text = dump_plan(planned(MOE_QAT)).replace("verdict: fits", "verdict: tight")
    assert old in text
    line = text[: text.index(old)].count("\n") + 1
    with pytest.raises(InputError) as caught:
        load_plan(text.replace(old, new, 1), "plan.yaml")
    problem = next(problem for problem in caught.value.problems if problem.field == field)
    assert (problem.where, problem.line) == ("plan.yaml", line)


# Properties.

SIZES = st.integers(1, 60_000)
QUICK = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(
    model=st.sampled_from(sorted(CATALOG.models)),
    users=st.integers(1, 2000),
    more=st.integers(0, 2000),
    prompt=SIZES,
)
def test_more_users_are_never_cheaper(model: str, users: int, more: int, prompt: int) -> None:
    # Where an environment asks for certainty, they may be: the cheapest choice for few may be tight, and for more not.
    answers = {"longest_prompt_tokens": prompt, "p95_ttft_seconds": 120, "environment": "dev"}
    few = planned(model, concurrent_users=users, **answers)
    many = planned(model, concurrent_users=min(users + more, 4096), **answers)
    if few.verdict == "refused":
        assert many.verdict == "refused"
    elif many.verdict != "refused" and few.cost.hourly is not None and many.cost.hourly is not None:
        assert many.cost.hourly >= few.cost.hourly


def _kv_cache_dtype(plan: Plan) -> list[str]:
    return [argument for argument in plan.vllm_args if argument.startswith("--kv-cache-dtype")]


@QUICK
@given(
    model=st.sampled_from(sorted(CATALOG.models)),
    card=st.sampled_from(["nvidia-l4", "nvidia-h100-80gb", "tpu-v6e-4"]),
    prompt=SIZES,
    more=SIZES,
)
def test_a_longer_context_never_holds_more_requests(model: str, card: str, prompt: int, more: int) -> None:
    count = 4
    short = planned(model, longest_prompt_tokens=prompt, overrides=forced(card, count))
    long = planned(model, longest_prompt_tokens=prompt + more, overrides=forced(card, count))
    # A cache that is kept in 8 bits because of the length holds twice as much.
    assume(_kv_cache_dtype(short) == _kv_cache_dtype(long))
    assert long.max_concurrency <= short.max_concurrency


@QUICK
@given(data=st.data())
def test_a_plan_that_is_not_refused_fits_and_its_parallelism_divides_the_heads(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(sorted(CATALOG.models)))
    made = planned(
        model,
        environment=data.draw(st.sampled_from(sorted(SETTINGS.environments))),
        concurrent_users=data.draw(st.integers(1, 4096)),
        longest_prompt_tokens=data.draw(SIZES),
        longest_answer_tokens=data.draw(st.integers(1, 8000)),
        p95_ttft_seconds=data.draw(st.sampled_from([0.2, 1, 10, 120])),
        availability=data.draw(st.sampled_from(["standard", "high"])),
    )
    assert load_plan(dump_plan(made), "plan.yaml") == made
    assert CATALOG.models[model].facts.heads % made.tensor_parallel_size == 0 or (made.verdict == "refused")
    if made.verdict != "refused":
        assert made.memory_gib.free >= 0
        assert made.startup.probe_budget_seconds > made.startup.expected_seconds
        assert made.replicas.min <= SETTINGS.environments[made.environment].max_replicas
        assert made.max_concurrency * made.replicas.min >= 1


@QUICK
@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_in_a_plan_file_round_trips(number: float) -> None:
    made = planned(MOE_QAT)
    changed = made.model_copy(update={"memory_gib": made.memory_gib.model_copy(update={"free": number})})
    assert load_plan(dump_plan(changed), "plan.yaml") == changed


def test_the_order_of_the_accelerators_in_the_settings_does_not_change_a_plan() -> None:
    environment = SETTINGS.environments["prod"]
    shuffled = list(environment.accelerators)
    random.Random(1).shuffle(shuffled)
    other = SETTINGS.model_copy(
        update={
            "environments": {
                **SETTINGS.environments,
                "prod": environment.model_copy(update={"accelerators": tuple(shuffled)}),
            }
        }
    )
    for model in some_where_fewer_are_asked(sorted(CATALOG.models)):
        assert plan(ask(model), CATALOG, other) == planned(model)


# What a refusal offers, applied as its words say.


def applied(request: Request, choice: Alternative) -> Request:
    """The request after the change that an alternative asks for, read from its words alone."""
    text = choice.change
    update: dict[str, Any] = {}
    overrides = {override.field: override for override in request.overrides}
    for fields in re.findall(r"[Rr]emove the overrides? of ([a-z_., ]+?)(?::|, on|\.$)", text):
        for field in re.split(r", | and ", fields):
            del overrides[field]
    if found := re.search(r"override accelerator with (\S+) and accelerator_count with (\d+)", text):
        for field, value in (("accelerator", found[1]), ("accelerator_count", int(found[2]))):
            overrides[field] = Override(field=field, value=value, reason="r", expires=date(2099, 1, 1))
    for pattern, name, kind in (
        (r"the model '([^']+)'", "model", str),
        (r"the environment '([^']+)'", "environment", str),
        (r"longest prompt to (\d+) tokens|prompts up to (\d+)", "longest_prompt_tokens", int),
        (r"answers up to (\d+) tokens", "longest_answer_tokens", int),
        (r"Serve (\d+) users? at once", "concurrent_users", int),
        (r"([0-9.e+-]+) s for the first token", "p95_ttft_seconds", float),
        (r"([0-9.e+-]+) tokens per second for each user", "tokens_per_second_per_user", float),
    ):
        if found := re.search(pattern, text):
            update[name] = kind(next(group for group in found.groups() if group))
    values = {field: override.value for field, override in overrides.items()}
    assert update or values != {override.field: override.value for override in request.overrides}, text
    return request.model_copy(update={**update, "overrides": tuple(overrides.values())})


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_every_alternative_of_every_refusal_works_when_its_words_are_followed(data: st.DataObject) -> None:
    overrides = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "accelerator": st.sampled_from(sorted(CATALOG.accelerators)),
                "accelerator_count": st.sampled_from([1, 2, 3, 8]),
                "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
                "max_model_len": st.sampled_from([1024, 16_384, 1_048_576]),
                "max_num_seqs": st.sampled_from([1, 64, 1024]),
                "replicas.max": st.sampled_from([1, 4]),
            },
        )
        | st.just({})
    )
    request = ask(
        data.draw(st.sampled_from(sorted(CATALOG.models))),
        environment=data.draw(st.sampled_from(sorted(SETTINGS.environments))),
        concurrent_users=data.draw(st.sampled_from([1, 8, 300, 4096])),
        longest_prompt_tokens=data.draw(st.sampled_from([16, 4096, 60_000, 1_000_000])),
        longest_answer_tokens=data.draw(st.sampled_from([16, 2048, 100_000])),
        p95_ttft_seconds=data.draw(st.sampled_from([0.04, 0.2, 3.0, 60.0])),
        availability=data.draw(st.sampled_from(["standard", "high"])),
        overrides=overrides,
    )
    made = plan(request, CATALOG, SETTINGS)
    if made.verdict != "refused":
        assert made.memory_gib.free >= 0
        return
    for choice in made.alternatives:
        again = plan(applied(request, choice), CATALOG, SETTINGS)
        assert again.verdict != "refused", choice.change
        assert (again.accelerator, again.accelerator_count) == (choice.accelerator, choice.accelerator_count)
        assert again.cost.hourly == choice.hourly
        assert choice.answers or overrides, "without overrides, the form's answers alone make the change"
        if choice.answers:
            filled_in = Request.model_validate({**dict(request), **choice.answers})
            again = plan(filled_in, CATALOG, SETTINGS)
            assert again.verdict != "refused", choice
            assert again.cost.hourly == choice.hourly


def test_a_shorter_prompt_takes_its_typical_length_along() -> None:
    asked = ask(MOE_QAT, longest_prompt_tokens=1_000_000, typical_prompt_tokens=900_000, p95_ttft_seconds=120)
    shorter = [one.answers for one in plan(asked, CATALOG, SETTINGS).alternatives if "Shorten" in one.change]
    assert shorter
    for answers in shorter:
        again = plan(Request.model_validate({**dict(asked), **answers}), CATALOG, SETTINGS)
        assert again.verdict != "refused"
        assert answers["typical_prompt_tokens"] == answers["longest_prompt_tokens"]


def test_a_request_that_is_too_large_in_every_way_is_told_what_would_work() -> None:
    made = planned(
        "deepseek-ai/DeepSeek-V3",
        concurrent_users=4096,
        longest_prompt_tokens=100_000,
        longest_answer_tokens=8192,
        p95_ttft_seconds=30.0,
        environment="dev",
    )
    assert made.verdict == "refused"
    assert [choice.change.split(" with ")[0] for choice in made.alternatives] == ["Serve 64 users at once"]


def test_a_model_that_an_environment_cannot_serve_is_offered_where_it_can_be() -> None:
    made = planned("meta-llama/Llama-3.1-8B-Instruct", environment="local")
    assert {choice.change.split("'")[1] for choice in made.alternatives} == {"dev", "prod"}


def test_the_nearest_attempt_is_the_one_that_fits_the_memory() -> None:
    made = planned(MOE_QAT, environment="dev", concurrent_users=4096, longest_prompt_tokens=100_000)
    assert made.verdict == "refused"
    assert made.memory_gib.free >= 0
    assert any("the environment allows 8" in reason for reason in made.reasons)


def test_more_requests_at_once_than_the_cache_holds_are_honoured_and_said() -> None:
    made = planned(MOE_QAT, overrides=forced("nvidia-l4", 1, max_num_seqs=64))
    assert "--max-num-seqs=64" in made.vllm_args
    assert made.memory_gib.free >= 0
    assert any("Of the 64 requests" in reason and f"{made.max_concurrency} fit" in reason for reason in made.reasons)


def test_counts_of_tokens_for_more_requests_than_memory_allows_are_refused() -> None:
    def made(most: int) -> Plan:
        overrides = forced("nvidia-l4", 1, max_num_seqs=most, kv_cache_dtype="auto")
        return planned(MOE_QAT, longest_prompt_tokens=30000, longest_answer_tokens=1000, overrides=overrides)

    assert made(16).verdict != "refused"
    assert made(1024).verdict == "refused"
    # 1,024 requests x 262,144 entries of 33 bits, and graphs for more sizes of batches.
    assert made(1024).memory_gib.overhead > made(16).memory_gib.overhead + 1.6


def test_replicas_that_an_override_sets_are_not_explained_by_the_load() -> None:
    made = planned(MOE_QAT, concurrent_users=4, overrides={"replicas.min": 3})
    assert any(reason.startswith("Replicas: 3, as the override says. Needed: ") for reason in made.reasons)

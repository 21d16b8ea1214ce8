"""Backends of attention and experts that a command names: refused, served, or said not to be judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fit_models import A100, H100, L4, deepseek_v2_lite, gpt_oss_20b, llama_8b, qwen3_30b_a3b
from neuroscale import vllm
from neuroscale.core.releases import release
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Device, Fit, OtherCandidates, choices, fit
from neuroscale.vllm.arguments import parse_arguments
from neuroscale.vllm.backend_rules import NEWEST_READ, attention_names
from neuroscale.vllm.engine_arguments import EngineArguments, with_variables

L40S = Device("nvidia-l40s", "NVIDIA L40S", "cuda", 44.52, 864)
RTX_PRO = Device("nvidia-rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "cuda", 94.97, 1597)
B200 = Device("nvidia-b200", "NVIDIA B200", "cuda", 178.0, 8000)
PROCESSOR = Device("cpu", "CPU", "cpu", 64.0)
UNNAMED = Device("some-card", "some card", "cuda", 80.0)
SMALL = EngineArguments(max_model_len=2048, max_num_seqs=16)

_GEMMA4: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text",
        "dtype": "bfloat16",
        "vocab_size": 262144,
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 512,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "max_position_embeddings": 131072,
        "use_bidirectional_attention": "vision",
        "tie_word_embeddings": True,
    },
    "vision_config": {"model_type": "gemma4_vision", "hidden_size": 768, "num_hidden_layers": 1},
}


_PER_QUANT = '{"linear_backend_per_quant":{"fp8":"flashinfer_cutlass","mxfp8":"auto"}}'


def gemma4() -> ModelFacts:
    return read_config(_GEMMA4, "gemma4")


def judged(facts: ModelFacts, device: Device, words: str, version: str, **variables: str) -> Fit:
    parsed = parse_arguments(["--max-model-len=2048", "--max-num-seqs=16", *words.split()], version, names_model=False)
    arguments = with_variables(parsed.arguments, variables, device.family)
    return fit(facts, device, arguments, version=version)


@pytest.mark.parametrize(
    ("facts", "device", "words", "version", "why"),
    [
        (gemma4(), L40S, "--attention-backend FLASH_ATTN", "0.29.0", "heads of 512 values"),
        (gemma4(), L40S, "--attention-backend FLASHINFER", "0.21.0", "heads of 512 values"),
        (gemma4(), L40S, "--attention-backend FLASHINFER", "0.26.0", "tokens of an image see each other"),
        (llama_8b(), RTX_PRO, "--attention-backend FLASH_ATTN --kv-cache-dtype fp8", "0.29.0", "cache in fp8 on"),
        (llama_8b(), H100, "--attention-backend FLEX_ATTENTION --kv-cache-dtype fp8", "0.29.0", "no KV cache in fp8"),
        (llama_8b(), H100, "--attention-backend FLASH_ATTN --kv-cache-dtype fp8_e5m2", "0.29.0", "in fp8_e5m2"),
        (gpt_oss_20b(), L4, "--attention-backend FLASH_ATTN", "0.29.0", "attention sinks on compute capability 8.9"),
        (gpt_oss_20b(), RTX_PRO, "--attention-backend FLASHINFER", "0.27.0", "attention sinks"),
        (gpt_oss_20b(), H100, "--attention-backend FLEX_ATTENTION", "0.29.0", "attention sinks"),
        (llama_8b(), H100, "--attention-backend FLASHMLA", "0.29.0", "latent attention alone"),
        (deepseek_v2_lite(), H100, "--attention-backend FLASH_ATTN", "0.29.0", "no latent attention"),
        (deepseek_v2_lite(), H100, "--attention-backend CUTLASS_MLA", "0.29.0", "compute capability 9.0"),
        (deepseek_v2_lite(), H100, "--attention-backend TRITON_MLA --kv-cache-dtype fp8", "0.16.0", "cache in fp8"),
        (llama_8b(), H100, "--attention-backend XFORMERS", "0.29.0", "no attention backend of that name"),
        (llama_8b(), H100, "--attention-backend TOKENSPEED_MLA", "0.20.0", "no attention backend of that name"),
        (llama_8b(), H100, '--attention-config {"backend":"FLASHMLA"}', "0.32.0", "latent attention alone"),
        (llama_8b(), H100, "--attention-backend FLASHINFER --block-size 24", "0.32.0", "not a multiple of 16"),
        (qwen3_30b_a3b(), H100, "--moe-backend marlin", "0.29.0", "experts that are not quantised"),
        (gpt_oss_20b(), H100, "--moe-backend cutlass", "0.32.0", "experts in mxfp4"),
    ],
)
def test_a_backend_that_cannot_serve_the_model_is_refused_with_vllms_reason(
    facts: ModelFacts, device: Device, words: str, version: str, why: str
) -> None:
    result = judged(facts, device, words, version)
    assert result.verdict == "refused"
    assert why in result.reasons[0]
    assert version in result.reasons[0]
    assert judged(facts, device, "", version).verdict != "refused"


@pytest.mark.parametrize(
    ("facts", "device", "words", "version"),
    [
        (llama_8b(), H100, "--attention-backend FLASH_ATTN --kv-cache-dtype fp8", "0.27.0"),
        (llama_8b(), H100, "--attention-backend flash_attn", "0.27.0"),
        (llama_8b(), L40S, "--attention-backend FLASHINFER --kv-cache-dtype fp8", "0.27.0"),
        (llama_8b(), A100, "--attention-backend FLASH_ATTN", "0.13.0"),
        (gpt_oss_20b(), L40S, "--attention-backend TRITON_ATTN", "0.27.0"),
        (gpt_oss_20b(), H100, "--attention-backend FLASH_ATTN --moe-backend marlin", "0.27.0"),
        (gpt_oss_20b(), B200, "--attention-backend FLASHINFER", "0.27.0"),
        (deepseek_v2_lite(), H100, "--attention-backend FLASHMLA", "0.27.0"),
        (llama_8b(), H100, "--attention-backend auto --moe-backend flashinfer-cutlass", "0.27.0"),
        (qwen3_30b_a3b(), H100, "--moe-backend triton", "0.27.0"),
        (llama_8b(), H100, '--kernel-config {"linear_backend_per_quant":{"fp8":"auto"}}', "0.32.0"),
    ],
)
def test_a_backend_that_serves_the_model_changes_nothing(
    facts: ModelFacts, device: Device, words: str, version: str
) -> None:
    result, plain = judged(facts, device, words, version), judged(facts, device, "", version)
    assert (result.verdict, result.uncounted, result.confidence) == (plain.verdict, (), plain.confidence)


@pytest.mark.parametrize(
    ("facts", "device", "words", "version", "why"),
    [
        (
            llama_8b(),
            UNNAMED,
            "--attention-backend FLASH_ATTN",
            "0.27.0",
            "compute capability of the card",
        ),
        (llama_8b(), PROCESSOR, "--attention-backend CPU_ATTN", "0.27.0", "CUDA cards alone"),
        (llama_8b(), H100, "--attention-backend FLASH_ATTN", "0.11.0", "were not read"),
        (llama_8b(), H100, "--attention-backend FLASH_ATTN", "0.33.0", "were not read"),
        (llama_8b(), H100, "--attention-backend CUSTOM", "0.27.0", "its rules were not read"),
        (gemma4(), H100, "--attention-backend FLASH_ATTN", "0.29.0", "the kernels that are installed decide"),
        (gpt_oss_20b(), B200, "--attention-backend FLASH_ATTN", "0.27.0", "the kernels that are installed decide"),
        (llama_8b(), H100, '--attention-config {"backend_per_kind":{"full":"FLASHINFER"}}', "0.27.0", "single kinds"),
        (gpt_oss_20b(), L40S, "--moe-backend triton", "0.27.0", "whether triton computes the experts"),
        (llama_8b(), H100, "--linear-backend marlin", "0.27.0", "whether marlin has a kernel"),
        (llama_8b(), H100, f"--kernel-config {_PER_QUANT}", "0.32.0", "whether flashinfer_cutlass has a kernel"),
        (llama_8b(), H100, f"--linear-backend marlin --kernel-config {_PER_QUANT}", "0.32.0", "cutlass or marlin has"),
    ],
)
def test_what_the_rules_do_not_decide_is_said_and_never_fits_silently(
    facts: ModelFacts, device: Device, words: str, version: str, why: str
) -> None:
    result = judged(facts, device, words, version)
    assert result.verdict == "tight"
    assert result.confidence == "low"
    assert why in result.uncounted[0].clause
    assert any(result.uncounted[0].clause in reason for reason in result.reasons)


@pytest.mark.parametrize(
    ("name", "value"), [("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "1"), ("VLLM_FLASHINFER_MOE_BACKEND", "latency")]
)
def test_a_variable_that_chooses_kernels_for_experts_never_fits_silently(name: str, value: str) -> None:
    result = judged(gpt_oss_20b(), H100, "", "0.27.0", **{name: value})
    assert (result.verdict, [part.dest for part in result.uncounted]) == ("tight", [name])
    assert judged(gpt_oss_20b(), H100, "", "0.27.0", VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8="0").uncounted == ()


def test_latent_attention_that_a_variable_turns_off_does_not_refuse_a_backend() -> None:
    def verdict(facts: ModelFacts, name: str, disabled: str) -> tuple[str, bool]:
        words = f"--attention-backend={name}"
        result = judged(facts, H100, words, "0.29.0", VLLM_MLA_DISABLE=disabled)
        return result.verdict, any("ordinary heads" in part.clause for part in result.uncounted)

    assert verdict(deepseek_v2_lite(), "FLASH_ATTN", "1") == ("tight", True)
    assert verdict(deepseek_v2_lite(), "FLASH_ATTN", "0") == ("refused", False)
    assert verdict(llama_8b(), "FLASHMLA", "1") == ("refused", False), "it has no latent attention to turn off"


def test_the_variable_counts_where_the_release_reads_it() -> None:
    def verdict(version: str) -> str:
        return judged(llama_8b(), H100, "--attention-backend FLASHINFER", version, VLLM_ATTENTION_BACKEND=name).verdict

    name = "FLASHMLA"
    assert (verdict("0.14.0"), verdict("0.15.0"), verdict("0.16.0")) == ("refused", "tight", "fits")
    name = "FLASH_ATTN_VLLM_V1"
    assert verdict("0.12.0") == "fits"


def test_the_advice_is_to_leave_the_choice_to_vllm() -> None:
    arguments = EngineArguments(max_model_len=2048, max_num_seqs=16, attention_backend="FLASHMLA")
    refused = fit(llama_8b(), H100, arguments)
    assert refused.max_context > 0
    (first, *_) = choices(refused, llama_8b(), H100, arguments, OtherCandidates())
    assert first.change == "Leave the backends of attention and experts to vLLM."


def test_images_are_not_asked_for_where_a_command_takes_none() -> None:
    words = "--attention-backend FLASHINFER"
    assert judged(gemma4(), L40S, words, "0.29.0").verdict == "refused"
    assert judged(gemma4(), L40S, f"{words} --language-model-only", "0.29.0").verdict == "fits"
    assert judged(gemma4(), L40S, f"{words} --language-model-only", "0.26.0").verdict == "refused"


def test_the_names_of_the_newest_release_are_those_of_its_command_line() -> None:
    version = ".".join(map(str, NEWEST_READ))
    snapshot = json.loads((Path(vllm.__file__).parent / f"arguments-{version}.json").read_text())
    (backend,) = (each for each in snapshot["arguments"] if each["dest"] == "attention_backend")
    assert {name.upper() for name in backend["names"]["enum"]} - {"AUTO"} == attention_names(release(version))

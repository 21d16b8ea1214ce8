"""What a command of vLLM gets wrong for its model and its accelerators, each rule at its boundary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuroscale.catalog import Accelerator, load_catalog
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.snapshot import FolderSnapshot
from neuroscale.vllm.arguments import parse_arguments
from neuroscale.vllm.checks import Fault, Place, check_command
from neuroscale.vllm.parsers import reasoning_of, tools_of
from neuroscale.vllm.snapshot import load, versions

ROOT = Path(__file__).resolve().parent.parent
VERSION = versions()[-1]
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "num_hidden_layers": 4,
    "hidden_size": 1536,
    "vocab_size": 32000,
    "intermediate_size": 4096,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
GROUPS = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128},
        }
    },
    "ignore": ["lm_head"],
}


def model(**changes: Any) -> ModelFacts:
    return read_config(CONFIG | changes, "tiny/test")


def faults(line: str, facts: ModelFacts | None = None, place: Place | None = None) -> dict[str, Fault]:
    parsed = parse_arguments(["m", *line.split()], VERSION)
    assert parsed.problems == ()
    return {fault.rule: fault for fault in check_command(parsed, facts, None, place)}


@pytest.mark.parametrize(("size", "rule"), [(2, None), (8, None), (3, "kv-heads"), (16, "attention-heads")])
def test_heads_divide_by_tensor_parallelism(size: int, rule: str | None) -> None:
    found = faults(f"--tensor-parallel-size={size}", model(intermediate_size=4608))
    assert set(found) == ({rule} if rule else set())


def test_kv_heads_that_ranks_share_are_right() -> None:
    assert "kv-heads" not in faults("--tensor-parallel-size=12", model(num_key_value_heads=4, intermediate_size=4608))
    assert "kv-heads" in faults("--tensor-parallel-size=6", model(num_key_value_heads=4, intermediate_size=4608))


def test_widths_divide_by_tensor_parallelism() -> None:
    assert "layer-width" in faults("--tensor-parallel-size=8", model(intermediate_size=4100))
    assert "layer-width" not in faults("--tensor-parallel-size=4", model(intermediate_size=4100))


def test_quantised_groups_are_not_cut() -> None:
    quantised = model(quantization_config=GROUPS)
    assert set(faults("--tensor-parallel-size=4", quantised)) == set()
    found = faults("--tensor-parallel-size=8", quantised)["quantized-groups"]  # 24 heads of 64 by 8: 192, no multiple
    assert "1536" in found.message
    assert "128" in found.message
    assert "quantized-groups" not in faults("--tensor-parallel-size=8", model())


def test_chunked_prefill_lets_a_step_be_shorter_than_a_prompt() -> None:
    line = "--max-num-batched-tokens=2048 --max-model-len=4096 --max-num-seqs=16"
    assert "whole-prompts" not in faults(line)
    assert "whole-prompts" in faults(f"{line} --no-enable-chunked-prefill")


def test_a_longer_context_than_the_model_reads_may_be_forced() -> None:
    assert faults("--max-model-len=8192", model()) == {}
    assert faults("--max-model-len=8193", model())["context-length"].refused
    parsed = parse_arguments(["m", "--max-model-len=8193"], VERSION)
    (forced,) = check_command(parsed, model(), variables={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"})
    assert not forced.refused
    assert faults("--max-model-len=auto", model()) == {}


def test_an_architecture_that_the_version_lacks_is_a_remark() -> None:
    found = faults("", model(architectures=["NoSuchForCausalLM"]))["architecture"]
    assert not found.refused


def test_an_argument_that_is_about_to_go_is_a_remark() -> None:
    deprecated = [one for one in load(VERSION).arguments.values() if one.deprecated]
    for argument in deprecated:
        found = faults(f"{argument.flag}=x")["deprecated-argument"]
        assert not found.refused


def test_parsers_of_one_family_are_told_from_parsers_of_many() -> None:
    assert "parser" in faults("--tool-call-parser=gemma4", model())
    assert "parser" in faults("--reasoning-parser=openai_gptoss", model())
    for common in ("hermes", "pythonic", "llama3_json"):
        assert "parser" not in faults(f"--tool-call-parser={common}", model())


def test_every_parser_that_is_told_of_a_family_is_one_of_vllms() -> None:
    from neuroscale.vllm import parsers

    snapshot = load(VERSION)
    assert set(parsers._TOOLS) <= snapshot.tool_parsers
    assert set(parsers._REASONING) <= snapshot.reasoning_parsers
    assert tools_of("hermes") == reasoning_of("nothing") == ()


def accelerator(name: str) -> Accelerator:
    return load_catalog(FolderSnapshot(ROOT)).accelerators[name]


@pytest.mark.parametrize(
    ("line", "count", "pods", "right"),
    [
        ("-tp 4", 4, 1, True),
        ("-tp 2 -pp 2", 4, 1, True),
        ("-tp 2 -dp 2", 4, 1, True),
        ("-tp 2 -dp 8 --data-parallel-size-local 2", 4, 1, True),
        ("-tp 2 -dp 8 --data-parallel-rank 3", 2, 1, True),
        ("-tp 4 -pp 2", 4, 2, True),
        ("-tp 4 -pp 2 --nnodes 2", 4, 1, True),
        ("-tp 2", 4, 1, False),
        ("-tp 8", 4, 1, False),
        ("-tp 4", 4, 2, False),
    ],
)
def test_the_ranks_are_as_many_as_the_accelerators(line: str, count: int, pods: int, right: bool) -> None:
    found = faults(line, place=Place(accelerator("nvidia-h100-80gb"), count, pods))
    assert ("accelerator-count" not in found) == right


def test_a_kv_cache_dtype_that_the_catalog_does_not_tell_of_is_a_remark() -> None:
    place = Place(accelerator("nvidia-h100-80gb"), 1)
    assert faults("--kv-cache-dtype=fp8_e4m3", place=place) == {}
    assert not faults("--kv-cache-dtype=nvfp4", place=place)["kv-cache-dtype"].refused


def test_a_model_is_served_on_the_kinds_of_accelerators_it_is_known_to_run_on() -> None:
    catalog = load_catalog(FolderSnapshot(ROOT))
    entry = next(one for one in catalog.models.values() if "tpu" not in one.serving.families)
    place = Place(catalog.accelerators["tpu-v6e-1"], 1)
    parsed = parse_arguments([entry.name], VERSION)
    assert "accelerator-family" in {fault.rule for fault in check_command(parsed, None, entry, place)}

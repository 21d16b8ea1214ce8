"""What a command of vLLM gets wrong for its model and its accelerators, each rule at its boundary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neuroscale.catalog import Accelerator
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.vllm.accelerator_rules import Fault, Place
from neuroscale.vllm.arguments import parse_arguments
from neuroscale.vllm.command_rules import check_command
from neuroscale.vllm.known_arguments import load, versions
from neuroscale.vllm.model_rules import REASONING, TOOLS
from oracle_hybrids import TINY
from platform_repository import CATALOG

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


@pytest.mark.parametrize(("size", "refused"), [(2, False), (4, True)])
def test_states_divide_by_tensor_parallelism(size: int, refused: bool) -> None:
    # Two groups of heads are neither one nor a number that four ranks divide.
    facts = read_config({**TINY["nemotron_h"], "intermediate_size": 256}, "tiny/test")
    found = faults(f"--tensor-parallel-size={size}", facts)
    assert ("states" in found) == refused
    if refused:
        assert "2 groups of the layers that keep a state" in found["states"].message


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


def test_overrides_move_the_longest_context_and_must_be_what_a_config_may_hold() -> None:
    longer = '--hf-overrides={"max_position_embeddings":16384} --max-model-len='
    assert faults(f"{longer}16384", model()) == {}
    assert faults(f"{longer}16385", model())["context-length"].refused
    wrong = faults('--hf-overrides={"max_position_embeddings":"many"}', model())
    assert wrong["hf-overrides"].refused


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
    from neuroscale.vllm import model_rules

    snapshot = load(VERSION)
    assert set(model_rules.TOOLS) <= snapshot.tool_parsers
    assert set(model_rules.REASONING) <= snapshot.reasoning_parsers
    assert TOOLS.get("hermes") is REASONING.get("nothing") is None


def accelerator(name: str) -> Accelerator:
    return CATALOG.accelerators[name]


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
    entry = next(one for one in CATALOG.models.values() if "tpu" not in one.serving.families)
    place = Place(CATALOG.accelerators["tpu-v6e-1"], 1)
    parsed = parse_arguments([entry.name], VERSION)
    assert "accelerator-family" in {fault.rule for fault in check_command(parsed, None, entry, place)}


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("--decode-context-parallel-size=2", "parallel-sizes"),
        ("-tp 4 --decode-context-parallel-size=3", "parallel-sizes"),
        ("-tp 4 --decode-context-parallel-size=2", None),
        ("-pcp 2 -tp 2 --decode-context-parallel-size=4", None),
        ("-pcp 2 -tp 4 --decode-context-parallel-size=4", "parallel-sizes"),
        ("--nnodes=2", "parallel-sizes"),
        ("--nnodes=2 -tp 2", None),
        ("--nnodes=2 -tp 2 --node-rank=2", "parallel-sizes"),
        ("-dp 2 --data-parallel-size-local=3", "parallel-sizes"),
        ("-dp 2 --data-parallel-size-local=2", None),
        ("--data-parallel-rank=0", "load-balancing"),
        ("-dp 4 --data-parallel-rank=1", None),
        ("-dp 4 --data-parallel-rank=4", "load-balancing"),
        ("--data-parallel-external-lb", "load-balancing"),
        ("-dp 2 --nnodes=2 --data-parallel-external-lb", None),
        ("-dp 2 --data-parallel-hybrid-lb", "load-balancing"),
        ("-dp 4 --data-parallel-hybrid-lb --data-parallel-size-local=2", None),
        ("-dp 4 --data-parallel-rank=1 --data-parallel-hybrid-lb", "load-balancing"),
        ("--eplb-config.num_redundant_experts=64", "expert-balancing"),
        ("--eplb-config.num_redundant_experts=0", None),
        ("-tp 2 --enable-expert-parallel --enable-eplb --eplb-config.num_redundant_experts=64", None),
        ("-tp 2 --enable-eplb", "expert-balancing"),
        ("--enable-expert-parallel --enable-eplb", "expert-balancing"),
        ("--kv-transfer-config.kv_connector=NixlConnector", "transfer-role"),
        ("--kv-transfer-config.kv_role=kv_both", "transfer-role"),
        ("--kv-transfer-config.kv_connector=NixlConnector --kv-transfer-config.kv_role=kv_both", None),
        ("--kv-transfer-config.kv_connector=Nope --kv-transfer-config.kv_role=kv_both", "unknown-connector"),
        ('--kv-transfer-config={"kv_connector":"X","kv_role":"kv_both","kv_connector_module_path":"own.x"}', None),
        ("--ec-transfer-config.ec_connector=X", "transfer-role"),
        ("--ec-transfer-config.ec_role=ec_both", None),
        ("--lora-modules a=/x", "adapters-without-lora"),
        ("--enable-lora --lora-modules a=/x", None),
        ("--headless", "answers-nobody"),
        ("--api-server-count=0", "answers-nobody"),
        ("--api-server-count=2", None),
        ("--headless --nnodes=2 -tp 2 --node-rank=1", None),
        ("--headless -dp 4 --data-parallel-size-local=2 --data-parallel-start-rank=2", None),
        ("--headless --api-server-count=2 --nnodes=2 -tp 2", "answers-nobody"),
        ("--attention-backend=FLASH_ATTN --attention-config.backend=FLASH_ATTN", "said-twice"),
        ("--attention-config.backend=flash_attn", None),
        ("--profiler-config.profiler=torch", "settings-together"),
        ("--profiler-config.torch_profiler_dir=/x", "settings-together"),
        ("--profiler-config.profiler=torch --profiler-config.torch_profiler_dir=/x", None),
        ("--profiler-config.profiler=cuda", None),
        ("--structured-outputs-config.disable_any_whitespace=true", "settings-together"),
        ('--structured-outputs-config={"disable_any_whitespace":true,"backend":"xgrammar"}', None),
        (
            '--structured-outputs-config={"disable_additional_properties":true,"backend":"xgrammar"}',
            "settings-together",
        ),
        ("--additional-config=x", "additional-config"),
        ('--additional-config={"a":1}', None),
        ("--max-num-active-seqs=9 --max-num-seqs=8", "argument-range"),
        ("--max-num-active-seqs=8 --max-num-seqs=8", None),
    ],
)
def test_arguments_that_do_not_go_together(line: str, rule: str | None) -> None:
    found = faults(line)
    assert set(found) == ({rule} if rule else set())
    assert all(fault.refused for fault in found.values())


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("--stream-interval=0", "--stream-interval=1"),
        ("--max-logprobs=-2", "--max-logprobs=-1"),
        ("--shutdown-timeout=-1", "--shutdown-timeout=0"),
        ("--gpu-memory-utilization=0", "--gpu-memory-utilization=1"),
        ("--watermark=1", "--watermark=0.5"),
        ("--sse-keep-alive-interval=-1", "--sse-keep-alive-interval=0"),
        ("--long-prefill-token-threshold=4097 --max-model-len=4096", "--long-prefill-token-threshold=4096"),
    ],
)
def test_numbers_beyond_what_vllm_takes(wrong: str, right: str) -> None:
    assert faults(wrong)["argument-range"].refused
    assert faults(right) == {}


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("--attention-backend=NOPE", "--attention-backend=flash_attn"),
        ("-O9", "-O3"),
        ("--load-format=nope", "--load-format=runai_streamer"),
        ("--data-parallel-backend=x", "--data-parallel-backend=mp"),
        ("--distributed-executor-backend=nope", "--distributed-executor-backend=mp"),
        ("--distributed-executor-backend=nope", "--distributed-executor-backend=own.Executor"),
        ("--quantization=nope", "--quantization=fp8"),
    ],
)
def test_names_that_vllm_does_not_have(wrong: str, right: str) -> None:
    rule = "unknown-quantization" if "quantization" in wrong else "unknown-name"
    assert faults(wrong)[rule].refused
    assert faults(right) == {}


def test_without_chunked_prefill_a_step_holds_the_models_longest_context() -> None:
    line = "--no-enable-chunked-prefill --max-num-batched-tokens=4096"
    assert "whole-prompts" not in faults(line)
    for more in ("", " --max-model-len=auto"):
        assert faults(line + more, model())["whole-prompts"].refused
    assert faults(f"{line} --max-model-len=4096", model()) == {}
    assert faults("--no-enable-chunked-prefill --max-num-batched-tokens=8192", model()) == {}


def test_a_dense_model_has_no_ranks_behind_a_balancer() -> None:
    line = "-dp 2 --data-parallel-rank=1"
    assert faults(line, model())["data-parallelism"].refused
    assert "data-parallelism" not in faults("-dp 2", model())
    assert "data-parallelism" not in faults(line, experts())


@pytest.mark.parametrize(("size", "kv_heads", "right"), [(8, 4, True), (4, 4, False), (8, 8, False), (4, 1, True)])
def test_context_parallelism_spreads_what_ranks_hold_twice(size: int, kv_heads: int, right: bool) -> None:
    found = faults(f"-tp {size} --decode-context-parallel-size=2", model(num_key_value_heads=kv_heads))
    assert ("context-parallelism" not in found) == right


def experts(width: int = 768, **changes: Any) -> ModelFacts:
    """A mixture of experts in the shape of Qwen3-30B-A3B, with fewer layers."""
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "moe_intermediate_size": width,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 6144,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    return model(**config | changes)


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}


@pytest.mark.parametrize(
    ("quantization", "line", "width", "right"),
    [
        (FP8, "-tp 4", 768, True),  # 192 rows a rank: scales of 64
        (FP8, "-tp 8", 768, True),  # 96 rows a rank: scales of 32
        (FP8, "-tp 8", 1536, True),
        (FP8, "-tp 16", 768, False),  # 48 rows a rank: scales of 16
        (FP8, "-tp 16 --moe-backend=flashinfer_cutlass", 768, True),  # it fills up the blocks
        (GPTQ, "-tp 8", 768, True),
        (GPTQ, "-tp 16", 768, False),
        (GROUPS, "-tp 4", 768, False),
        (GROUPS, "-tp 2", 768, True),
        (FP8, "-tp 16 --enable-expert-parallel", 768, True),
    ],
)
def test_scales_of_experts_are_refined_to_groups_of_32(
    quantization: dict[str, Any], line: str, width: int, right: bool
) -> None:
    found = faults(line, experts(width, quantization_config=quantization))
    assert ("quantized-groups" not in found) == right
    assert set(found) <= {"quantized-groups"}


@pytest.mark.parametrize(
    ("line", "right"),
    [
        *((f"--quantization={name}", False) for name in ("awq", "gptq", "moe_wna16", "modelopt", "inc", "torchao")),
        *((f"--quantization={name}", False) for name in ("compressed-tensors", "quark", "online", "fp_quant")),
        *((f"--quantization={name}", True) for name in ("fp8", "fp8_per_block", "mxfp8", "mxfp4", "experts_int8")),
        ("--quantization=awq --hf-overrides.quantization_config_file=x", True),
        ("--quantization=fp_quant --allow-deprecated-quantization", True),
    ],
)
def test_a_method_that_files_describe_needs_such_files(line: str, right: bool) -> None:
    assert ("quantization" not in faults(line, model())) == right


@pytest.mark.parametrize(
    ("quantization", "line", "refused"),
    [
        (BITSANDBYTES, "", True),
        (BITSANDBYTES, "--quantization=humming", None),
        (FP8, "", None),
        (FP8, "--quantization=fp8", None),
        (FP8, "--quantization=humming", None),
        (FP8, "--quantization=awq", True),
        (FP8, "--quantization=fp8_per_tensor", True),
        (GPTQ, "--quantization=moe_wna16", None),
        (GPTQ, "--quantization=awq", True),
        (MODELOPT, "--quantization=modelopt", None),
        (MODELOPT, "--quantization=fp8", False),
        (FP8 | {"quant_method": "fbgemm_fp8"}, "", True),
        (FP8 | {"quant_method": "fbgemm_fp8"}, "--allow-deprecated-quantization", None),
    ],
)
def test_the_method_of_the_files_is_one_that_vllm_has(
    quantization: dict[str, Any], line: str, refused: bool | None
) -> None:
    found = faults(line, model(quantization_config=quantization)).get("quantization")
    assert (found.refused if found else None) == refused


@pytest.mark.parametrize(
    ("line", "facts", "right"),
    [
        ("--dtype=half", {"model_type": "gemma2"}, False),
        ("--dtype=bfloat16", {"model_type": "gemma2"}, True),
        ("--dtype=half", {}, True),
        ("--dtype=float32", {}, True),
        ("--dtype=float32 --quantization=fp8", {}, False),
        ("--dtype=float32", {"quantization_config": GPTQ}, False),
        ("--dtype=float32", {"quantization_config": GROUPS}, True),
    ],
)
def test_a_dtype_that_the_model_or_its_method_does_not_compute_in(
    line: str, facts: dict[str, Any], right: bool
) -> None:
    read = model(**{key: value for key, value in facts.items() if key != "model_type"})
    read = replace(read, model_type=facts.get("model_type", read.model_type))
    assert ("dtype" not in faults(line, read)) == right


def test_an_architecture_that_is_served_no_more_is_refused() -> None:
    old = model(architectures=["QWenLMHeadModel"])
    found = faults("", old)["architecture"]
    assert found.refused
    assert "0.23.0" in found.message
    assert not faults("--trust-remote-code", old)["architecture"].refused
    assert "architecture" not in faults("", model(architectures=["QWenLMHeadModel", "LlamaForCausalLM"]))
    assert not set(load(VERSION).removed_architectures) & load(VERSION).architectures


@pytest.mark.parametrize(
    ("line", "facts", "rule"),
    [
        ("", model(quantization_config=BITSANDBYTES), "quantization"),
        ("", model(architectures=["QWenLMHeadModel"]), "architecture"),
        ("--load-format=bitsandbytes", model(), "unknown-name"),
        ("--headless", model(), "answers-nobody"),
    ],
)
def test_what_one_version_refuses_is_a_remark_for_another(line: str, facts: ModelFacts, rule: str) -> None:
    for version, refused in ((VERSION, True), ("0.9.2", False)):
        parsed = parse_arguments(["m", *line.split()], version)
        (found,) = (fault for fault in check_command(parsed, facts) if fault.rule == rule)
        assert found.refused == refused

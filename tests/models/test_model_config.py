"""What is told of a model by its config.json alone: sizes, kinds of layers, quantisation, and refusals in words."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints import LLAMA
from examples import examples
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.tool_cache import locked_version
from neuroscale.models.config import read_config
from neuroscale.models.config_keys import transformers_version
from neuroscale.models.facts import ModelFacts
from neuroscale.models.quantization import Scheme
from oracle_configs import FULL, TINY
from roots import ROOT

CONFIGS = {**{f"tiny {name}": config for name, config in TINY.items()}, **FULL}

LINEAR = 4 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 128 * 384)
"""Parameters of its matrices that quantisation converts."""


def read(config: Any, **changes: Any) -> ModelFacts:
    return read_config({**config, **changes}, "model")


def refused(config: Any, **changes: Any) -> Problem:
    with pytest.raises(InputError) as caught:
        read(config, **changes)
    (problem,) = caught.value.problems
    return problem


# Reading.


def test_the_snapshot_of_defaults_is_of_the_transformers_that_the_pinned_vllm_runs() -> None:
    lock = (ROOT / "requirements/serve.txt").read_text()
    assert transformers_version() == locked_version(lock, "transformers")


def test_text_bytes_and_mappings_are_read_alike() -> None:
    text = json.dumps(LLAMA)
    assert read_config(text, "model") == read_config(text.encode(), "model") == read_config(LLAMA, "model")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        (b"\xff\xfe{}", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not valid JSON"),
        (" " * (4 * 2**20 + 1), "larger than 4 MiB"),
    ],
)
def test_what_is_no_config_is_refused_in_words(text: str | bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_config(text, "model", "some/config.json")


@pytest.mark.parametrize(
    "key", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
)
@pytest.mark.parametrize("value", ["lost", None, 0, -1, 1.5, "128", True, [], {}, 10**30])
def test_a_size_that_is_missing_or_wrong_is_named(key: str, value: Any) -> None:
    config = {**LLAMA, key: value}
    if value == "lost":
        del config[key]
    problem = refused(config)
    assert problem.field == key
    assert problem.fix


def test_a_key_of_a_section_is_named_with_its_section() -> None:
    problem = refused(_nested(), text_config={"num_hidden_layers": "many"})
    assert problem.field == "text_config.num_hidden_layers"


def _nested() -> dict[str, Any]:
    return {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": {}}


def test_sections_take_what_they_leave_out_from_the_class() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    vision = {"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304}
    vision |= {"num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False}
    facts = read({**_nested(), "text_config": text, "vision_config": vision, "torch_dtype": "bfloat16"})
    # The published Gemma 3 4B.
    assert facts.total_params + facts.tower_params == 4_300_079_472
    assert (facts.heads, facts.kv_heads, facts.vocab_size) == (8, 4, 262_208)
    assert facts.multimodal


def test_the_architecture_decides_over_the_model_type() -> None:
    renamed = read(TINY["qwen3_moe"], model_type="of_their_own")
    assert renamed.total_params == read(TINY["qwen3_moe"]).total_params
    assert renamed.basis == "config"


@settings(deadline=None, max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_broken_config_is_answered_or_refused_and_never_ends_in_a_traceback(data: st.DataObject) -> None:
    config = copy.deepcopy(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(_places(config))
        if not places:
            break
        holder, key = places[data.draw(st.integers(0, len(places) - 1))]
        if isinstance(holder, dict) and data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = data.draw(_JUNK)
    started = time.process_time()
    told = _told(json.dumps(config))
    assert time.process_time() - started < 20
    if isinstance(told, ModelFacts):
        assert 0 < told.active_params <= told.total_params
        assert all(size >= 0 for size in told.weight_bytes.values())
    else:
        assert all(problem.message and problem.fix for problem in told)


def _told(text: str) -> ModelFacts | list[Problem]:
    try:
        return read_config(text, "model")
    except InputError as error:
        return error.problems


_JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 3, 7, 10**6, 10**12, 10**30, 1.5, 1e300, "", "x", "\ud800", "re:(a+)+b", "*"]),
    st.integers(),
    st.text(max_size=5),
    st.lists(st.one_of(st.none(), st.integers(-5, 5), st.sampled_from(["full_attention", "mamba", ""])), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _places(value: Any) -> Any:
    """Every place of a document: what holds it, and the key or number there."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def test_a_config_of_absurd_numbers_is_read_at_once() -> None:
    started = time.process_time()
    read(LLAMA, num_hidden_layers=2000, hidden_size=2**20, intermediate_size=2**22, vocab_size=2**26)
    assert time.process_time() - started < 5


# What decides.


def test_experts_follow_the_first_key_that_exists_null_included() -> None:
    dense = read(TINY["gemma4"], num_experts=None, num_local_experts=8)
    assert (dense.kind, dense.experts) == ("dense", 0)
    assert read(TINY["gemma4_moe"]).kind == "moe"
    unknown = {**LLAMA, "architectures": ["TheirsForCausalLM"], "model_type": "theirs", "num_experts_per_tok": 2}
    assert read(unknown, num_experts=None, n_routed_experts=8).kind == "dense"
    assert read(unknown, n_routed_experts=8, num_local_experts=4).experts == 8


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        ({}, [("full", 4, None)]),
        ({"sliding_window": 512}, [("sliding", 4, 512)]),
        ({"sliding_window": 0}, [("full", 4, None)]),
        ({"sliding_window": None}, [("full", 4, None)]),
        (
            {"sliding_window": 512, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
            [("sliding", 3, 512), ("full", 1, None)],
        ),
        ({"sliding_window": 512, "layer_types": ["full_attention"] * 4}, [("full", 4, None)]),
    ],
)
def test_windows_follow_the_layer_types_and_without_them_the_whole_model(changes: Any, cache: Any) -> None:
    facts = read(
        LLAMA, architectures=["MistralForCausalLM"], model_type="mistral", **{"sliding_window": None, **changes}
    )
    assert [(layers.kind, layers.layers, layers.window) for layers in facts.cache] == cache


def test_a_mistral_that_names_no_window_has_that_of_its_class() -> None:
    facts = read(LLAMA, architectures=["MistralForCausalLM"], model_type="mistral")
    assert [(layers.kind, layers.window) for layers in facts.cache] == [("sliding", 4096)]


def test_qwen_has_windows_only_where_it_asks_for_them() -> None:
    facts = read(TINY["qwen2"], sliding_window=512)
    assert {layers.window for layers in facts.cache} == {None}


def test_layers_that_read_another_ones_cache_keep_none_and_have_no_matrices_for_it() -> None:
    shared, own = read(TINY["gemma4_shared"]), read(TINY["gemma4_shared"], num_kv_shared_layers=0)
    assert sum(layers.layers for layers in shared.cache) < shared.num_layers == sum(x.layers for x in own.cache)
    assert shared.total_params < own.total_params or TINY["gemma4_shared"].get("use_double_wide_mlp")


def test_global_layers_of_gemma_4_have_the_same_shape_in_the_older_and_in_the_newer_spelling() -> None:
    older = TINY["gemma4"]
    full = [str(number) for number, kind in enumerate(older["layer_types"]) if kind == "full_attention"]
    newer = {key: value for key, value in older.items() if not key.startswith(("global_", "num_global_"))}
    shape = {"head_dim": older["global_head_dim"], "num_key_value_heads": older["num_global_key_value_heads"]}
    newer["per_layer_config"] = dict.fromkeys(full, shape)
    assert read(newer).cache == read(older).cache
    assert read(newer).total_params == read(older).total_params


def test_latent_attention_keeps_one_vector_whatever_the_heads() -> None:
    facts = read(TINY["deepseek_v3"])
    (layers,) = facts.cache
    assert (layers.kind, layers.kv_heads, layers.head_dim + layers.value_head_dim) == ("latent", 1, 512 + 64)


def test_layers_of_multi_token_prediction_are_counted_apart() -> None:
    plain = read(TINY["deepseek_v3"], num_nextn_predict_layers=0)
    with_one = read(TINY["deepseek_v3"], num_nextn_predict_layers=1)
    assert with_one.total_params == plain.total_params
    assert with_one.weight_bytes["mtp"] > 0
    assert "mtp" not in plain.weight_bytes


def test_an_embedding_that_computes_the_output_too_is_counted_once() -> None:
    tied, untied = read(LLAMA, tie_word_embeddings=True), read(LLAMA)
    assert untied.total_params - tied.total_params == 1024 * 128
    assert tied.active_params_without_embedding == tied.active_params
    assert untied.active_params_without_embedding == untied.active_params - 1024 * 128


# What is not planned.


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "olmo_hybrid", "architectures": ["OlmoHybridForCausalLM"]},
        {"model_type": "kimi_k3", "architectures": ["LlamaForCausalLM"]},
        {"layer_types": ["linear_attention", "full_attention"] * 2},
        {"layer_types": ["mamba", "attention"] * 2},
        {"attn_layer_period": 8},
        {"mamba_d_state": 16},
        {"hybrid_override_pattern": "M*M*"},
        {"linear_attn_config": {"kda_layers": [1]}},
        {"attn_type_list": [0, 0, 1, 1]},
    ],
)
def test_hybrids_with_linear_attention_or_state_space_layers_are_refused_in_words(changes: Any) -> None:
    problem = refused(LLAMA, **changes)
    assert "hybrid" in problem.message
    assert "vLLM" in problem.fix


@pytest.mark.parametrize(
    ("architecture", "model_type", "words"),
    [
        ("BambaForCausalLM", "bamba", "does not serve BambaForCausalLM any more; 0.23.0 was the last"),
        ("MiniMaxText01ForCausalLM", "minimax_text_01", "MiniMaxText01ForCausalLM any more; 0.23.0 was the last"),
        ("RwkvForCausalLM", "rwkv", "does not serve RwkvForCausalLM"),
        ("RWKV7ForCausalLM", "rwkv7", "does not serve RWKV7ForCausalLM"),
    ],
)
def test_a_hybrid_that_vllm_does_not_serve_is_called_so(architecture: str, model_type: str, words: str) -> None:
    problem = refused(LLAMA, architectures=[architecture], model_type=model_type)
    assert words in problem.message
    assert "Start it" not in problem.fix


@pytest.mark.parametrize("name", ["DeepSeek-V3.2", "GLM-5.2"])
def test_sparse_attention_may_be_named_among_the_kinds_of_layers(name: str) -> None:
    config = FULL[name]
    kinds = ["deepseek_sparse_attention"] * config["num_hidden_layers"]
    plain = read(config)
    named = read(config, layer_types=kinds)
    assert (named.total_params, named.cache) == (plain.total_params, plain.cache)
    assert "deepseek_sparse_attention" in refused(LLAMA, layer_types=kinds).message
    assert "deepseek_sparse_attention" in refused(TINY["deepseek_v3"], layer_types=kinds).message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_encoder_decoder": True}, "encoder and decoder"),
        ({"cross_attention_layers": [1]}, "cross-attention"),
        ({"index_topk": 2048}, "indexer"),
        ({"block_configs": [{}]}, "differ one by one"),
        ({"per_layer_config": {"1": {"num_key_value_heads": 1}}}, "differ one by one"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "no decoder"),
    ],
)
def test_what_the_common_rules_would_get_wrong_is_refused_in_words(changes: Any, words: str) -> None:
    assert words in refused(LLAMA, **changes).message


def test_attention_types_that_are_all_full_are_no_hybrid() -> None:
    assert read(LLAMA, attn_type_list=[1, 1, 1, 1]).kind == "dense"


def test_an_unknown_architecture_with_llamas_keys_is_an_estimate_and_says_so() -> None:
    unknown = {**LLAMA, "architectures": ["TheirsForCausalLM"], "model_type": "theirs"}
    facts = read(unknown)
    assert (facts.basis, facts.total_params) == ("estimate", read(LLAMA).total_params)
    assert any("unknown" in note for note in facts.notes)


@pytest.mark.parametrize(
    "changes",
    [{"kv_lora_rank": 512}, {"num_kv_shared_layers": 2}, {"swa_num_attention_heads": 4}, {"vocab_size": None}],
)
def test_an_unknown_architecture_that_is_unlike_llama_is_refused(changes: Any) -> None:
    unknown = {**LLAMA, "architectures": ["TheirsForCausalLM"], "model_type": "theirs"}
    assert refused(unknown, **changes).field == next(iter(changes))


# Quantisation.


@pytest.mark.parametrize(
    ("quantization", "matrix_bytes"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, LINEAR * (4 + (16 + 4) / 128) / 8),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False}, LINEAR * (4 + 16 / 64) / 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, LINEAR * (4 + 16 / 128) / 8),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128, "sym": False}, LINEAR * (8 + 24 / 128) / 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, LINEAR + 4 * LINEAR / 128**2),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, LINEAR * (4 + 8 / 16) / 8),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}
                },
                "ignore": ["lm_head"],
            },
            LINEAR * (4 + 16 / 32) / 8,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
                    }
                },
                "ignore": ["lm_head"],
            },
            LINEAR * (4 + 8 / 16) / 8,
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, LINEAR * (4 + 32 / 64) / 8),
    ],
)
def test_quantised_matrices_weigh_their_bits_scales_and_zero_points(quantization: Any, matrix_bytes: float) -> None:
    facts = read(LLAMA, quantization_config=quantization)
    plain = read(LLAMA)
    rest = sum(plain.weight_bytes.values()) - 2 * LINEAR
    # A sixty-fourth of a matrix is 64 wide: its blocks are not all whole.
    assert sum(facts.weight_bytes.values()) == pytest.approx(rest + matrix_bytes, rel=2e-3)
    assert facts.total_params == plain.total_params
    assert facts.weight_bytes["lm_head"] == plain.weight_bytes["lm_head"]


@pytest.mark.parametrize(
    "ignore",
    [
        [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(4) for name in "qkvo"],
        [f"model.layers.{layer}.self_attn" for layer in range(4)],
        ["re:.*self_attn.*"],
        ["self_attn"],
        ["model.layers.*.self_attn*"],
        [
            f"language_model.model.layers.{layer}.self_attn.{name}"
            for layer in range(4)
            for name in ("qkv_proj", "o_proj")
        ],
    ],
)
def test_ignored_modules_keep_the_models_dtype_however_they_are_named(ignore: list[str]) -> None:
    groups = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}
    config = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head", *ignore]}
    facts = read(LLAMA, quantization_config=config)
    assert facts.weight_bytes["attention"] == read(LLAMA).weight_bytes["attention"]
    assert facts.weight_bytes["dense_mlp"] < 0.52 * read(LLAMA).weight_bytes["dense_mlp"]
    assert all(tensor.linear == (tensor.group == "dense_mlp") for tensor in facts.tensors)


def test_a_layer_that_is_ignored_by_its_number_alone_stays_whole() -> None:
    config = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp"]}
    one, none = read(LLAMA, quantization_config=config), read(LLAMA, quantization_config={"quant_method": "fp8"})
    assert one.weight_bytes["dense_mlp"] - none.weight_bytes["dense_mlp"] == pytest.approx(3 * 128 * 384, rel=0.03)


def test_mxfp4_converts_experts_alone() -> None:
    plain = read({key: value for key, value in TINY["gpt_oss"].items() if key != "quantization_config"})
    facts = read(TINY["gpt_oss"], quantization_config={"quant_method": "mxfp4"})
    assert facts.weight_bytes["attention"] == plain.weight_bytes["attention"]
    assert facts.weight_bytes["routed_experts"] < 0.3 * plain.weight_bytes["routed_experts"]


def test_mixed_precisions_are_counted_layer_by_layer() -> None:
    kinds: dict[str, dict[str, Any]] = {
        **{f"self_attn.{name}_proj": {"quant_algo": "FP8"} for name in "qkvo"},
        **{f"mlp.{name}_proj": {"quant_algo": "NVFP4"} for name in ("gate", "up", "down")},
    }
    layers = {f"model.layers.{layer}.{name}": kind for layer in range(4) for name, kind in kinds.items()}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    facts, plain = read(LLAMA, quantization_config=config), read(LLAMA)
    assert facts.weight_bytes["attention"] == pytest.approx(plain.weight_bytes["attention"] / 2, rel=0.05)
    assert facts.weight_bytes["dense_mlp"] == pytest.approx(plain.weight_bytes["dense_mlp"] * 4.5 / 16, rel=0.01)


_PATTERN_PARTS = ("model", "layers", "1", "3", "11", "1*", "3*", "*", "mlp", "self_attn*", "gate_proj", "w1")


@given(st.lists(st.lists(st.sampled_from(_PATTERN_PARTS), min_size=1, max_size=5).map(".".join), max_size=4))
@settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
def test_layers_that_are_counted_as_a_group_weigh_what_they_weigh_one_by_one(patterns: list[str]) -> None:
    config = {**LLAMA, "num_hidden_layers": 13}
    quantization = {"quant_method": "fp8", "modules_to_not_convert": [f"model.layers.{one}" for one in patterns]}
    grouped = read(config, quantization_config=quantization)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheme, "groups", lambda _, numbers: [[number] for number in numbers])
        assert grouped == read(config, quantization_config=quantization)


@pytest.mark.parametrize(
    ("quantization", "field", "words"),
    [
        ({"quant_method": "of-their-own"}, "quantization_config.quant_method", "is not a quantisation"),
        ({}, None, ""),
        ({"quant_method": "gptq"}, "quantization_config.bits", "is missing"),
        ({"quant_method": "gptq", "bits": 400}, "quantization_config.bits", "not within"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "quantization_config.weight_block_size", "instead of 2"),
        ({"quant_method": "compressed-tensors"}, "quantization_config.config_groups", "is missing"),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["re:(a+)+b"]},
            "quantization_config.modules_to_not_convert",
            "repeats a group",
        ),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["re:["]},
            "quantization_config.modules_to_not_convert",
            "regular expression",
        ),
    ],
)
def test_a_quantisation_that_cannot_be_counted_is_refused_and_named(
    quantization: Any, field: str | None, words: str
) -> None:
    if field is None:
        assert read(LLAMA, quantization_config=quantization).quantization is None
        return
    problem = refused(LLAMA, quantization_config=quantization)
    assert problem.field == field
    assert words in problem.message

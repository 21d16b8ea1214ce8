"""What the headers of safetensors files tell of a model, and that a broken or absurd one is refused in words."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints import LLAMA, llama_tensors, safetensors, write_checkpoint
from examples import examples
from neuroscale.catalog.model_lookup import load_model, read_folder
from neuroscale.core.errors import InputError
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.models.headers import file_headers, index_files, parse_header
from oracle_configs import TINY


def size(facts: ModelFacts) -> int:
    return sum(facts.weight_bytes.values())


def test_bytes_of_one_file_and_of_several_are_those_of_the_headers(tmp_path: Path) -> None:
    tensors = llama_tensors(LLAMA)
    half = len(tensors) // 2
    parts = dict(list(tensors.items())[:half]), dict(list(tensors.items())[half:])
    one = read_folder(write_checkpoint(tmp_path / "one", LLAMA, tensors))
    two = read_folder(write_checkpoint(tmp_path / "two", LLAMA, *parts))
    counted = read_config(LLAMA, "model")
    assert (one.basis, two.basis, counted.basis) == ("headers", "headers", "config")
    assert one.weight_bytes == two.weight_bytes == counted.weight_bytes
    assert one.bytes_by_dtype == {"BF16": size(counted)}
    assert set(one.tensors) == set(counted.tensors)


def test_headers_win_over_counting(tmp_path: Path) -> None:
    tensors = llama_tensors(LLAMA)
    for layer in range(LLAMA["num_hidden_layers"]):
        for name in ("gate_proj", "up_proj"):
            tensors[f"model.layers.{layer}.mlp.{name}.weight"] = ("BF16", [512, 128])
        tensors[f"model.layers.{layer}.mlp.down_proj.weight"] = ("BF16", [128, 512])
    facts = read_folder(write_checkpoint(tmp_path, LLAMA, tensors))
    assert facts.weight_bytes["dense_mlp"] == 2 * 4 * 3 * 128 * 512
    assert facts.total_params - read_config(LLAMA, "model").total_params == 4 * 3 * 128 * (512 - 384)
    assert {tensor.sharding for tensor in facts.tensors if tensor.group == "dense_mlp"} == {"split"}
    assert any("dense_mlp" in note for note in facts.notes)


def test_the_dtype_of_the_files_stands_in_for_one_that_the_config_does_not_name(tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "dtype"}
    assert read_folder(write_checkpoint(tmp_path / "a", config, llama_tensors(LLAMA, "F16"))).dtype == "float16"
    assert read_config(config, "model").dtype == "bfloat16"
    assert read_config(config, "model").notes


def test_a_tied_output_matrix_that_the_files_hold_again_is_counted_once_as_vllm_keeps_it(tmp_path: Path) -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    facts = read_folder(write_checkpoint(tmp_path, tied, llama_tensors(LLAMA)))
    assert "lm_head" not in facts.weight_bytes
    assert size(facts) == size(read_config(tied, "model"))
    assert any("LM head" in note for note in facts.notes)


def test_a_missing_output_matrix_means_that_the_embedding_serves_as_one(tmp_path: Path) -> None:
    tensors = llama_tensors(LLAMA)
    del tensors["lm_head.weight"]
    facts = read_folder(write_checkpoint(tmp_path, LLAMA, tensors))
    assert facts.active_params_without_embedding == facts.active_params


def test_layers_behind_the_last_predict_several_tokens_and_belong_to_no_other_group(tmp_path: Path) -> None:
    tensors = llama_tensors(LLAMA)
    tensors["model.layers.4.eh_proj.weight"] = ("BF16", [128, 256])
    tensors["model.layers.4.mlp.up_proj.weight"] = ("BF16", [384, 128])
    tensors["mtp.fc.weight"] = ("BF16", [128, 256])
    facts = read_folder(write_checkpoint(tmp_path, LLAMA, tensors))
    assert facts.weight_bytes["mtp"] == 2 * (2 * 128 * 256 + 384 * 128)
    assert facts.total_params == read_config(LLAMA, "model").total_params


def test_scales_and_zero_points_go_with_their_matrix(tmp_path: Path) -> None:
    tensors = llama_tensors(LLAMA)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        _, (rows, columns) = tensors.pop(name)
        base = name.removesuffix("weight")
        tensors[f"{base}qweight"] = ("I32", [columns, rows // 8])
        tensors[f"{base}qzeros"] = ("I32", [columns // 128, rows // 8])
        tensors[f"{base}scales"] = ("F16", [columns // 128, rows])
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    config = {**LLAMA, "quantization_config": awq}
    facts = read_folder(write_checkpoint(tmp_path, config, tensors))
    counted = read_config(config, "model")
    assert facts.weight_bytes["dense_mlp"] == counted.weight_bytes["dense_mlp"]
    assert set(facts.weight_bytes) == set(counted.weight_bytes)
    assert facts.total_params == counted.total_params


@pytest.mark.parametrize("named", [".", "config.json"])
def test_what_modelopt_writes_beside_the_config_is_read(tmp_path: Path, named: str) -> None:
    folder = write_checkpoint(tmp_path, LLAMA)
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (folder / "hf_quant_config.json").write_text(json.dumps(beside))
    facts = load_model(str(folder / named))
    assert facts.quantization is not None
    assert (facts.quantization.method, facts.quantization.bits) == ("modelopt", 8)


@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", "language_model.model."])
def test_names_below_any_towers_prefix_are_told_apart(tmp_path: Path, prefix: str) -> None:
    tensors = llama_tensors(LLAMA, prefix=prefix)
    tensors["vision_tower.encoder.layers.9.mlp.fc1.weight"] = ("BF16", [64, 64])
    tensors["multi_modal_projector.linear_1.weight"] = ("BF16", [128, 64])
    facts = read_folder(write_checkpoint(tmp_path, LLAMA, tensors))
    counted = read_config(LLAMA, "model").weight_bytes
    assert {group: facts.weight_bytes[group] for group in counted} == counted
    assert (facts.weight_bytes["vision"], facts.weight_bytes["projector"]) == (2 * 64 * 64, 2 * 128 * 64)


def test_every_group_of_a_model_with_experts_is_told_by_its_tensors_names(tmp_path: Path) -> None:
    config = TINY["deepseek_v3"]
    counted = read_config(config, "model")
    tensors: dict[str, Any] = {}
    for tensor in counted.tensors:
        first = config["num_hidden_layers"] if tensor.group == "mtp" else 0
        each = config["n_routed_experts"] if tensor.name.count("{}") == 2 else 1
        for copy in range(tensor.copies):
            name = tensor.name.replace("{}", str(first + copy // each), 1).replace("{}", str(copy % each))
            tensors[name] = ("BF16", tensor.shape)
    facts = read_folder(write_checkpoint(tmp_path, config, tensors))
    assert facts.weight_bytes == counted.weight_bytes
    assert {"router", "routed_experts", "shared_experts", "mtp"} <= set(facts.weight_bytes)


# What is broken.


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends inside its header"),
        (b"version https://git-lfs.github.com/spec/v1", "pointer of Git LFS"),
        (b"\x10\0\0\0\0\0\0\0{}", "ends inside its header"),
        (struct.pack("<Q", 2**40) + b"{}", "absurd size"),
        (struct.pack("<Q", 2**63) + b"{}", "absurd size"),
        (struct.pack("<Q", 2) + b"[]", "not an object"),
        (struct.pack("<Q", 2) + b"{]", "not JSON"),
        (safetensors({"a": ("BF16", [2, 2])})[:-1], "bytes of weights"),
        (safetensors({"a": ("BF16", [2, 2])}) + b"\0", "bytes of weights"),
    ],
)
def test_a_broken_file_is_refused_in_words(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError, match=words):
        file_headers(path)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        {"dtype": "BF17", "shape": [1], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": [-1], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": [1.0], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": [True], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [1], "data_offsets": [4, 2]},
        {"dtype": "BF16", "shape": [10**30], "data_offsets": [0, 2]},
        {"dtype": "BF16", "shape": [1] * 20, "data_offsets": [0, 2]},
        {"dtype": ["BF16"], "shape": [1], "data_offsets": [0, 2]},
    ],
)
def test_an_entry_that_cannot_be_is_refused_and_named(entry: Any) -> None:
    with pytest.raises(InputError, match="some_weight"):
        parse_header(json.dumps({"some_weight": entry}).encode(), "file")


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "weights.bin", "", 3, None, ["x"]]
)
def test_an_index_names_no_file_outside_its_folder(name: Any) -> None:
    with pytest.raises(InputError):
        index_files(json.dumps({"weight_map": {"a": name}}).encode(), "index")


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    tensors = llama_tensors(LLAMA)
    folder = write_checkpoint(tmp_path, LLAMA, tensors, {"model.more.weight": ("BF16", [1])})
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match="model-00002-of-00002"):
        read_folder(folder)


def test_mistrals_second_copy_of_the_weights_is_not_counted_again(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, LLAMA, llama_tensors(LLAMA))
    (folder / "consolidated.safetensors").write_bytes(safetensors(llama_tensors(LLAMA)))
    assert size(read_folder(folder)) == size(read_config(LLAMA, "model"))


@settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200), length=st.integers(0, 2**64 - 1))
def test_bytes_that_are_no_safetensors_never_end_in_a_traceback(tmp_path: Path, data: bytes, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length % 300 if length % 2 else length) + data)
    started = time.process_time()
    with pytest.raises(InputError):
        file_headers(path)
    assert time.process_time() - started < 5

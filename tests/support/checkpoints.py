"""Folders with a config.json and safetensors files of any shape, without useful weights."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1, "I32": 4, "F8_E4M3": 1}

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}

Tensors = Mapping[str, tuple[str, Sequence[int]]]
"""dtype and shape by name."""


def safetensors(tensors: Tensors, *, body: bool = True) -> bytes:
    """A safetensors file. Without `body`, only its header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = WIDTHS[dtype]
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + (b"\0" * at if body else b"")


def write_checkpoint(folder: Path, config: Mapping[str, Any], *files: Tensors) -> Path:
    """A model's folder with one file, or with several and an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if len(files) == 1:
        (folder / "model.safetensors").write_bytes(safetensors(files[0]))
    elif files:
        index = {}
        for number, tensors in enumerate(files, start=1):
            name = f"model-{number:05}-of-{len(files):05}.safetensors"
            (folder / name).write_bytes(safetensors(tensors))
            index.update(dict.fromkeys(tensors, name))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def llama_tensors(config: Mapping[str, Any], dtype: str = "BF16", prefix: str = "model.") -> dict[str, Any]:
    """The tensors of a Llama with that config, untied."""
    hidden, width, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    keys = config["num_key_value_heads"] * (hidden // heads)
    found: dict[str, Any] = {f"{prefix}embed_tokens.weight": (dtype, [config["vocab_size"], hidden])}
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}layers.{layer}."
        for name, shape in (
            ("self_attn.q_proj", [hidden, hidden]),
            ("self_attn.k_proj", [keys, hidden]),
            ("self_attn.v_proj", [keys, hidden]),
            ("self_attn.o_proj", [hidden, hidden]),
            ("mlp.gate_proj", [width, hidden]),
            ("mlp.up_proj", [width, hidden]),
            ("mlp.down_proj", [hidden, width]),
            ("input_layernorm", [hidden]),
            ("post_attention_layernorm", [hidden]),
        ):
            found[f"{at}{name}.weight"] = (dtype, shape)
    found[f"{prefix}norm.weight"] = (dtype, [hidden])
    found["lm_head.weight"] = (dtype, [config["vocab_size"], hidden])
    return found

"""Formats the facts of a model as one mapping, for programs."""

from __future__ import annotations

from typing import Any

from neuroscale.models.cache_bytes import bytes_per_token, state_bytes
from neuroscale.models.facts import CacheLayers, Dtype, ModelFacts, StateLayers


def as_mapping(facts: ModelFacts) -> dict[str, Any]:
    """The facts for programs: parameters, bytes, and bytes per token of a KV cache in 16 bits on one accelerator."""
    quantization = facts.quantization
    return {
        "schema_version": 1,
        "name": facts.name,
        "model_type": facts.model_type,
        "architectures": list(facts.architectures),
        "kind": facts.kind,
        "basis": facts.basis,
        "dtype": facts.dtype,
        "quantization": None
        if quantization is None
        else {
            "method": quantization.method,
            "bits": quantization.bits,
            "group_size": quantization.group_size,
            "block": list(quantization.block) if quantization.block else None,
        },
        "total_params": facts.total_params,
        "active_params": facts.active_params,
        "active_params_without_embedding": facts.active_params_without_embedding,
        "active_ratio": round(facts.active_params / facts.total_params, 4),
        "tower_params": facts.tower_params,
        "params_by_group": params_by_group(facts),
        "weight_bytes": sum(facts.weight_bytes.values()),
        "weight_bytes_by_group": dict(facts.weight_bytes),
        "weight_bytes_by_dtype": dict(facts.bytes_by_dtype),
        "kv_groups": [kv_group(layers) for layers in facts.cache],
        "state_groups": [state_group(layers, facts.dtype) for layers in facts.states],
        "layers": facts.num_layers,
        "max_position_embeddings": facts.max_position_embeddings,
        "experts": facts.experts,
        "experts_per_token": facts.experts_per_token,
        "multimodal": facts.multimodal,
        "source": facts.source,
        "notes": list(facts.notes),
    }


def kv_group(layers: CacheLayers) -> dict[str, Any]:
    """A group of layers with the same KV cache; `bytes_per_token` is of all of them together, in 16 bits."""
    return {
        "kind": layers.kind,
        "layers": layers.layers,
        "bytes_per_token": layers.layers * bytes_per_token(layers),
        "window": layers.window,
        "kv_heads": layers.kv_heads,
        "head_dim": layers.head_dim,
    }


def state_group(layers: StateLayers, dtype: Dtype) -> dict[str, Any]:
    """A group of layers with the same state; `bytes_per_request` is of all of them together. It counts one copy of the
    state on one accelerator, if no argument of vLLM asks for another dtype. vLLM keeps two or three copies while it
    caches prefixes."""
    return {
        "kind": layers.kind,
        "layers": layers.layers,
        "bytes_per_request": layers.layers * state_bytes(layers, dtype),
        "dtype": layers.dtype or dtype,
        "heads": layers.heads,
    }


def params_by_group(facts: ModelFacts) -> dict[str, int]:
    """Parameters of each group of tensors."""
    found: dict[str, int] = {}
    for tensor in facts.tensors:
        found[tensor.group] = found.get(tensor.group, 0) + tensor.params
    return found

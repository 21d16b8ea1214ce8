"""Finds the catalog's name for the quantisation of a checkpoint's weights."""

from __future__ import annotations

from collections.abc import Mapping

from neuroscale.catalog.entries import Quantization
from neuroscale.models.facts import ModelFacts


def kind_of(facts: ModelFacts) -> Quantization | None:
    """The quantisation of most of the weights; None if the catalog has no name for it, and so cannot plan with it."""
    told = facts.quantization
    if told is None:
        return "none"
    four_bit_floats = told.bits == 4 and told.scale_bytes == 1
    kinds: dict[tuple[str, int], Quantization] = {
        ("auto-round", 4): "gptq",
        ("awq", 4): "awq",
        ("compressed-tensors", 4): "nvfp4" if four_bit_floats else "compressed-tensors-w4a16",
        ("compressed-tensors", 8): "fp8" if _floats(facts) else "int8",
        ("fbgemm_fp8", 8): "fp8",
        ("fp8", 4): "mxfp4",  # experts in 4 bits beside matrices in 8
        ("fp8", 8): "fp8",
        ("gptq", 4): "gptq",
        ("gptq", 8): "gptq",
        ("mxfp4", 4): "mxfp4",
    }
    if told.method == "modelopt":
        if four_bit_floats:
            return "nvfp4"
        return "fp8" if told.bits == 8 and told.scale_bytes == 4 else None
    return kinds.get((told.method, told.bits))


def _floats(facts: ModelFacts) -> bool:
    """Whether compressed-tensors keeps the weights as floating-point numbers."""
    config = facts.config or {}
    for place in (config, config.get("text_config")):
        if not isinstance(place, Mapping):
            continue
        scheme = place.get("quantization_config", place.get("compression_config"))
        groups = scheme.get("config_groups") if isinstance(scheme, Mapping) else None
        for group in groups.values() if isinstance(groups, Mapping) else ():
            weights = group.get("weights") if isinstance(group, Mapping) else None
            if isinstance(weights, Mapping):
                return weights.get("type") == "float"
    return False

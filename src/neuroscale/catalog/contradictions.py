"""Compares what a model's entry claims with what its own config gives. Pure.

A claim that no config can decide, such as the peak of the host's memory, is not judged here: `directions` names it to a
reviewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from neuroscale.catalog.quantization_kinds import kind_of
from neuroscale.core.units import GIB
from neuroscale.models.facts import TOWERS, Basis, ModelFacts

if TYPE_CHECKING:
    from neuroscale.catalog.entries import ModelEntry

LIGHTEST: Mapping[Basis, float] = {"headers": 0.9, "config": 0.9, "estimate": 0.5}
"""The share of the counted weights below which a claimed or measured size is not believed, by how the weights were
counted. In tests/ground_truth, counted weights are off by 0.2 %."""

_HEAVIEST = 2.1
"""How many times the counted weights a claimed size may be: files may keep 32 bits of a parameter that is served in 16,
and tensors that nothing loads. Where the architecture is only estimated, it may be twice as much."""

_PUBLISHED = 1.25
"""How far a publisher's number of parameters may be from the counted one. Those of the ground truth are within 1.1:
publishers round, and count embeddings and towers differently."""

GROUPED = frozenset({"awq", "compressed-tensors-w4a16", "gptq"})
"""The kinds of quantisation whose entry names the size of a group."""

_FIX = "Correct the one that is wrong: `neuroscale catalog add NAME` reads both from the model's files."


def contradictions(model: ModelEntry, facts: ModelFacts) -> Iterator[tuple[str, str, str]]:
    """The claims of an entry that its config, whose facts are `facts`, contradicts: the dotted field, what is wrong
    with it, and what to do."""
    stored, quantization = model.checkpoint, facts.quantization
    if stored.quantization != kind_of(facts):
        method = quantization.method if quantization else "none"
        told = f"{stored.quantization!r} is not what the config's quantization_config says ({method})"
        yield "checkpoint.quantization", told, "Correct one of the two."
    group = quantization.group_size if quantization else None
    claimed = stored.quantization_group_size
    if claimed != group and (claimed is not None or stored.quantization in GROUPED):
        yield "checkpoint.quantization_group_size", f"is {claimed}, and the config says {group}", _FIX
    said = _named_dtype(model.config)
    if said not in ("", stored.dtype):
        yield "checkpoint.dtype", f"is {stored.dtype}, and the config says {said}", _FIX
    has_towers = facts.parts_missing or any(tensor.group in TOWERS for tensor in facts.tensors)
    if model.serving.multimodal not in (facts.multimodal, has_towers):
        told = f"is {str(model.serving.multimodal).lower()}, and the config has {'' if has_towers else 'no '}parts"
        yield "serving.multimodal", f"{told} for images or sound", _FIX
    for field, claim, least, most, counted in _numbers(model, facts):
        if claim is not None and not least <= claim <= most:
            billions = f"{facts.total_params / 1e9:,.4g} billion parameters, stored as {stored.quantization}"
            yield field, f"is {claim:,}, and the config gives {counted:,.5g} ({billions})", _FIX


def _numbers(model: ModelEntry, facts: ModelFacts) -> Iterator[tuple[str, float | None, float, float, float]]:
    """The numbers that an entry claims: field, claim, the least and the most that the config allows, and its own."""
    published, stored, params = model.parameters, model.checkpoint, facts.total_params
    least, is_sure = LIGHTEST[facts.basis], facts.basis == "config"
    whole = sum(facts.weight_bytes.values()) / GIB
    most = whole * _HEAVIEST * (1 if is_sure else 2)
    # vLLM serves weights of 32 bits in 16, and loads the layers of multi-token prediction for guessing alone.
    loaded = (whole - facts.weight_bytes.get("mtp", 0) / GIB) * (0.5 if facts.dtype == "float32" else 1.0)
    yield "checkpoint.download_gib.value", stored.download_gib.value, least * whole, most, whole
    yield "checkpoint.resident_gib.value", stored.resident_gib.value, least * loaded, most, loaded
    leeway = _PUBLISHED if is_sure else 2.0
    everything = leeway * sum(tensor.params for tensor in facts.tensors)
    yield "parameters.published_total", published.published_total, params / leeway, everything, params
    active, ends = facts.active_params, ("embedding", "lm_head")
    fewest = active - sum(tensor.params for tensor in facts.tensors if tensor.group in ends)
    most = leeway * (active + facts.tower_params)
    yield "parameters.published_active", published.published_active, fewest / leeway, most, active


def _named_dtype(config: Mapping[str, Any]) -> str:
    """The dtype that a config itself names for the language model; "" if it names none."""
    for section in (config, config.get("text_config")):
        for key in ("dtype", "torch_dtype"):
            said = section.get(key) if isinstance(section, Mapping) else None
            if isinstance(said, str) and said != "auto":
                return said.removeprefix("torch.")
    return ""

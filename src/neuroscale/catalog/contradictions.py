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

Contradiction = tuple[str, str, str]
"""The dotted field of the entry, what is wrong with it, and what to do."""


def contradictions(model: ModelEntry, facts: ModelFacts) -> Iterator[Contradiction]:
    """The claims of an entry that its config, whose facts are `facts`, contradicts."""
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
    if model.serving.multimodal != facts.multimodal and model.serving.multimodal != has_towers:
        towers = "has parts" if has_towers else "has no part"
        told = f"is {str(model.serving.multimodal).lower()}, and the config {towers} for images or sound"
        yield "serving.multimodal", told, _FIX
    yield from _sizes(model, facts)
    yield from _parameters(model, facts)


def _sizes(model: ModelEntry, facts: ModelFacts) -> Iterator[Contradiction]:
    mtp = facts.weight_bytes.get("mtp", 0)
    whole, least = sum(facts.weight_bytes.values()) / GIB, LIGHTEST[facts.basis]
    most = _HEAVIEST * (2 if facts.basis == "estimate" else 1)
    # vLLM serves weights of 32 bits in 16, and loads the layers of multi-token prediction for guessing alone.
    loaded = (whole - mtp / GIB) * (0.5 if facts.dtype == "float32" else 1.0)
    for name, claim, counted in (
        ("download_gib", model.checkpoint.download_gib.value, whole),
        ("resident_gib", model.checkpoint.resident_gib.value, loaded),
    ):
        if claim is not None and not least * counted <= claim <= most * whole:
            told = (
                f"is {claim:,g} GiB, and the config gives {whole:,.4g} GiB: "
                f"{facts.total_params / 1e9:,.4g} billion parameters, stored as {model.checkpoint.quantization}"
            )
            yield f"checkpoint.{name}.value", told, _FIX


def _parameters(model: ModelEntry, facts: ModelFacts) -> Iterator[Contradiction]:
    published, tensors = model.parameters, facts.tensors
    leeway = _PUBLISHED if facts.basis == "config" else 2.0
    whole = sum(tensor.params for tensor in tensors)
    ends = sum(tensor.params for tensor in tensors if tensor.group in ("embedding", "lm_head"))
    for name, claim, least, most, counted in (
        ("published_total", published.published_total, facts.total_params, whole, facts.total_params),
        (
            *("published_active", published.published_active, facts.active_params - ends),
            *(facts.active_params + facts.tower_params, facts.active_params),
        ),
    ):
        if claim is not None and not least / leeway <= claim <= most * leeway:
            yield f"parameters.{name}", f"is {claim:,}, and the config gives {counted:,}", _FIX


def _named_dtype(config: Mapping[str, Any]) -> str:
    """The dtype that a config itself names for the language model; "" if it names none."""
    for section in (config, config.get("text_config")):
        for key in ("dtype", "torch_dtype"):
            said = section.get(key) if isinstance(section, Mapping) else None
            if isinstance(said, str) and said != "auto":
                return said.removeprefix("torch.")
    return ""

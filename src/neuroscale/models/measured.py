"""Measures the weights by the headers of a checkpoint's files, beside the weights counted from its config."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neuroscale.models.facts import Group, Sharding, Tensor
from neuroscale.models.headers import Header
from neuroscale.models.tensor_names import core, group_by_name, layer_number, template, unused
from neuroscale.models.weights import Weight, together

_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}

_SHARDING: Mapping[Group, Sharding] = {
    "embedding": "vocabulary",
    "per_layer_embedding": "vocabulary",
    "lm_head": "vocabulary",
    "attention": "split",
    "dense_mlp": "split",
    "recurrent": "split",
    "shared_experts": "split",
    "routed_experts": "experts",
}
"""How vLLM shards tensors whose names are unknown."""


@dataclass(frozen=True)
class Measured:
    """Bytes by group and by dtype, the tensors, the dtype of most unquantised weights, and notes."""

    weight_bytes: Mapping[Group, int]
    bytes_by_dtype: Mapping[str, int]
    tensors: tuple[Tensor, ...]
    dtype: str | None
    notes: tuple[str, ...]


def measure(counted: Sequence[Weight], headers: Sequence[Header], layers: int, *, quantized: bool) -> Measured:
    """Measures the bytes by the headers.

    In groups where headers and counted weights differ, the tensors come from the headers, too, unless quantisation
    packed them.
    """
    # Only their numbers tell layers of multi-token prediction from the others: the names are the same.
    known = {template(weight.name): weight for weight in counted if weight.group != "mtp"}
    notes: list[str] = []
    by_group: Counter[Group] = Counter()
    by_dtype: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    found: dict[Group, list[Header]] = defaultdict(list)
    tied = not any(weight.group == "lm_head" for weight in counted)
    for header in headers:
        if unused(header.name):
            continue
        group = _group(header.name, known, layers)
        if group == "lm_head" and tied:
            notes.append("The files hold an LM head although the config ties it to the embedding: vLLM keeps one.")
            continue
        by_group[group] += header.size
        by_dtype[header.dtype] += header.size
        if header.dtype in _DTYPES:
            plain[header.dtype] += header.size
        found[group].append(header)
    kept = [weight for weight in counted if weight.group in found]
    if any(weight.group == "lm_head" for weight in counted) and "lm_head" not in found:
        notes.append("The files hold no LM head: the embedding's matrix serves as one.")
    tensors = together(kept) if quantized else _tensors(kept, found, known, notes)
    dtype = _DTYPES[plain.most_common(1)[0][0]] if plain else None
    return Measured(dict(by_group), dict(by_dtype), tensors, dtype, tuple(notes))


def _group(name: str, known: Mapping[str, Weight], layers: int) -> Group:
    number = layer_number(core(name))
    weight = known.get(template(name))
    if weight is not None and (number is None or number < layers or weight.group in ("vision", "audio")):
        return weight.group
    return group_by_name(name, layers)


def _tensors(
    counted: Sequence[Weight],
    found: Mapping[Group, Sequence[Header]],
    known: Mapping[str, Weight],
    notes: list[str],
) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    for group, headers in found.items():
        mine = [weight for weight in counted if weight.group == group]
        params = sum(math.prod(weight.shape) * weight.copies for weight in mine)
        theirs = sum(math.prod(header.shape) for header in headers)
        if params == theirs:
            tensors += together(mine)
            continue
        if group not in ("mtp", "vision", "audio", "projector") and abs(theirs - params) > 0.01 * params:
            notes.append(f"The files hold {theirs:,} parameters for {group}, and the config describes {params:,}.")
        copies: Counter[Tensor] = Counter(_tensor(header, group, known) for header in headers)
        tensors += [replace(tensor, copies=count) for tensor, count in copies.items()]
    return tuple(tensors)


def _tensor(header: Header, group: Group, known: Mapping[str, Weight]) -> Tensor:
    weight = known.get(template(header.name))
    if weight is not None and group in (weight.group, "mtp"):
        return Tensor(
            template(header.name), group, header.shape, 0, weight.sharding, weight.linear, weight.full_precision
        )
    matrix = len(header.shape) == 2 and group not in ("embedding", "lm_head", "norm", "router", "per_layer_embedding")
    sharding = _SHARDING.get(group, "replicated") if len(header.shape) > 1 else "replicated"
    return Tensor(template(header.name), group, header.shape, 0, sharding, matrix)

"""Compares the model labels of an object with the facts of the model that its servers run.

Showback weights costs by `active-param-ratio`, and people read the other two. The policy model-labels says whether the
three agree with each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.check import manifest_finding
from neuroscale.gate.fit.known_models import KnownModel
from neuroscale.gate.fit.vllm_containers import VllmContainer
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.labels import ARCHITECTURE, RATIO, TOTAL
from neuroscale.manifests.objects import Manifest
from neuroscale.rendering.scaffolder.skeleton_values import parameters_label, ratio_label

RULE = "model-labels"
_PLACES: tuple[Path, ...] = (
    ("metadata", "labels"),
    ("spec", "labels"),  # those of an LLMInferenceService's pods
    ("spec", "template", "metadata", "labels"),
    ("spec", "jobTemplate", "spec", "template", "metadata", "labels"),
)
_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([MBT])")
_RATIO = re.compile(r"[01](?:\.[0-9]{1,12})?")
_UNITS = {"M": 10**6, "B": 10**9, "T": 10**12}
_LEEWAY = 1.25
"""How far a label may be from the nearest figure: publishers round, and count embeddings or not."""


def wrong_labels(gate: str, servers: Sequence[tuple[VllmContainer, KnownModel | None]]) -> Iterator[Finding]:
    """A finding for each label that fits none of the models of its object.

    An object with a server whose model is not known is not judged. The labels of an InferenceService describe the
    service, and not its canaries.
    """
    by_object: dict[int, list[tuple[VllmContainer, KnownModel | None]]] = {}
    for server, model in servers:
        if not server.description and "canary" not in server.at:
            by_object.setdefault(id(server.manifest), []).append((server, model))
    for group in by_object.values():
        models = [model for _, model in group if model is not None]
        if len(models) == len(group):
            yield from _of_object(gate, group[0][0].manifest, models)


def _of_object(gate: str, manifest: Manifest, models: Sequence[KnownModel]) -> Iterator[Finding]:
    facts = models[0].facts
    right = {
        ARCHITECTURE: facts.kind,
        RATIO: ratio_label(facts.kind, facts.active_params / facts.total_params),
        TOTAL: parameters_label(facts.total_params),
    }
    for place in _PLACES:
        labels = _at(manifest.value, place)
        for name, value in right.items():
            text = labels.get(name)
            if text is None or any(_fits(name, str(text), model) for model in models):
                continue
            told = f"the label {name} is {str(text)!r:.80}, and that of {models[0].entry.name} is {value}"
            yield manifest_finding(gate, RULE, manifest, (*place, name), told, f'Write "{value}".')


def _fits(name: str, text: str, model: KnownModel) -> bool:
    facts, published = model.facts, model.entry.parameters
    if name == ARCHITECTURE:
        return text not in ("moe", "dense") or text == facts.kind
    totals = [facts.total_params, facts.total_params + facts.tower_params]
    active = [facts.active_params, facts.active_params_without_embedding]
    if published.published_total:
        totals.append(published.published_total)
    if published.published_active:
        active.append(published.published_active)
    if name == TOTAL:
        number = _NUMBER.fullmatch(text)
        return number is None or _near(float(number[1]) * _UNITS[number[2]], min(totals), max(totals))
    # The policies say which ratios are valid, and that a dense model's is 1.
    if facts.kind == "dense" or not _RATIO.fullmatch(text):
        return True
    return _near(float(text), min(active) / max(totals), max(active) / min(totals))


def _near(value: float, least: float, most: float) -> bool:
    return least / _LEEWAY <= value <= most * _LEEWAY


def _at(value: Any, place: Path) -> Mapping[str, Any]:
    for part in place:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}

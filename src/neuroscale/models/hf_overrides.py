"""Applies `--hf-overrides` to a model's longest context: `with_overrides`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts

_SCALING = ("rope_scaling", "rope_parameters")
_OF_CONTEXT = frozenset(
    {*_SCALING, "rope_theta", "max_position_embeddings", "original_max_position_embeddings", "model_max_length"}
)
_SECTION = "text_config"
_WHERE = "--hf-overrides"


def of_context(overrides: Any) -> bool:
    """Whether the overrides change only the length of the context; only such overrides are planned."""
    if not isinstance(overrides, Mapping):
        return False
    inner = overrides.get(_SECTION)
    return all(key in _OF_CONTEXT or (key == _SECTION and of_context(inner)) for key in overrides)


def with_overrides(facts: ModelFacts, overrides: Mapping[str, Any]) -> ModelFacts:
    """The facts with such overrides. Raises InputError for overrides that vLLM or this reader refuses."""
    if facts.config is None:
        raise InputError(Problem(_WHERE, "", f"the config of {facts.name} is not known", "Name the model's own files."))
    found = read_config(_merged(facts.config, overrides, ""), facts.name, f"{facts.source} with {_WHERE}")
    # A command that lets vLLM exceed the limit of the file lets it exceed the limit of the overrides, too.
    forced = facts.max_position_embeddings > read_config(facts.config, facts.name).max_position_embeddings
    longest = max(facts.max_position_embeddings if forced else 1, found.max_position_embeddings)
    return replace(
        facts,
        max_position_embeddings=longest,
        default_length=found.default_length,
        length_by_yarn=found.length_by_yarn,
        rotary=found.rotary,
        config=found.config,
    )


def _merged(config: Mapping[str, Any], overrides: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Merges as vLLM does: sections are merged; a scaling replaces the file's, whichever of its two names each uses."""
    merged = dict(config)
    for key, value in overrides.items():
        if key == _SECTION:
            inner = config.get(key)
            merged[key] = _merged(inner if isinstance(inner, Mapping) else {}, value, f"{key}.")
            continue
        if key in _SCALING:
            for name in _SCALING:
                merged.pop(name, None)
            _check(value, path + key)
            key = _SCALING[1]
        merged[key] = value
    return merged


def _check(scaling: Any, key: str) -> None:
    """Refuses a scaling without `rope_type`: vLLM looks for it in the override itself, or in each of its sections."""
    if not scaling or not isinstance(scaling, Mapping):
        return
    sections = [part for part in scaling.values() if isinstance(part, Mapping)]
    if any("rope_type" not in part for part in sections or [scaling]):
        raise InputError(Problem(_WHERE, key, "has no rope_type, without which vLLM ends", "Write it."))

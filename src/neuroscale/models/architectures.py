"""Loads the list of what the pinned vLLM serves, as scripts/snapshot_vllm_models.py wrote it: architectures.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any


def version() -> str:
    """The version of vLLM that the list comes from."""
    return str(_snapshot()["vllm"])


def registered() -> Mapping[str, Mapping[str, Any]]:
    """What is known of each architecture in vLLM's registry, by its name, in alphabetical order."""
    entries: Mapping[str, Mapping[str, Any]] = _snapshot()["architectures"]
    return entries


def removed() -> Mapping[str, str]:
    """The last version of vLLM that served each architecture which this version does not serve any more."""
    entries: Mapping[str, str] = _snapshot()["removed"]
    return entries


def not_served(architectures: Sequence[str]) -> str:
    """Says that vLLM has none of these architectures, and since when; empty if it has one, or if none is named."""
    if not architectures or any(name in registered() for name in architectures):
        return ""
    for name in architectures:
        if name in removed():
            return f"vLLM {version()} does not serve {name} any more; {removed()[name]} was the last version that did"
    return f"vLLM {version()} does not serve {' or '.join(architectures)}"


@lru_cache(maxsize=1)
def _snapshot() -> Mapping[str, Any]:
    text = files("neuroscale.models").joinpath("architectures.json").read_text(encoding="utf-8")
    snapshot: Mapping[str, Any] = json.loads(text)
    return snapshot

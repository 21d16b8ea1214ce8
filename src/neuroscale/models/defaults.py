"""What transformers' config class of a model type says where a config.json says nothing.

Read from defaults.json, which scripts/snapshot_model_defaults.py writes from the transformers of the pinned vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

_SAME_CLASS = {"kimi_k2": "deepseek_v3"}
"""Model types that vLLM itself reads with another one's class."""


def class_defaults(model_type: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Values by key, and names under which the class knows a key: both empty for a type that it does not have."""
    entry = _snapshot()["model_types"].get(_SAME_CLASS.get(model_type, model_type))
    return (entry["defaults"], entry["aliases"]) if entry else ({}, {})


def transformers_version() -> str:
    """The version that the snapshot is of."""
    return str(_snapshot()["transformers"])


@lru_cache(maxsize=1)
def _snapshot() -> Mapping[str, Any]:
    text = files("neuroscale.models").joinpath("defaults.json").read_text(encoding="utf-8")
    snapshot: Mapping[str, Any] = json.loads(text)
    return snapshot

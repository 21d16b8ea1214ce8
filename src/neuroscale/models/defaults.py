"""Gives the defaults of transformers' config class of a model type, for keys that a config.json leaves out.

They come from defaults.json, which scripts/snapshot_model_defaults.py writes from the transformers of the pinned vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

_SAME_CLASS = {"deepseek_v32": "deepseek_v3", "kimi_k2": "deepseek_v3"}
"""Model types that vLLM itself reads with the class of another type."""


_OF_REMOTE_CODE: Mapping[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    "exaone": ({"tie_word_embeddings": True}, {"num_hidden_layers": "num_layers"}),
    "minicpm": ({"tie_word_embeddings": True}, {}),
}
"""Defaults of the classes that come with their models, and not with transformers."""


def class_defaults(model_type: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The default values by key, and the class's other names for keys; both empty for a type without a class."""
    if model_type in _OF_REMOTE_CODE:
        return _OF_REMOTE_CODE[model_type]
    entry = _snapshot()["model_types"].get(_SAME_CLASS.get(model_type, model_type))
    return (entry["defaults"], entry["aliases"]) if entry else ({}, {})


def transformers_version() -> str:
    """The version of transformers that the snapshot was taken from."""
    return str(_snapshot()["transformers"])


@lru_cache(maxsize=1)
def _snapshot() -> Mapping[str, Any]:
    text = files("neuroscale.models").joinpath("defaults.json").read_text(encoding="utf-8")
    snapshot: Mapping[str, Any] = json.loads(text)
    return snapshot

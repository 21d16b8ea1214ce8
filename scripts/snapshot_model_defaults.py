"""Writes src/neuroscale/models/defaults.json: transformers' defaults for keys that a config.json lacks.

Run it with the Python of the pinned vLLM whenever that pin moves, and commit the result:

    PYTHON_OF_VLLM scripts/snapshot_model_defaults.py
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "src/neuroscale/models/defaults.json"

UNUSED = re.compile(
    r".*(_token_id|_token_index|dropout|_drop|pdrop|_eps|_range|_std|_coef|_act|_activation|_scale|_scaling|_factor|"
    r"_softcapping|_multiplier|_jitter_noise|_theta|_clip|_pattern_id)$|(use_cache|pretraining_tp|output_router_logits|"
    r"initializer_factor|gradient_.*|.*_implementation)$"
)
"""Keys that say nothing about weights or the cache."""


def model_types() -> list[str]:
    """Every model type that neuroscale.models.families, .registry and .towers read."""
    sys.path.insert(0, str(TARGET.parents[2]))
    from neuroscale.models.families import FAMILIES
    from neuroscale.models.registry import TEXT_TYPES
    from neuroscale.models.towers.known import TOWERS

    return sorted({*FAMILIES, *TEXT_TYPES, *TOWERS})


def defaults(config: type[Any]) -> dict[str, Any]:
    """The fields of a config class that have a plain default and may decide about weights or cache."""
    from transformers import PreTrainedConfig

    common = {field.name for field in dataclasses.fields(PreTrainedConfig)} - {"tie_word_embeddings"}
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = field.default
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if isinstance(value, tuple):
            value = list(value)
        if field.name in common or UNUSED.match(field.name):
            continue
        if value is None or isinstance(value, bool | int | str | list):
            found[field.name] = value
    return dict(sorted(found.items()))


def main() -> None:
    """Write the snapshot."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    known = {}
    for model_type in model_types():
        if model_type not in CONFIG_MAPPING:  # the model's own code reads its config, whose file has every key
            print(f"transformers {transformers.__version__} has no class for {model_type}")
            continue
        config = CONFIG_MAPPING[model_type]
        aliases = dict(sorted(config.attribute_map.items()))
        known[model_type] = {"aliases": aliases, "defaults": defaults(config)}
    lines = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in known.items()]
    text = (
        f'{{\n  "transformers": "{transformers.__version__}",\n  "model_types": {{\n' + ",\n".join(lines) + "\n  }\n}\n"
    )
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

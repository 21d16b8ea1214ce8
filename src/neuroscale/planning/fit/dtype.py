"""Finds the dtype in which vLLM computes, and in which it keeps weights that are not quantised: `served_dtype`."""

from __future__ import annotations

from typing import Literal

from neuroscale.models.facts import ModelFacts
from neuroscale.vllm.engine_arguments import EngineArguments


def served_dtype(facts: ModelFacts, arguments: EngineArguments) -> Literal["bfloat16", "float16", "float32"]:
    """Follows `_resolve_auto_dtype` of vLLM's config/model.py: `auto` halves checkpoints in float32, on CPUs, too.
    Cards without bfloat16 compute in float16, which has the same size."""
    if arguments.dtype != "auto":
        return arguments.dtype
    return "bfloat16" if facts.dtype == "float32" else facts.dtype

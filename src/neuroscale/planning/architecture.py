"""Mixture of experts or dense, and how many parameters."""

from __future__ import annotations

from neuroscale.models.facts import ModelFacts
from neuroscale.planning.plan import Architecture


def architecture(facts: ModelFacts) -> Architecture:
    """Kind and parameters of a model's language model: towers for images and sound are not in it."""
    return Architecture(
        kind=facts.kind,
        total_params=facts.total_params,
        active_params=facts.active_params,
        active_params_without_embedding=facts.active_params_without_embedding,
        active_ratio=round(facts.active_params / facts.total_params, 3),
    )

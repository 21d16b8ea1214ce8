"""Says whether a model is a mixture of experts or dense, and counts its parameters."""

from __future__ import annotations

from neuroscale.models.facts import ModelFacts
from neuroscale.planning.plan import Architecture


def architecture(facts: ModelFacts) -> Architecture:
    """The kind and the parameters of the language model, without towers for images and sound."""
    return Architecture(
        kind=facts.kind,
        total_params=facts.total_params,
        active_params=facts.active_params,
        active_params_without_embedding=facts.active_params_without_embedding,
        active_ratio=round(facts.active_params / facts.total_params, 3),
    )

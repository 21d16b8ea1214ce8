"""The towers for images and sound beside a language model."""

from __future__ import annotations

from neuroscale.models.keys import Keys
from neuroscale.models.weights import Weights

TOWERS: dict[str, None] = {}

_SECTIONS = ("vision_config", "audio_config", "speech_config", "vision_tower_config", "image_config")


def towers(c: Keys, out: Weights, hidden: int) -> list[str]:
    """Add the towers' weights; the sentences say what is not counted. `hidden`: of the language model."""
    del out, hidden
    return [
        f"The weights of the tower in {key} are not counted: its layout is unknown here."
        for key in _SECTIONS
        if c.section(key) is not None
    ]

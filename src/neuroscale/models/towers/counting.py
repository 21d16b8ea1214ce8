"""Adds the weights of all towers of a model; those of an unknown layout count as plain layers of their sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from neuroscale.models.config_keys import Keys
from neuroscale.models.facts import Group
from neuroscale.models.towers.blocks import CLIP_BLOCK, add_blocks, add_projection
from neuroscale.models.towers.known import TOWERS, WRAPPERS, Wrapper
from neuroscale.models.weights import Weights

Certainty = Literal["known", "assumed", "missing"]
"""All layouts are known; or some are assumed to be plain layers; or some towers are not counted at all."""


def assume(c: Keys, section: str, group: Group, out: Weights, hidden: int, notes: list[str]) -> Certainty:
    """Count a tower of an unknown layout as plain layers of its sizes, and say so."""
    width = c.optional("hidden_size", "d_model", "width", "embed_dim", "n_embd", high=2**20)
    count = c.optional("num_hidden_layers", "encoder_layers", "layers", "depth", "num_layers", "n_layers", high=500)
    if width is None or count is None:
        notes.append(f"The weights of the tower in {section} are not counted: its layout is unknown here.")
        return "missing"
    inner = c.optional("intermediate_size", "encoder_ffn_dim", "mlp_dim", "ffn_dim", high=2**20) or 4 * width
    block = replace(CLIP_BLOCK, sharding="replicated", group=group)
    add_blocks(out, block, f"{section}.layers.", count, (width, inner))
    assume_projector(out, width, hidden)
    notes.append(f"The layout of the tower in {section} is unknown here: it is counted as {count} plain layers.")
    return "assumed"


def assume_projector(out: Weights, width: int, hidden: int) -> None:
    """Assumes how a tower is joined to the language model: four patches become one token, through two matrices."""
    add_projection(out, "projector.linear_1", (4 * width, hidden), bias=True, sharding="replicated")
    add_projection(out, "projector.linear_2", (hidden, hidden), bias=True, sharding="replicated")


_SECTIONS: tuple[tuple[str, Group], ...] = (("vision_config", "vision"), ("audio_config", "audio"))
_TOWERS_ELSEWHERE = ("vision_backbone", "embd_layer", "img_processor", "audio_processor", "mm_vision_tower", "visual")
"""Keys of remote code that show that a model has a tower, but not its sizes."""
_UNTOLD = frozenset({"molmo"})  # model types with a tower that their files do not mention
_OTHER_SECTIONS = ("speech_config", "sound_config", "vision_tower_config", "image_config", "vit_config")
_WORSE: tuple[Certainty, ...] = ("known", "assumed", "missing")


def towers(c: Keys, out: Weights, hidden: int) -> tuple[list[str], Certainty]:
    """Adds the towers' weights; the sentences name assumptions and omissions. `hidden`: the language model's width."""
    notes: list[str] = []
    found: list[Certainty] = ["known"]
    if (thinker := c.section("thinker_config")) is not None:
        notes.append("The weights of the talker, which makes speech, are not counted: vLLM loads the thinker alone.")
        c = thinker
    wrapper = WRAPPERS.get(c.model_type, Wrapper(assumed=False))
    for section, group in _SECTIONS:
        known = wrapper.vision if group == "vision" else wrapper.audio
        keys = c.section(section)
        if keys is None:
            if not known or not wrapper.assumed:
                continue
            keys = Keys({}, c.where, section)
            notes.append(f"The file has no {section}: that of the model type's class is assumed.")
        own = keys.text("model_type")
        kind = own if own in TOWERS else known
        if kind not in TOWERS:
            found.append(assume(keys, section, group, out, hidden, notes))
            continue
        keys = keys.as_type(kind)
        width = TOWERS[kind](keys, out, hidden)
        if group == "vision" and wrapper.join:
            wrapper.join(c, keys, out, width, hidden)
        elif group == "vision" and c.model_type not in WRAPPERS:
            notes.append("The weights that join the vision tower to the language model are assumed.")
            assume_projector(out, width, hidden)
            found.append("assumed")
    for section in _OTHER_SECTIONS:
        if (keys := c.section(section)) is not None:
            group = "audio" if section in ("speech_config", "sound_config") else "vision"
            found.append(assume(keys, section, group, out, hidden, notes))
    for key in _TOWERS_ELSEWHERE:
        if c.values.get(key):
            notes.append(
                f"The weights of the tower that {key} describes are not counted: planning does not know its layout."
            )
            found.append("missing")
    if c.model_type in _UNTOLD:
        notes.append(f"The weights of the tower that {c.model_type}'s own code builds are not counted.")
        found.append("missing")
    return notes, max(found, key=_WORSE.index)

"""Lists the model types of towers with a known layout, and the model types with several towers that contain them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.clip import clip, idefics3, siglip
from neuroscale.models.towers.gemma import gemma3n, gemma4, gemma4_unified
from neuroscale.models.towers.gemma_sound import gemma3n_audio, gemma4_audio, gemma4_unified_audio
from neuroscale.models.towers.glm import glm4v
from neuroscale.models.towers.intern import intern_vit, internvl
from neuroscale.models.towers.joining import (
    join_aya,
    join_gemma3,
    join_gemma4,
    join_idefics3,
    join_internvl,
    join_internvl_chat,
    join_llama4,
    join_llava,
    join_mistral3,
    join_paligemma,
)
from neuroscale.models.towers.llama import llama4
from neuroscale.models.towers.pixtral import pixtral
from neuroscale.models.towers.qwen import qwen2, qwen2_5, qwen2_audio, qwen3
from neuroscale.models.weights import Weights

TOWERS: dict[str, Callable[[Keys, Weights, int], int]] = {
    "clip_vision_model": clip,
    "gemma3n_audio": gemma3n_audio,
    "gemma3n_vision": gemma3n,
    "gemma4_audio": gemma4_audio,
    "gemma4_unified_audio": gemma4_unified_audio,
    "gemma4_unified_vision": gemma4_unified,
    "gemma4_vision": gemma4,
    "idefics3": idefics3,
    "idefics3_vision": idefics3,
    "intern_vit_6b": intern_vit,
    "glm4v_moe_vision": glm4v,
    "glm4v_vision": glm4v,
    "internvl_vision": internvl,
    "llama4_vision_model": llama4,
    "pixtral": pixtral,
    "qwen2_5_omni_vision_encoder": qwen2_5,
    "qwen2_5_vl_vision": qwen2_5,
    "qwen2_audio_encoder": qwen2_audio,
    "qwen2_vl_vision": qwen2,
    "qwen3_5_moe_vision": qwen3,
    "qwen3_5_vision": qwen3,
    "qwen3_vl_moe_vision": qwen3,
    "qwen3_vl_vision": qwen3,
    "siglip_vision_model": siglip,
    "smolvlm_vision": idefics3,
}
"""Functions by model type, from a tower's keys, the `Weights` to add to, and the language model's width, to the tower's
own width."""


@dataclass(frozen=True)
class Wrapper:
    """A model type with several towers.

    `vision` and `audio`: the types of its towers, for files that do not name a known one. `join`: adds the weights that
    join the vision tower to the language model, from the file's keys, the tower's keys, the tower's width and the
    language model's. `assumed`: its class in transformers builds the towers even if the file has no sections for them.
    """

    vision: str = ""
    audio: str = ""
    join: Callable[[Keys, Keys, Weights, int, int], None] | None = None
    assumed: bool = True


WRAPPERS = {
    "aya_vision": Wrapper("siglip_vision_model", join=join_aya),
    "gemma3": Wrapper("siglip_vision_model", join=join_gemma3),
    "gemma3n": Wrapper("gemma3n_vision", "gemma3n_audio"),
    "gemma4": Wrapper("gemma4_vision", "gemma4_audio", join=join_gemma4, assumed=False),
    "gemma4_unified": Wrapper("gemma4_unified_vision", "gemma4_unified_audio", assumed=False),
    "glm4v": Wrapper("glm4v_vision"),
    "glm4v_moe": Wrapper("glm4v_moe_vision"),
    "idefics3": Wrapper("idefics3_vision", join=join_idefics3, assumed=False),
    "internvl": Wrapper("internvl_vision", join=join_internvl),
    "internvl_chat": Wrapper("intern_vit_6b", join=join_internvl_chat, assumed=False),
    "llama4": Wrapper("llama4_vision_model", join=join_llama4),
    "llava": Wrapper("clip_vision_model", join=join_llava),
    "llava_next": Wrapper("clip_vision_model", join=join_llava),
    "mistral3": Wrapper("pixtral", join=join_mistral3),
    "paligemma": Wrapper("siglip_vision_model", join=join_paligemma),
    "qwen2_5_omni_thinker": Wrapper("qwen2_5_omni_vision_encoder", "qwen2_5_omni_audio_encoder", assumed=False),
    "qwen2_5_vl": Wrapper("qwen2_5_vl_vision"),
    "qwen2_audio": Wrapper(audio="qwen2_audio_encoder"),
    "qwen2_vl": Wrapper("qwen2_vl_vision"),
    "qwen3_5": Wrapper("qwen3_5_vision"),
    "qwen3_5_moe": Wrapper("qwen3_5_moe_vision"),
    "qwen3_vl": Wrapper("qwen3_vl_vision"),
    "qwen3_vl_moe": Wrapper("qwen3_vl_moe_vision"),
    "smolvlm": Wrapper("smolvlm_vision", join=join_idefics3, assumed=False),
}

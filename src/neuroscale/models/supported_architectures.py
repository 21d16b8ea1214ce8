"""Says whether planning supports each architecture that the pinned vLLM serves.

The list is vLLM's own registry, which scripts/snapshot_vllm_models.py writes to architectures.json. A file of a planned
architecture can still be refused: by a key that the rules do not know, which the message names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from neuroscale.models.families import FAMILIES
from neuroscale.models.registry import TEXT_TYPES, of_architecture, registered, why_refused
from neuroscale.models.towers.known import WRAPPERS

Status = Literal["planned", "estimated", "refused"]

_REFUSED: Mapping[str, str] = {
    "DeepseekV41ForCausalLM": "it compresses its caches in other ways than DeepSeek V4",
    "DeepseekV4ForConditionalGeneration": "its tower for images is not known",
    "DeciLMForCausalLM": "its layers differ one by one",
    "DbrxForCausalLM": "its keys have other meanings than Llama's",
    "DiffusionGemmaForBlockDiffusion": "it writes blocks of text by diffusion",
    "Glm5NextForCausalLM": "its layers keep states",
    "HYV4ForCausalLM": "its layers are not known here",
    "InklingForCausalLM": "its layers keep the inputs of convolutions beside keys and values",
    "InklingForConditionalGeneration": "its layers keep the inputs of convolutions beside keys and values",
    "KimiK3ForConditionalGeneration": "its layers keep states",
    "MiMoV2FlashForCausalLM": "its layers differ one by one",
    "MiMoV2ForCausalLM": "its layers differ one by one",
    "MiniMaxM3SparseForCausalLM": "its sparse attention keeps an index",
    "MiniMaxM3SparseForConditionalGeneration": "its sparse attention keeps an index",
    "NemotronHPuzzleForCausalLM": "its layers differ one by one",
    "Qwen4ExpForCausalLM": "its layers keep states of several sizes",
    "Qwen4ExpForConditionalGeneration": "its layers keep states of several sizes",
    "UnlimitedOCRForCausalLM": "its attention window counts generated tokens only",
}
"""Why each of these cannot be planned, from vLLM's classes of these names."""


_OF_REMOTE_CODE: Mapping[str, tuple[str, ...]] = {
    "ExaoneForCausalLM": ("exaone",),
    "InternVLChatModel": ("internvl_chat",),
    "MiMoForCausalLM": ("mimo",),
    "MiniCPMForCausalLM": ("minicpm",),
    "MolmoForCausalLM": ("molmo",),
}
"""The model types of architectures whose config classes come with their models."""


@dataclass(frozen=True)
class Support:
    """The `status` of an architecture, and `why`, as a sentence's end; empty if known rules plan all of it."""

    status: Status
    why: str


def supported() -> dict[str, Support]:
    """The support of each architecture by its name, in alphabetical order."""
    return {name: _support(name, entry) for name, entry in registered().items()}


def _support(name: str, entry: Mapping[str, Any]) -> Support:
    if entry["part"] == "draft":
        return Support("refused", "it guesses tokens for another model, and is not served alone")
    if entry["part"] == "other":
        return Support("refused", "it does not generate text")
    if name in _REFUSED:
        return Support("refused", _REFUSED[name])
    if entry["part"] == "transformers":
        return Support("estimated", "vLLM runs Transformers' own code; planned with Llama's layer layout")
    types = [*entry["model_types"], *_OF_REMOTE_CODE.get(name, ())]
    if of_architecture(name) is not None or any(one in FAMILIES for one in types):
        return Support("planned", "")
    if any(one in TEXT_TYPES or one in WRAPPERS for one in types):
        towers = any(one in WRAPPERS for one in types)
        why = "" if towers else "its language model is known; its towers are not"
        return Support("planned" if towers else "estimated", why)
    if entry["keeps"] == "encoder_decoder":
        return Support("refused", "it keeps a cache of the encoder's output")
    if why := next(filter(None, map(why_refused, types)), ""):
        return Support("refused", why)
    if entry["keeps"]:
        return Support("refused", "its layers keep states that are not planned")
    if entry["part"] == "multimodal":
        return Support("estimated", "its towers are not known, and its language model only if its model_type is")
    return Support("estimated", "planned with Llama's layer layout; a key of another layout is refused")

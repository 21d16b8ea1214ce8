"""Says which towers for images and sound vLLM loads: it drops a tower only if all inputs of it are switched off."""

from __future__ import annotations

from neuroscale.models.facts import ModelFacts, Tensor
from neuroscale.vllm.engine_arguments import EngineArguments

_NO_VIDEO = frozenset(
    {
        "DeepseekVLV2ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForConditionalGeneration",
        "Idefics3ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "Llama4ForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "LlavaNextForConditionalGeneration",
        "Mistral3ForConditionalGeneration",
        "PaliGemmaForConditionalGeneration",
        "Phi3VForCausalLM",
        "PixtralForConditionalGeneration",
        "SmolVLMForConditionalGeneration",
    }
)
"""Models whose tower vLLM marks for images alone (`_mark_tower_model` of its models). Every other model keeps its tower
unless the command also limits videos to 0: a kind of input without a limit is allowed (config/multimodal.py)."""


def loads_vision(facts: ModelFacts, arguments: EngineArguments) -> bool:
    """Whether the tower for images is on the accelerator."""
    if arguments.language_model_only:
        return False
    no_video = arguments.videos == 0 or bool(_NO_VIDEO & set(facts.architectures))
    return not (arguments.images == 0 and no_video)


def loads_audio(arguments: EngineArguments) -> bool:
    """Whether the tower for sound is on the accelerator."""
    return not arguments.language_model_only and arguments.audios != 0


def loads(facts: ModelFacts, tensor: Tensor, arguments: EngineArguments) -> bool:
    """Whether a tensor is on the accelerator; the weights that join a tower to the language model go with the tower."""
    if tensor.group == "vision":
        return loads_vision(facts, arguments)
    if tensor.group == "audio":
        return loads_audio(arguments)
    if tensor.group != "projector":
        return True
    groups = {one.group for one in facts.tensors}
    sound = "audio" in tensor.name or "vision" not in groups
    return loads_audio(arguments) if sound else loads_vision(facts, arguments)

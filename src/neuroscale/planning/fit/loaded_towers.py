"""Says which tensors vLLM loads: it drops a tower for images or sound if all inputs of it are switched off, and the
copies that layers of multi-token prediction have of the embedding and the LM head."""

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

_HEADS, _EMBEDDINGS = (".shared_head.head.weight",), (".embed_tokens.weight",)
"""Tensors of layers of multi-token prediction that vLLM replaces with the model's own."""


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
    if tensor.group == "mtp":
        # `load_eagle_model` of v1/worker/gpu/spec_decode/eagle/utils.py: a pipeline's last stage has no embedding.
        shared = _HEADS if arguments.pipeline_parallel_size > 1 else (*_HEADS, *_EMBEDDINGS)
        return not tensor.name.endswith(shared)
    if tensor.group == "vision":
        return loads_vision(facts, arguments)
    if tensor.group == "audio":
        return loads_audio(arguments)
    if tensor.group != "projector":
        return True
    groups = {one.group for one in facts.tensors}
    sound = "audio" in tensor.name or "vision" not in groups
    return loads_audio(arguments) if sound else loads_vision(facts, arguments)

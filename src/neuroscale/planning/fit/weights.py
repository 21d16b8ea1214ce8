"""Computes the weights of one rank, and says which tensors vLLM loads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neuroscale.core.units import GIB
from neuroscale.models.facts import DTYPE_BYTES, TOWERS, ModelFacts, Tensor
from neuroscale.planning.fit.device import served_dtype
from neuroscale.planning.fit.drafts import of_draft, stretched
from neuroscale.vllm.engine_arguments import GUESSING, EngineArguments, Unplanned

_NO_VIDEO = frozenset(
    {
        *("DeepseekVLV2ForCausalLM", "Gemma3ForConditionalGeneration", "Gemma3nForConditionalGeneration"),
        *("Idefics3ForConditionalGeneration", "KimiVLForConditionalGeneration", "Llama4ForConditionalGeneration"),
        *("LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration"),
        *("Mistral3ForConditionalGeneration", "PaliGemmaForConditionalGeneration", "Phi3VForCausalLM"),
        *("PixtralForConditionalGeneration", "SmolVLMForConditionalGeneration"),
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
    groups = {each.group for each in facts.tensors}
    sound = "audio" in tensor.name or "vision" not in groups
    return loads_audio(arguments) if sound else loads_vision(facts, arguments)


VOCABULARY_STEP = 64
"""vLLM pads the vocabulary to a multiple of this before it splits it (vocab_parallel_embedding.py)."""

_MARLIN_INNER, _MARLIN_HIDDEN = 128, 256
"""mxfp4 experts are padded to multiples of these for vLLM's kernels (layers/quantization/mxfp4.py). gpt-oss-20b takes
13.7 GiB of 12.8 in its files on an A100 and a GB10. gpt-oss-120b takes 65.9 of 60.8 on an H100, and 17.2 of 15.2 on
each of four A100."""

_WHOLE = frozenset({"embedding", "lm_head", "router"})
_ADAPTED = _WHOLE | {"attention", "recurrent", "dense_mlp", "shared_experts", "routed_experts"}
"""Groups with room for LoRA adapters (`get_supported_lora_modules` of lora/utils.py), and those of them whose adapters
tensor parallelism does not split."""

_FULL_WIDTH = 4.0  # bytes of a value in float32

_STAYS = frozenset({"embedding", "lm_head", "per_layer_embedding", "rotary", "lora", "draft"})
"""Groups that --cpu-offload-gb leaves on the accelerator: it moves only the parameters of layers and towers
(`make_layers` and `_mark_tower_model` of vLLM's models)."""

_ONLINE: Mapping[str, tuple[float | None, float | None]] = {
    "bitsandbytes": (0.5, 0.5),
    "experts_int8": (None, 1.0),
    **dict.fromkeys(("fp8", "fp8_per_block", "fp8_per_channel", "fp8_per_tensor"), (1.0, 1.0)),
    "int8_per_channel_weight_only": (None, 1.0),
    "mxfp4": (17 / 32, 17 / 32),
    "mxfp8": (33 / 32, 33 / 32),
    "nvfp4_per_token": (None, 9 / 16),
}
"""Bytes of a value, scales included, in matrices that vLLM converts while it loads an unquantised checkpoint: outside
routed experts, and in them (None: vLLM does not convert them). Sources: `_ONLINE_SHORTHANDS` of config/quantization.py,
and experts_int8.py."""


@dataclass(frozen=True)
class RankWeights:
    """Bytes of the fullest rank by group of tensors; `offloaded` of them lie in host memory."""

    by_group: Mapping[str, int]
    offloaded: int

    @property
    def total(self) -> int:
        """Bytes on the accelerator."""
        return sum(self.by_group.values()) - self.offloaded


def rank_weights(facts: ModelFacts, arguments: EngineArguments) -> RankWeights:
    """The weights of the fullest rank: with pipeline stages, a rank with the embedding or the LM head."""
    by_group: dict[str, int] = {}
    for group, size in facts.weight_bytes.items():
        if group == "mtp" and not predicts(arguments):
            continue
        if held := math.ceil(size * _share(facts, group, arguments)):
            by_group[group] = held
    if facts.quantization is not None and facts.quantization.method == "mxfp4" and "routed_experts" in by_group:
        by_group["routed_experts"] = math.ceil(by_group["routed_experts"] * _padding(facts, arguments))
    if copies := _unpacked_latent(facts, arguments):
        by_group["attention"] += copies
    stages = arguments.pipeline_parallel_size
    if stages > 1:
        by_group = _stage(facts, by_group, stages)
    by_group["rotary"] = rotary_bytes(facts, arguments)
    if facts.draft is not None:
        beside = stretched(facts, facts.draft, arguments)
        by_group["draft"] = rank_weights(beside, of_draft(facts, beside, arguments)).total
    if arguments.enable_lora:
        by_group["lora"] = math.ceil(_adapters(facts, arguments) / stages)
    movable = sum(size for group, size in by_group.items() if group not in _STAYS)
    return RankWeights(by_group, min(movable, round(arguments.cpu_offload_gib * GIB)))


def _adapters(facts: ModelFacts, arguments: EngineArguments) -> int:
    """Bytes that vLLM reserves for LoRA adapters: for each matrix of the language model, two of the largest LoRA rank.
    Tensor parallelism splits one of the two, and of a vocabulary none (`create_lora_weights` of lora/layers:
    base_linear.py, vocab_parallel_embedding.py, logits_processor.py). Each expert of a rank has its own, whether or not
    an adapter has them (fused_moe.py): expert parallelism deals them out whole."""
    values = 0.0
    for tensor in facts.tensors:
        if len(tensor.shape) != 2 or tensor.group not in _ADAPTED or not tensor.name.endswith(".weight"):
            continue
        wide, read = tensor.shape
        copies, ranks = float(tensor.copies), arguments.tensor_parallel_size
        if tensor.group == "routed_experts":
            ranks *= arguments.data_parallel_size
            if arguments.enable_expert_parallel:
                copies *= _part(facts, tensor, arguments)
                ranks = 1
        elif tensor.group in _WHOLE:
            ranks = 1
        by_rows = tensor.name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight", "w2.weight"))
        values += copies * ((wide + read / ranks) if by_rows else (wide / ranks + read))
    width = DTYPE_BYTES[served_dtype(facts, arguments)]
    return math.ceil(values * arguments.max_lora_rank * arguments.max_loras * width)


def predicts(arguments: EngineArguments) -> bool:
    """Whether vLLM loads the layers of multi-token prediction in the model's own files: the command names their method,
    or names the model itself as the draft model."""
    method = arguments.speculative
    return method is not None and ("mtp" in method or method == arguments.model)


_NO_PREDICTING = Unplanned(
    "speculative_config",
    "the layers of multi-token prediction, which the model's config.json does not describe or planning does not know",
)


def uncounted(facts: ModelFacts, arguments: EngineArguments) -> tuple[Unplanned, ...]:
    """The arguments of which a plan does not count a part, for this model."""
    if facts.draft is not None:
        return tuple(part for part in arguments.unplanned if part.dest not in GUESSING)
    if not predicts(arguments) or facts.predicting or _NO_PREDICTING in arguments.unplanned:
        return arguments.unplanned
    return (*arguments.unplanned, _NO_PREDICTING)


def _unpacked_latent(facts: ModelFacts, arguments: EngineArguments) -> int:
    """Bytes of the copies in the model's dtype that multi-head latent attention makes of a quantised `kv_b_proj` for
    decoding (`process_weights_after_loading` of mla_attention.py). An unquantised matrix needs no copies."""
    unpacked = [tensor for tensor in facts.tensors if tensor.name.endswith("kv_b_proj.weight")]
    params = sum(tensor.params for tensor in facts.tensors if tensor.group == "attention")
    width = DTYPE_BYTES[served_dtype(facts, arguments)]
    converted = facts.quantization is None and _ONLINE.get(arguments.quantization or "", (None, None))[0] is not None
    in_files = facts.weight_bytes.get("attention", 0)
    # Some quantised checkpoints leave attention unquantised.
    if not unpacked or not (converted or in_files < 0.75 * params * DTYPE_BYTES[facts.dtype]):
        return 0
    return math.ceil(sum(tensor.params for tensor in unpacked) * width / arguments.tensor_parallel_size)


def _share(facts: ModelFacts, group: str, arguments: EngineArguments) -> float:
    """The bytes of a group that one rank holds once it is loaded, as a share of the group's bytes in the files: with
    the vocabulary's padding, conversions that the command asks for, and without towers that are switched off."""
    held = whole = 0.0
    for tensor in facts.tensors:
        if tensor.group == group:
            in_file, loaded = _width(facts, tensor), _loaded_width(facts, tensor, arguments)
            whole += tensor.params * in_file
            if not loads(facts, tensor, arguments):
                continue
            held += tensor.params * loaded * _part(facts, tensor, arguments)
    return held / whole if whole else 1.0


def _part(facts: ModelFacts, tensor: Tensor, arguments: EngineArguments) -> float:
    ranks = arguments.tensor_parallel_size
    if tensor.sharding == "replicated" or (tensor.group in TOWERS and arguments.mm_encoder_tp_mode == "data"):
        return 1.0
    if tensor.sharding == "vocabulary":
        rows = facts.vocab_size
        padded = math.ceil(rows / VOCABULARY_STEP) * VOCABULARY_STEP
        return math.ceil(padded / ranks) / rows
    if tensor.sharding == "state_groups":
        groups = [state.groups for state in facts.states if state.groups]
        return 1.0 / ranks if all(count % ranks == 0 for count in groups) else 1.0 / min(groups)
    if tensor.sharding == "experts":
        # Ranks of data and context parallelism share the experts, too.
        ranks *= arguments.data_parallel_size * arguments.prefill_context_parallel_size
        if arguments.enable_expert_parallel and facts.experts:
            # Ranks hold whole experts: if the ranks do not divide them, the first ranks hold one more.
            return math.ceil(facts.experts / ranks) / facts.experts
        return 1.0 / ranks
    if tensor.sharding == "kv_heads":
        heads = _kv_heads(facts, tensor)
        # Even if the keys serve as values, vLLM's matrix of queries, keys and values has a place for the values.
        places = 1.0 + _without_values(facts, tensor)
        return places * math.ceil(heads / ranks) / heads if heads else 1.0 / ranks
    return 1.0 / ranks


def _kv_heads(facts: ModelFacts, tensor: Tensor) -> int:
    """The heads of a matrix of keys or values: layers that see the whole context may have another number of heads."""
    kinds = {(layers.kv_heads, layers.head_dim) for layers in facts.cache if not layers.on_every_rank}
    counts = {heads for heads, size in kinds if heads * size == tensor.shape[0]}
    return counts.pop() if len(counts) == 1 else facts.kv_heads


def _without_values(facts: ModelFacts, tensor: Tensor) -> float:
    """The share of these matrices of keys whose layers have no matrix of values."""
    if not tensor.name.endswith("k_proj.weight"):
        return 0.0
    name = tensor.name.replace("k_proj", "v_proj")
    values = [other for other in facts.tensors if other.name == name]
    keys = [other for other in facts.tensors if other.name == tensor.name]
    if sum(other.copies for other in values) == sum(other.copies for other in keys):
        return 0.0
    beside = sum(other.copies for other in values if other.shape == tensor.shape)
    return max(0.0, 1.0 - beside / tensor.copies)


def _width(facts: ModelFacts, tensor: Tensor) -> float:
    """Bytes of a parameter in the files, to weigh the tensors of one group against each other."""
    quantization = facts.quantization
    if quantization is not None and tensor.linear:
        other = quantization.other_bits if tensor.group != "routed_experts" else None
        return (other or quantization.bits) / 8
    if tensor.full_precision and facts.basis == "headers":
        params = sum(other.params for other in facts.tensors if other.group == tensor.group)
        if facts.weight_bytes.get(tensor.group, 0) > 3 * params:
            return _FULL_WIDTH  # the files have these tensors in float32, too
    return float(DTYPE_BYTES[facts.file_dtype or facts.dtype])


def _loaded_width(facts: ModelFacts, tensor: Tensor, arguments: EngineArguments) -> float:
    """Bytes of a parameter on the accelerator."""
    if tensor.full_precision:
        return _FULL_WIDTH
    if facts.quantization is not None:
        return _width(facts, tensor)
    matrix, expert = _ONLINE.get(arguments.quantization or "", (None, None))
    width = expert if tensor.group == "routed_experts" else matrix
    if width is not None and tensor.linear and tensor.group not in ("embedding", "lm_head", "router"):
        return width
    return float(DTYPE_BYTES[served_dtype(facts, arguments)])


def _padding(facts: ModelFacts, arguments: EngineArguments) -> float:
    """The factor by which padding for their kernels enlarges the experts' matrices."""
    ranks = arguments.tensor_parallel_size * arguments.data_parallel_size
    split = 1 if arguments.enable_expert_parallel else ranks
    inner = facts.moe_intermediate_size / split
    return (_up(inner, _MARLIN_INNER) / inner) * (_up(facts.hidden_size, _MARLIN_HIDDEN) / facts.hidden_size)


def _up(size: float, step: int) -> int:
    return math.ceil(size / step) * step


def _stage(facts: ModelFacts, by_group: Mapping[str, int], stages: int) -> dict[str, int]:
    """The bytes of the fullest pipeline stage by group. All stages have equally many layers; the first has the
    embedding, and the last the LM head (the first, too, if both are one matrix)."""
    layers = math.ceil(facts.num_layers / stages) / facts.num_layers
    ends = {"embedding", "lm_head", "per_layer_embedding", "vision", "audio", "projector"}
    inner = {group: math.ceil(size * layers) for group, size in by_group.items() if group not in ends}
    first = sum(size for group, size in by_group.items() if group in ends and group != "lm_head")
    last = by_group.get("lm_head", by_group.get("embedding", 0))
    kept = {g: s for g, s in by_group.items() if g in ends and g != "lm_head"} if first >= last else {"lm_head": last}
    return {**inner, **kept}


def rotary_bytes(facts: ModelFacts, arguments: EngineArguments) -> int:
    """Bytes of the sines and cosines of every position that the model reads; vLLM keeps them beside the weights."""
    width = DTYPE_BYTES[served_dtype(facts, arguments)]
    return sum(table.rows * table.width * (4 if table.full_precision else width) for table in facts.rotary)

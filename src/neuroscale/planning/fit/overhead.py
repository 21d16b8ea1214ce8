"""Counts the memory of a rank beside weights and KV cache: activations, buffers, CUDA graphs, the process itself.

Every constant names its source. 'H100 runs': 60 starts of vLLM 0.19.0 on an H100 and a sweep over 0.15 to 0.18
(github:jgchn/llm-d-planner, accuracy/results, with the figures of vLLM's own profiler).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from neuroscale.core.units import GIB, MIB
from neuroscale.models.facts import DTYPE_BYTES, ModelFacts
from neuroscale.planning.fit.argument_defaults import Resolved
from neuroscale.planning.fit.device import Device, served_dtype
from neuroscale.planning.fit.sparse import has_indexer
from neuroscale.planning.fit.versions import Behaviour, Runner, behaviour
from neuroscale.planning.fit.weights import loads_audio, loads_vision
from neuroscale.vllm.engine_arguments import EngineArguments

SAMPLER_BYTES = {"sorted": 38.3, "filtered": 14.7}
"""Bytes per request and entry of the vocabulary when the first runner tries its sampler at --max-num-seqs.

sorted: logits (2) and their copy in 32 bits (4), sorted with 64-bit indices in two buffers each (2 x 12), probabilities
and their sum (8). Peaks of activations at 1,024 requests on an H100: 38.2 to 38.4 for gpt-oss-20b, Llama-3.1-8B and
Qwen3-0.6B (github:llm-d/llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md). Qwen3-14B under 0.15, too.

filtered: logits (2 + 4), probabilities (4), random numbers (4), and the kernel's scratch row for each multiprocessor.
They are 14.6 to 14.9 in the H100 runs of Llama-3.1-8B, Qwen2.5-7B, gemma-2-2b, gemma-2-9b, gpt-oss-20b, Qwen3-8B.
"""

SECOND_SAMPLER_BYTES = 2.0
"""The second runner tries its sampler with requests that need the logits alone (v1/worker/gpu/sample/sampler.py)."""

COUNT_BYTES = 4.125
"""Bytes per request and entry of the vocabulary: the second runner's counts of tokens in the answer (32 bits) and marks
of tokens in the prompt (1 bit), which it keeps for good (v1/worker/gpu/sample/penalties.py)."""

HIDDEN_COPIES = 4.3
"""Vectors of the hidden size that a layer holds for each token of a step beside its MLP: the residual, the input and
output of attention, a norm's result. H100 runs of CodeLlama-7b (4.26), granite-3.1-8b and granite-3.3-8b (4.2)."""

MLP_COPIES = 3
"""Vectors of the MLP's width for each token: gate, up, and their product. Same runs."""

GRAPH_BYTES = 0.43e6
"""Bytes of CUDA graphs for each layer and each captured batch size: parameters of the layer's kernels. H100 runs: 0.40
to 0.55 million for dense models of 24 to 80 layers (Llama-3.1-8B, Qwen2.5-7B, gemma-2-9b, phi-4, Mistral-Small-24B,
Llama-3.3-70B); with 11 sizes on a GB10, gemma-4-26B-A4B gives 0.46."""

EXPERT_GRAPH_BYTES = 0.62e6
"""The same bytes for models with experts: 0.46 to 1.1 million (Qwen3-30B-A3B, Mixtral-8x7B, Llama-4-Scout, Qwen1.5-MoE,
DeepSeek-V2-Lite, gpt-oss-20b)."""

LARGEST_GRAPH = 512
"""Requests in the largest batch that is captured (config/compilation.py): at most twice --max-num-seqs."""

_MOST_GRAPHED = 8192  # tokens of a larger step gain nothing by a graph

PLAIN_LINK_GIB = 0.12
"""NCCL and custom all-reduce of a rank without a switched fabric: the difference between Qwen2-7B on two A100 and on
one, at three utilisations (github:dennislee22/vLLM-benchmarking); four RTX 3090 with Qwen2.5-32B take no more."""

_NO_BUFFERS = frozenset({"mxfp4"})
"""Quantisations whose kernels for experts do not use vLLM's scratch space: gpt-oss-20b needs only the sampler's. Those
of Marlin do, which other cards than Hopper and B200 take (`workspace_shapes` of fused_moe/experts/marlin_moe.py)."""

_TRITON_MXFP4 = (9, 10)


FEW_LINKS_GIB, MANY_LINKS_GIB = 0.42, 2.2
"""GiB with a switched fabric before 0.18: up to four ranks (Llama-3.1-8B in the llm-d-benchmark results, Qwen3-30B-A3B
under 0.12, Llama-2-70B under 0.15), and eight (Qwen3-235B-A22B and Qwen3-32B under 0.10). All on H100."""

SMALL_PROCESS_GIB = 0.08
"""Non-torch memory of a process on cards before Hopper and on those of workstations: 0.02 to 0.11 for Qwen2.5-3B and
Qwen2.5-14B, llava-1.5-7b, Qwen3-4B on an RTX PRO 6000, Llama-3.1-8B on an A100. Hopper's is in versions.py."""

CONSUMED_GIB = 0.4
"""The same since vLLM counts all that a process took of the free memory: 0.38 to 0.49 GiB beside weights, token counts
and scratch space in three starts of Gemma 4 26B-A4B on an L40S under 0.29
(github:akamaslabs/vllm-benchmark, studies/30-l40s-gemma4-26b-tps/probe)."""

FLASHINFER_BYTES = 394 * MIB
"""Bytes of FlashInfer's workspace (VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE), one for each group of layers. Six of them
take the 2.31 GiB by which Gemma 4 26B-A4B has less cache under that backend on an L40S (tests/ground_truth)."""

HOST_GIB = 2.1
"""GiB of vLLM's own processes in a memory that host and accelerator share: 1.6 to 2.2 GiB in four starts of Gemma 4
26B-A4B and gpt-oss-20b on a GB10, beside the other parts."""

CPU_PROCESS_GIB = 2.0
"""GiB of vLLM's libraries and buffers on a CPU: a model of 4 layers ran in 3 GB with a cache of 1 GiB."""

LARGEST_IMAGE_PATCHES = 65536
"""Patches of the largest image for towers of any resolution (preprocessor_config.json of Qwen2-VL to Qwen3-VL)."""

ANY_RESOLUTION = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")

_PASSES_FIRST = "qwen3_5"
"""Models whose tower is done before the language model is tried, so that the larger of the two peaks counts, with the
tower's MLP split among the ranks. Qwen3.5-27B on four RTX 3090 under 0.19 ('profiled with 1 image items', 1.2 GiB in
all) and Qwen3.6-35B-A3B in NVFP4 on an RTX 5090 under 0.24 (2.6 GiB) of tests/ground_truth. The towers of Qwen2-VL to
Qwen3-VL need the sum (Qwen3-VL-30B-A3B on two H100 under 0.12)."""

PATCHES_OF_TOKEN = 4
"""Four patches become one token of the language model (spatial_merge_size of these towers)."""

_LARGE_VIDEOS = ("qwen2_vl", "qwen2_5_vl")
VIDEO_PAIRS = 7
"""Pairs of frames in the largest video of these models: 14 frames, each pair as large as the largest image, as many as
the context holds (`_MAX_FRAMES_PER_VIDEO` and `get_num_frames_with_most_features` of models/qwen2_vl.py). Qwen2.5-VL-7B
under 0.23 takes 15.5 GiB for it with a context of 128,000 tokens (a public log of vllm/vllm-openai:v0.23.0: 'a budget
of 114688 tokens, and profiled with 1 video items', -14.28 GiB left of 0.22 of an A100)."""

_SMALL_VIDEOS = ("qwen3_vl", "qwen3_5")
SMALL_VIDEO_PATCHES = 49152
"""Patches of the largest video of these models: all frames together have as many pixels as `longest_edge` of
video_preprocessor_config.json, 25,165,824. Two frames make a patch of 16 x 16. vLLM 0.32 counts 12,288 tokens for it
and 16,384 for the largest image (get_max_video_tokens and get_max_image_tokens of models/qwen3_vl.py). It tries the
larger of the two (multimodal/encoder_budget.py)."""

PATCH_VALUES = {"qwen2": 1176, "qwen3": 1536}
"""Input values of a patch: two frames of 14 x 14 or 16 x 16 pixels in three colours."""


_LOGITS_BYTES = 512 * MIB
"""The scores of a step (VLLM_SPARSE_INDEXER_MAX_LOGITS_MB)."""
_KEY_BYTES, _KEYS_OF_A_TOKEN = 132, 8
_LONG = 256 * 1024
_FACTORS = 5, 2  # requests whose keys are gathered at once: up to a context of `_LONG` tokens, and beyond


@dataclass(frozen=True)
class Overhead:
    """Bytes by part, on one rank."""

    counted: Mapping[str, int]  # the parts that vLLM subtracts before it sizes the cache
    later: Mapping[str, int]  # the parts that come after that, from the memory that --gpu-memory-utilization leaves


def overhead(
    facts: ModelFacts,
    device: Device,
    arguments: EngineArguments,
    resolved: Resolved,
    does: Behaviour,
    tables: int = 1,
) -> Overhead:
    """The overhead as vLLM's profiling run finds it. `tables`: the groups of layers with a block table each. A TPU's
    compiler takes its space outside the share of the cache; the estimate takes the space that a GPU needs for the same
    step."""
    if device.family == "tpu":
        return Overhead(
            {}, {"compiler's workspace": _activations(facts, device, arguments, resolved, behaviour("0.19.0"))}
        )
    if device.family == "cpu":
        return Overhead({"process": round(CPU_PROCESS_GIB * GIB)}, {})
    counted = {
        "activations": _activations(facts, device, arguments, resolved, does),
        "process": round(_process_gib(device, does) * GIB),
    }
    if has_indexer(facts):
        scratch = _expert_buffers(facts, arguments.tensor_parallel_size, resolved.max_num_batched_tokens)
        width = DTYPE_BYTES[served_dtype(facts, arguments)]
        counted["indexers"] = _indexer_bytes(facts, resolved, round(scratch * width))
    if device.shared:
        counted["host processes"] = round(HOST_GIB * GIB)
    # Experts are shared among the ranks of data parallelism, too (`_part` of weights.py).
    ranks = arguments.tensor_parallel_size * (arguments.data_parallel_size if facts.experts else 1)
    if ranks > 1:
        counted["communication"] = round(_links(device, ranks, does) * GIB)
    if device.beside_gib:
        counted["measured beside these"] = round(device.beside_gib * GIB)
    later: dict[str, int] = {}
    if resolved.graphs:
        (counted if _counts_graphs(facts, device, arguments, does) else later)["graphs"] = graphs(
            facts, arguments, resolved
        )
    if "FLASHINFER" in (arguments.attention_backend, arguments.attention_variable):
        early = resolved.graphs and _counts_graphs(facts, device, arguments, does)
        (counted if early else later)["FlashInfer's workspaces"] = tables * FLASHINFER_BYTES
    if runner(facts, does, arguments) == "second":
        kept = round(COUNT_BYTES * resolved.max_num_seqs * facts.vocab_size)
        (counted if does.buffers_counted else later)["token counts"] = kept
    return Overhead(counted, later)


def _process_gib(device: Device, does: Behaviour) -> float:
    """GiB of a process beside what PyTorch allocates."""
    if device.switched:
        return does.process_gib
    return CONSUMED_GIB if does.consumed_counted else SMALL_PROCESS_GIB


def _counts_graphs(facts: ModelFacts, device: Device, arguments: EngineArguments, does: Behaviour) -> bool:
    """Whether vLLM subtracts CUDA graphs before it sizes the cache."""
    said = arguments.graphs_estimated if does.graphs_switch else None
    if not (does.graphs_counted if said is None else said):
        return False
    if device.family == "rocm" and not does.rocm_graphs_counted:
        return False
    return does.second_graphs_counted or runner(facts, does, arguments) == "first"


def _links(device: Device, ranks: int, does: Behaviour) -> float:
    """GiB of the buffers for communication between ranks."""
    if not device.switched:
        return PLAIN_LINK_GIB
    if does.fabric_gib is not None:
        return does.fabric_gib
    return FEW_LINKS_GIB if ranks <= 4 else MANY_LINKS_GIB


def runner(facts: ModelFacts, does: Behaviour, arguments: EngineArguments) -> Runner:
    """The model runner that a version takes for a model, if no environment variable sets it."""
    if arguments.second_runner is not None and does.second_runner:
        return "second" if arguments.second_runner else "first"
    if does.second_architectures & set(facts.architectures):
        return "second"
    plain = facts.quantization is None and set(facts.architectures) & _PLAIN
    for kind in does.second_runner:
        if kind == facts.kind or (kind == "plain" and facts.kind == "dense" and plain):
            return "second"
    return "first"


_PLAIN = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"})


def graph_sizes(sequences: int, largest: int | None = None) -> tuple[int, ...]:
    """The batch sizes that vLLM captures: 1, 2, 4, then steps of 8 below 256 and of 16 from there. `largest`: the
    command's own limit."""
    return _graph_sizes(min(2 * sequences, LARGEST_GRAPH) if largest is None else min(largest, _MOST_GRAPHED))


@cache
def _graph_sizes(most: int) -> tuple[int, ...]:
    return tuple(size for size in (1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)) if size <= most)


def graphs(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> int:
    """Bytes of CUDA graphs on a rank: with LoRA adapters, each is captured for requests with one, and without
    (cudagraph_specialize_lora of config/compilation.py)."""
    each = EXPERT_GRAPH_BYTES if facts.experts else GRAPH_BYTES
    layers = facts.num_layers / arguments.pipeline_parallel_size + (facts.draft.num_layers if facts.draft else 0)
    times = 2 if arguments.enable_lora else 1
    return round(each * layers * len(graph_sizes(resolved.max_num_seqs, arguments.largest_graph)) * times)


def _activations(
    facts: ModelFacts, device: Device, arguments: EngineArguments, resolved: Resolved, does: Behaviour
) -> int:
    """The largest of three peaks: inside a layer, in the sampler after the last one, and before both, while kernels are
    compiled."""
    width = DTYPE_BYTES[served_dtype(facts, arguments)]
    ranks = arguments.tensor_parallel_size
    tokens, requests = resolved.max_num_batched_tokens, resolved.max_num_seqs
    experts = _scratch(facts, device, arguments, tokens, does) * width
    compiling = _copied_inputs(facts, arguments, does) * width
    layer = tokens * (HIDDEN_COPIES * facts.hidden_size + MLP_COPIES * _widest(facts) / ranks) * width
    if _converts_activations(facts):
        layer += tokens * (facts.hidden_size + _widest(facts) / ranks)
    per_entry = SAMPLER_BYTES[does.sampler] if runner(facts, does, arguments) == "first" else SECOND_SAMPLER_BYTES
    sampler = (tokens + 2 * requests) * facts.hidden_size * width + per_entry * requests * facts.vocab_size
    held, passed = (values * width for values in _encoder(facts, arguments, resolved))
    if does.expert_buffers_stay:
        return round(max(experts + held + max(layer, sampler), passed, compiling))
    return round(max(held + max(experts + layer, sampler), passed, compiling))


def _copied_inputs(facts: ModelFacts, arguments: EngineArguments, does: Behaviour) -> float:
    """Values of the embedding of a rank, of which the compiler makes a copy to try its kernels on. A model that takes
    images or sound looks its tokens up outside of the compiled graph, and an eager one compiles nothing.

    Peaks beside the memory that stays: 1.04 GiB for Qwen2.5-7B on an L4 under 0.28, whose embedding has 1.02 GiB; 1.14
    for Qwen3-8B on a slice of an RTX PRO 4500 (1.16); 1.40 with the experts' scratch space for Gemma 4 26B-A4B without
    images on an L40S (1.38), and 0.04 without the compiler (tests/ground_truth)."""
    if not does.copies_inputs or arguments.enforce_eager or _takes_media(facts, arguments):
        return 0.0
    if arguments.kv_cache_memory_bytes is not None:
        return 0.0  # the copy is gone before the cache, whose size does not depend on it
    return facts.vocab_size * facts.hidden_size / arguments.tensor_parallel_size


def _takes_media(facts: ModelFacts, arguments: EngineArguments) -> bool:
    sound = loads_audio(arguments) and "audio" in facts.weight_bytes
    return facts.multimodal and (loads_vision(facts, arguments) or sound)


def _scratch(facts: ModelFacts, device: Device, arguments: EngineArguments, tokens: int, does: Behaviour) -> float:
    """Values of the scratch space of experts. Under data parallelism each rank computes its part of the experts for
    the tokens of all."""
    marlin = does.marlin_buffers and device.capability is not None and device.capability // 10 not in _TRITON_MXFP4
    if facts.quantization is not None and facts.quantization.method in _NO_BUFFERS and not marlin:
        return 0.0
    replicas = arguments.data_parallel_size if facts.experts and does.marlin_buffers else 1
    return _expert_buffers(facts, arguments.tensor_parallel_size * replicas, tokens * replicas)


def _encoder(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> tuple[float, float]:
    """Values that images hold in vLLM's profiling run while the language model is tried, and those that its tower held
    before. They are the embeddings of a step, and their copies in the input. For a tower of any resolution, they are
    its own need for its largest image or video, and the output."""
    vision = loads_vision(facts, arguments)
    if not _takes_media(facts, arguments):
        return 0.0, 0.0
    step = float(resolved.max_num_batched_tokens * facts.hidden_size)
    if not vision or not facts.model_type.startswith(ANY_RESOLUTION):
        return 2 * step, 0.0
    hidden, inner = _tower_widths(facts)
    first = facts.model_type.startswith(_PASSES_FIRST)
    patches = _patches_of_item(facts, arguments, resolved)
    split = first and arguments.mm_encoder_tp_mode != "data"
    mlp = MLP_COPIES * inner / (arguments.tensor_parallel_size if split else 1)
    tower = patches * (HIDDEN_COPIES * hidden + mlp + PATCH_VALUES[facts.model_type[:5]])
    output = patches / PATCHES_OF_TOKEN * facts.hidden_size
    held = step + max(step, output)
    return (held, tower + output) if first else (held + tower, 0.0)


def _patches_of_item(facts: ModelFacts, arguments: EngineArguments, resolved: Resolved) -> int:
    """The patches of the largest item that a request may hold: an image, or the frames of a video."""
    if arguments.videos == 0:
        return LARGEST_IMAGE_PATCHES
    if facts.model_type.startswith(_LARGE_VIDEOS):
        tokens = LARGEST_IMAGE_PATCHES // PATCHES_OF_TOKEN
        return LARGEST_IMAGE_PATCHES * max(1, min(VIDEO_PAIRS, resolved.max_model_len // tokens))
    if facts.model_type.startswith(_SMALL_VIDEOS) and arguments.images == 0:
        return SMALL_VIDEO_PATCHES
    return LARGEST_IMAGE_PATCHES


def _tower_widths(facts: ModelFacts) -> tuple[int, int]:
    """Hidden size and MLP width of the tower for images: the commonest side of its matrices, and the widest side of
    matrices with that one, unless it is three times as wide (queries, keys and values in one)."""
    sides: Counter[int] = Counter()
    for tensor in facts.tensors:
        if tensor.group == "vision" and len(tensor.shape) == 2:
            for side in tensor.shape:
                sides[side] += tensor.copies
    if not sides:
        return 0, 0
    hidden = sides.most_common(1)[0][0]
    return hidden, max((side for side in sides if side != 3 * hidden), default=hidden)


def _converts_activations(facts: ModelFacts) -> bool:
    """Whether vLLM converts the input of a matrix to 8 bits, and holds both versions (Mistral-Small-24B and
    Llama-3.3-70B in w8a8 among the H100 runs)."""
    scheme = facts.quantization
    return scheme is not None and scheme.bits == 8 and scheme.method not in ("gptq", "awq", "bitsandbytes")


def _widest(facts: ModelFacts) -> int:
    """The largest width of the MLPs that compute every token."""
    dense = any(tensor.group == "dense_mlp" for tensor in facts.tensors)
    return facts.intermediate_size if dense or not facts.experts else 0


def _expert_buffers(facts: ModelFacts, ranks: int, tokens: int) -> float:
    """Values of the two scratch spaces that the experts of a layer share: before and after the activation. Sizes as in
    model_executor/layers/fused_moe. The H100 runs of Qwen3-30B-A3B, Qwen1.5-MoE-A2.7B, DeepSeek-V2-Lite and
    Mixtral-8x7B need that much more than their sampler."""
    if not facts.experts:
        return 0.0
    inner = facts.moe_intermediate_size / ranks
    return tokens * facts.experts_per_token * (max(inner, facts.hidden_size) + max(2 * inner, facts.hidden_size))


def _indexer_bytes(facts: ModelFacts, resolved: Resolved, scratch: int) -> int:
    """Bytes of a rank for indexers: the chosen tokens of a step, its scores, and the keys gathered for it, which share
    the `scratch` bytes that experts use."""
    chosen = int((facts.config or {}).get("index_topk") or 0)
    factor = _FACTORS[resolved.max_model_len > _LONG]
    gathered = resolved.max_model_len * _KEYS_OF_A_TOKEN * factor * _KEY_BYTES
    return 4 * resolved.max_num_batched_tokens * chosen + _LOGITS_BYTES + max(0, gathered - scratch)

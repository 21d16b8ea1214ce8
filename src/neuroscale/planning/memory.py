"""Memory of one tensor-parallel rank, in GiB (2^30 bytes): weights, KV cache, and what vLLM needs besides.

vLLM takes `memory x utilisation` of each accelerator. What weights and overhead leave becomes KV cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from neuroscale.catalog import Accelerator, ModelEntry, RuntimeEntry
from neuroscale.models.facts import CacheLayers, ModelFacts

GIB = 2**30
BLOCK = 16
"""Tokens of one KV cache block: vLLM's default."""

SAMPLER_BYTES = 38.5
"""Bytes per sequence and vocabulary entry at vLLM's profiling run (logits in fp32, their sort with 64-bit indices).

Fitted to 7.38, 4.76 and 5.56 GiB of peak activation for gpt-oss-20b, Llama-3.1-8B and Qwen3-0.6B at 1,024 sequences
on an H100 (github:llm-d/llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md); all three agree to 1 %.
"""

COMMUNICATION_GIB = 0.4
"""Buffers of NCCL and of the custom all-reduce. Same source: non-torch memory 0.13 GiB on one GPU, 0.55 on two."""

WeightsBasis = Literal["measured", "files", "config"]


@dataclass(frozen=True)
class Size:
    """Weights of the whole model in GiB, and what the number rests on."""

    gib: float
    basis: WeightsBasis


def weights(model: ModelEntry) -> Size:
    """Measured under vLLM where known; else the bytes of the files; else what the config tells."""
    checkpoint = model.checkpoint
    if checkpoint.resident_gib.value is not None:
        return Size(checkpoint.resident_gib.value, "measured")
    if checkpoint.download_gib.value is not None:
        return Size(checkpoint.download_gib.value, "files")
    return Size(sum(model.facts.weight_bytes.values()) / GIB, "config")


def download_gib(model: ModelEntry) -> float:
    """What has to be read before the model serves."""
    return model.checkpoint.download_gib.value or weights(model).gib


def kv_bytes_per_token(facts: ModelFacts, tensor_parallel: int, bytes_per_value: int) -> tuple[int, int]:
    """Bytes per token on one rank, of the layers that see everything and of the windowed ones."""
    full = windowed = 0
    for layers in facts.cache:
        each = _layer_bytes(layers, tensor_parallel, bytes_per_value) * layers.layers
        if layers.window is None:
            full += each
        else:
            windowed += each
    return full, windowed


def _layer_bytes(layers: CacheLayers, tensor_parallel: int, bytes_per_value: int) -> int:
    """Bytes of a token in one layer on one rank.

    KV heads that do not divide are replicated, as the one vector of latent attention is; models with K = V keep both
    (vLLM 0.32 fills both slots).
    """
    heads = math.ceil(layers.kv_heads / tensor_parallel)
    return heads * (layers.head_dim + layers.value_head_dim) * bytes_per_value


def kv_gib(
    facts: ModelFacts,
    tensor_parallel: int,
    bytes_per_value: int,
    *,
    length: int,
    requests: int,
    in_flight: int,
    hybrid: bool,
) -> float:
    """KV cache of `requests` requests of `length` tokens each, on one rank.

    A windowed layer keeps its window of each request, and the `in_flight` tokens of the step being computed, which
    all requests share. Without the hybrid cache every layer keeps the whole length.
    """
    whole = _blocks(length) * BLOCK
    total = 0
    for layers in facts.cache:
        each = _layer_bytes(layers, tensor_parallel, bytes_per_value) * layers.layers
        kept = requests * whole
        if hybrid and layers.window is not None:
            window = min(_blocks(layers.window - 1) * BLOCK + BLOCK, whole)
            kept = requests * window + min(in_flight, requests * (whole - window))
        total += kept * each
    return total / GIB


def vllm_request_gib(
    facts: ModelFacts, bytes_per_value: int, *, length: int, in_flight: int, tensor_parallel: int = 1
) -> float:
    """What vLLM reserves to admit one request: its 'maximum concurrency' is the cache divided by this.

    Per full layer ceil(length / 16) blocks; per windowed layer ceil(min(window - 1 + in_flight, length) / 16) + 1.
    Reproduces 6.96x of Gemma 4 12B with 11.00 GiB at 32,768 tokens and 2,496 in flight.
    """
    total = 0
    for layers in facts.cache:
        each = _layer_bytes(layers, tensor_parallel, bytes_per_value) * layers.layers
        blocks = _blocks(length)
        if layers.window is not None:
            blocks = _blocks(min(layers.window - 1 + in_flight, length)) + 1
        total += blocks * BLOCK * each
    return total / GIB


def overhead_gib(
    model: ModelEntry,
    runtime: RuntimeEntry,
    tensor_parallel: int,
    *,
    sequences: int,
    batched_tokens: int,
) -> float:
    """What vLLM's profiling run finds beside weights and cache: context, communication, activations, CUDA graphs."""
    if runtime.family == "tpu":
        return 0.0  # XLA's workspace lies outside the share that vLLM takes
    fixed = (runtime.base_memory_gib.value or 0.0) + (runtime.graph_memory_gib.value or 0.0)
    if tensor_parallel > 1:
        fixed += COMMUNICATION_GIB
    sampler = SAMPLER_BYTES * sequences * model.facts.vocab_size
    return fixed + max(sampler, _forward_bytes(model.facts, tensor_parallel, batched_tokens)) / GIB


def usable_gib(accelerator: Accelerator, runtime: RuntimeEntry, utilization: float | None) -> float | None:
    """What vLLM may take of one accelerator; None where its memory is unknown."""
    memory = accelerator.memory_gib.value
    if memory is None:
        return None
    share = utilization if utilization is not None else runtime.memory_utilization
    return memory * share if share is not None else memory


def batched_tokens(model: ModelEntry, accelerator: Accelerator) -> int:
    """`--max-num-batched-tokens`: vLLM's defaults, 8192 from 70 GiB on and 2048 below.

    Gemma 4 computes an image or a video in one step, and a video takes up to 2,496 tokens: 2048 would not start.
    """
    if (accelerator.memory_gib.value or 0.0) >= 70:
        return 8192
    return 2560 if model.serving.multimodal else 2048


def _forward_bytes(facts: ModelFacts, tensor_parallel: int, tokens: int) -> float:
    """Activations of the widest layer in 16 bits: residual, attention and norms, the MLP, the experts' copies."""
    per_token = 6 * facts.hidden_size + 3 * facts.intermediate_size / tensor_parallel
    if facts.experts:
        per_token += facts.experts_per_token * (3 * facts.moe_intermediate_size + facts.hidden_size)
    return 2 * tokens * per_token


def _blocks(tokens: int) -> int:
    return math.ceil(tokens / BLOCK)

"""Memory of one tensor-parallel rank, in GiB (2^30 bytes): weights, KV cache, and what vLLM needs besides.

vLLM takes `memory x utilisation` of each accelerator. What weights and overhead leave becomes KV cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from neuroscale.catalog import Accelerator, ModelConfig, ModelEntry, RuntimeEntry
from neuroscale.planning.architecture import (
    attention_shape,
    count_parameters,
    full_attention_layers,
    layers_with_cache,
)

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

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

WeightsBasis = Literal["measured", "files", "upper bound"]


@dataclass(frozen=True)
class Size:
    """Weights of the whole model in GiB, and what the number rests on."""

    gib: float
    basis: WeightsBasis


def weights(model: ModelEntry) -> Size:
    """Measured under vLLM where known; else the bytes of the files; else all parameters at the model's dtype.

    The last is an upper bound by arithmetic: quantisation only makes a checkpoint smaller.
    """
    checkpoint = model.checkpoint
    if checkpoint.resident_gib.value is not None:
        return Size(checkpoint.resident_gib.value, "measured")
    if checkpoint.download_gib.value is not None:
        return Size(checkpoint.download_gib.value, "files")
    parameters = max(model.parameters.published_total, count_parameters(model.config).total)
    width = 1.0 if checkpoint.quantization == "fp8" else _BYTES[checkpoint.dtype]
    # Scales of block-wise fp8 and embeddings kept in 16 bits: 3 % covers both for the models that ship fp8.
    margin = 1.03 if checkpoint.quantization == "fp8" else 1.0
    return Size(parameters * width * margin / GIB, "upper bound")


def download_gib(model: ModelEntry) -> float:
    """What has to be read before the model serves."""
    return model.checkpoint.download_gib.value or weights(model).gib


@lru_cache(maxsize=1024)
def kv_bytes_per_token(config: ModelConfig, tensor_parallel: int, bytes_per_value: int) -> tuple[int, int]:
    """Bytes per token on one rank, of the layers that see everything and of the windowed ones.

    Latent attention keeps one vector per token, on every rank. KV heads that do not divide are replicated.
    """
    if config.kv_lora_rank:
        latent = (config.kv_lora_rank + (config.qk_rope_head_dim or 0)) * bytes_per_value
        return layers_with_cache(config) * latent, 0
    full_bytes = windowed_bytes = 0
    for full in full_attention_layers(config)[: layers_with_cache(config)]:
        head_dim, kv_heads = attention_shape(config, full)
        # Keys and values; models with K = V keep both (vLLM 0.32 fills both slots).
        layer = 2 * math.ceil(kv_heads / tensor_parallel) * head_dim * bytes_per_value
        if full:
            full_bytes += layer
        else:
            windowed_bytes += layer
    return full_bytes, windowed_bytes


def kv_gib(
    config: ModelConfig,
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
    full, windowed = kv_bytes_per_token(config, tensor_parallel, bytes_per_value)
    whole = _blocks(length) * BLOCK
    if not hybrid or config.sliding_window is None:
        return requests * whole * (full + windowed) / GIB
    window = min(_blocks(config.sliding_window - 1) * BLOCK + BLOCK, whole)
    shared = min(in_flight, requests * (whole - window))
    return (requests * (whole * full + window * windowed) + shared * windowed) / GIB


def vllm_request_gib(
    config: ModelConfig, bytes_per_value: int, *, length: int, in_flight: int, tensor_parallel: int = 1
) -> float:
    """What vLLM reserves to admit one request: its 'maximum concurrency' is the cache divided by this.

    Per full layer ceil(length / 16) blocks; per windowed layer ceil(min(window - 1 + in_flight, length) / 16) + 1.
    Reproduces 6.96x of Gemma 4 12B with 11.00 GiB at 32,768 tokens and 2,496 in flight.
    """
    full, windowed = kv_bytes_per_token(config, tensor_parallel, bytes_per_value)
    total = _blocks(length) * BLOCK * full
    if windowed and config.sliding_window is not None:
        total += (_blocks(min(config.sliding_window - 1 + in_flight, length)) + 1) * BLOCK * windowed
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
    sampler = SAMPLER_BYTES * sequences * model.config.vocab_size
    return fixed + max(sampler, _forward_bytes(model.config, tensor_parallel, batched_tokens)) / GIB


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


def _forward_bytes(config: ModelConfig, tensor_parallel: int, tokens: int) -> float:
    """Activations of the widest layer in 16 bits: residual, attention and norms, the MLP, the experts' copies."""
    per_token = 6 * config.hidden_size + 3 * config.intermediate_size / tensor_parallel
    if config.experts:
        per_token += (config.num_experts_per_tok or 0) * (3 * (config.moe_intermediate_size or 0) + config.hidden_size)
    return 2 * tokens * per_token


def _blocks(tokens: int) -> int:
    return math.ceil(tokens / BLOCK)

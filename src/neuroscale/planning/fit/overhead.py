"""What vLLM needs on a rank beside weights and KV cache: activations, CUDA graphs, buffers, the process itself."""

from __future__ import annotations

from collections.abc import Mapping

from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.result import Resolved
from neuroscale.planning.fit.versions import Behaviour
from neuroscale.planning.fit.weights import DTYPE_BYTES
from neuroscale.vllm.engine import EngineArguments

SAMPLER_BYTES = {"sort": 38.5, "triton": 14.0, "flashinfer": 14.0}
"""Bytes per request and vocabulary entry when vLLM tries its sampler at --max-num-seqs."""

NON_TORCH_BYTES = round(0.13 * 2**30)
"""The CUDA context's growth, cuBLAS and kernels of one process."""

COMMUNICATION_BYTES = round(0.42 * 2**30)
"""NCCL's channels and the custom all-reduce of a rank."""

GRAPH_BYTES = round(0.5 * 2**30)


def overhead(
    facts: ModelFacts, device: Device, arguments: EngineArguments, resolved: Resolved, does: Behaviour
) -> Mapping[str, int]:
    """Bytes by part, of one rank. Graphs count only where the version takes them off before it sizes the cache."""
    if device.family in ("tpu", "cpu"):
        return {}
    ranks = arguments.tensor_parallel_size
    parts = {
        "activations": max(
            _forward(facts, arguments, ranks, resolved.max_num_batched_tokens),
            round(SAMPLER_BYTES[does.sampler] * resolved.max_num_seqs * facts.vocab_size),
        ),
        "process": NON_TORCH_BYTES,
    }
    if ranks * arguments.pipeline_parallel_size > 1:
        parts["communication"] = COMMUNICATION_BYTES
    if resolved.graphs and does.graphs_counted:
        parts["graphs"] = GRAPH_BYTES
    return parts


def _forward(facts: ModelFacts, arguments: EngineArguments, ranks: int, tokens: int) -> int:
    """Activations of the widest layer: residual, attention and norms, the MLP, the experts' copies."""
    values = 6 * facts.hidden_size + 3 * facts.intermediate_size / ranks
    if facts.experts:
        values += facts.experts_per_token * (3 * facts.moe_intermediate_size / ranks + facts.hidden_size)
    width = DTYPE_BYTES[facts.dtype if arguments.dtype == "auto" else arguments.dtype]
    return round(width * tokens * values)

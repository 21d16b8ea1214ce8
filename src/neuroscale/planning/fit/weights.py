"""Weights of one rank: what tensor, pipeline and expert parallelism split, and what every rank holds whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neuroscale.models.facts import ModelFacts, Tensor
from neuroscale.vllm.engine import EngineArguments

VOCABULARY_STEP = 64
"""vLLM pads the vocabulary to a multiple of this before it splits it (vocab_parallel_embedding.py)."""

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "half": 2, "float": 4}


@dataclass(frozen=True)
class RankWeights:
    """Bytes of the fullest rank by group of tensors; `offloaded` of them lie in host memory."""

    by_group: Mapping[str, int]
    offloaded: int

    @property
    def total(self) -> int:
        """On the accelerator."""
        return sum(self.by_group.values()) - self.offloaded


def rank_weights(facts: ModelFacts, arguments: EngineArguments) -> RankWeights:
    """The weights of the rank that holds most: of pipeline stages the one with the embedding or the LM head."""
    ranks = arguments.tensor_parallel_size
    by_group: dict[str, int] = {}
    for group, size in facts.weight_bytes.items():
        if group == "mtp" and arguments.speculative is None:
            continue
        if arguments.language_model_only and group in ("vision", "audio", "projector"):
            continue
        share = _share(facts, group, ranks)
        by_group[group] = math.ceil(size * share)
    stages = arguments.pipeline_parallel_size
    if stages > 1:
        by_group = _stage(facts, by_group, stages)
    by_group["rotary"] = _rotary(facts, arguments)
    whole = sum(by_group.values())
    return RankWeights(by_group, min(whole, round(arguments.cpu_offload_gib * 2**30)))


def _share(facts: ModelFacts, group: str, ranks: int) -> float:
    """The part of a group's bytes that one rank holds, vocabulary padding included."""
    held = whole = 0.0
    for tensor in facts.tensors:
        if tensor.group == group:
            weight = tensor.params * _width(facts, tensor)
            whole += weight
            held += weight * _part(facts, tensor, ranks)
    return held / whole if whole else 1.0


def _part(facts: ModelFacts, tensor: Tensor, ranks: int) -> float:
    if tensor.sharding == "replicated":
        return 1.0
    if tensor.sharding == "vocabulary":
        rows = facts.vocab_size
        padded = math.ceil(rows / VOCABULARY_STEP) * VOCABULARY_STEP
        return math.ceil(padded / ranks) / rows
    if tensor.sharding == "kv_heads":
        return math.ceil(facts.kv_heads / ranks) / facts.kv_heads if facts.kv_heads else 1.0 / ranks
    return 1.0 / ranks


def _width(facts: ModelFacts, tensor: Tensor) -> float:
    """Bytes of a parameter, to weigh the tensors of one group against each other."""
    quantization = facts.quantization
    if quantization is not None and tensor.linear:
        return quantization.bits / 8
    return float(DTYPE_BYTES[facts.dtype])


def _stage(facts: ModelFacts, by_group: Mapping[str, int], stages: int) -> dict[str, int]:
    """Layers are dealt to the stages evenly; the first has the embedding, the last the LM head (the first, too, where
    they are one matrix)."""
    layers = math.ceil(facts.num_layers / stages) / facts.num_layers
    ends = {"embedding", "lm_head", "per_layer_embedding", "vision", "audio", "projector"}
    inner = {group: math.ceil(size * layers) for group, size in by_group.items() if group not in ends}
    first = sum(size for group, size in by_group.items() if group in ends and group != "lm_head")
    last = by_group.get("lm_head", by_group.get("embedding", 0))
    kept = {g: s for g, s in by_group.items() if g in ends and g != "lm_head"} if first >= last else {"lm_head": last}
    return {**inner, **kept}


def _rotary(facts: ModelFacts, arguments: EngineArguments) -> int:
    """Sines and cosines of every position that the model reads, kept beside the weights."""
    width = DTYPE_BYTES[facts.dtype if arguments.dtype == "auto" else arguments.dtype]
    return facts.max_position_embeddings * facts.head_dim * width

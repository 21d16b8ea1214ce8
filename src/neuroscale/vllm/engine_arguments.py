"""Holds the typed values of those arguments of vLLM that decide about memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from neuroscale.models.hf_overrides import of_context
from neuroscale.vllm.unplanned_arguments import Unplanned, unplanned


@dataclass(frozen=True)
class EngineArguments:
    """The values in a command line of `vllm serve`. None: the command does not set it, so the version's default holds.

    `max_model_len` is -1 for the longest that fits (`auto`). `gpu_memory_utilization` is a share of the whole memory;
    `cpu_offload_gib` and `kv_cache_memory_bytes` are per rank.
    `images`, `videos`, `audios`: the most in one request (`--limit-mm-per-prompt`).
    """

    model: str = ""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    cpu_offload_gib: float = 0.0
    enforce_eager: bool = False
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    disable_sliding_window: bool = False
    language_model_only: bool = False
    images: int | None = None
    videos: int | None = None
    audios: int | None = None
    speculative: str | None = None
    """The method of `--speculative-config`, or else its model."""
    draft: str = ""
    """The model or head that guesses tokens, if it is another model and has no options that change its memory."""
    speculative_tokens: int = 0
    """Tokens guessed in a step, if `--speculative-config` sets the number."""
    enable_prefix_caching: bool | None = None
    mamba_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    mamba_ssm_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    enable_chunked_prefill: bool | None = None
    num_gpu_blocks_override: int | None = None
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    performance_mode: Literal["balanced", "interactivity", "throughput"] = "balanced"
    mm_encoder_tp_mode: Literal["weights", "data"] = "weights"
    enable_eplb: bool = False
    redundant_experts: int = 0
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    hf_overrides: Mapping[str, Any] | None = None
    """The part of `--hf-overrides` that changes only the longest context."""
    graphs_estimated: bool | None = None
    """VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: whether vLLM subtracts CUDA graphs before it sizes the cache."""
    second_runner: bool | None = None
    """VLLM_USE_V2_MODEL_RUNNER."""
    unplanned: tuple[Unplanned, ...] = ()
    """The other arguments about memory in the command, which planning does not count."""

    @property
    def ranks(self) -> int:
        """The ranks of all replicas together, each on an accelerator of its own."""
        stages = self.pipeline_parallel_size * self.prefill_context_parallel_size
        return self.tensor_parallel_size * stages * self.data_parallel_size

    def in_range(self) -> EngineArguments:
        """The arguments without numbers that vLLM refuses as too small, so that the rest can be planned."""
        least = dict.fromkeys(_FROM_1, 1) | {"max_model_len": -1, "cpu_offload_gib": 0}
        wrong = {name for name, lowest in least.items() if (getattr(self, name) or lowest) < lowest}
        wrong |= {name for name in _FROM_1 if getattr(self, name) == 0}
        if not 0 < (1 if self.gpu_memory_utilization is None else self.gpu_memory_utilization) <= 1:
            wrong.add("gpu_memory_utilization")
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in wrong}
        return EngineArguments(**kept)


_FROM_1 = (
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_num_seqs"),
    *("max_num_batched_tokens", "kv_cache_memory_bytes", "block_size", "num_gpu_blocks_override"),
    *("decode_context_parallel_size", "prefill_context_parallel_size"),
)


def engine_arguments(values: Mapping[str, Any]) -> EngineArguments:
    """The arguments that decide about memory, from values by vLLM's own names."""
    limits = values.get("limit_mm_per_prompt") or {}
    speculative = values.get("speculative_config") or {}
    balancing = values.get("eplb_config")
    redundant = balancing.get("num_redundant_experts") if isinstance(balancing, dict) else None
    same = {
        name: values[name]
        for name in (
            *("model", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
            *("enable_expert_parallel", "quantization", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
            *("gpu_memory_utilization", "kv_cache_memory_bytes", "kv_cache_dtype", "block_size", "enforce_eager"),
            *("async_scheduling", "disable_hybrid_kv_cache_manager", "disable_sliding_window", "language_model_only"),
            *("enable_chunked_prefill", "num_gpu_blocks_override", "decode_context_parallel_size"),
            *("prefill_context_parallel_size", "performance_mode", "mm_encoder_tp_mode", "enable_eplb"),
            *("max_loras", "max_lora_rank", "enable_prefix_caching", "mamba_cache_dtype", "mamba_ssm_cache_dtype"),
        )
        if values.get(name) is not None
    }
    dtype = {"half": "float16", "float": "float32"}.get(values.get("dtype", "auto"), values.get("dtype", "auto"))
    method = values.get("spec_method") or values.get("spec_model")
    if isinstance(speculative, dict) and not method:
        method = speculative.get("method") or speculative.get("model")
    return EngineArguments(
        **same,
        dtype=dtype,
        cpu_offload_gib=float(values.get("cpu_offload_gb") or 0.0),
        images=_limit(limits, "image"),
        videos=_limit(limits, "video"),
        audios=_limit(limits, "audio"),
        speculative=str(method) if method else None,
        draft=_draft(values, speculative),
        speculative_tokens=_guessed(values, speculative),
        redundant_experts=redundant if isinstance(redundant, int) and redundant > 0 else 0,
        # Adapters of fewer matrices, or adapters split otherwise, are not counted.
        enable_lora=bool(values.get("enable_lora"))
        and not (values.get("lora_target_modules") or values.get("fully_sharded_loras")),
        hf_overrides=values["hf_overrides"] if of_context(values.get("hf_overrides")) else None,
        unplanned=unplanned(values),
    )


def _draft(values: Mapping[str, Any], speculative: Any) -> str:
    """The model or head that guesses tokens; empty if there is none, or if options change its memory."""
    config = speculative if isinstance(speculative, dict) else {}
    name = values.get("spec_model") or config.get("model")
    split = config.get("draft_tensor_parallel_size")
    if any(config.get(key) for key in _OF_DRAFTS) or split not in (None, values.get("tensor_parallel_size", 1)):
        return ""
    return name if isinstance(name, str) and name != values.get("model") else ""


_OF_DRAFTS = "draft_sample_method", "kv_cache_dtype", "parallel_drafting", "quantization", "use_heterogeneous_vocab"
"""Options of `--speculative-config` that change the memory of a draft model or its start."""


def _guessed(values: Mapping[str, Any], speculative: Any) -> int:
    """Tokens guessed in a step; 0 if the command does not set the number."""
    said = values.get("spec_tokens")
    if said is None and isinstance(speculative, dict):
        said = speculative.get("num_speculative_tokens")
    return said if isinstance(said, int) and said > 0 else 0


def _limit(limits: Any, kind: str) -> int | None:
    """The most inputs of a kind in one request; `limits` has a number, or an object with `count`."""
    limit = limits.get(kind) if isinstance(limits, dict) else None
    if isinstance(limit, dict):
        limit = limit.get("count")
    return limit if isinstance(limit, int) else None

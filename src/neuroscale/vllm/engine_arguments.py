"""Holds the typed values of vLLM's arguments and variables that decide about memory, and lists those not counted.

Names and defaults of variables are from vllm/envs.py of the releases 0.19 to 0.32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from neuroscale.core.units import GIB
from neuroscale.models.hf_overrides import of_context
from neuroscale.vllm.backend_rules import VARIABLE

_Asks = Callable[[Any], bool]


@dataclass(frozen=True)
class Unplanned:
    """A part of the memory that planning does not count."""

    dest: str  # vLLM's name of the argument or environment variable
    what: str  # the part, in words
    of_cache: bool = False  # without it, nobody knows whether weights that fit leave room for the cache
    verb: str = "count"

    @property
    def clause(self) -> str:
        """A clause to write after a colon."""
        named = self.dest if self.dest.isupper() else f"--{self.dest.replace('_', '-')}"
        return f"planning with {named} does not {self.verb} {self.what}"

    @property
    def sentence(self) -> str:
        """A sentence for the reasons of a fit."""
        return f"P{self.clause[1:]}."


_GRAPHS = "the CUDA graphs and the compiled code that it asks for"
_MOVED = "which weights it moves to host memory, and when"
_ARGUMENTS: tuple[tuple[str, _Asks, str], ...] = (
    ("use_replayssm", bool, "the inputs that it keeps beside each state"),
    ("mamba_block_size", lambda size: size is not None, "states at other places than the ends of blocks"),
    ("enable_tower_connector_lora", bool, "the memory of its LoRA adapters for towers"),
    ("lora_target_modules", bool, "the memory of its LoRA adapters"),
    ("fully_sharded_loras", bool, "the memory of its LoRA adapters"),
    ("hf_overrides", lambda overrides: not of_context(overrides or {}), "what it changes of the model's config"),
    ("hf_config_path", bool, "another config than the model's own"),
    ("model_class_overrides", bool, "another class than the model's own"),
    ("worker_cls", lambda name: name not in (None, "auto"), "what another worker takes"),
    ("quantization_config", bool, "which weights it converts as they are loaded"),
    ("engram_config", bool, "the memory of its engrams"),
    ("kv_cache_dtype_skip_layers", bool, "the larger cache of the layers that it leaves as they are"),
    ("kv_transfer_config", bool, "the buffers of its connector, and how that lays the cache out"),
    ("ec_transfer_config", bool, "the buffers of its connector"),
    ("compilation_config", lambda config: (config or {"mode": 3}) != {"mode": 3}, _GRAPHS),
    ("optimization_level", lambda level: str(level) not in ("2", "None"), _GRAPHS),
    ("cudagraph_capture_sizes", bool, _GRAPHS),
    ("performance_mode", lambda mode: mode == "interactivity", "the CUDA graphs that it adds"),
    ("enable_eplb", bool, "copies of experts, and the buffers through which experts move"),
    ("enable_dbo", bool, "the buffers of its second batch"),
    ("ubatch_size", lambda size: (size or 0) > 1, "the buffers of its smaller batches"),
    ("all2all_backend", lambda name: name not in (None, "allgather_reducescatter"), "the buffers of that backend"),
    ("dcp_q_replicate", bool, "the copies of the queries' weights"),
    ("offload_backend", lambda name: name not in (None, "auto"), _MOVED),
    ("offload_group_size", bool, _MOVED),
    ("offload_params", bool, _MOVED),
    ("cpu_offload_params", bool, _MOVED),
    ("mm_processor_kwargs", bool, "how large it makes images, videos and sound"),
    ("mm_ipc_gpu_memory_gb", bool, "the memory for inputs that processes share"),
    ("mm_encoder_only", bool, "that only the towers are served"),
    ("skip_mm_profiling", bool, "the memory of images, videos and sound, for which vLLM then leaves no room"),
)


def unplanned(values: Mapping[str, Any]) -> tuple[Unplanned, ...]:
    """The arguments that are not counted, from the values of a command by vLLM's own names."""
    return tuple(_uncounted(values))


GUESSING = "speculative_config", "spec_method", "spec_model"
"""The arguments that name what guesses tokens."""
_OF_THE_TEXT = frozenset({"ngram", "ngram_gpu", "[ngram]"})
"""Methods that guess from the text alone. vLLM 0.32 keeps the texts on the accelerator: four bytes for each token of
each sequence that may run, up to the longest context (v1/worker/gpu/states.py)."""


def _guessing(values: Mapping[str, Any]) -> Iterator[Unplanned]:
    """What a draft model takes; the layers of multi-token prediction of the model itself are planned."""
    said = values.get("speculative_config")
    config = said if isinstance(said, Mapping) else {}
    method = str(values.get("spec_method") or config.get("method") or "")
    draft = str(values.get("spec_model") or config.get("model") or "")
    dest = next((dest for dest in GUESSING if values.get(dest)), "")
    if (method or draft) in _OF_THE_TEXT:
        yield Unplanned(dest, "the table on the accelerator of the texts from which ngram guesses tokens")
        return
    if not dest or method == "suffix" or ("mtp" in method and draft in ("", values.get("model"))):
        return
    if not method and draft and draft == values.get("model"):
        return
    named = f"the draft model {draft}" if draft else f"the method {method}" if method else "speculative decoding"
    yield Unplanned(dest, f"the weights and the KV cache of {named}")


def _uncounted(values: Mapping[str, Any]) -> Iterator[Unplanned]:
    yield from _guessing(values)
    dtype = str(values.get("kv_cache_dtype") or "")
    if dtype.startswith(("turboquant", "ultraquant")) or dtype.endswith(("_ds_mla", "_per_token_head")):
        yield Unplanned("kv_cache_dtype", f"the size of a cache of the kind {dtype}", of_cache=True)
    for dest, asks, what in _ARGUMENTS:
        if asks(values.get(dest)):
            yield Unplanned(dest, what)


@dataclass(frozen=True)
class EngineArguments:
    """The values in a command line of `vllm serve`. None: the command does not set it, so the version's default holds.
    `max_model_len` is -1 for the longest that fits (`auto`). `gpu_memory_utilization` is a share of the whole memory;
    `cpu_offload_gib` and `kv_cache_memory_bytes` are per rank."""

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
    largest_graph: int | None = None  # tokens of the largest step that is a CUDA graph, if the command sets it
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    disable_sliding_window: bool = False
    language_model_only: bool = False
    # The most in one request (`--limit-mm-per-prompt`).
    images: int | None = None
    videos: int | None = None
    audios: int | None = None
    speculative: str | None = None  # the method of `--speculative-config`, or else its model
    draft: str = ""
    """The model or head that guesses tokens, if it is another model and has no options that change its memory."""
    speculative_tokens: int = 0  # tokens guessed in a step, if `--speculative-config` sets the number
    enable_prefix_caching: bool | None = None
    mamba_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    mamba_ssm_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    enable_chunked_prefill: bool | None = None
    num_gpu_blocks_override: int | None = None
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    performance_mode: Literal["balanced", "interactivity", "throughput"] = "balanced"
    mm_encoder_tp_mode: Literal["weights", "data"] = "weights"
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    hf_overrides: Mapping[str, Any] | None = None  # the part of `--hf-overrides` that changes only the longest context
    graphs_estimated: bool | None = None
    """VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: whether vLLM subtracts CUDA graphs before it sizes the cache."""
    second_runner: bool | None = None  # VLLM_USE_V2_MODEL_RUNNER
    # The backends of the kernels that the command names, in vLLM's spelling ("": it leaves the choice to vLLM).
    attention_backend: str = ""
    attention_variable: str = ""  # VLLM_ATTENTION_BACKEND, which some releases read
    experts_backend: str = ""
    linear_backend: str = ""
    attention_settings: tuple[str, ...] = ()  # other keys of `--attention-config`
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
        kept = {part.name: getattr(self, part.name) for part in fields(self) if part.name not in wrong}
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
    same = {each.name: values[each.name] for each in fields(EngineArguments) if values.get(each.name) is not None}
    dtype = {"half": "float16", "float": "float32"}.get(values.get("dtype", "auto"), values.get("dtype", "auto"))
    method = values.get("spec_method") or values.get("spec_model")
    if isinstance(speculative, dict) and not method:
        method = speculative.get("method") or speculative.get("model")
    computed = {
        "dtype": dtype,
        "cpu_offload_gib": float(values.get("cpu_offload_gb") or 0.0),
        "images": _limit(limits, "image"),
        "videos": _limit(limits, "video"),
        "audios": _limit(limits, "audio"),
        "speculative": str(method) if method else None,
        "draft": _draft(values, speculative),
        "speculative_tokens": _guessed(values, speculative),
        # Adapters of fewer matrices, or adapters split otherwise, are not counted.
        "enable_lora": bool(values.get("enable_lora"))
        and not (values.get("lora_target_modules") or values.get("fully_sharded_loras")),
        "largest_graph": _largest_graph(values),
        "hf_overrides": values["hf_overrides"] if of_context(values.get("hf_overrides")) else None,
        "unplanned": unplanned(values),
        **_backends(values),
    }
    return EngineArguments(**{**same, **computed})


def _backends(values: Mapping[str, Any]) -> dict[str, Any]:
    """The backends that a command names, by an argument of their own or in a configuration."""
    attention, kernels = (
        said if isinstance(said := values.get(dest), Mapping) else {} for dest in ("attention_config", "kernel_config")
    )

    def plain(name: Any) -> str:
        name = str(name or "").replace("-", "_")
        return "" if name.lower() == "auto" else name

    def named(dest: str, config: Mapping[str, Any], key: str) -> str:
        return plain(values.get(dest) or config.get(key))

    per_quant = kernels.get("linear_backend_per_quant")
    linear = {named("linear_backend", kernels, "linear_backend")}
    linear |= {plain(name) for name in per_quant.values()} if isinstance(per_quant, Mapping) else set()
    return {
        "attention_backend": named("attention_backend", attention, "backend").upper(),
        "experts_backend": named("moe_backend", kernels, "moe_backend").lower(),
        "linear_backend": " or ".join(sorted(linear - {""})).lower(),
        "attention_settings": tuple(key for key, value in attention.items() if key != "backend" and value is not None),
    }


def _largest_graph(values: Mapping[str, Any]) -> int | None:
    """The tokens of the largest CUDA graph, from the arguments or from `--compilation-config`."""
    config = values.get("compilation_config")
    for said in (values, config if isinstance(config, Mapping) else {}):
        largest, sizes = said.get("max_cudagraph_capture_size"), said.get("cudagraph_capture_sizes")
        if isinstance(sizes, list | tuple) and all(isinstance(size, int) for size in sizes):
            largest = max(sizes, default=largest)
        if isinstance(largest, int):
            return largest
    return None


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


ESTIMATE_GRAPHS = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
SECOND_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"

_ASKED_GRAPHS = "the CUDA graphs that it asks for"
_EXPERTS = "what the kernels for experts take that it asks for"
_UNPLANNED = {
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": ("1", "what chunks of a context keep"),
    "VLLM_ALLREDUCE_USE_SYMM_MEM": ("1", "the buffers between ranks"),
    "VLLM_DEEPEP_BUFFER_SIZE_MB": ("1024", "the buffers between ranks"),
    "VLLM_FLASHINFER_MOE_BACKEND": (None, _EXPERTS),
    "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": (None, "the buffer of attention"),
    "VLLM_FUSED_MOE_CHUNK_SIZE": (None, "the scratch space of experts"),
    "VLLM_KV_CACHE_LAYOUT": (None, "how the cache is laid out"),
    "VLLM_MLA_DISABLE": ("0", "what latent attention keeps without its own kernels"),
    "VLLM_USE_BREAKABLE_CUDAGRAPH": (None, _ASKED_GRAPHS),
    "VLLM_USE_FLASHINFER_MOE_FP16": ("0", _EXPERTS),
    "VLLM_USE_FLASHINFER_MOE_FP4": ("0", _EXPERTS),
    "VLLM_USE_FLASHINFER_MOE_FP8": ("0", _EXPERTS),
    "VLLM_USE_FLASHINFER_MOE_INT4": ("0", _EXPERTS),
    "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": ("0", _EXPERTS),
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": ("0", _EXPERTS),
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS": ("0", _EXPERTS),
    "VLLM_USE_FLASHINFER_SAMPLER": (None, "what its sampler takes"),
    "VLLM_USE_NCCL_SYMM_MEM": ("0", "the buffers between ranks"),
    "VLLM_USE_V1": ("1", "what the first engine takes"),
}
"""Each variable with its default (None: the default varies), and the memory that planning does not count."""


CACHE_SPACE = "VLLM_CPU_KVCACHE_SPACE"
"""The cache of each rank on a CPU in GiB; vLLM prefers it to `--kv-cache-memory-bytes`."""


def cache_space(environment: Mapping[str, str]) -> int | None:
    """GiB of the cache of each rank on a CPU; None if the variable is not set, or is not a number."""
    try:
        return int(environment[CACHE_SPACE])
    except (KeyError, ValueError):
        return None


def hidden_cache_space(environment: Mapping[str, str], hidden: Mapping[str, str]) -> str:
    """Why the files do not show the cache's size ("" if they do, or if it is not set). `hidden`: a ServeCommand's."""
    if CACHE_SPACE in environment:
        return ""
    if CACHE_SPACE in hidden:
        return f"{CACHE_SPACE} sizes its cache, and {hidden[CACHE_SPACE]}"
    return f"{CACHE_SPACE} may size its cache, and {hidden['']}" if "" in hidden else ""


def with_variables(arguments: EngineArguments, environment: Mapping[str, str], family: str) -> EngineArguments:
    """The arguments with the settings on memory in the environment variables of a server on that family of
    accelerators."""
    parts = [
        Unplanned(name, what)
        for name, (default, what) in _UNPLANNED.items()
        if name in environment and environment[name] != default
    ]
    switches: dict[str, bool | None] = {}
    for name in (ESTIMATE_GRAPHS, SECOND_RUNNER):
        if name in environment:
            switches[name] = {"0": False, "1": True}.get(environment[name].strip())
            if switches[name] is None:
                parts.append(Unplanned(name, f"the value {environment[name]!r}, which is neither 0 nor 1"))
    space = cache_space(environment) if family == "cpu" else None
    return replace(
        arguments,
        kv_cache_memory_bytes=space * GIB if space and space > 0 else arguments.kv_cache_memory_bytes,
        graphs_estimated=switches.get(ESTIMATE_GRAPHS),
        second_runner=switches.get(SECOND_RUNNER),
        attention_variable=environment.get(VARIABLE, "").strip().upper(),
        unplanned=(*arguments.unplanned, *parts),
    )

"""Lists arguments that change vLLM's memory and that planning does not count: every report of a fit names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.models.hf_overrides import of_context

Told = Callable[[Any], bool]


@dataclass(frozen=True)
class Unplanned:
    """`dest`: vLLM's name of the argument or environment variable. `what`: the part that is not counted, in words."""

    dest: str
    what: str

    @property
    def told(self) -> str:
        """A clause to write after a colon."""
        named = self.dest if self.dest.isupper() else f"--{self.dest.replace('_', '-')}"
        return f"planning with {named} does not count {self.what}"

    @property
    def sentence(self) -> str:
        """A sentence for the reasons of a fit."""
        return f"P{self.told[1:]}."


_GRAPHS = "the CUDA graphs and the compiled code that it asks for"
_MOVED = "which weights it moves to host memory, and when"
_ARGUMENTS: tuple[tuple[str, Told, str], ...] = (
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
    ("max_cudagraph_capture_size", lambda size: size is not None, _GRAPHS),
    ("performance_mode", lambda mode: mode == "interactivity", "the CUDA graphs that it adds"),
    ("enable_eplb", bool, "the buffers through which experts move"),
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
    return tuple(_found(values))


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


def _found(values: Mapping[str, Any]) -> Iterator[Unplanned]:
    yield from _guessing(values)
    dtype = str(values.get("kv_cache_dtype") or "")
    if dtype.startswith(("turboquant", "ultraquant")) or dtype.endswith("_ds_mla"):
        yield Unplanned("kv_cache_dtype", f"the exact size of a cache of the kind {dtype}")
    for dest, told, what in _ARGUMENTS:
        if told(values.get(dest)):
            yield Unplanned(dest, what)

"""Starts vLLM for tests: engines on the CPU, one after another, with dummy weights. Run by vLLM's own Python.

`vllm_start.py CASES ANSWERS`: CASES is a JSON list of objects, ANSWERS gets a JSON line for each, in their order.

A case: `name`, `config` (a config.json), `arguments` (of vLLM's engine, by their Python names) and `how`:
- "start": the real engine, as far as a server that could answer: weights, KV cache, scheduler. `tensor_parallel_size`
  starts that many processes.
- "build": vLLM's own model and KV cache planning without memory behind them, for sizes that no test machine holds:
  the model as rank `rank` of `tensor_parallel_size` builds it, and what `memory` bytes for the cache give. As on a GPU:
  block sizes of FlashAttention, and the asynchronous scheduling that `arguments` ask for.

`draft`: the config.json of a draft model, to which `speculative_config` is pointed; `tensors`: shapes of the tensors in
its checkpoint, which vLLM then loads (otherwise its weights are dummies, too).

- "plan": the planning of the cache alone, as on a GPU, for layers of any kinds: `layers` is a list of (kind, how many,
  KV heads, head size, window), `memory` bytes; compressed tokens have their ratio in place of the heads; `config` and
  `arguments` give the rest.

An answer: `name`; `held`, for each rank the bytes of the model's parameters and those of its buffers (before vLLM
repacks them for the CPU); `blocks`, `block_size`, `tokens` and `concurrency` of the KV cache; `printed`, the log lines
about it; or `error`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

# In this very process, so that one import of vLLM serves all engines; asked of nobody, and told to nobody.
os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_WORKER_MULTIPROC_METHOD="spawn",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_CONFIGURE_LOGGING="0",
    VLLM_NO_USAGE_STATS="1",
    GLOO_SOCKET_IFNAME="lo",
    # The models are tiny: more threads would spin for each other.
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    # Its kernels come with CUDA alone.
    VLLM_KIMI_K3_GEMM_AR="0",
)

import torch
from safetensors.torch import save_file
from vllm import EngineArgs
from vllm import logger as vllm_logger
from vllm.config import set_current_vllm_config
from vllm.distributed import cleanup_dist_env_and_memory, parallel_state
from vllm.model_executor.layers import rotary_embedding
from vllm.model_executor.layers.fused_moe import config as fused_moe
from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as unquantized_experts
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry
from vllm.models.deepseek_v4 import attention as deepseek_v4
from vllm.models.deepseek_v4 import compressor
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.attention.backends.mla import cpu_mla, flashmla_sparse, sparse_swa
from vllm.v1.core import kv_cache_utils
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec
from vllm.v1.worker.gpu.spec_decode.eagle import utils as eagle_utils

_GPU_LAYOUT = "LBNHC"
"""The layout of a CUDA backend that sets none: the first in vLLM's default order."""
_PACKED_LAYOUT = "BLHNC"
"""The layout of attention over compressed tokens."""
_create = BaseModelLoader.create_model
_freeze = gc.freeze


def _by_module(model: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """The same bytes by the module's path; what modules share counts with the first."""
    found = {}
    seen: set[int] = set()
    for path, module in model.named_modules():
        weights = [one for one in module._parameters.values() if one is not None]
        tables = [one for one in module._buffers.values() if one is not None and one.dim() and not one._is_view()]
        new = [[one for one in some if id(one) not in seen] for some in (weights, tables)]
        seen.update(id(one) for some in new for one in some)
        found[path] = (sum(one.nbytes for one in new[0]), sum(one.nbytes for one in new[1]))
    return found


def _create_and_measure(self: Any, vllm_config: Any, model_config: Any, prefix: str = "") -> torch.nn.Module:
    if model_config.runner_type != "draft":
        Measured.models.clear()
    model: torch.nn.Module = _create(self, vllm_config, model_config, prefix)
    Measured.models.append((model, _by_module(model)))
    return model


def _held_together(models: list[tuple[torch.nn.Module, dict[str, tuple[int, int]]]]) -> tuple[int, int]:
    """Bytes of the parameters and buffers of several models; modules that they share count once."""
    seen: set[int] = set()
    held = [0, 0]
    for model, sizes in models:
        for path, module in model.named_modules():
            if id(module) not in seen:
                seen.add(id(module))
                for kind, size in enumerate(sizes.get(path, (0, 0))):
                    held[kind] += size
    return held[0], held[1]


class Measured:
    """A mixin for vLLM's workers: the memory of their models before they are repacked."""

    models: ClassVar[list[tuple[torch.nn.Module, dict[str, tuple[int, int]]]]] = []

    def held_bytes(self) -> tuple[int, int]:
        """The bytes of this rank: parameters and buffers of the model, and of the one that guesses tokens."""
        return _held_together(Measured.models)


BaseModelLoader.create_model = _create_and_measure


class _Lines(logging.Handler):
    """Collects the log lines on the KV cache."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line if it is about the KV cache."""
        line = record.getMessage()
        if any(told in line for told in ("KV cache size:", "padding layers", "Auto-fit")):
            self.found.append(line)


def start(folder: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The real engine, as it stands behind a server: its workers, their weights and caches, its scheduler."""
    config = _config(folder, {**arguments, "worker_extension_cls": "vllm_start.Measured"})
    engine = EngineCore(config, Executor.get_class(config), log_stats=False)
    try:
        cache = engine.vllm_config.cache_config
        return {
            "held": engine.collective_rpc("held_bytes"),
            "blocks": cache.num_gpu_blocks,
            "block_size": cache.block_size,
            "tokens": cache.kv_cache_size_tokens,
            "concurrency": cache.kv_cache_max_concurrency,
        }
    finally:
        engine.shutdown()


def _config(folder: str, arguments: dict[str, Any]) -> Any:
    return EngineArgs(
        model=folder, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, **arguments
    ).create_engine_config()


class _AnyExperts:
    """This platform, changed so that it accepts experts of every kind."""

    def is_xpu(self) -> bool:
        """True, since vLLM asks for it before it accepts such experts."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(current_platform, name)


_select_kernel = unquantized_experts.select_unquantized_moe_backend


def _kernel_of_experts(moe_config: Any) -> Any:
    """The kernel of experts; a placeholder for experts without a kernel here, since nothing is computed."""
    return _select_kernel(moe_config) if moe_config.is_act_and_mul else (UnquantizedMoeBackend.OOT, None)


_choose_backend = type(current_platform).get_attn_backend_cls


def _attention_backend(selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None) -> str:
    """The backend of attention: the CPU's own, or FlashMLA's for sparse attention."""
    if attn_selector_config.use_sparse:
        return f"{flashmla_sparse.__name__}.FlashMLASparseBackend"
    return str(_choose_backend(selected_backend, attn_selector_config, num_heads))


@contextlib.contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """Block sizes of FlashAttention, and no refusal of quantised weights that this processor is too old for."""
    with (
        mock.patch.object(CPUAttentionBackend, "get_supported_kernel_block_sizes", return_value=[MultipleOf(16)]),
        # Kernels of GPUs for latent attention take the blocks beside states, which are multiples of 128.
        mock.patch.object(cpu_mla.CPUMLABackend, "supports_block_size", return_value=True),
        mock.patch.object(torch.cpu, "_is_amx_tile_supported", return_value=True),
        # With these instructions, the CPU's platform keeps states in float32, whatever the model says.
        mock.patch.object(torch.cpu, "_is_avx512_bf16_supported", return_value=False),
        # Experts of two matrices have kernels only on GPUs.
        mock.patch.object(fused_moe, "current_platform", _AnyExperts()),
        mock.patch.object(unquantized_experts, "select_unquantized_moe_backend", _kernel_of_experts),
        # Sparse attention has kernels only on GPUs: FlashMLA's, whose scratch space is no part of the model.
        mock.patch.object(type(current_platform), "get_attn_backend_cls", staticmethod(_attention_backend)),
        mock.patch.object(flashmla_sparse, "current_workspace_manager", mock.Mock()),
    ):
        yield


def _gpu_config(folder: str, arguments: dict[str, Any]) -> Any:
    """The engine's configuration, without the changes that the CPU's platform makes."""
    config = _config(folder, arguments)
    config.scheduler_config.async_scheduling = arguments.get("async_scheduling", True)
    config.cache_config.block_size = arguments["block_size"]
    return config


@_as_on_a_gpu()
def build(folder: str, arguments: dict[str, Any], rank: int, memory: int) -> dict[str, Any]:
    """The model and the plan of its cache, as vLLM makes them for one rank of several."""
    ranks = arguments.get("tensor_parallel_size", 1)
    config = _gpu_config(folder, arguments)
    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
        parallel_state.ensure_model_parallel_initialized(1, 1)
        for group in (parallel_state._TP, parallel_state._EP):
            if group is not None:
                group.world_size, group.rank_in_group = ranks, rank
        with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
            models = [initialize_model(vllm_config=config)]
            if config.speculative_config is not None:
                with mock.patch.object(eagle_utils, "get_model", initialize_model):
                    models.append(eagle_utils.load_eagle_model(models[0], config))
        packed = config.model_config.hf_config.model_type == "deepseek_v4"
        config.cache_config.kv_cache_layout = _PACKED_LAYOUT if packed else _GPU_LAYOUT
        # Blocks grow with the states of hybrids; others stay as they are.
        current_platform.update_block_size_for_backend(config)
        held = _held_together([(model, _by_module(model)) for model in models])
        return {"held": [held], **_capacity(config, [get_kv_cache_spec(config)] * ranks, memory)}


def _capacity(config: Any, layers: list[dict[str, KVCacheSpec]], memory: int) -> dict[str, Any]:
    """The capacity that vLLM would print for a cache of `memory` bytes on each rank, with each rank's layers."""
    caches = kv_cache_utils.get_kv_cache_configs(config, [dict(one) for one in layers], [memory] * len(layers))
    whole = kv_cache_utils.generate_scheduler_kv_cache_config(caches)
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, whole)
    return {
        "blocks": whole.num_blocks,
        "block_size": config.cache_config.block_size,
        "tokens": tokens,
        "concurrency": concurrency,
    }


_SPECS: dict[str, Callable[..., KVCacheSpec]] = {
    "full": lambda window, **shape: FullAttentionSpec(**shape),
    "sliding": lambda window, **shape: SlidingWindowSpec(sliding_window=window, **shape),
    "chunked": lambda window, **shape: ChunkedLocalAttentionSpec(attention_chunk_size=window, **shape),
    "latent": lambda window, **shape: MLAAttentionSpec(**shape),
}


_COMPRESSED = ("latent_window", "compressed", "compressed_indexer", "compressor")


def _compressed_spec(config: Any, name: str, kind: str, ratio: int, size: int, window: int) -> KVCacheSpec:
    """The cache of one layer of DeepSeek V4, as vLLM's own classes describe it."""
    cache, packed = config.cache_config, torch.uint8
    if kind == "latent_window":
        return sparse_swa.DeepseekV4SWACache(size, window, packed, name, cache).get_kv_cache_spec(config)
    if kind == "compressor":
        inputs = 2 * (window // ratio) * size
        return compressor.CompressorStateCache(inputs, torch.float32, ratio, name).get_kv_cache_spec(config)
    if kind == "compressed_indexer":
        key = size + size // 128 * 4
        layer = deepseek_v4.DeepseekV4IndexerCache(key, packed, name, cache, ratio)
        return layer.get_kv_cache_spec(config)
    attention = SimpleNamespace(compress_ratio=ratio, head_dim=size, kv_cache_dtype=cache.cache_dtype)
    return deepseek_v4.DeepseekV4Attention.get_kv_cache_spec(attention, config)


def plan(folder: str, arguments: dict[str, Any], layers: list[list[Any]], memory: int) -> dict[str, Any]:
    """The plan of a cache for any layers, whether or not a model has them."""
    config = _gpu_config(folder, arguments)
    config.cache_config.kv_cache_layout = _GPU_LAYOUT
    specs: dict[str, KVCacheSpec] = {}
    if layers[0][0] in _COMPRESSED:
        config.cache_config.kv_cache_layout = _PACKED_LAYOUT
        config.cache_config.cache_dtype = "fp8_ds_mla"
        with set_current_vllm_config(config):
            for index, (kind, count, ratio, size, window) in enumerate(layers):
                names = [f"{index}.{layer}" for layer in range(count)]
                specs |= {name: _compressed_spec(config, name, kind, ratio, size, window) for name in names}
        return _capacity(config, [specs], memory)
    for index, (kind, count, heads, size, window) in enumerate(layers):
        shape = {"block_size": arguments["block_size"], "num_kv_heads": heads, "head_size": size}
        for layer in range(count):
            specs[f"{index}.{layer}"] = _SPECS[kind](window=window, dtype=torch.bfloat16, **shape)
    return _capacity(config, [specs], memory)


def _write_draft(folder: Path, case: dict[str, Any]) -> None:
    """Write the case's draft model, if it has one, and name it in the arguments."""
    if not case["draft"]:
        return
    place, guessing = folder / "draft", case["arguments"]["speculative_config"]
    place.mkdir()
    (place / "config.json").write_text(json.dumps(case["draft"]), encoding="utf-8")
    case["arguments"]["speculative_config"] = {**guessing, "model": str(place)}
    if case["tensors"]:
        kinds = {"d2t": torch.int64}
        tensors = {
            name: torch.ones(shape, dtype=kinds.get(name, torch.bfloat16)) for name, shape in case["tensors"].items()
        }
        save_file(tensors, place / "model.safetensors")
        case["arguments"]["speculative_config"]["draft_load_config"] = {"load_format": "safetensors"}


def answer(case: dict[str, Any], lines: list[str]) -> dict[str, Any]:
    """vLLM's answer to one case."""
    lines.clear()
    began = time.monotonic()
    # The collector runs several times a model, and need not look at the objects of vLLM itself.
    _freeze()
    # vLLM prints the same line only once in a process; here each engine must print it.
    vllm_logger._print_info_once.cache_clear()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
        _write_draft(Path(folder), case)
        try:
            if case["how"] == "start":
                said = start(folder, case["arguments"])
            elif case["how"] == "build":
                said = build(folder, case["arguments"], case["rank"], case["memory"])
            else:
                said = plan(folder, case["arguments"], case["layers"], case["memory"])
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        finally:
            if case["how"] != "plan":
                # A model would reuse the tables of an earlier model of the same shape, which are in other memory.
                rotary_embedding._ROPE_DICT.clear()
                cleanup_dist_env_and_memory()
    return {"name": case["name"], **said, "printed": list(lines), "seconds": time.monotonic() - began}


def main(cases: str, answers: str) -> None:
    """Answer all cases."""
    # vLLM imports a model's class to find its abilities: do so here, and not in a process for each.
    registry._run_in_subprocess = lambda function: function()
    # vLLM would thaw what `answer` froze, and freeze a model, which must go with its engine.
    gc.freeze = gc.unfreeze = lambda: None
    # Each engine would search all modules for kernels to replace; the first one has replaced them.
    current_platform.register_triton_kernel_overrides = cache(current_platform.register_triton_kernel_overrides)
    handler = _Lines()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logging.getLogger("vllm").addHandler(handler)
    with Path(answers).open("w", encoding="utf-8") as out:
        for case in json.loads(Path(cases).read_text(encoding="utf-8")):
            print(json.dumps(answer(case, handler.found)), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Asks other planners about starts of vLLM: a JSON list in, an object out.

`compare_planners.py` runs it with the Python of their own environment. None of them uses a network here: each gets the
config and the bytes of the weights.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

GIB = 2**30

Figures = dict[str, float | str]


class CannotAsk(Exception):  # noqa: N818
    """The tool has no input for a fact that decides the answer."""


def hf_mem(case: dict[str, Any]) -> Figures:
    """Weights and the cache of one request, of the whole model: hf-mem knows no accelerators."""
    metadata_of = importlib.import_module("hf_mem.safetensors.metadata")
    cache_of = importlib.import_module("hf_mem.safetensors.kv_cache")
    header = {
        f"all of {dtype}": {"dtype": dtype, "shape": [elements], "data_offsets": [0, 0]}
        for dtype, elements in case["elements"].items()
    }
    metadata = metadata_of.parse_safetensors_metadata(raw_metadata={"Transformer": header})
    config = _text(case["config"])
    cache_dtype = cache_of.resolve_kv_cache_dtype(
        config=config, kv_cache_dtype=_cache_dtype(case), metadata=metadata, model_id=case["model"]
    )
    length = case["max_model_len"]
    request = cache_of.compute_safetensors_kv_cache_size(
        config=config, cache_dtype=cache_dtype, max_model_len=length, batch_size=1
    )
    ranks = case["tp"] * case["pp"]
    figures: Figures = {}
    if case["memory_gib"] is not None:
        room = case["memory_gib"] * GIB * case["utilization"] * ranks
        figures["verdict"] = "started" if metadata.bytes_count + request <= room else "refused"
    if ranks == 1:
        figures["weights"] = metadata.bytes_count / GIB
        figures["request_gib"] = request / GIB
        if case["kv_gib"] is not None:
            figures["tokens_of_memory"] = case["kv_gib"] * GIB / (request / length)
    return figures


def llm_d_planner(case: dict[str, Any]) -> Figures:
    """The memory of one rank, and the rest for the cache, by its constants for activations and buffers."""
    if _cache_dtype(case) != "auto":
        raise CannotAsk("has no option for the KV cache's dtype")
    planner: Any = importlib.import_module("planner.capacity_planner")
    planner.model_params_by_dtype = lambda *_, **__: case["elements"]
    name, config, tp, pp = case["model"], _object(case["config"]), case["tp"], case["pp"]
    ranks = tp * pp
    length = case["max_model_len"]
    detail = planner.KVCacheDetail(name, config, length)
    figures: Figures = {"weights": planner.per_gpu_model_memory_required(name, config, tp, pp)}
    if case["kv_gib"] is not None:
        figures["tokens_of_memory"] = case["kv_gib"] * GIB * ranks / detail.per_token_memory_bytes
    if case["memory_gib"] is not None:
        asked = case["memory_gib"], case["utilization"]
        left = planner.allocatable_kv_cache_memory(name, config, *asked, tp, pp, 1, max_model_len=length)
        figures["kv_gib"] = left / ranks
        requests = planner.max_concurrent_requests(name, config, length, *asked, tp=tp, pp=pp)
        figures["verdict"] = "started" if requests >= 1 else "refused"
        if requests >= 1:
            figures["kv_tokens"] = left * GIB / detail.per_token_memory_bytes
            figures["concurrency"] = requests
        if tp > 1 and tp not in planner.find_possible_tp(config):
            figures = {"weights": figures["weights"], "verdict": "refused"}
    return figures


def kvfit(case: dict[str, Any]) -> Figures:
    """The memory that it counts on one rank; it calls this an upper bound before the overhead of a runtime."""
    if case["pp"] > 1:
        raise CannotAsk("knows no pipeline parallelism")
    architectures = importlib.import_module("kvfit.architectures")
    planner = importlib.import_module("kvfit.planner")
    command = importlib.import_module("kvfit.cli")
    dtype, _, _ = command.resolve_cache_dtype(case["config"], _cache_dtype(case))
    length, tp = case["max_model_len"], case["tp"]
    cache = architectures.estimate_cache(
        case["config"], context_tokens=length, kv_bytes=command.DTYPE_BYTES[dtype], index_bytes=None
    )
    layout = planner.plan_topologies(
        cache,
        weight_bytes=case["weight_bytes"],
        hardware=importlib.import_module("kvfit.hardware").Hardware("card", "card", case["memory_gib"] or 1.0),
        gpus=tp,
        utilization=case["utilization"],
        tensor_parallel=tp,
    )[0]
    request = layout.kv_per_sequence_per_rank_bytes
    figures: Figures = {"weights": layout.weights_per_rank_bytes / GIB}
    if layout.verdict == "unsupported":
        return {**figures, "verdict": "refused"}
    figures["request_gib"] = request / GIB
    if case["kv_gib"] is not None:
        figures["tokens_of_memory"] = case["kv_gib"] * GIB / request * length
    if case["memory_gib"] is not None:
        left = layout.budget_per_rank_bytes - layout.weights_per_rank_bytes
        figures["verdict"] = "started" if layout.verdict == "fits" else "refused"
        figures["kv_gib"] = left / GIB
        if layout.verdict == "fits":
            figures["kv_tokens"] = left / request * length
            figures["concurrency"] = left / request
    return figures


TOOLS: dict[str, Callable[[dict[str, Any]], Figures]] = {
    "hf-mem": hf_mem,
    "kvfit": kvfit,
    "llm-d-planner": llm_d_planner,
}


def main() -> int:
    """Answer every case with every tool; an error of a tool is its answer."""
    warnings.simplefilter("ignore")
    answers: dict[str, dict[str, Any]] = {}
    for case in json.load(sys.stdin):
        answers[case["id"]] = {name: _asked(ask, json.loads(json.dumps(case))) for name, ask in TOOLS.items()}
    versions = {name: importlib.metadata.version(name) for name in TOOLS}
    json.dump({"versions": versions, "answers": answers}, sys.stdout)
    return 0


def _asked(ask: Callable[[dict[str, Any]], Figures], case: dict[str, Any]) -> dict[str, Any]:
    try:
        if case["unasked"]:
            raise CannotAsk(case["unasked"])
        return {"figures": ask(case)}
    except CannotAsk as error:
        return {"problem": str(error)}
    except KeyError as error:
        return {"problem": f"fails: it misses the key {error}"}
    except Exception as error:
        return {"problem": f"fails with {type(error).__name__}"}


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """The text model's config, as hf-mem reads a nested config."""
    if "text_config" not in config:
        return config
    outer = {key: config[key] for key in ("dtype", "torch_dtype", "quantization_config") if key in config}
    return {**outer, **config["text_config"]}


def _object(value: Any) -> Any:
    """A config as transformers holds it: as attributes, except the quantisation, which stays a mapping."""
    if not isinstance(value, dict):
        return value
    keep = ("quantization_config", "rope_scaling", "rope_parameters")
    return SimpleNamespace(**{key: item if key in keep else _object(item) for key, item in value.items()})


def _cache_dtype(case: dict[str, Any]) -> str:
    return str(case["kv_cache_dtype"])


if __name__ == "__main__":
    sys.exit(main())

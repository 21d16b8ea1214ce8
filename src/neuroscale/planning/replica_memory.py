"""Finds the size of a checkpoint, and describes one replica of it for the memory engine (planning/fit)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from neuroscale.catalog import Accelerator, Catalog, ModelEntry, RuntimeEntry
from neuroscale.catalog.model_lookup import load_model
from neuroscale.core.units import GIB
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import device
from neuroscale.planning.fit.confidence import UNMEASURED
from neuroscale.planning.fit.serving import Server, measured
from neuroscale.planning.plan import Memory
from neuroscale.vllm.engine_arguments import EngineArguments

_PARALLEL_SHARED_MEMORY_GIB = 16  # as in the vLLM recipes, for communication between ranks
_SHARED_MEMORY_GIB = 2

WeightsBasis = Literal["measured", "files", "config"]


@dataclass(frozen=True)
class Size:
    """Weights of the whole model in GiB, and the source of the number."""

    gib: float
    basis: WeightsBasis


def weights(model: ModelEntry) -> Size:
    """The size measured under vLLM, if known; else the bytes of the files; else the size counted from the config."""
    checkpoint = model.checkpoint
    if checkpoint.resident_gib.value is not None:
        return Size(checkpoint.resident_gib.value, "measured")
    if checkpoint.download_gib.value is not None:
        return Size(checkpoint.download_gib.value, "files")
    return Size(sum(model.facts.weight_bytes.values()) / GIB, "config")


def download_gib(model: ModelEntry) -> float:
    """The GiB that a server must read before the model serves."""
    return model.checkpoint.download_gib.value or weights(model).gib


@dataclass(frozen=True)
class HostMemory:
    """The host memory of a pod in GiB, and the part of it for /dev/shm."""

    gib: int
    shared_gib: int


def host_memory(model: ModelEntry, accelerator: Accelerator, count: int) -> HostMemory:
    """The host memory of a pod with `count` accelerators.

    Loading a 4-bit 26B-A4B of 16.44 GiB took 16.77 GiB of host memory, and a limit of 16 GiB ended it at random: a
    quarter more than the weights, 8 GiB for the processes, and the shared memory, in steps of 8 GiB. On a CPU it is all
    the memory that the catalog gives a pod.
    """
    if accelerator.family == "cpu":
        return HostMemory(math.ceil(accelerator.memory_gib.value or 0.0), 1)
    shared = _PARALLEL_SHARED_MEMORY_GIB if count > 1 else _SHARED_MEMORY_GIB
    peak = max(model.checkpoint.host_memory_gib.value or 0.0, download_gib(model))
    return HostMemory(math.ceil((1.25 * peak + 8 + shared) / 8) * 8, shared)


def facts_of(name: str, catalog: Catalog) -> ModelFacts:
    """The facts of a model by its name, with the best known size of its weights. Raises InputError for a wrong name."""
    entry = catalog.models.get(name)
    return load_model(name, catalog) if entry is None else served_facts(entry)


def served_facts(model: ModelEntry) -> ModelFacts:
    """The facts of a model with the best known size of its weights."""
    size = weights(model)
    facts = replace(model.facts, multimodal=model.serving.multimodal)
    return facts if size.basis == "config" else measured(facts, size.gib, loaded=size.basis == "measured")


def server(
    facts: ModelFacts,
    accelerator: Accelerator,
    runtime: RuntimeEntry,
    *,
    count: int,
    kv_cache_dtype: str,
    max_model_len: int,
    batched_tokens: int,
    utilization: float | None,
) -> Server:
    """One replica on `count` accelerators, with the arguments that planning/vllm_flags.py writes."""
    arguments = EngineArguments(
        model=facts.name,
        tensor_parallel_size=count,
        enable_expert_parallel=facts.experts > 0 and count > 1,
        max_model_len=max_model_len,
        max_num_batched_tokens=batched_tokens,
        # A CPU has no utilisation: vLLM may use all the memory of its pod.
        gpu_memory_utilization=1.0 if utilization is None else utilization,
        kv_cache_dtype=kv_cache_dtype,
        enforce_eager="--enforce-eager" in runtime.args,
    )
    return Server(facts, device(accelerator), arguments, runtime.version, whole_gib=runtime.family == "cpu")


def close(accelerator: Accelerator, needed: Memory, band_gib: float) -> str:
    """A sentence, after a space, that tells a refusal within the error of the estimate from a sure one; "" if sure."""
    if device(accelerator).family in UNMEASURED:
        return " How far the estimate may be off on such an accelerator is not known: measure a start."
    if 0 < -needed.free < band_gib:
        return (
            f" Close: what is missing is less than the {band_gib:.2f} GiB that the estimate may be off, so the start "
            "may succeed. Measure one before you rely on either."
        )
    return ""

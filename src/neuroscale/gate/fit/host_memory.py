"""Compares the data that a command puts into host memory with its container's memory limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroscale.core.units import GIB
from neuroscale.manifests.cpu_memory import memory_limit
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.weights import rank_weights
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.parallel_sizes import local_data_parallel, pod_ranks


def beyond_limit(parsed: Parsed, facts: ModelFacts, spec: Mapping[str, Any]) -> tuple[str, str] | None:
    """The argument's name and a sentence, if the weights and the KV cache that it offloads exceed the memory limit of
    the one container in a pod's `spec`. None if they do not, if there is no limit, or if the limit cannot be read,
    which another check reports."""
    try:
        limited = memory_limit(spec)
    except ValueError:
        return None
    if limited is None:
        return None
    limit = float(limited) / GIB
    weights = rank_weights(facts, parsed.arguments.in_range()).offloaded * pod_ranks(parsed) / GIB
    size = parsed.values.get("kv_offloading_size")
    cache = float(size) * local_data_parallel(parsed) if isinstance(size, int | float) else 0.0
    if weights + cache <= limit:
        return None
    dest = "cpu_offload_gb" if weights >= cache else "kv_offloading_size"
    told = (
        f"{weights + cache:.2f} GiB of weights or KV cache are put into host memory, and the container may use "
        f"{limit:.2f} GiB of it: the gate cannot judge whether it is killed"
    )
    return dest, told

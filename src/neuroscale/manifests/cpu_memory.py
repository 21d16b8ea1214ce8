"""Reads the memory of a pod without accelerators, and the part of it that vLLM's build for CPUs takes as cache."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from neuroscale.core.units import GIB
from neuroscale.manifests.pod_resources import mapping, read_pod
from neuroscale.manifests.quantity import quantity

CACHE_SPACE = "VLLM_CPU_KVCACHE_SPACE"
"""The cache of each rank in GiB; vLLM prefers it to `--kv-cache-memory-bytes`."""


def memory_limit(spec: Mapping[str, Any]) -> Decimal | None:
    """Bytes that the pod's one container may use at most; None if nothing limits it. Raises ValueError."""
    limits = [
        mapping(mapping(one.get("resources"), "resources").get("limits"), "limits").get("memory")
        for one in (spec, mapping(spec["containers"][0], "a container"))
    ]
    return min((quantity(limit) for limit in limits if limit is not None), default=None)


def usable_memory(spec: Mapping[str, Any]) -> float:
    """GiB that the pod's one container can count on: the smaller of its limit and its request.

    0 if the pod has neither. Raises ValueError.
    """
    pod = read_pod({**spec, "overhead": None})  # the overhead belongs to the sandbox, not to the container
    reserved, limit = None if "memory" in pod.missing else pod.memory, memory_limit(spec)
    return float(min((size for size in (reserved, limit) if size is not None), default=Decimal(0)) / GIB)


def cache_space(environment: Mapping[str, str]) -> int | None:
    """GiB of the cache of each rank; None if the variable is not set, or is not a number."""
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

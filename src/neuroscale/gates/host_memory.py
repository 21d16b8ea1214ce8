"""Whether what a command puts into host memory goes into what its container may use of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroscale.costs.pods import mapping
from neuroscale.costs.quantity import quantity
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.weights import rank_weights
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.checks import local_data_parallel, ranks

_GIB = 2**30


def beyond_limit(parsed: Parsed, facts: ModelFacts, container: Mapping[str, Any]) -> tuple[str, str] | None:
    """The argument's name and a sentence, where the weights and the cache that it offloads are more than the
    container's memory limit. None where they are not, or where there is no limit."""
    limit = _limit(container)
    if limit is None:
        return None
    replicas = local_data_parallel(parsed)
    weights = rank_weights(facts, parsed.arguments.in_range()).offloaded * ranks(parsed) * replicas / _GIB
    size = parsed.values.get("kv_offloading_size")
    cache = float(size) * replicas if isinstance(size, int | float) else 0.0
    if weights + cache <= limit:
        return None
    dest = "cpu_offload_gb" if weights >= cache else "kv_offloading_size"
    told = (
        f"{weights + cache:.2f} GiB of weights or KV cache are put into host memory, and the container may use "
        f"{limit:.2f} GiB of it: whether it is ended for that cannot be judged"
    )
    return dest, told


def _limit(container: Mapping[str, Any]) -> float | None:
    """GiB; None where there is none, or where it cannot be read, which another check says."""
    try:
        limits = mapping(mapping(container.get("resources"), "resources").get("limits"), "limits")
        return float(quantity(limits["memory"])) / _GIB if "memory" in limits else None
    except ValueError:
        return None

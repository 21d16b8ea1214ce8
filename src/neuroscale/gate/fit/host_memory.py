"""Whether what a command puts into host memory goes into what its container may use of it."""

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
    """The argument's name and a sentence, where the weights and the cache that it offloads are more than the
    memory limit of the one container in a pod's `spec`. None where they are not, where there is no limit, or where it
    cannot be read, which another check says."""
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
        f"{limit:.2f} GiB of it: whether it is ended for that cannot be judged"
    )
    return dest, told

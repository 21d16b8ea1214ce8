"""Compares a container's memory limit with what vLLM needs, and with the data that a command puts into host memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from neuroscale.core.units import GIB, MIB
from neuroscale.gate.fit.container_faults import ContainerFault
from neuroscale.gate.fit.known_models import KnownModel, KnownPlace
from neuroscale.manifests.cpu_memory import memory_limit
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.weights import rank_weights
from neuroscale.planning.replica_memory import host_memory
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.parallel_sizes import local_data_parallel, pod_ranks

_LEAST = Decimal(GIB)


def check_host_memory(
    spec: Mapping[str, Any], model: KnownModel | None, place: KnownPlace | None
) -> Iterator[ContainerFault]:
    """A fault if the memory limit is too small for any vLLM; the advice is what a plan gives the model in that place.
    Another check reports a limit that cannot be read.
    """
    try:
        limit = memory_limit(spec)
    except ValueError:
        return
    if limit is None or limit >= _LEAST:
        return
    told = f"the container may use {limit / MIB:.0f} MiB of memory, and vLLM alone takes 1 GiB or more: it is killed"
    fix = "Raise the memory limit to what the model needs while it loads: neuroscale plan computes it."
    if model is not None and place is not None:
        accelerator = place.place.accelerator
        planned = host_memory(model.entry, accelerator, place.place.count).gib
        fix = f"Raise the memory limit to {planned}Gi, as a plan gives {model.entry.name} on {accelerator.title}."
    yield ContainerFault("host-memory", ("resources",), told, fix)


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

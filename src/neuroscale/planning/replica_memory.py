"""Describes one replica: the size of its checkpoint, and the requests that it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from neuroscale.catalog import Accelerator, ModelEntry
from neuroscale.core.units import GIB
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import device
from neuroscale.planning.fit.confidence import UNMEASURED
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.engine import too_few_states, too_much
from neuroscale.planning.fit.rank import Rank, assemble
from neuroscale.planning.fit.result import memory_of
from neuroscale.planning.fit.versions import PINNED
from neuroscale.planning.fit.weights import rank_weights, rotary_bytes
from neuroscale.planning.plan import Memory
from neuroscale.vllm.engine_arguments import EngineArguments


@dataclass(frozen=True)
class Server:
    """One replica. `arguments` lack --max-num-seqs: each method gets the number of requests."""

    facts: ModelFacts
    device: Device
    arguments: EngineArguments
    version: str = PINNED
    whole_gib: bool = False  # the cache comes in whole GiB, as a CPU's does

    def memory(self, held: int, at_once: int | None = None, typical: int | None = None) -> Memory:
        """GiB of the fullest rank with the cache that `held` requests need, while `at_once` (None: the same number) are
        computed. `free` is negative if that does not fit. `typical`: tokens of each request but one, which is of full
        length (None: all are)."""
        rank = self.rank(held if at_once is None else at_once)
        beside = sum(rank.beside.counted.values())
        return memory_of(rank.weights.total, self._cache(rank, held, typical), beside, rank.usable)

    def fits(self, held: int, at_once: int | None = None, typical: int | None = None) -> bool:
        """Whether that many requests fit, exactly; `typical` as in `memory`."""
        rank = self.rank(held if at_once is None else at_once)
        if rank.pool is None or rank.taken + self._cache(rank, held, typical) > rank.usable:
            return False
        return not too_much(rank) and not too_few_states(rank, rank.usable - rank.taken, 0.0)

    def about(self, at_once: int | None = None, typical: int | None = None) -> int:
        """About how many requests fit, by the cache of one more beside one; what graphs take is left out."""
        rank = self.rank(1 if at_once is None else at_once)
        if rank.pool is None:
            return 1
        one, two = self._cache(rank, 1, typical), self._cache(rank, 2, typical)
        return 1 + max(0, rank.usable - rank.taken - one) // max(two - one, 1)

    def rank(self, at_once: int) -> Rank:
        """The fullest rank while `at_once` requests are computed."""
        requests = max(at_once, 1)
        if requests not in self._ranks:
            self._ranks[requests] = self._any_rank.computing(requests)
        return self._ranks[requests]

    @cached_property
    def _any_rank(self) -> Rank:
        arguments = self.arguments
        if arguments.gpu_memory_utilization is None:
            # A CPU has no utilisation: vLLM may use all the memory of its pod.
            arguments = replace(arguments, gpu_memory_utilization=1.0)
        return assemble(self.facts, self.device, arguments, self.version)

    @cached_property
    def _ranks(self) -> dict[int, Rank]:
        """A cache of the ranks by the number of requests that are computed."""
        return {}

    def _cache(self, rank: Rank, held: int, typical: int | None) -> int:
        """The bytes of the cache that `held` requests need."""
        if rank.pool is None:
            return 0
        length, in_flight = rank.resolved.max_model_len, rank.resolved.in_flight_tokens
        cache = rank.pool.held_bytes(held, length, in_flight)
        if typical is not None and typical < length:
            others = rank.pool.held_bytes(held - 1, typical, in_flight)
            cache = min(cache, rank.pool.held_bytes(1, length, in_flight) + others)
        cache += rank.pool.block_bytes if rank.does.spare_block else 0
        return math.ceil(cache / GIB) * GIB if self.whole_gib else cache


def measured(facts: ModelFacts, gib: float, loaded: EngineArguments | None = None) -> ModelFacts:
    """The facts with weights of `gib` in all: the size of the files or, if `loaded` names the arguments of a server,
    the size that its vLLM reports on one accelerator."""
    counted = sum(size for group, size in facts.weight_bytes.items() if group != "mtp")
    wanted = gib * GIB
    if loaded is not None:
        wanted -= rotary_bytes(facts, loaded)
        counted = rank_weights(facts, loaded).total - rotary_bytes(facts, loaded)
    by_group = {group: round(size * wanted / counted) for group, size in facts.weight_bytes.items()}
    return replace(facts, weight_bytes=by_group, basis="headers", parts_missing=False)


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
    """The host memory of a pod with `count` accelerators. Loading a 4-bit 26B-A4B of 16.44 GiB took 16.77 GiB of host
    memory, and a limit of 16 GiB ended it at random. So it is a quarter more than the weights, 8 GiB for the processes,
    and the shared memory, in steps of 8 GiB. On a CPU it is all the memory that the catalog gives a pod."""
    if accelerator.family == "cpu":
        return HostMemory(math.ceil(accelerator.memory_gib.value or 0.0), 1)
    shared = _PARALLEL_SHARED_MEMORY_GIB if count > 1 else _SHARED_MEMORY_GIB
    peak = max(model.checkpoint.host_memory_gib.value or 0.0, download_gib(model))
    return HostMemory(math.ceil((1.25 * peak + 8 + shared) / 8) * 8, shared)


def served_facts(model: ModelEntry) -> ModelFacts:
    """The facts of a model with the best known size of its weights."""
    size = weights(model)
    facts = replace(model.facts, multimodal=model.serving.multimodal)
    if size.basis == "config":
        return facts
    return measured(facts, size.gib, EngineArguments() if size.basis == "measured" else None)


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

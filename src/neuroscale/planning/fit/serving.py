"""A model on its accelerators for a number of requests at once: what a plan asks of the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.defaults import resolve
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.engine import band, cache_pool, outside_bytes, share
from neuroscale.planning.fit.kv_cache import Pool
from neuroscale.planning.fit.overhead import overhead
from neuroscale.planning.fit.result import Resolved
from neuroscale.planning.fit.support import unsupported
from neuroscale.planning.fit.versions import PINNED, Behaviour, behaviour
from neuroscale.planning.fit.weights import RankWeights, rank_weights, rotary_bytes
from neuroscale.planning.plan import Memory
from neuroscale.vllm.engine import EngineArguments

GIB = 2**30


@dataclass(frozen=True)
class _Need:
    """Bytes of a rank; `later`: outside the share that is usable."""

    weights: int
    cache: int
    beside: int
    later: int
    usable: int


@dataclass(frozen=True)
class Server:
    """One replica. `arguments` without --max-num-seqs, which is the number of requests that is asked about.

    `whole_gib`: the cache comes in whole GiB, as a CPU's does.
    """

    facts: ModelFacts
    device: Device
    arguments: EngineArguments
    version: str = PINNED
    whole_gib: bool = False

    def memory(self, held: int, at_once: int | None = None) -> Memory:
        """GiB of the fullest rank with the cache that `held` requests of full length need, while `at_once` (None: the
        same number) are computed. `free` is negative where that does not fit."""
        parts = self._need(held, at_once)
        rounded = [round(size / GIB, 2) for size in (parts.weights, parts.cache, parts.beside, parts.usable)]
        return Memory(
            weights=rounded[0],
            kv_cache=rounded[1],
            overhead=rounded[2],
            usable=rounded[3],
            free=round(rounded[3] - rounded[0] - rounded[1] - rounded[2], 2) + 0.0,
        )

    def fits(self, held: int, at_once: int | None = None) -> bool:
        """Whether that many requests of full length fit, exactly."""
        need = self._need(held, at_once)
        if need.weights + need.cache + need.beside > need.usable:
            return False
        return need.later == 0 or need.later <= outside_bytes(self.device, need.usable)

    def band_gib(self, at_once: int) -> float:
        """How far the memory that is left for the cache may be off."""
        arguments = replace(self.arguments, max_num_seqs=max(at_once, 1))
        resolved = resolve(self.facts, self.device, arguments, self._does)
        beside = overhead(self.facts, self.device, arguments, resolved, self._does)
        return band(self.facts, self.device, self._weights, beside, self.version)

    def unsupported(self) -> list[str]:
        """Why vLLM would not start with this on any memory."""
        return unsupported(self.facts, self.device, replace(self.arguments, max_num_seqs=1), self._alone)

    def _need(self, held: int, at_once: int | None) -> _Need:
        arguments = replace(self.arguments, max_num_seqs=max(held if at_once is None else at_once, 1))
        resolved = resolve(self.facts, self.device, arguments, self._does)
        beside = overhead(self.facts, self.device, arguments, resolved, self._does)
        cache = self._pool.held_bytes(held, resolved.max_model_len, resolved.in_flight_tokens)
        if self._does.spare_block:
            cache += self._pool.block_bytes
        if self.whole_gib:
            cache = math.ceil(cache / GIB) * GIB
        return _Need(
            weights=self._weights.total,
            cache=cache,
            beside=sum(beside.counted.values()),
            later=sum(beside.later.values()),
            usable=math.floor(self.device.memory_bytes * share(self.device, arguments, resolved)),
        )

    @cached_property
    def _alone(self) -> Resolved:
        return resolve(self.facts, self.device, replace(self.arguments, max_num_seqs=1), self._does)

    @cached_property
    def _does(self) -> Behaviour:
        return behaviour(self.version)

    @cached_property
    def _weights(self) -> RankWeights:
        return rank_weights(self.facts, self.arguments)

    @cached_property
    def _pool(self) -> Pool:
        return cache_pool(self.facts, self.arguments, self._alone, self._does)


def measured(facts: ModelFacts, gib: float, *, loaded: bool) -> ModelFacts:
    """The facts with weights of `gib` in all: of the files, or (`loaded`) as vLLM reports them on one accelerator."""
    told = sum(size for group, size in facts.weight_bytes.items() if group != "mtp")
    wanted = gib * GIB - (rotary_bytes(facts, EngineArguments()) if loaded else 0)
    if loaded:
        told = rank_weights(facts, EngineArguments()).total - rotary_bytes(facts, EngineArguments())
    by_group = {group: round(size * wanted / told) for group, size in facts.weight_bytes.items()}
    return replace(facts, weight_bytes=by_group, basis="headers")

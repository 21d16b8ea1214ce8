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
from neuroscale.planning.fit.overhead import Overhead, overhead
from neuroscale.planning.fit.result import Resolved
from neuroscale.planning.fit.support import unsupported
from neuroscale.planning.fit.versions import PINNED, Behaviour, behaviour
from neuroscale.planning.fit.weights import RankWeights, rank_weights, rotary_bytes
from neuroscale.planning.plan import Memory
from neuroscale.vllm.engine import EngineArguments

GIB = 2**30


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
        parts = self._parts(held, held if at_once is None else at_once)
        rounded = [round(part / GIB, 2) for part in parts]
        return Memory(
            weights=rounded[0],
            kv_cache=rounded[1],
            overhead=rounded[2],
            usable=rounded[3],
            free=round(rounded[3] - rounded[0] - rounded[1] - rounded[2], 2) + 0.0,
        )

    def fits(self, held: int, at_once: int | None = None) -> bool:
        """Whether that many requests of full length fit, exactly."""
        computed = held if at_once is None else at_once
        weights, cache, beside, usable = self._parts(held, computed)
        if weights + cache + beside > usable:
            return False
        later = sum(self._overhead(computed).later.values())
        return later == 0 or later <= outside_bytes(self.device, usable)

    def band_gib(self, at_once: int) -> float:
        """How far the memory that is left for the cache may be off."""
        return band(self.facts, self.device, self._weights, self._overhead(at_once), self.version)

    def unsupported(self) -> list[str]:
        """Why vLLM would not start with this on any memory."""
        return unsupported(self.facts, self.device, self._with(1), self._resolved(1))

    def _overhead(self, at_once: int) -> Overhead:
        return overhead(self.facts, self.device, self._with(at_once), self._resolved(at_once), self._does)

    def _parts(self, held: int, at_once: int) -> tuple[int, int, int, int]:
        arguments, resolved = self._with(at_once), self._resolved(at_once)
        beside = self._overhead(at_once)
        cache = self._pool.held_bytes(held, resolved.max_model_len, resolved.in_flight_tokens)
        if self._does.spare_block:
            cache += self._pool.block_bytes
        if self.whole_gib:
            cache = math.ceil(cache / GIB) * GIB
        usable = math.floor(self.device.memory_bytes * share(self.device, arguments, resolved))
        return self._weights.total, cache, sum(beside.counted.values()), usable

    def _with(self, at_once: int) -> EngineArguments:
        return replace(self.arguments, max_num_seqs=max(at_once, 1))

    def _resolved(self, at_once: int) -> Resolved:
        return resolve(self.facts, self.device, self._with(at_once), self._does)

    @cached_property
    def _does(self) -> Behaviour:
        return behaviour(self.version)

    @cached_property
    def _weights(self) -> RankWeights:
        return rank_weights(self.facts, self.arguments)

    @cached_property
    def _pool(self) -> Pool:
        return cache_pool(self.facts, self.arguments, self._resolved(1), self._does)


def measured(facts: ModelFacts, gib: float, *, loaded: bool) -> ModelFacts:
    """The facts with weights of `gib` in all: of the files, or (`loaded`) as vLLM reports them on one accelerator."""
    told = sum(size for group, size in facts.weight_bytes.items() if group != "mtp")
    wanted = gib * GIB - (rotary_bytes(facts, EngineArguments()) if loaded else 0)
    if loaded:
        told = rank_weights(facts, EngineArguments()).total - rotary_bytes(facts, EngineArguments())
    by_group = {group: round(size * wanted / told) for group, size in facts.weight_bytes.items()}
    return replace(facts, weight_bytes=by_group, basis="headers")

"""Judges for a plan whether a model on its accelerators holds a number of requests at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from neuroscale.core.units import GIB
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.argument_defaults import resolve
from neuroscale.planning.fit.confidence import Doubt, doubts
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.engine import band, cache_pool, share, too_few_states, too_much
from neuroscale.planning.fit.kv_cache import PagesDiffer, Pool
from neuroscale.planning.fit.overhead import Overhead, overhead
from neuroscale.planning.fit.result import Resolved, memory_of
from neuroscale.planning.fit.support import unsupported
from neuroscale.planning.fit.versions import PINNED, Behaviour, behaviour
from neuroscale.planning.fit.weights import RankWeights, rank_weights, rotary_bytes
from neuroscale.planning.plan import Memory
from neuroscale.vllm.engine_arguments import EngineArguments


@dataclass(frozen=True)
class _Need:
    """The need of a rank in bytes."""

    weights: int
    cache: int
    beside: int
    usable: int


@dataclass(frozen=True)
class Server:
    """One replica. `arguments` lack --max-num-seqs: each method gets the number of requests.

    `whole_gib`: the cache comes in whole GiB, as a CPU's does.
    """

    facts: ModelFacts
    device: Device
    arguments: EngineArguments
    version: str = PINNED
    whole_gib: bool = False

    def memory(self, held: int, at_once: int | None = None, typical: int | None = None) -> Memory:
        """GiB of the fullest rank with the cache that `held` requests need, while `at_once` (None: the same number) are
        computed. `free` is negative if that does not fit.

        `typical`: tokens of each request but one, which is of full length (None: all are).
        """
        parts = self._need(held, at_once, typical)
        return memory_of(parts.weights, parts.cache, parts.beside, parts.usable)

    def fits(self, held: int, at_once: int | None = None, typical: int | None = None) -> bool:
        """Whether that many requests fit, exactly; `typical` as in `memory`."""
        need = self._need(held, at_once, typical)
        if self._pool is None or need.weights + need.cache + need.beside > need.usable:
            return False
        return not self.beyond(held, at_once) and not self._few_states(held, at_once, need)

    def _few_states(self, held: int, at_once: int | None, need: _Need) -> bool:
        resolved, _ = self._computing(held, at_once)
        return bool(too_few_states(resolved, self._pool, need.usable - need.weights - need.beside, self._does, 0.0))

    def beyond(self, held: int, at_once: int | None = None) -> list[str]:
        """The parts that do not fit outside the share that vLLM takes, each as a complete sentence."""
        resolved, beside = self._computing(held, at_once)
        usable = math.floor(self.device.memory_bytes * share(self.device, self.arguments, resolved))
        lacks = too_much(self.device, self.arguments, resolved, beside, usable, self._weights.total)
        return [lack.told for lack in lacks]

    def band_gib(self, at_once: int) -> float:
        """How far the estimate of the memory left for the cache may be off, in GiB."""
        resolved, beside = self._computing(at_once, None)
        return band(self.facts, self.device, self.arguments, resolved, self._weights, beside, self.version)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """The reasons why these figures may be wrong."""
        return doubts(self.facts, self.device, self.arguments, self.version)

    def unsupported(self, at_once: int | None = None) -> list[str]:
        """The reasons why vLLM would not start with these arguments with any memory, each as a complete sentence."""
        resolved, _ = self._computing(1, at_once)
        found = unsupported(self.facts, self.device, self.arguments, resolved)
        if self._pool is None:
            found.append(f"The layers of {self.facts.name} keep caches that vLLM cannot put into one.")
        return found

    def _need(self, held: int, at_once: int | None, typical: int | None) -> _Need:
        resolved, beside = self._computing(held, at_once)
        cache = 0
        if self._pool is not None:
            length, in_flight = resolved.max_model_len, resolved.in_flight_tokens
            cache = self._pool.held_bytes(held, length, in_flight)
            if typical is not None and typical < length:
                others = self._pool.held_bytes(held - 1, typical, in_flight)
                cache = min(cache, self._pool.held_bytes(1, length, in_flight) + others)
            cache += self._pool.block_bytes if self._does.spare_block else 0
        if self.whole_gib:
            cache = math.ceil(cache / GIB) * GIB
        return _Need(
            weights=self._weights.total,
            cache=cache,
            beside=sum(beside.counted.values()),
            usable=math.floor(self.device.memory_bytes * share(self.device, self.arguments, resolved)),
        )

    def _computing(self, held: int, at_once: int | None) -> tuple[Resolved, Overhead]:
        sequences = max(held if at_once is None else at_once, 1)
        if sequences not in self._known:
            resolved = resolve(self.facts, self.device, self.arguments, self._does, sequences)
            beside = overhead(self.facts, self.device, self.arguments, resolved, self._does)
            self._known[sequences] = resolved, beside
        return self._known[sequences]

    @cached_property
    def _known(self) -> dict[int, tuple[Resolved, Overhead]]:
        """A cache of the resolved arguments and the overhead, by the number of requests that are computed."""
        return {}

    @cached_property
    def _does(self) -> Behaviour:
        return behaviour(self.version)

    @cached_property
    def _weights(self) -> RankWeights:
        return rank_weights(self.facts, self.arguments)

    @cached_property
    def _pool(self) -> Pool | None:
        resolved, _ = self._computing(1, None)
        try:
            return cache_pool(self.facts, self.arguments, resolved, self._does)
        except PagesDiffer:
            return None


def measured(facts: ModelFacts, gib: float, *, loaded: bool) -> ModelFacts:
    """The facts with weights of `gib` in all: the size of the files or, if `loaded`, the size that vLLM reports on one
    accelerator."""
    told = sum(size for group, size in facts.weight_bytes.items() if group != "mtp")
    wanted = gib * GIB - (rotary_bytes(facts, EngineArguments()) if loaded else 0)
    if loaded:
        told = rank_weights(facts, EngineArguments()).total - rotary_bytes(facts, EngineArguments())
    by_group = {group: round(size * wanted / told) for group, size in facts.weight_bytes.items()}
    return replace(facts, weight_bytes=by_group, basis="headers", parts_missing=False)

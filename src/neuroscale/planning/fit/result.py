"""Holds the result for a model on an accelerator under the arguments of one vLLM version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from neuroscale.core.units import GIB
from neuroscale.planning.fit.argument_defaults import Resolved
from neuroscale.planning.fit.kv_cache import Pool
from neuroscale.planning.plan import Memory
from neuroscale.vllm.engine_arguments import Unplanned

Verdict = Literal["fits", "tight", "refused"]
Confidence = Literal["high", "medium", "low"]
Closeness = Literal["", "estimate", "held"]
"""What may reverse a verdict: nothing, the error of the estimate, or the memory that other programs hold."""


def memory_of(weights: int, kv_cache: int, overhead: int, usable: int) -> Memory:
    """Bytes of a rank as GiB with two decimals that add up. `free` is negative exactly if the bytes do not fit."""
    parts = [round(size / GIB, 2) for size in (weights, kv_cache, overhead)]
    limit = round(usable / GIB, 2)
    free = round(limit - sum(parts), 2) + 0.0
    fits = weights + kv_cache + overhead <= usable
    if fits != (free >= 0):
        # Rounding each part may change the sum by a hundredth: the largest part takes the difference.
        largest = parts.index(max(parts))
        parts[largest] = round(parts[largest] + free + (0.0 if fits else 0.01), 2)
        free = 0.0 if fits else -0.01
    return Memory(weights=parts[0], kv_cache=parts[1], overhead=parts[2], usable=limit, free=free)


@dataclass(frozen=True)
class Choice:
    """A change of a refused command that starts: the change in words, its arguments, and the result."""

    change: str
    arguments: tuple[str, ...]
    model: str
    accelerator: str
    accelerator_count: int
    max_context: int
    tight: bool  # it may fail, as a fit with that verdict
    hourly: Decimal | None  # US dollars per hour of all accelerators, if a price is known
    price_source: str = ""  # its list, with date, tier and region


@dataclass(frozen=True)
class Fit:
    """The verdict and its numbers. All memory is in GiB (2^30 bytes) of the rank with the least room."""

    verdict: Verdict
    model: str
    accelerator: str
    count: int
    version: str
    resolved: Resolved
    # Weights + kv_cache + overhead + free = usable (memory x utilisation). If the model starts, `kv_cache` is all that
    # vLLM takes for the cache, and nothing is free; for a refusal it is the need of one request of `max_model_len`, and
    # `free` is the memory that is missing (negative).
    memory_gib: Memory
    total_gib: float | None
    available_gib: float  # 'Available KV cache memory' as vLLM prints it; below 0 if nothing is left
    request_gib: float  # the cache that vLLM reserves for one request of `max_model_len`
    weights_gib: Mapping[str, float]  # by group of tensors on that rank, offloaded weights included
    overhead_gib: Mapping[str, float]  # by part
    later_gib: Mapping[str, float]  # the need beyond the share that vLLM takes
    # How far `available_gib` may be off in either direction; `band_known` is false for a family of accelerators without
    # measurements.
    band_gib: float
    # As vLLM prints them; 0 for a refusal.
    kv_cache_tokens: int
    max_concurrency: float
    max_model_len: int
    max_context: int  # the longest `--max-model-len` that starts, at most the model's own limit
    context_band: tuple[int, int]  # `max_context` with that much memory less, and more
    band_known: bool
    close: Closeness  # what may reverse the verdict, if only memory decides it
    # The time that `--cpu-offload-gb` adds to each step (None: unknown; 0.0: nothing is offloaded).
    seconds_per_step: float | None
    log: tuple[str, ...]
    confidence: Confidence
    # The sentences on what vLLM refuses with any memory, or on what does not fit outside its share.
    against: tuple[str, ...]
    reasons: tuple[str, ...]
    unjudged: str  # why the start is not judged, as a clause; "" for one that is
    # The arguments and variables of which a part is neither counted nor judged.
    uncounted: tuple[Unplanned, ...]
    # The cache's blocks on that rank (None: the layers' pages cannot be made one size).
    pool: Pool | None = field(repr=False)
    choices: tuple[Choice, ...] = field(default=())

    def at_once(self, length: int) -> float:
        """How many requests of `length` tokens the cache holds at once; 0.0 for a refusal."""
        if self.verdict == "refused" or self.pool is None or length < 1:
            return 0.0
        blocks = self.pool.num_blocks(int(self.available_gib * GIB))
        return blocks / self.pool.blocks_per_request(length, self.resolved.in_flight_tokens)

    def held(self, length: int, most: int = 4096) -> int:
        """How many requests of `length` tokens, up to `most`, the cache holds while they share the tokens in flight,
        as `Pool.held_bytes` counts them: more than `at_once` for layers with windows; 0 for a refusal."""
        if self.verdict == "refused" or self.pool is None or length < 1:
            return 0
        available, in_flight = int(self.available_gib * GIB), self.resolved.in_flight_tokens
        fewest, highest = 0, most
        while fewest < highest:
            middle = (fewest + highest + 1) // 2
            if self.pool.held_bytes(middle, length, in_flight) <= available:
                fewest = middle
            else:
                highest = middle - 1
        return fewest

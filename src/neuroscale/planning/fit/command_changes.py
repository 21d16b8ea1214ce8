"""Finds changes of a refused command that start: the same engine has judged every change that it names.

Where no single change keeps the accelerators, it tries two changes at once and names the pair that gives up least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import chain

from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.engine import fit
from neuroscale.planning.fit.result import Choice, Fit
from neuroscale.vllm.engine_arguments import EngineArguments

_MOST = 8
_SHORTEST = 256  # tokens; a shorter context helps nobody
_UTILIZATIONS = (0.92, 0.94, 0.95, 0.96, 0.97)
_SEQUENCES = (256, 128, 64, 16)
_COUNTS = (1, 2, 4, 8)

Price = Callable[[str, int], Decimal | None]
"""US dollars per hour of a number of accelerators by name; None if no price is known."""


def _unpriced(_name: str, _count: int) -> Decimal | None:
    return None


@dataclass(frozen=True)
class Around:
    """The other candidates: other copies of the same model, other accelerators, and the prices of all of them."""

    variants: Sequence[ModelFacts] = ()
    devices: Sequence[Device] = ()
    price: Price = _unpriced


@dataclass(frozen=True)
class _Attempt:
    change: str
    facts: ModelFacts
    device: Device
    arguments: EngineArguments


_Works = tuple[_Attempt, Fit]
_Kind = Callable[[Fit, ModelFacts, Device, EngineArguments], Iterator[_Attempt]]
"""Attempts of one kind of change, from the nearest to the furthest."""


def choices(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments, around: Around
) -> tuple[Choice, ...]:
    """The nearest change of each kind that starts, or the best pair of changes where no single one keeps the
    accelerators. Changes that keep the accelerators and their number come first, since they cost nothing more; then
    those that keep a kind of accelerator without a price, then the cheapest; changes without a price come last."""
    single = _found(_kinds(refused, facts, device, arguments, around), refused.version)
    in_8_bits = _found([_shorter_in_8_bits(refused, facts, device, arguments)], refused.version)
    found = [*single, *in_8_bits]
    if not any(_keeps(result, device, refused) for _, result in single):
        pairs = _pairs(refused, facts, device, arguments, around, in_8_bits)
        if not pairs and not any(result.accelerator == device.name for _, result in found):
            pairs = _pairs_with_cards(refused, facts, device, arguments, around)
        found += pairs
    ordered = [_choice(attempt, arguments, result, around.price) for attempt, result in found]

    def rank(choice: Choice) -> tuple[int, Decimal]:
        if choice.accelerator == device.name:
            if choice.accelerator_count == refused.count:
                return 0, Decimal(0)
            if choice.hourly is None:
                return 1, Decimal(0)
        return (3, Decimal(0)) if choice.hourly is None else (2, choice.hourly)

    # sorted() keeps the order of kinds among equals.
    return tuple(sorted(ordered, key=rank)[:_MOST])


def _found(kinds: Iterable[Iterator[_Attempt]], version: str) -> list[_Works]:
    """The first attempt of each kind that starts."""
    works = (next(_that_start(attempts, version), None) for attempts in kinds)
    return [one for one in works if one is not None]


def _that_start(attempts: Iterator[_Attempt], version: str) -> Iterator[_Works]:
    for attempt in attempts:
        result = fit(attempt.facts, attempt.device, attempt.arguments, version=version)
        if result.verdict != "refused":
            yield attempt, result


def _keeps(result: Fit, device: Device, refused: Fit) -> bool:
    return (result.accelerator, result.count) == (device.name, refused.count)


def _choice(attempt: _Attempt, before: EngineArguments, result: Fit, price: Price) -> Choice:
    return Choice(
        change=attempt.change,
        arguments=_said(before, attempt.arguments),
        model=attempt.facts.name,
        accelerator=attempt.device.name,
        accelerator_count=result.count,
        max_context=result.max_context,
        tight=result.verdict == "tight",
        hourly=price(attempt.device.name, result.count),
    )


def _kinds(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments, around: Around
) -> Iterator[Iterator[_Attempt]]:
    """Attempts by kind of change; each kind from the nearest attempt to the furthest."""
    for kind in (_shorter, _in_8_bits, _more_of_the_card, _less_of_the_card, _fewer_requests):
        yield kind(refused, facts, device, arguments)
    for attempt in _other_copies(around, refused, facts, device, arguments):
        yield iter([attempt])
    yield _cards(facts, device, arguments, more_than=arguments.tensor_parallel_size)
    for other in around.devices:
        if other.name != device.name:
            yield _cards(facts, other, arguments, more_than=0)


def _pairs(
    refused: Fit,
    facts: ModelFacts,
    device: Device,
    arguments: EngineArguments,
    around: Around,
    in_8_bits: Sequence[_Works],
) -> list[_Works]:
    """The pair of changes on the same accelerators that gives up least; `in_8_bits`: the pair that is named already.

    Pairs that keep the context come first, in this order: another share of the memory and fewer requests at once give
    up only margin and throughput, a cache of 8 bits and another copy of the model give up precision. Of the pairs that
    shorten the context, the one that keeps most of it holds.
    """
    copies = partial(_other_copies, around)
    start = (refused, facts, device, arguments)
    if not _can_start(copies, *start):
        return []
    for first, second in (
        (_share_of_the_card, _fewer_requests),
        (_share_of_the_card, _in_8_bits),
        (_fewer_requests, _in_8_bits),
        (_share_of_the_card, copies),
        (_fewer_requests, copies),
        (_in_8_bits, copies),
    ):
        for works in _that_start(_both(first, second, *start), refused.version):
            return [works]
    shorter = [
        works
        for first in (_share_of_the_card, _fewer_requests, copies)
        for works in _that_start(_both(first, _shorter, *start), refused.version)
    ]
    best = max([*in_8_bits, *shorter], key=_context, default=None)
    return [] if best is None or best in in_8_bits else [best]


def _pairs_with_cards(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments, around: Around
) -> list[_Works]:
    """More accelerators of the same kind with one more change; the pair that gives up least."""
    for second in (_in_8_bits, partial(_other_copies, around), _shorter):
        for works in _that_start(_both(_more_cards, second, refused, facts, device, arguments), refused.version):
            return [works]
    return []


def _both(
    first: _Kind, second: _Kind, refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments
) -> Iterator[_Attempt]:
    """Attempts that make a change of both kinds."""
    for one in first(refused, facts, device, arguments):
        still_refused = fit(one.facts, device, one.arguments, version=refused.version)
        for other in second(still_refused, one.facts, device, one.arguments):
            also = one.change[0].lower() + one.change[1:]
            yield replace(other, change=f"{other.change.rstrip('.')}, and {also}")


def _can_start(copies: _Kind, refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments) -> bool:
    """Whether a copy of the model starts with all changes at once, which saves trying the pairs where none can work."""
    of_all = [facts, *(one.facts for one in copies(refused, facts, device, arguments))]
    shares = (None,) if device.family == "cpu" else (_UTILIZATIONS[-1], device.free_share)
    least = replace(
        arguments,
        kv_cache_dtype="fp8" if "fp8" in device.kv_cache_dtypes else arguments.kv_cache_dtype,
        max_num_seqs=min(_SEQUENCES[-1], refused.resolved.max_num_seqs),
        max_model_len=min(_SHORTEST, refused.max_model_len),
    )
    return any(
        fit(one, device, replace(least, gpu_memory_utilization=share), version=refused.version).verdict != "refused"
        for one in of_all
        for share in shares
    )


def _context(works: _Works) -> int:
    return works[1].max_model_len


def _in_8_bits(refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments) -> Iterator[_Attempt]:
    if "fp8" in device.kv_cache_dtypes and not refused.resolved.kv_cache_dtype.startswith("fp8"):
        changed = replace(arguments, kv_cache_dtype="fp8")
        yield _Attempt("Keep the KV cache in 8 bits.", facts, device, changed)


def _shorter_in_8_bits(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments
) -> Iterator[_Attempt]:
    for one in _in_8_bits(refused, facts, device, arguments):
        yield from _shorter(fit(facts, device, one.arguments, version=refused.version), facts, device, one.arguments)


def _other_copies(
    around: Around, refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments
) -> Iterator[_Attempt]:
    for variant in around.variants:
        if variant.name != refused.model:
            beside = replace(variant, draft=facts.draft)
            yield _Attempt(f"Choose the model '{variant.name}'.", beside, device, arguments)


def _shorter(refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments) -> Iterator[_Attempt]:
    """The longest context that starts, in whole blocks."""
    block = refused.resolved.block_size
    length = refused.max_context // block * block
    if _SHORTEST <= length < refused.max_model_len:
        also = " and keep the KV cache in 8 bits" if arguments.kv_cache_dtype == "fp8" else ""
        change = f"Shorten the context to {length:,} tokens{also}."
        yield _Attempt(change, facts, device, replace(arguments, max_model_len=length))


def _more_of_the_card(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments
) -> Iterator[_Attempt]:
    if device.family == "cpu":
        return
    for share in _UTILIZATIONS:
        if share > refused.resolved.utilization:
            changed = replace(arguments, gpu_memory_utilization=share)
            yield _Attempt(f"Let vLLM take {share:.0%} of the memory.", facts, device, changed)


def _less_of_the_card(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments
) -> Iterator[_Attempt]:
    """The largest share of the memory that is surely free, if the requested share is more than that."""
    share = device.free_share
    if device.family != "cpu" and share < refused.resolved.utilization:
        changed = replace(arguments, gpu_memory_utilization=share)
        yield _Attempt(f"Let vLLM take {share:.0%} of the memory: more may not be free.", facts, device, changed)


def _share_of_the_card(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments
) -> Iterator[_Attempt]:
    yield from chain(
        _more_of_the_card(refused, facts, device, arguments), _less_of_the_card(refused, facts, device, arguments)
    )


def _fewer_requests(refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments) -> Iterator[_Attempt]:
    for most in _SEQUENCES:
        if most < refused.resolved.max_num_seqs:
            changed = replace(arguments, max_num_seqs=most)
            yield _Attempt(f"Compute at most {most} requests at once.", facts, device, changed)


def _more_cards(_refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments) -> Iterator[_Attempt]:
    yield from _cards(facts, device, arguments, more_than=arguments.tensor_parallel_size)


def _cards(facts: ModelFacts, device: Device, arguments: EngineArguments, *, more_than: int) -> Iterator[_Attempt]:
    """More ranks of tensor parallelism, on one kind of accelerator."""
    dtype = arguments.kv_cache_dtype
    for count in device.counts or _COUNTS:
        if count > more_than and dtype in ("auto", *device.kv_cache_dtypes):
            changed = replace(arguments, tensor_parallel_size=count)
            yield _Attempt(f"Use {count} x {device.title}.", facts, device, changed)


_OPTIONS = (
    ("max_model_len", "--max-model-len"),
    ("kv_cache_dtype", "--kv-cache-dtype"),
    ("gpu_memory_utilization", "--gpu-memory-utilization"),
    ("max_num_seqs", "--max-num-seqs"),
    ("tensor_parallel_size", "--tensor-parallel-size"),
)


def _said(before: EngineArguments, after: EngineArguments) -> tuple[str, ...]:
    """The arguments of `vllm serve` in which `after` differs from `before`."""
    return tuple(
        f"{option}={getattr(after, name)}" for name, option in _OPTIONS if getattr(before, name) != getattr(after, name)
    )

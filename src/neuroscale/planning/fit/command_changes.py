"""Finds changes of a refused command that start: the same engine has judged every change that it names.

Where no single change keeps the accelerators, it tries two changes at once and names the pair that gives up least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import chain, islice

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
class OtherCandidates:
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


@dataclass(frozen=True)
class _Refused:
    """A refused start: its result, and what it was asked with."""

    result: Fit
    facts: ModelFacts
    device: Device
    arguments: EngineArguments

    def change(self, change: str, **changes: object) -> _Attempt:
        """The attempt with some arguments changed; `change`: that as a sentence."""
        arguments = replace(self.arguments, **changes)  # type: ignore[arg-type]
        return _Attempt(change, self.facts, self.device, arguments)


_Works = tuple[_Attempt, Fit]
_Kind = Callable[[_Refused], Iterable[_Attempt]]  # attempts of one kind of change, from the nearest to the furthest


def choices(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments, others: OtherCandidates
) -> tuple[Choice, ...]:
    """The nearest change of each kind that starts, or the best pair of changes where no single one keeps the
    accelerators. Changes that keep the accelerators and their number come first, since they cost nothing more; then
    those that keep a kind of accelerator without a price, then the cheapest; changes without a price come last."""
    start = _Refused(refused, facts, device, arguments)
    single = _found(_kinds(start, others), refused.version)
    in_8_bits = _found([_shorter_in_8_bits(start)], refused.version)
    works = [*single, *in_8_bits]
    if not any((result.accelerator, result.count) == (device.name, refused.count) for _, result in single):
        pairs = _pairs(start, others, in_8_bits)
        if not pairs and not any(result.accelerator == device.name for _, result in works):
            pairs = _pairs_with_cards(start, others)
        works += pairs
    ordered = [_choice(attempt, arguments, result, others.price) for attempt, result in works]

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
    return [works for attempts in kinds for works in islice(_that_start(attempts, version), 1)]


def _that_start(attempts: Iterable[_Attempt], version: str) -> Iterator[_Works]:
    for attempt in attempts:
        result = fit(attempt.facts, attempt.device, attempt.arguments, version=version)
        if result.verdict != "refused":
            yield attempt, result


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


def _kinds(start: _Refused, others: OtherCandidates) -> Iterator[Iterator[_Attempt]]:
    """Attempts by kind of change; each kind from the nearest attempt to the furthest."""
    for kind in (_own_backends, _shorter, _in_8_bits, _more_of_the_card, _less_of_the_card, _fewer_requests):
        yield kind(start)
    for attempt in _other_copies(others, start):
        yield iter([attempt])
    yield _more_cards(start)
    for other in others.devices:
        if other.name != start.device.name:
            yield _cards(replace(start, device=other), more_than=0)


def _pairs(start: _Refused, others: OtherCandidates, in_8_bits: Sequence[_Works]) -> list[_Works]:
    """The pair of changes on the same accelerators that gives up least; `in_8_bits`: the pair that is named already.
    Pairs that keep the context come first, in this order: another share of the memory and fewer requests at once give
    up only margin and throughput, a cache of 8 bits and another copy of the model give up precision. Of the pairs that
    shorten the context, the one that keeps most of it holds."""
    copies = partial(_other_copies, others)
    for first, second in (
        (_share_of_the_card, _fewer_requests),
        (_share_of_the_card, _in_8_bits),
        (_fewer_requests, _in_8_bits),
        (_share_of_the_card, copies),
        (_fewer_requests, copies),
        (_in_8_bits, copies),
    ):
        for works in _that_start(_both(first, second, start), start.result.version):
            return [works]
    shorter = [
        works
        for first in (_share_of_the_card, _fewer_requests, copies)
        for works in _that_start(_both(first, _shorter, start), start.result.version)
    ]
    best = max([*in_8_bits, *shorter], key=lambda works: works[1].max_model_len, default=None)
    return [] if best is None or best in in_8_bits else [best]


def _pairs_with_cards(start: _Refused, others: OtherCandidates) -> list[_Works]:
    """More accelerators of the same kind with one more change; the pair that gives up least."""
    for second in (_in_8_bits, partial(_other_copies, others), _shorter):
        for works in _that_start(_both(_more_cards, second, start), start.result.version):
            return [works]
    return []


def _both(first: _Kind, second: _Kind, start: _Refused) -> Iterator[_Attempt]:
    """Attempts that make a change of both kinds."""
    for attempt in first(start):
        result = fit(attempt.facts, start.device, attempt.arguments, version=start.result.version)
        for other in second(_Refused(result, attempt.facts, start.device, attempt.arguments)):
            also = attempt.change[0].lower() + attempt.change[1:]
            yield replace(other, change=f"{other.change.rstrip('.')}, and {also}")


def _own_backends(start: _Refused) -> Iterator[_Attempt]:
    said = start.arguments
    if said.attention_backend or said.attention_variable or said.experts_backend:
        change = "Leave the backends of attention and experts to vLLM."
        yield start.change(change, attention_backend="", attention_variable="", experts_backend="")


def _in_8_bits(start: _Refused) -> Iterator[_Attempt]:
    if "fp8" in start.device.kv_cache_dtypes and not start.result.resolved.kv_cache_dtype.startswith("fp8"):
        yield start.change("Keep the KV cache in 8 bits.", kv_cache_dtype="fp8")


def _shorter_in_8_bits(start: _Refused) -> Iterator[_Attempt]:
    for attempt in _in_8_bits(start):
        result = fit(start.facts, start.device, attempt.arguments, version=start.result.version)
        yield from _shorter(replace(start, result=result, arguments=attempt.arguments))


def _other_copies(others: OtherCandidates, start: _Refused) -> Iterator[_Attempt]:
    for variant in others.variants:
        if variant.name != start.result.model:
            copy = replace(start, facts=replace(variant, draft=start.facts.draft))
            yield copy.change(f"Choose the model '{variant.name}'.")


def _shorter(start: _Refused) -> Iterator[_Attempt]:
    """The longest context that starts, in whole blocks."""
    block = start.result.resolved.block_size
    length = start.result.max_context // block * block
    if _SHORTEST <= length < start.result.max_model_len:
        also = " and keep the KV cache in 8 bits" if start.arguments.kv_cache_dtype == "fp8" else ""
        yield start.change(f"Shorten the context to {length:,} tokens{also}.", max_model_len=length)


def _more_of_the_card(start: _Refused) -> Iterator[_Attempt]:
    for share in () if start.device.family == "cpu" else _UTILIZATIONS:
        if share > start.result.resolved.utilization:
            yield start.change(f"Let vLLM take {share:.0%} of the memory.", gpu_memory_utilization=share)


def _less_of_the_card(start: _Refused) -> Iterator[_Attempt]:
    """The largest share of the memory that is surely free, if the requested share is more than that."""
    share = start.device.free_share
    if start.device.family != "cpu" and share < start.result.resolved.utilization:
        change = f"Let vLLM take {share:.0%} of the memory: more may not be free."
        yield start.change(change, gpu_memory_utilization=share)


def _share_of_the_card(start: _Refused) -> Iterable[_Attempt]:
    return chain(_more_of_the_card(start), _less_of_the_card(start))


def _fewer_requests(start: _Refused) -> Iterator[_Attempt]:
    for most in _SEQUENCES:
        if most < start.result.resolved.max_num_seqs:
            yield start.change(f"Compute at most {most} requests at once.", max_num_seqs=most)


def _more_cards(start: _Refused) -> Iterator[_Attempt]:
    yield from _cards(start, more_than=start.arguments.tensor_parallel_size)


def _cards(start: _Refused, *, more_than: int) -> Iterator[_Attempt]:
    """More ranks of tensor parallelism, on one kind of accelerator."""
    device = start.device
    for count in device.counts or _COUNTS:
        if count > more_than and start.arguments.kv_cache_dtype in ("auto", *device.kv_cache_dtypes):
            yield start.change(f"Use {count} x {device.title}.", tensor_parallel_size=count)


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

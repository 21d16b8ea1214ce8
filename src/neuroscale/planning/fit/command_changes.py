"""Finds changes of a refused command that start: the same engine has judged every change that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

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


def choices(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments, around: Around
) -> tuple[Choice, ...]:
    """The nearest change of each kind that starts: the cheapest first, and changes without a known price last."""
    found: list[Choice] = []
    for attempts in _kinds(refused, facts, device, arguments, around):
        for attempt in attempts:
            result = fit(attempt.facts, attempt.device, attempt.arguments, version=refused.version)
            if result.verdict != "refused":
                found.append(_choice(attempt, arguments, result, around.price))
                break
    # sorted() keeps the order of kinds among equals.
    return tuple(sorted(found, key=lambda choice: (choice.hourly is None, choice.hourly or 0))[:_MOST])


def _choice(attempt: _Attempt, before: EngineArguments, result: Fit, price: Price) -> Choice:
    return Choice(
        change=attempt.change,
        arguments=_said(before, attempt.arguments),
        model=attempt.facts.name,
        accelerator=attempt.device.name,
        accelerator_count=result.count,
        max_context=result.max_context,
        hourly=price(attempt.device.name, result.count),
    )


def _kinds(
    refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments, around: Around
) -> Iterator[Iterator[_Attempt]]:
    """Attempts by kind of change; each kind from the nearest attempt to the furthest."""
    in_8_bits = replace(arguments, kv_cache_dtype="fp8")
    has_8_bits = "fp8" in device.kv_cache_dtypes and not refused.resolved.kv_cache_dtype.startswith("fp8")
    yield _shorter(refused, facts, device, arguments)
    if has_8_bits:
        yield iter([_Attempt("Keep the KV cache in 8 bits.", facts, device, in_8_bits)])
    yield _more_of_the_card(refused, facts, device, arguments)
    yield _less_of_the_card(refused, facts, device, arguments)
    yield _fewer_requests(refused, facts, device, arguments)
    if has_8_bits:
        yield _shorter(fit(facts, device, in_8_bits, version=refused.version), facts, device, in_8_bits)
    for variant in around.variants:
        if variant.name != facts.name:
            beside = replace(variant, draft=facts.draft)
            yield iter([_Attempt(f"Choose the model '{variant.name}'.", beside, device, arguments)])
    yield _cards(facts, device, arguments, more_than=arguments.tensor_parallel_size)
    for other in around.devices:
        if other.name != device.name:
            yield _cards(facts, other, arguments, more_than=0)


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


def _fewer_requests(refused: Fit, facts: ModelFacts, device: Device, arguments: EngineArguments) -> Iterator[_Attempt]:
    for most in _SEQUENCES:
        if most < refused.resolved.max_num_seqs:
            changed = replace(arguments, max_num_seqs=most)
            yield _Attempt(f"Compute at most {most} requests at once.", facts, device, changed)


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

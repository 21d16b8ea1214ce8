"""Answers whether a model fits accelerators with given arguments of vLLM, and what would start instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal

from neuroscale.catalog import Catalog, ModelEntry, PriceList
from neuroscale.catalog.price_export import TIERS
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.releases import release
from neuroscale.core.units import GIB
from neuroscale.core.validation import suggest
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import (
    PINNED,
    Choice,
    Device,
    Fit,
    OtherCandidates,
    choices,
    device,
    draft_method,
    fit,
    with_draft,
)
from neuroscale.planning.fit.device import family_of
from neuroscale.planning.measured import as_measured
from neuroscale.planning.price import PodPrice, pod_price
from neuroscale.planning.replica_memory import served_facts
from neuroscale.repo.layout import ACCELERATORS, MODELS
from neuroscale.vllm.accelerator_rules import check_dtype, world_size
from neuroscale.vllm.arguments import Parsed, parse_arguments
from neuroscale.vllm.command_rules import check_command
from neuroscale.vllm.engine_arguments import EngineArguments, with_variables

_TOLD_BY_FIT = (
    *("no-model", "attention-heads", "kv-heads", "data-parallelism", "context-length", "batched-tokens"),
    *("hf-overrides", "context-parallelism"),
)
"""Faults that `fit` words itself; another option names the model."""
_LARGEST = 1e19  # more than 64 bits hold; vLLM's parser takes infinite numbers, too


def _not_looked_up(name: str) -> ModelFacts:
    raise InputError.at("--model", "", f"{name!r} is not a model of the catalog", f"Name one of {MODELS}.")


@dataclass(frozen=True)
class Question:
    """The options: a model, the accelerators (`memory_gib` in GiB and `bandwidth_gbs` in 10^9 bytes per second, if the
    catalog has no accelerator of that name; `used_gib`: GiB that other programs hold of each), the arguments of a
    version of vLLM, and variables of its environment. `look_up`: finds the facts of a model that the catalog lacks, as
    the caller may (a folder, the Hub); it raises InputError."""

    model: str = ""
    accelerator: str | None = None
    count: int | None = None
    words: tuple[str, ...] = ()  # after `vllm serve`
    vllm_version: str = ""
    memory_gib: float | None = None
    bandwidth_gbs: float | None = None
    used_gib: float | None = None
    environment: tuple[str, ...] = ()
    tflops: float | None = None  # dense peak of 16-bit operations, 10^12 a second
    look_up: Callable[[str], ModelFacts] = field(default=_not_looked_up, compare=False)

    def facts_of(self, name: str, catalog: Catalog) -> ModelFacts:
        """The facts of a model with the best known size of its weights. Raises InputError for a wrong name."""
        entry = catalog.models.get(name)
        return self.look_up(name) if entry is None else served_facts(entry)


@dataclass(frozen=True)
class FitSubject:
    """What a question asks about, and sentences on faults: `problems` end vLLM at its start, `remarks` do not."""

    facts: ModelFacts
    where: Device
    arguments: EngineArguments
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def asked(question: Question, catalog: Catalog) -> FitSubject:
    """The model, the accelerator and the arguments of a question. Raises InputError."""
    try:
        release(question.vllm_version)
    except ValueError as error:
        raise InputError.at(
            "--vllm-version", "", f"{question.vllm_version!r} is not a version", f"Write one such as {PINNED}."
        ) from error
    where = _device(question, catalog)
    facts = question.facts_of(question.model, catalog)
    parsed, problems = _command(question)
    refusals, remarks = _faults(parsed, facts, catalog.models.get(question.model))
    problems += refusals
    card = catalog.accelerators.get(question.accelerator or "")
    if card is not None:
        problems += tuple(f"{fault.message}. {fault.fix}" for fault in check_dtype(parsed, facts, card))
    arguments = with_variables(parsed.arguments.in_range(), _environment(question), where.family)
    facts, unread_draft = _with_draft(facts, arguments, question, catalog)
    facts, where = as_measured(catalog.models.get(question.model), facts, where, arguments, question.vllm_version)
    return FitSubject(facts, where, arguments, problems, remarks + unread_draft)


def answer(question: Question, catalog: Catalog) -> Fit:
    """The fit, with changes of a refused command that start. It also refuses arguments with which vLLM does not start.

    Raises InputError.
    """
    said = asked(question, catalog)
    result = fitted(question, said)
    if result.verdict == "refused" and not said.problems:
        prices = _Prices(said.facts, catalog)
        candidates = OtherCandidates(
            _variants(question.model, said.facts, catalog), _devices(said.where, catalog), prices
        )
        found = choices(result, said.facts, said.where, said.arguments, candidates)
        result = replace(result, choices=tuple(map(prices.with_source, found)))
    return replace(result, reasons=(*result.reasons, *said.remarks))


def fitted(question: Question, said: FitSubject) -> Fit:
    """The fit alone: refused also for arguments with which vLLM does not start. Raises InputError."""
    result = fit(said.facts, said.where, said.arguments, version=question.vllm_version)
    if result.unjudged:
        part = next((part for part in said.arguments.unplanned if part.of_cache), None)
        option, fix = ("--vllm-args", "Leave it out.") if part else ("--vllm-version", "Name a later release.")
        raise InputError(Problem(option, "", f"is not judged: {result.unjudged}", fix))
    if said.problems:
        first, *others = result.reasons
        else_told = first if result.verdict == "refused" else f"But for that: {first}"
        result = replace(result, verdict="refused", close="", reasons=(*said.problems, else_told, *others))
    return result


def _device(question: Question, catalog: Catalog) -> Device:
    """An accelerator of the catalog, or one that is described by its memory."""
    memory, bandwidth = question.memory_gib, question.bandwidth_gbs
    sizes = ("--memory-gib", memory), ("--bandwidth-gbs", bandwidth), ("--count", question.count)
    for option, value in (*sizes, ("--tflops", question.tflops)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError.at(option, "", f"{value:g} is not a size", "Write a number above 0.")
    used = question.used_gib
    if used is not None and not (math.isfinite(used) and used >= 0):
        raise InputError.at("--used-gib", "", f"{used:g} is not a size", "Write a number from 0.")
    name = question.accelerator or ""
    if name in catalog.accelerators:
        known = device(catalog.accelerators[name])
        return replace(
            known,
            memory_gib=memory or known.memory_gib,
            bandwidth_gb_s=bandwidth or known.bandwidth_gb_s,
            bf16_tflops=question.tflops or known.bf16_tflops,
            used_gib=known.used_gib if used is None else used,
        )
    if memory is None:
        said = f"{name!r} is not an accelerator of the catalog" if name else "no accelerator is named"
        raise InputError.at(
            "--accelerator",
            "",
            said,
            f"{suggest(name, catalog.accelerators, ACCELERATORS)} Or describe one: --memory-gib.",
        )
    title = name or f"accelerator of {memory:g} GiB"
    peak = question.tflops
    return Device(name or "unnamed", title, family_of(name), memory, bandwidth, used_gib=used, bf16_tflops=peak)


def _environment(question: Question) -> dict[str, str]:
    """The variables by their names. Raises InputError for a text that is not NAME=VALUE."""
    found = {}
    for said in question.environment:
        name, equals, value = said.partition("=")
        if not equals or not name.isidentifier():
            raise InputError.at("--env", "", f"{said!r} is not a variable", "Write NAME=VALUE.")
        found[name] = value
    return found


def _command(question: Question) -> tuple[Parsed, tuple[str, ...]]:
    """The command on the given accelerators, and a sentence for each fault with which vLLM would not start."""
    parsed = parse_arguments(question.words, question.vllm_version, names_model=False)
    for name, value in parsed.values.items():
        if isinstance(value, int | float) and not abs(value) <= _LARGEST:
            option = f"--{name.replace('_', '-')}"
            raise InputError.at("--vllm-args", "", f"{option} has a value that is not judged", "Write a smaller one.")
    wrong = [problem for problem in parsed.problems if problem.kind != "ignored"]
    if wrong and not parsed.exact:
        told = f"the command is read as vLLM {parsed.version} would, and {wrong[0].word!r}: {wrong[0].message}"
        raise InputError(Problem("--vllm-args", "", f"are not judged: {told}", "Leave out what only older ones had."))
    problems = tuple(
        f"vLLM {parsed.version} does not start with {problem.word!r}: {problem.message}. {problem.fix}"
        for problem in wrong
    )
    count, asked = question.count, world_size(parsed)
    if count is None:
        return parsed, problems
    if asked == 1 and "tensor_parallel_size" not in parsed.values:
        return replace(parsed, arguments=replace(parsed.arguments, tensor_parallel_size=count)), problems
    if asked > count:
        problems += (f"The arguments ask for {asked} accelerators, and there are {count}.",)
    return parsed, problems


def _faults(parsed: Parsed, facts: ModelFacts, entry: ModelEntry | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences on the faults that end vLLM at its start with this command and model, and on the gate's other findings.

    Empty for a version that is not known.
    """
    faults = [fault for fault in check_command(parsed, facts, entry) if parsed.exact and fault.rule not in _TOLD_BY_FIT]
    told = [(f"{fault.message}. {fault.fix}", fault.refused and fault.rule != "parser") for fault in faults]
    return tuple(text for text, ends in told if ends), tuple(text for text, ends in told if not ends)


def _with_draft(
    facts: ModelFacts, arguments: EngineArguments, question: Question, catalog: Catalog
) -> tuple[ModelFacts, tuple[str, ...]]:
    """The facts with those of the command's draft model or head; a sentence says why the draft cannot be read."""
    if draft_method(arguments) is None:
        return facts, ()
    named = {entry.weights.path: name for name, entry in catalog.models.items() if entry.weights.kind == "hub"}
    try:
        return with_draft(facts, question.facts_of(named.get(arguments.draft, arguments.draft), catalog), arguments), ()
    except InputError as error:
        told = error.problems[0]
        place = ": ".join(part for part in (told.where, told.field) if part)
        return facts, (f"The draft {arguments.draft} cannot be read: {place} {told.message}.",)


def _variants(name: str, facts: ModelFacts, catalog: Catalog) -> list[ModelFacts]:
    """Other copies of the same model in the catalog."""
    entry = catalog.models.get(name)
    if entry is None:
        return []
    root = entry.variant_of or entry.name
    return [
        served_facts(other)
        for other in catalog.models.values()
        if other.name != facts.name and root in (other.name, other.variant_of)
    ]


def _devices(where: Device, catalog: Catalog) -> list[Device]:
    return [device(each) for each in catalog.accelerators.values() if each.family == "cuda" and each.name != where.name]


class _Prices:
    """The prices of accelerators with vCPUs and memory for a model, by all lists of the catalog: first those on demand,
    by name."""

    def __init__(self, facts: ModelFacts, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lists = tuple(sorted(catalog.prices, key=lambda name: (not _is_on_demand(catalog.prices[name]), name)))
        self._memory_gib = math.ceil((1.25 * sum(facts.weight_bytes.values()) / GIB + 10) / 8) * 8

    def __call__(self, name: str, count: int) -> Decimal | None:
        found = self._found(name, count)
        return found.hourly if found else None

    def with_source(self, choice: Choice) -> Choice:
        """The choice with the price list that its price comes from."""
        found = self._found(choice.accelerator, choice.accelerator_count)
        if found is None:
            return choice
        listed = self._catalog.prices[found.price_list]
        return replace(choice, price_source=f"{listed.name} of {found.date}: {listed.tier}, {listed.region}")

    def _found(self, name: str, count: int) -> PodPrice | None:
        if name not in self._catalog.accelerators:
            return None
        return pod_price(self._catalog, self._lists, name, count, 4 * count, self._memory_gib)


def _is_on_demand(price_list: PriceList) -> bool:
    return price_list.tier == TIERS["on-demand"]

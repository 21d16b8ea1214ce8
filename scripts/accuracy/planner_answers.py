"""Asks planning about a case: the answer has its figures, or says that planning cannot judge it, or failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from accuracy.cases import CaseAccelerator, Figure, StartCase
from accuracy.reading import Cases
from neuroscale.catalog import Catalog
from neuroscale.catalog.model_lookup import load_model
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.units import GIB
from neuroscale.core.validation import suggest
from neuroscale.models.config import read_config
from neuroscale.models.facts import Basis, ModelFacts
from neuroscale.planning.fit import PINNED, Device, Fit, fit
from neuroscale.planning.fit.device import family_of
from neuroscale.repo.layout import MODELS
from neuroscale.vllm.arguments import parse_arguments
from neuroscale.vllm.engine_arguments import EngineArguments

_ROOM_GIB = 4096.0

State = Literal["answered", "not judged", "crashed"]


@dataclass(frozen=True)
class PlannedFigures:
    """Planning's answer. `words`: why it gives no figure, or the reason of the verdict. `basis`: the source of the
    model's facts. `unsure`: planning says that the opposite verdict is possible. `margin_gib`: GiB by which the
    memory for the cache may be off, as it says (None: it says none)."""

    state: State
    figures: Mapping[Figure, float | str] = field(default_factory=dict)
    words: str = ""
    basis: Basis | None = None
    unsure: bool = False
    margin_gib: float | None = None


@dataclass(frozen=True)
class Read:
    """A model's facts, or the reason why planning has none."""

    facts: ModelFacts | None
    state: State
    words: str = ""


class Planner:
    """Asks planning; reads each model once."""

    def __init__(self, cases: Cases, catalog: Catalog) -> None:
        self._cases = cases
        self._catalog = catalog
        self._read: dict[tuple[str, bool], Read] = {}

    def model(self, name: str) -> Read:
        """A model of the ground truth, read from the config in its file."""
        return self._once(name, False, lambda: read_config(self._cases.config(name), name, f"config of {name}"))

    def start(self, case: StartCase) -> PlannedFigures:
        """All figures of the case that are judged."""
        if case.catalog is not None:
            name = case.catalog
            read = self._once(name, True, lambda: self._of_catalog(name))
        else:
            read = self.model(case.model or "")
        if read.facts is None:
            return PlannedFigures(read.state, words=read.words)
        facts = read.facts
        try:
            return replace(_figures(case, facts), basis=facts.basis)
        except InputError as error:
            return PlannedFigures("not judged", words=_said(error))
        except Exception as error:  # part of the result: it never ends the comparison
            return PlannedFigures("crashed", words=f"{type(error).__name__}: {error}")

    def _of_catalog(self, name: str) -> ModelFacts:
        """The facts of a model of the catalog; a comparison never asks the Hub."""
        if name not in self._catalog.models:
            fix = suggest(name, self._catalog.models, MODELS)
            raise InputError(Problem(name, "catalog", "is not a model of the catalog", fix))
        return load_model(name, self._catalog)

    def _once(self, name: str, of_catalog: bool, read: Callable[[], ModelFacts]) -> Read:
        key = name, of_catalog
        if key not in self._read:
            try:
                self._read[key] = Read(read(), "answered")
            except InputError as error:
                self._read[key] = Read(None, "not judged", _said(error))
            except Exception as error:  # part of the result: it never ends the comparison
                self._read[key] = Read(None, "crashed", f"{type(error).__name__}: {error}")
        return self._read[key]


def _said(error: InputError) -> str:
    return "; ".join(problem.message for problem in error.problems)


def _figures(case: StartCase, facts: ModelFacts) -> PlannedFigures:
    version = case.version or PINNED  # without a version, only the weights are judged
    parsed = parse_arguments(case.arguments, version)
    arguments = parsed.arguments
    device = _device(case.accelerator)
    figures: dict[Figure, float | str] = {}
    if parsed.exact and parsed.problems:
        return PlannedFigures("answered", {"verdict": "refused"}, parsed.problems[0].message)
    found = fit(facts, device, arguments, version=version)
    if found.unjudged:
        return PlannedFigures("not judged", words=found.unjudged)
    figures["verdict"] = "refused" if found.verdict == "refused" else "started"
    figures["weights"] = sum(found.weights_gib.values())
    figures["kv_gib"] = found.available_gib
    figures["request_gib"] = found.request_gib
    figures["max_context"] = found.max_context
    figures["cudagraph"] = found.overhead_gib.get("graphs", 0.0) + found.later_gib.get("graphs", 0.0)
    if found.verdict != "refused":
        figures["kv_tokens"] = found.kv_cache_tokens
        figures["concurrency"] = found.max_concurrency
    if "tokens_of_memory" in case.judged:
        figures["tokens_of_memory"] = _tokens_of_memory(case, facts, device, arguments, version)
    unsure = bool(found.close) or found.verdict == "tight"
    margin = found.band_gib if found.band_known else None
    return PlannedFigures("answered", figures, _words(found), unsure=unsure, margin_gib=margin)


def _tokens_of_memory(
    case: StartCase, facts: ModelFacts, device: Device, arguments: EngineArguments, version: str
) -> float:
    """Planning's tokens in the measured memory of the cache, whatever it says about the rest.

    In a refused start no request of full length fits, so this takes a short one.
    """
    given = replace(arguments, kv_cache_memory_bytes=int((case.measured.kv_gib or 0.0) * GIB))
    if case.outcome == "refused":
        given = replace(given, max_model_len=16)
    found = fit(facts, device, given, version=version) if device.memory_gib else None
    if found is None or found.verdict == "refused":
        found = fit(facts, replace(device, memory_gib=_ROOM_GIB), given, version=version)
    return found.kv_cache_tokens


def _words(found: Fit) -> str:
    return found.reasons[0] if found.reasons else ""


def _device(accelerator: CaseAccelerator) -> Device:
    """The case's accelerator; if its memory is unknown, only figures that do not depend on it are judged."""
    name = accelerator.name or "unknown"
    return Device(
        name=name,
        title=name,
        family=family_of(name),
        memory_gib=accelerator.memory_gib,
        bandwidth_gb_s=accelerator.bandwidth_gb_s,
        used_gib=accelerator.used_gib,
    )

"""Compares planning's speeds with measured ones: a row for each measured figure, medians by class, and orders of pairs.

`floor` says how much measurements of the same cell differ from one another: nothing can be righter than that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from statistics import median
from typing import Literal

from accuracy.speed_cases import Column, Measurement, Series, SpeedCases
from accuracy.speed_others import SpeedOthers
from accuracy.speed_planner import SpeedPlanner
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.speed.coverage import Band, Coverage, is_apart, shared_by
from neuroscale.planning.speed.load import Estimate

SpeedKind = Literal["inter_token", "throughput", "ttft", "ttft_p95"]
KINDS: tuple[SpeedKind, ...] = ("inter_token", "throughput", "ttft", "ttft_p95")

AIMS: dict[SpeedKind, float] = {"inter_token": 0.15, "throughput": 0.15, "ttft": 0.20, "ttft_p95": 0.30}
"""The largest median error of held-out series whose coverage is interpolated (or measured)."""

AIMS_OF_REST: dict[SpeedKind, float] = {"inter_token": 0.25, "throughput": 0.25, "ttft": 0.30, "ttft_p95": 0.35}
"""The same for all other series."""

AIM_OF_ORDER = 0.95
"""The share of pairs in the right order, of those that planning decides."""

TIE = 0.05
"""Two measured values that differ by less have no order: the same cell measured twice differs by that much."""

_OF_COLUMN: dict[Column, SpeedKind] = {
    "inter_token_s": "inter_token",
    "tokens_per_second": "throughput",
    "ttft_s": "ttft",
    "ttft_p95_s": "ttft_p95",
}
_PAIRS: dict[SpeedKind, Band] = {"throughput": "tokens_per_second", "ttft": "ttft"}
"""The kinds by which pairs are ordered."""


@dataclass(frozen=True)
class SpeedRow:
    """One figure of one measurement. `error`: (predicted - measured) / measured; None without a prediction.

    `derived`: a throughput that follows from the measured times by Little's law. `others`: the values of other
    planners.
    """

    measurement: Measurement
    kind: SpeedKind
    measured: float
    predicted: Estimate | None
    coverage: Coverage
    group: str
    derived: bool = False
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else (self.predicted.value - self.measured) / self.measured

    @property
    def in_band(self) -> bool:
        """Whether the measured value lies in planning's band."""
        return self.predicted is not None and self.predicted.low <= self.measured <= self.predicted.high

    @property
    def held_out(self) -> bool:
        return self.measurement.series.held_out

    @property
    def known(self) -> bool:
        """Whether planning says that measurements like this one are behind its figure."""
        return self.coverage in ("measured", "interpolated")


@dataclass(frozen=True)
class Errors:
    """Errors of some rows without sign: `rows` of them, `answered` of these with a figure; shares of the measured
    value. `in_band`: the share of the answered rows whose measured value lies in planning's band."""

    rows: int
    answered: int
    median: float | None
    ninth: float | None  # nine of ten rows are not further off
    in_band: float | None = None


@dataclass(frozen=True)
class Pair:
    """Two configurations that were measured under the same load, by one kind of figure. `right`: whether planning's
    values have the measured order; `abstains`: they differ by less than the errors of such ratios."""

    kind: SpeedKind
    right: bool
    abstains: bool
    held_out: bool
    names: tuple[str, str]


def compare_speed(cases: SpeedCases, planner: SpeedPlanner, others: SpeedOthers | None = None) -> tuple[SpeedRow, ...]:
    """A row for every figure that is compared, in the order of the files."""
    rows: list[SpeedRow] = []
    for asked in cases.measurements:
        answer = planner.answer(asked)
        group = group_of(asked.series.accelerator, planner.facts(asked.series))
        told = others.answers_to(asked) if others else {}
        measured, derived = compared(asked)
        for column, value in measured.items():
            rows.append(
                SpeedRow(
                    asked,
                    _OF_COLUMN[column],
                    value,
                    answer.figures.get(column),
                    answer.coverage,
                    group,
                    derived=derived and column == "tokens_per_second",
                    others={tool: figures[column] for tool, figures in told.items() if column in figures},
                )
            )
    return tuple(rows)


def compared(asked: Measurement) -> tuple[dict[Column, float], bool]:
    """The figures that are compared, and whether the throughput among them is derived: that of a closed load follows
    from its mean times, if it is missing: users x answer / (TTFT + (answer - 1) x inter-token time)."""
    figures = {column: value for column, value in asked.figures.items() if column in _OF_COLUMN}
    first, step = figures.get("ttft_s"), figures.get("inter_token_s")
    if "tokens_per_second" in figures or asked.users is None or asked.requests_per_second is not None:
        return figures, False
    if not asked.series.mean or first is None or step is None:
        return figures, False
    figures["tokens_per_second"] = asked.users * asked.answer / (first + (asked.answer - 1) * step)
    return figures, True


def group_of(accelerator: str, facts: ModelFacts) -> str:
    """The class of a measurement: accelerator, type of the weights, and kind of the model."""
    return f"{accelerator}, {weights_type(facts)}, {kind_of(facts)}"


def weights_type(facts: ModelFacts) -> str:
    """The type in which most of the weights are stored: their dtype, or the method of quantisation and its bits."""
    name = max(facts.bytes_by_dtype, key=lambda name: facts.bytes_by_dtype[name], default=facts.dtype)
    return {"bfloat16": "bf16", "float16": "fp16"}.get(name, name)


def kind_of(facts: ModelFacts) -> str:
    """Dense or with experts, and whether there are windows, a latent cache or states."""
    words = ["experts" if facts.kind == "moe" else "dense"]
    words += ["windows"] if any(layers.window is not None for layers in facts.cache) else []
    words += ["latent"] if any(layers.kind == "latent" for layers in facts.cache) else []
    words += ["states"] if facts.states else []
    return " ".join(words)


def errors(rows: Iterable[SpeedRow], tool: str | None = None) -> Errors:
    """The errors of planning, or of another tool, on rows."""
    found = list(rows)
    if tool is None:
        off = [abs(row.error) for row in found if row.error is not None]
        band = sum(row.in_band for row in found) / len(off) if off else None
    else:
        off = [abs(row.others[tool] - row.measured) / row.measured for row in found if tool in row.others]
        band = None
    off.sort()
    ninth = off[min(int(0.9 * len(off)), len(off) - 1)] if off else None
    return Errors(len(found), len(off), median(off) if off else None, ninth, band)


@dataclass(frozen=True)
class Part:
    """Rows of one kind that share an aim: `name` says which. `others`: errors of other tools on the rows that they
    answer, and planning's own on the same rows."""

    kind: SpeedKind
    name: str
    aim: float | None
    errors: Errors
    others: Mapping[str, tuple[Errors, Errors]]

    @property
    def holds(self) -> bool:
        """Whether the median is within the aim; nothing holds where planning answers no row."""
        if self.aim is None:
            return True
        return self.errors.median is not None and self.errors.median <= self.aim


def parts(rows: Sequence[SpeedRow]) -> tuple[Part, ...]:
    """For each kind: held-out series with coverage, other held-out series, and those that figures may be fitted on."""
    split: tuple[tuple[str, dict[SpeedKind, float], Callable[[SpeedRow], bool]], ...] = (
        ("held out, interpolated", AIMS, lambda row: row.held_out and row.known),
        ("held out, other", AIMS_OF_REST, lambda row: row.held_out and not row.known),
        ("not held out", AIMS_OF_REST, lambda row: not row.held_out),
        ("all", {}, lambda _: True),
    )
    found = []
    for kind in KINDS:
        of_kind = [row for row in rows if row.kind == kind]
        for name, aims, belongs in split:
            chosen = [row for row in of_kind if belongs(row)]
            if chosen:
                found.append(Part(kind, name, aims.get(kind), errors(chosen), _beside(chosen)))
    return tuple(found)


def _beside(rows: Sequence[SpeedRow]) -> dict[str, tuple[Errors, Errors]]:
    tools = sorted({tool for row in rows for tool in row.others})
    answered = {tool: [row for row in rows if tool in row.others] for tool in tools}
    return {tool: (errors(answered[tool], tool), errors(answered[tool])) for tool in tools}


def by(rows: Iterable[SpeedRow], key: Callable[[SpeedRow], str]) -> dict[str, dict[SpeedKind, Errors]]:
    """Errors by a key of the rows and by kind, in the order of the keys."""
    split: dict[str, dict[SpeedKind, list[SpeedRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        split[key(row)][row.kind].append(row)
    return {name: {kind: errors(found) for kind, found in split[name].items()} for name in sorted(split)}


def pairs(rows: Sequence[SpeedRow]) -> tuple[Pair, ...]:
    """Each two configurations of one model that one source measured under the same load, and that differ clearly."""
    same: dict[tuple[object, ...], dict[tuple[object, ...], tuple[SpeedRow, Estimate]]] = defaultdict(dict)
    for row in rows:
        if row.kind in _PAIRS and row.predicted is not None:
            asked, series = row.measurement, row.measurement.series
            load = (series.model, asked.prompt, asked.answer, asked.users, asked.requests_per_second)
            same[row.kind, asked.file, *load].setdefault(series.configuration, (row, row.predicted))
    found = []
    for ways in same.values():
        for (one, ours), (two, other) in combinations(ways.values(), 2):
            if abs(one.measured - two.measured) > TIE * max(one.measured, two.measured):
                right = (one.measured > two.measured) == (ours.value > other.value)
                shared = shared_by(one.measurement.series.accelerator, two.measurement.series.accelerator)
                abstains = not is_apart(ours.value, other.value, _PAIRS[one.kind], shared)
                names = one.measurement.name, two.measurement.name
                found.append(Pair(one.kind, right, abstains, one.held_out or two.held_out, names))
    return tuple(found)


def floor(rows: Iterable[SpeedRow]) -> dict[SpeedKind, Errors]:
    """By kind: how much two measurements of one replica under the same load differ, as a share of the first."""

    def way(series: Series) -> tuple[object, ...]:
        how = (series.source, series.note, series.mean, series.repeated_prompts, series.range_ratio)
        return (series.known_version, *series.words, *how)

    return _differences(rows, way, lambda *_: True)


def between_versions(rows: Iterable[SpeedRow]) -> dict[SpeedKind, Errors]:
    """The same for one model, configuration and load, with two versions of vLLM and any other arguments."""
    return _differences(
        rows,
        lambda series: (*series.configuration, series.mean, series.repeated_prompts, series.range_ratio),
        lambda one, two: one.known_version != two.known_version,
    )


def _differences(
    rows: Iterable[SpeedRow], way: Callable[[Series], tuple[object, ...]], counts: Callable[[Series, Series], bool]
) -> dict[SpeedKind, Errors]:
    same: dict[tuple[object, ...], list[SpeedRow]] = defaultdict(list)
    for row in rows:
        asked, series = row.measurement, row.measurement.series
        load = (asked.prompt, asked.answer, asked.users, asked.requests_per_second)
        same[row.kind, asked.file, series.model, series.accelerator, way(series), load].append(row)
    found = {}
    for kind in KINDS:
        off = sorted(
            abs(second.measured - first.measured) / first.measured
            for key, measured in same.items()
            if key[0] == kind
            for first, second in pairwise(measured)
            if counts(first.measurement.series, second.measurement.series)
        )
        if off:
            found[kind] = Errors(len(off), len(off), median(off), off[min(int(0.9 * len(off)), len(off) - 1)])
    return found


@dataclass(frozen=True)
class Order:
    """How many pairs have planning's order: of those that it decides, and of those for which it abstains."""

    kind: SpeedKind
    name: str
    decided: int
    right: int
    abstained: int
    abstained_right: int

    @property
    def holds(self) -> bool:
        """Whether the decided pairs reach the aim."""
        return self.right >= AIM_OF_ORDER * self.decided

    @property
    def share(self) -> float | None:
        """The share of decided pairs in the right order."""
        return self.right / self.decided if self.decided else None


def orders(found: Sequence[Pair]) -> tuple[Order, ...]:
    """By kind: pairs with a configuration that was held out, and the others."""
    result = []
    for kind in _PAIRS:
        for name, held_out in (("held out", True), ("not held out", False)):
            chosen = [pair for pair in found if pair.kind == kind and pair.held_out == held_out]
            decided = [pair for pair in chosen if not pair.abstains]
            abstained = [pair for pair in chosen if pair.abstains]
            if chosen:
                result.append(
                    Order(
                        kind,
                        name,
                        len(decided),
                        sum(pair.right for pair in decided),
                        len(abstained),
                        sum(pair.right for pair in abstained),
                    )
                )
    return tuple(result)


def speed_holds(found: Sequence[Part], ordered: Sequence[Order]) -> bool:
    """Whether every aim holds; false if nothing was compared."""
    return bool(found) and all(part.holds for part in found) and all(order.holds for order in ordered)

"""Turns a search into the data file of planning: values with their sources, what they cover, and the bands."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, get_args

import numpy as np

from accuracy.speed_cases import Column
from accuracy.speed_comparison import TIE, compared
from neuroscale.planning.speed.coverage import BANDS, RATIOS, Band, Shared, covered_by, shared_by
from neuroscale.planning.speed.kinds import NEAREST, accelerator_class
from neuroscale.planning.speed.queue import Times
from speed_fit.replicas import Row
from speed_fit.search import Found, Problem, errors, search, times_of, used_by
from speed_fit.values import START, STRENGTH

_COLUMN_OF: Mapping[str, Column] = {
    "ttft": "ttft_s",
    "ttft_p95": "ttft_p95_s",
    "inter_token": "inter_token_s",
    "inter_token_p95": "inter_token_p95_s",
    "tokens_per_second": "tokens_per_second",
}
_FOLDS = 3
_FEWEST = 20
"""Errors that a band of its own needs; else it is that of the figure beside it, half as wide again."""

_RIGHT = 0.97
"""The share of pairs in the right order from which on they are decided: somewhat more than the aim of 95 %, since new
pairs are less alike."""

Errors = dict[Column, list[tuple[str, float]]]
"""The logarithms of estimate over measurement by figure, each with its publisher."""


def problem(rows: Sequence[Row], start: Mapping[str, float] = START) -> Problem:
    """The search on these rows: each series counts as the square root of its rows, so a long one does not decide."""
    counts = Counter(row.series.id for row in rows)
    uses = [used_by(row, start) for row in rows]
    used = frozenset().union(*uses)
    loose = {name: strength for name, strength in STRENGTH.items() if name in used}
    weights = [min(1.0, (8 / counts[row.series.id]) ** 0.5) for row in rows]
    return Problem(rows, start, loose, weights, uses)


def fit(rows: Sequence[Row], begin: Mapping[str, float], told: Callable[[str], None]) -> dict[str, Any]:
    """The data file for rows that are not held out. `begin`: the values at which the search begins."""
    found = search(problem(rows), begin, told=told)
    bands, ratios = _bands(rows, found, told)
    return {
        "values": dict(_sources(found.problem, found.values)),
        "classes": sorted({str(accelerator_class(row.replica.device)) for row in rows}),
        "covered": _covered(rows),
        "bands": bands,
        "ratios": ratios,
    }


def text_of(data: Mapping[str, Any]) -> str:
    """The text of the data file, with one value, class of accelerators or band a line."""
    parts: list[str] = []
    for key, item in data.items():
        text = json.dumps(item)
        if isinstance(item, Mapping):
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in item.items())
            text = f"{{\n{rows}\n }}"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _sources(whole: Problem, values: Mapping[str, float]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each value with the numbers of series and rows that depend on it, and their publishers."""
    for name, value in values.items():
        of = [row for row, uses in zip(whole.rows, whole.uses, strict=True) if name in uses]
        if name in whole.loose or name not in STRENGTH:
            yield (
                name,
                {
                    "value": float(f"{value:.5g}"),
                    "rows": len(of),
                    "series": len({row.series.id for row in of}),
                    "publishers": sorted({row.publisher for row in of}),
                },
            )
        elif value != 1.0:
            yield name, {"value": value, "rows": 0, "series": 0, "publishers": []}


def _covered(rows: Sequence[Row]) -> dict[str, int]:
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        found[covered_by(row.replica.facts, row.replica.device, row.replica.arguments)].add(row.series.id)
    return {name: len(series) for name, series in sorted(found.items())}


def _bands(
    rows: Sequence[Row], fit: Found, told: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """The 10th and 90th percentile of measured over estimated, where the measured pair was not fitted on; and
    the ratios from which on the order of two estimates is known."""
    interpolated: Errors = defaultdict(list)
    extrapolated: Errors = defaultdict(list)
    left_out: list[tuple[Row, Times]] = []
    values = fit.values
    for fold in range(_FOLDS):
        told(f"fold {fold + 1} of {_FOLDS}")
        out = {number for number, row in enumerate(rows) if _fold(row) == fold}
        known = _covered([row for number, row in enumerate(rows) if number not in out])
        fitted = fit.without(out)
        for row in (rows[number] for number in sorted(out)):
            named = covered_by(row.replica.facts, row.replica.device, row.replica.arguments)
            _note(interpolated if named in known else extrapolated, row, fitted)
            times = times_of(row, fitted)
            left_out += [(row, times)] if times else []
    for row in rows:
        _note(extrapolated, row, _without_class(row, values))
    for column, found in interpolated.items():
        told(
            f"left out: {column} {math.exp(float(np.median([abs(error) for _, error in found]))) - 1:.1%} in the median"
        )
    measured: Errors = defaultdict(list)
    first: dict[tuple[str, Column], float] = {}
    for row in sorted(rows, key=lambda row: row.load.users):
        times = times_of(row, values)
        for column, error in errors(row, times) if times else ():
            key = row.series.id, column
            if key in first:
                measured[column].append((row.publisher, error - first[key]))
            first.setdefault(key, error)
    bands = {
        "measured": _percentiles(measured),
        "interpolated": _percentiles(interpolated),
        "extrapolated": _percentiles(extrapolated),
    }
    return bands, _ratios(left_out)


def _ratios(left_out: Sequence[tuple[Row, Times]]) -> dict[str, dict[str, float]]:
    """By figure, for two configurations of one model that one publisher measured under the same load: the least ratio
    of two estimates from which on nearly all such pairs, left out of the fit, have the measured order."""
    alike: dict[tuple[object, ...], list[tuple[Row, dict[Band, tuple[float, float]]]]] = defaultdict(list)
    for row, times in left_out:
        asked = row.measurement
        load = (row.series.model, asked.prompt, asked.answer, asked.users, asked.requests_per_second)
        measured, _ = compared(asked)
        first = times.ttft if row.series.mean else times.ttft_p50
        estimated: dict[Band, float] = {"ttft": first, "tokens_per_second": times.tokens_per_second}
        both = {figure: (measured.get(_COLUMN_OF[figure], 0.0), estimated[figure]) for figure in RATIOS}
        alike[row.publisher, *load].append((row, both))
    pairs: dict[tuple[str, str], list[tuple[float, str, bool]]] = defaultdict(list)
    for found_there in alike.values():
        for (one, ours), (two, theirs) in combinations(found_there, 2):
            shared = shared_by(one.series.accelerator, two.series.accelerator)
            for figure in RATIOS if one.series.configuration != two.series.configuration else ():
                (measured_one, estimated_one), (measured_two, estimated_two) = ours[figure], theirs[figure]
                if min(measured_one, measured_two) > 0 and _differ(measured_one, measured_two):
                    ratio = max(estimated_one, estimated_two) / min(estimated_one, estimated_two)
                    right = (measured_one > measured_two) == (estimated_one > estimated_two)
                    pairs[shared, figure].append((ratio, one.publisher, right))
    return {
        shared: {
            figure: float(f"{_least_ratio(pairs[shared, figure]):.3g}")
            for figure in RATIOS
            if len(pairs[shared, figure]) >= _FEWEST
        }
        for shared in get_args(Shared)
    }


def _differ(one: float, two: float) -> bool:
    return abs(one - two) > TIE * max(one, two)


def _least_ratio(pairs: Sequence[tuple[float, str, bool]]) -> float:
    """The least ratio from which on so many of the pairs are right; those of one publisher are alike, and count
    together as the square root of their number."""
    counts = Counter(publisher for _, publisher, _ in pairs)
    least = max(ratio for ratio, _, _ in pairs)
    right = all_of = 0.0
    for ratio, publisher, is_right in sorted(pairs, reverse=True):
        weight = counts[publisher] ** -0.5
        all_of += weight
        right += weight * is_right
        if right >= _RIGHT * all_of:
            least = ratio
    return least


def _fold(row: Row) -> int:
    pair = f"fold {row.series.model} {row.series.accelerator}"
    return hashlib.sha256(pair.encode()).digest()[0] % _FOLDS


def _without_class(row: Row, values: Mapping[str, float]) -> dict[str, float]:
    """The values as if the row's class had not been measured: its factors are those of the nearest class."""
    own = accelerator_class(row.replica.device)
    nearest = NEAREST.get(own) if own else None
    changed = dict(values)
    for name in values:
        if own in (parts := name.split(".")):
            changed[name] = values.get(".".join(str(nearest) if part == own else part for part in parts), 1.0)
    return changed


def _note(found: Errors, row: Row, values: Mapping[str, float]) -> None:
    times = times_of(row, values)
    for column, error in errors(row, times) if times else ():
        found[column].append((row.publisher, error))


def _percentiles(found: Errors) -> dict[str, list[float]]:
    bands: dict[str, list[float]] = {}
    wide: tuple[float, float] = (-0.5, 0.5)
    for figure in BANDS:
        known = found.get(_COLUMN_OF[figure], [])
        if figure == "tokens_per_second" and len(known) < _FEWEST:
            low, high = sorted(-math.log(bound) for bound in bands["inter_token"])
        elif len(known) < _FEWEST:
            low, high = 1.5 * wide[0], 1.5 * wide[1]
        else:
            # An error is the logarithm of estimate over measurement.
            low, high = -_percentile(known, 0.9), -_percentile(known, 0.1)
        wide = (low, high)
        bands[figure] = [float(f"{math.exp(min(low, -0.02)):.3g}"), float(f"{math.exp(max(high, 0.02)):.3g}")]
    return bands


def _percentile(known: Sequence[tuple[str, float]], share: float) -> float:
    """Of errors of which a publisher's count together as the square root of their number: those of one publisher are
    alike, and a new service is not one of theirs."""
    counts = Counter(publisher for publisher, _ in known)
    ordered = sorted((error, counts[publisher] ** -0.5) for publisher, error in known)
    wanted, passed = share * sum(weight for _, weight in ordered), 0.0
    for error, weight in ordered:
        passed += weight
        if passed >= wanted:
            return error
    return ordered[-1][0]

"""Searches the values that explain the measurements best: damped least squares on the logarithms of errors.

Each value is searched as a factor of its start. A factor of a class is drawn towards 1, so a class with few rows stays
close to the others; large errors count less (Huber), so a wrong row does not decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from accuracy.speed_cases import Column
from neuroscale.planning.speed.kinds import accelerator_class
from neuroscale.planning.speed.queue import Times
from speed_fit.replicas import Row

WEIGHTS: Mapping[Column, float] = {
    "inter_token_s": 1.0,
    "user_tokens_per_second": 1.0,
    "tokens_per_second": 0.7,
    "ttft_s": 0.7,
    "ttft_p95_s": 0.4,
    "inter_token_p95_s": 0.3,
}
_HUBER = 0.35  # of a weighted logarithm


def errors(row: Row, times: Times) -> Iterator[tuple[Column, float]]:
    """The logarithm of estimate over measurement for each judged figure of a row."""
    mean = row.series.mean
    estimates: dict[Column, float] = {
        "ttft_s": times.ttft if mean else times.ttft_p50,
        "ttft_p95_s": times.ttft_p95,
        "inter_token_s": times.inter_token,
        "inter_token_p95_s": times.inter_token_p95,
        "tokens_per_second": times.tokens_per_second,
        "user_tokens_per_second": 1 / times.inter_token,
    }
    for column, estimate in estimates.items():
        if column in row.figures:
            yield column, math.log(estimate / row.figures[column])


def times_of(row: Row, values: Mapping[str, float]) -> Times | None:
    """The times of a row's load by values of a fit."""
    return row.replica.times(row.load, row.replica.fitted_steps(values, accelerator_class(row.replica.device)))


class Recorder(dict[str, float]):
    """Values that remember which of them were asked for."""

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def used_by(row: Row, values: Mapping[str, float]) -> frozenset[str]:
    """The values on which the estimate of a row depends."""
    recorder = Recorder(values)
    times_of(row, recorder)
    return frozenset(recorder.asked & set(values))


_PRIOR = 0.5
"""The weight of the draw to the start beside one residual."""

_NUDGE = 0.03
"""The change of a value's logarithm by which slopes are measured."""

Slopes = Sequence[tuple[Sequence[int], np.ndarray]]
"""For each row: the numbers of the values that it depends on, and how its residuals change with each of them."""


@dataclass
class Problem:
    """Rows, and the values to search with the strength that draws each to its start (standard deviation in logs)."""

    rows: Sequence[Row]
    start: Mapping[str, float]
    loose: Mapping[str, float]
    weights: Sequence[float]  # of the rows
    uses: Sequence[frozenset[str]]

    @cached_property
    def names(self) -> list[str]:
        """The values that are searched."""
        return [name for name in self.start if name in self.loose]

    @cached_property
    def spread(self) -> np.ndarray:
        """The strengths of these values."""
        return np.array([self.loose[name] for name in self.names])

    def values(self, at: np.ndarray) -> dict[str, float]:
        """All values, where `at` has the logarithms of those that are searched as factors of their starts."""
        moved = {name: self.start[name] * math.exp(step) for name, step in zip(self.names, at, strict=True)}
        return {**self.start, **moved}

    def residuals(self, row: int, values: Mapping[str, float]) -> np.ndarray:
        """The weighted errors of a row's figures."""
        figures = self.rows[row].figures
        wanted = [column for column in WEIGHTS if column in figures]
        times = times_of(self.rows[row], values)
        if times is None:
            return np.zeros(len(wanted))
        found = dict(errors(self.rows[row], times))
        return np.array([WEIGHTS[c] * self.weights[row] * max(-2.5, min(2.5, found[c])) for c in wanted])

    def all_residuals(self, at: np.ndarray, rows: Iterable[int]) -> dict[int, np.ndarray]:
        """Those of some rows."""
        values = self.values(at)
        return {row: self.residuals(row, values) for row in rows}

    def slopes(self, at: np.ndarray, here: Mapping[int, np.ndarray]) -> Slopes:
        """Those of all rows, whose residuals are `here`."""
        values = self.values(at)
        moved = [{**values, name: values[name] * math.exp(_NUDGE)} for name in self.names]
        numbers = {name: number for number, name in enumerate(self.names)}
        found = []
        for row in range(len(self.rows)):
            used = sorted(numbers[name] for name in self.uses[row] if name in numbers)
            changed = [(self.residuals(row, moved[number]) - here[row]) / _NUDGE for number in used]
            found.append((used, np.array(changed).reshape(len(used), len(here[row]))))
        return found

    def cost(self, at: np.ndarray, here: Mapping[int, np.ndarray]) -> float:
        """What the search makes small."""
        flat = np.abs(np.concatenate(list(here.values())))
        robust = np.where(flat < _HUBER, flat**2, 2 * _HUBER * flat - _HUBER**2)
        return float(robust.sum() + ((at / self.spread) ** 2).sum() * _PRIOR)

    def step(self, at: np.ndarray, here: Mapping[int, np.ndarray], slopes: Slopes, damping: float) -> np.ndarray:
        """Where the residuals would be least if slopes were the same everywhere."""
        gradient = _PRIOR * at / self.spread**2
        curvature = np.diag(_PRIOR / self.spread**2)
        for row, residuals in here.items():
            used, changes = slopes[row]
            size = np.abs(residuals)
            weight = np.where(size < _HUBER, 1.0, _HUBER / np.maximum(size, 1e-9))
            gradient[used] += changes @ (weight * residuals)
            curvature[np.ix_(used, used)] += (changes * weight) @ changes.T
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
        return np.asarray(at + np.clip(step, -0.7, 0.7))


@dataclass(frozen=True)
class Found:
    """The end of a search: the logarithms of the values, and the slopes there."""

    problem: Problem
    at: np.ndarray
    slopes: Slopes

    @cached_property
    def values(self) -> dict[str, float]:
        """The values."""
        return self.problem.values(self.at)

    def without(self, left_out: Collection[int], rounds: int = 4) -> dict[str, float]:
        """The values as if rows were not there: the search goes on without them, with the slopes that it ended with."""
        rows = [row for row in range(len(self.problem.rows)) if row not in left_out]
        at, here = self.at, self.problem.all_residuals(self.at, rows)
        for _ in range(rounds):
            at, here, gained = _improve(self.problem, at, here, self.slopes, 0.02)
            if gained < 1e-3:
                break
        return self.problem.values(at)


def search(
    problem: Problem, begin: Mapping[str, float], *, rounds: int = 12, told: Callable[[str], None] = print
) -> Found:
    """The values that explain the rows best. `begin`: where to begin, such as the values of the last fit."""
    at = np.array([math.log(begin.get(name, problem.start[name]) / problem.start[name]) for name in problem.names])
    here = problem.all_residuals(at, range(len(problem.rows)))
    for number in range(rounds):
        at, here, gained = _improve(problem, at, here, problem.slopes(at, here), 0.02)
        told(f"round {number + 1}: cost {problem.cost(at, here):.3f}")
        if gained < 2e-3:
            break
    return Found(problem, at, problem.slopes(at, here))


def _improve(
    problem: Problem, at: np.ndarray, here: dict[int, np.ndarray], slopes: Slopes, damping: float
) -> tuple[np.ndarray, dict[int, np.ndarray], float]:
    """The next values with their residuals, and the share by which the cost falls; shorter steps are tried in turn."""
    cost = problem.cost(at, here)
    for _ in range(5):
        tried = problem.step(at, here, slopes, damping)
        found = problem.all_residuals(tried, here)
        new = problem.cost(tried, found)
        if new < cost:
            return tried, found, 1.0 - new / cost
        damping *= 6
    return at, here, 0.0

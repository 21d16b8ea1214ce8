"""Reads what other planners say about the measured speeds, from the file that other_speed_planners.py writes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from accuracy.cases import Words
from accuracy.reading import read_file
from accuracy.speed_cases import Column, Measurement, Series, SpeedCases
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import wrong

FILE = "speed_others.yaml"

ANSWERED: tuple[Column, ...] = ("ttft_s", "inter_token_s", "tokens_per_second")
"""The columns of an answer."""


class SpeedTool(Frozen):
    """Another planner, and how it was asked."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,40}$")]
    version: Annotated[str, Field(min_length=1, max_length=40)]
    asked: date
    how: Annotated[str, Field(min_length=8, max_length=1000)]


class SpeedAnswers(Frozen):
    """A tool's answers to the rows of a series, in their order; null where it gives none. `problem`: why, in words."""

    rows: tuple[tuple[float | None, float | None, float | None] | None, ...] = ()
    problem: Words | None = None

    @model_validator(mode="after")
    def _something(self) -> SpeedAnswers:
        if self.problem is None and not any(self.rows):
            raise wrong("an answer says nothing", "Write `rows`, or in `problem` why there are none.")
        return self


class SpeedOthers(Frozen):
    """Answers by series and by tool."""

    tools: tuple[SpeedTool, ...] = ()
    answers: dict[str, dict[str, SpeedAnswers]] = Field(default_factory=dict)

    def answers_to(self, asked: Measurement) -> Mapping[str, Mapping[Column, float]]:
        """The figures of each tool for one measurement; a tool without any is not in it."""
        found: dict[str, dict[Column, float]] = {}
        for tool, answers in self.answers.get(asked.series.id, {}).items():
            row = answers.rows[asked.row] if answers.rows else None
            figures = {column: value for column, value in zip(ANSWERED, row or (), strict=False) if value is not None}
            if figures:
                found[tool] = figures
        return found


def read_speed_others(folder: Path, cases: SpeedCases) -> SpeedOthers:
    """The answers in a folder of cases; none if it has no such file. Raises InputError if they do not fit the cases."""
    path = folder / FILE
    if not path.is_file():
        return SpeedOthers()
    problems: list[Problem] = []
    others = read_file(SpeedOthers, path, problems) or SpeedOthers()
    known = {series.id: series for series in cases.series}
    fix = "Ask the other planners again: scripts/other_speed_planners.py."
    for name, tools in others.answers.items():
        if name not in known:
            problems.append(Problem(str(path), "answers", f"{name!r} is not a series of the ground truth", fix))
        elif any(answers.rows and len(answers.rows) != len(known[name].rows) for answers in tools.values()):
            problems.append(Problem(str(path), f"answers.{name}", _differs(known[name]), fix))
    if problems:
        raise InputError(problems)
    return others


def _differs(series: Series) -> str:
    return f"does not have one answer for each of the {len(series.rows)} rows of the series"

"""Holds the answers of other planners to the same cases; `scripts/compare_planners.py` writes the file."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import Field, model_validator

from neuroscale.accuracy.cases import Figure, Words
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import wrong


class Tool(Frozen):
    """Another planner, and how it was run. `answers`: the figures of a start-up that it can give."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,40}$")]
    version: Annotated[str, Field(min_length=1, max_length=40)]
    asked: date
    how: Annotated[str, Field(min_length=8, max_length=1000)]
    answers: Annotated[tuple[Figure, ...], Field(min_length=1)]


class OtherPlannersFigures(Frozen):
    """One tool's answer to one case: figures, or the reason in words why it gives none."""

    figures: dict[Figure, float | str] = Field(default_factory=dict)
    problem: Words | None = None

    @model_validator(mode="after")
    def _something(self) -> OtherPlannersFigures:
        if not self.figures and self.problem is None:
            raise wrong("an answer says nothing", "Write `figures`, or in `problem` why there are none.")
        return self


class Others(Frozen):
    """Answers by tool and by case."""

    tools: tuple[Tool, ...] = ()
    answers: dict[str, dict[str, OtherPlannersFigures]] = Field(default_factory=dict)

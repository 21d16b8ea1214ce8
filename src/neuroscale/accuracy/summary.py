"""Summarises a comparison by kind: counts, medians, the worst errors, and whether the aims hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from neuroscale.accuracy.comparison import AIMS, KINDS, Kind, Outcome, Row


@dataclass(frozen=True)
class Tally:
    """Errors of one planner in one kind. `median` and `worst` are shares without sign; None without predictions.

    `right`: within the aim, or the right verdict; None for a kind without an aim.
    """

    answered: int
    right: int | None
    median: float | None
    worst: float | None
    worst_case: str


@dataclass(frozen=True)
class Summary:
    """One kind: `outcomes` of planning's rows; the tallies of all rows, of the held-out third, and of the rest."""

    kind: Kind
    aim: float | None
    rows: int
    outcomes: Counter[Outcome]
    all: Tally
    held_out: Tally
    rest: Tally
    others: dict[str, Tally]
    good: bool


def summarize(rows: Sequence[Row]) -> tuple[Summary, ...]:
    """One summary for each kind that has rows."""
    return tuple(_summary(kind, [row for row in rows if row.kind == kind]) for kind in KINDS if _any(rows, kind))


def holds(rows: Iterable[Row]) -> bool:
    """Whether all aims hold; false if nothing is predicted."""
    found = list(rows)
    return all(row.good for row in found) and any(row.predicted is not None for row in found)


def _any(rows: Iterable[Row], kind: Kind) -> bool:
    return any(row.kind == kind for row in rows)


def _summary(kind: Kind, rows: list[Row]) -> Summary:
    tools = sorted({tool for row in rows for tool in row.others})
    return Summary(
        kind=kind,
        aim=AIMS.get(kind),
        rows=len(rows),
        outcomes=Counter(row.outcome for row in rows),
        all=_tally(kind, _own(rows)),
        held_out=_tally(kind, _own(row for row in rows if row.held_out)),
        rest=_tally(kind, _own(row for row in rows if not row.held_out)),
        others={tool: _tally(kind, _of_tool(tool, kind, rows)) for tool in tools},
        good=all(row.good for row in rows),
    )


_Told = tuple[str, float | None, bool]
"""A case, the error of its prediction (None: a verdict), and whether the prediction is right."""


def _own(rows: Iterable[Row]) -> list[_Told]:
    return [(row.case, row.error, row.outcome == "right") for row in rows if row.predicted is not None]


def _of_tool(tool: str, kind: Kind, rows: Iterable[Row]) -> list[_Told]:
    told = [(row, row.others[tool]) for row in rows if tool in row.others and row.others[tool].value is not None]
    aim = AIMS.get(kind, 0.0)
    return [
        (row.case, said.error, said.value == row.measured if said.error is None else abs(said.error) <= aim)
        for row, said in told
    ]


def _tally(kind: Kind, told: list[_Told]) -> Tally:
    errors = [(abs(error), case) for case, error, _ in told if error is not None]
    worst = max(errors, default=None)
    return Tally(
        answered=len(told),
        right=sum(right for _, _, right in told) if kind in AIMS else None,
        median=median(error for error, _ in errors) if errors else None,
        worst=worst[0] if worst else None,
        worst_case=worst[1] if worst else "",
    )

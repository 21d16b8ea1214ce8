"""Formats the comparison of planning with others' measurements for programs."""

from __future__ import annotations

from typing import Any

from neuroscale.accuracy.comparison import AIMS, FROM_HEADERS, Row
from neuroscale.accuracy.reading import Cases
from neuroscale.accuracy.summary import Summary, Tally, holds


def as_mapping(cases: Cases, rows: tuple[Row, ...], summaries: tuple[Summary, ...]) -> dict[str, Any]:
    """The comparison for programs. Errors are shares of the measured figures."""
    return {
        "schema_version": 1,
        "holds": holds(rows),
        "aims": {**AIMS, **{f"{kind}_from_headers": aim for kind, aim in FROM_HEADERS.items()}},
        "summary": [
            {
                "kind": each.kind,
                "aim": each.aim,
                "holds": each.good,
                "rows": each.rows,
                "outcomes": dict(each.outcomes),
                "all": _tally(each.all),
                "held_out": _tally(each.held_out),
                "rest": _tally(each.rest),
                "others": {tool: _tally(tally) for tool, tally in each.others.items()},
            }
            for each in summaries
        ],
        "rows": [
            {
                "case": row.case,
                "kind": row.kind,
                "measured": row.measured,
                "predicted": row.predicted,
                "error": _rounded(row.error),
                "outcome": row.outcome,
                "good": row.good,
                "held_out": row.held_out,
                "words": row.words,
                "reason": row.reason or None,
                "others": {
                    tool: {"value": said.value, "error": _rounded(said.error), "words": said.words}
                    for tool, said in row.others.items()
                },
            }
            for row in rows
        ],
        "left_out": {case.id: case.left_out for case in cases.starts if case.left_out is not None},
        "not_judged": {case.id: dict(case.not_judged) for case in cases.starts if case.not_judged},
        "tools": [tool.model_dump(mode="json") for tool in cases.others.tools],
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "answered": tally.answered,
        "right": tally.right,
        "median": _rounded(tally.median),
        "worst": _rounded(tally.worst),
        "worst_case": tally.worst_case or None,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 6)

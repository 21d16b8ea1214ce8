"""`neuroscale accuracy`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from neuroscale.accuracy.comparison import AIMS, FROM_HEADERS, KINDS, Kind, Row, compare
from neuroscale.accuracy.planner_answers import Planner
from neuroscale.accuracy.reading import Cases, read_cases
from neuroscale.accuracy.summary import Summary, Tally, holds, summarize
from neuroscale.catalog import load_catalog
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.repo.layout import find_root
from neuroscale.repo.snapshot import FolderSnapshot

CASES = "tests/ground_truth"


def show_accuracy(folder: Path | None, repository: Path | None, only: str | None, *, as_json: bool) -> int:
    """Print how right planning is. Exit status 1: an aim does not hold. Raises InputError."""
    kind = None if only is None else _kind(only)
    root = find_root(repository or Path.cwd())
    cases = read_cases(folder or root / CASES)
    rows = compare(cases, Planner(cases, load_catalog(FolderSnapshot(root))), kind)
    if not rows:
        message = "no case has this figure" if kind else "no case is judged"
        raise InputError(Problem(str(folder or CASES), kind or "", message, "Name another kind, or a folder of cases."))
    summaries = summarize(rows)
    if as_json:
        sys.stdout.write(json.dumps(as_mapping(cases, rows, summaries), indent=2) + "\n")
    else:
        from rich.console import Console

        from neuroscale.report.accuracy_view import print_accuracy

        print_accuracy(cases, rows, summaries, Console(highlight=False))
    return ExitStatus.PASSED if holds(rows) else ExitStatus.FINDINGS


def as_mapping(cases: Cases, rows: tuple[Row, ...], summaries: tuple[Summary, ...]) -> dict[str, Any]:
    """The comparison for programs. Errors are shares of what was measured."""
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


def _kind(name: str) -> Kind:
    for kind in KINDS:
        if kind == name:
            return kind
    raise InputError(Problem("--only", "", f"{name!r} is no kind of figure", suggest(name, KINDS)))

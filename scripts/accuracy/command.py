"""`scripts/accuracy`: compares planning's figures with those that others measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accuracy.comparison import AIMS, FROM_HEADERS, KINDS, Kind, Row, Summary, Tally, compare, holds, summarize
from accuracy.planner_answers import Planner
from accuracy.reading import Cases, read_cases
from neuroscale.catalog import Catalog, load_catalog
from neuroscale.cli import app
from neuroscale.cli.options import JsonOption, RepositoryOption, print_json
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.repo.layout import find_root
from neuroscale.repo.snapshot import FolderSnapshot

CASES = "tests/ground_truth"
LOGS_ONLY = "causes"
"""The word of --only for the causes of logs, which are no figures of planning."""


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


def show_accuracy(
    cases: Annotated[
        Path | None, typer.Option("--cases", help="A folder of cases. Default: the repository's tests/ground_truth.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", help="One kind of figure alone, such as verdict, weights, kv_tokens or causes."),
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="Compare the speeds under load instead of memory and start-up.")
    ] = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Compare planning's figures with measured ones. Exit status 1: a figure misses its target."""
    if speed and only is not None:
        raise InputError(Problem("--only", "", "has no part of --speed", "Give one of the two options."))
    root = find_root(repository or Path.cwd())
    folder, catalog = cases or root / CASES, load_catalog(FolderSnapshot(root))
    if only == LOGS_ONLY:
        from accuracy.causes import LOGS, show_causes

        return ExitStatus.PASSED if show_causes(folder / LOGS, catalog, as_json) else ExitStatus.FINDINGS
    kind = None if only is None else _kind(only)
    read = read_cases(folder)
    if speed:
        return _show_speed(folder, read, catalog, as_json=as_json)
    rows = compare(read, Planner(read, catalog), kind)
    if not rows:
        message = "no case has this figure" if kind else "no case is judged"
        raise InputError(Problem(str(cases or CASES), kind or "", message, "Name another kind, or a folder of cases."))
    summaries = summarize(rows)
    if as_json:
        print_json(as_mapping(read, rows, summaries))
    else:
        from rich.console import Console

        from accuracy.view import print_accuracy

        print_accuracy(read, rows, summaries, Console(highlight=False))
    return ExitStatus.PASSED if holds(rows) else ExitStatus.FINDINGS


def _show_speed(folder: Path, read: Cases, catalog: Catalog, *, as_json: bool) -> int:
    from accuracy.speed_cases import read_speed_cases
    from accuracy.speed_comparison import compare_speed
    from accuracy.speed_others import read_speed_others
    from accuracy.speed_planner import SpeedPlanner
    from accuracy.speed_view import as_mapping, print_speed

    cases = read_speed_cases(folder, {*read.models, *catalog.models}, catalog.accelerators)
    others = read_speed_others(folder, cases)
    rows = compare_speed(cases, SpeedPlanner(read, cases, catalog), others)
    if not rows:
        raise InputError(Problem(str(folder), "speed", "holds no measured speed", "Name a folder with speed/ in it."))
    if as_json:
        told = as_mapping(cases, rows, others)
        print_json(told)
        return ExitStatus.PASSED if told["holds"] else ExitStatus.FINDINGS
    from rich.console import Console

    holds = print_speed(cases, rows, others, Console(highlight=False))
    return ExitStatus.PASSED if holds else ExitStatus.FINDINGS


def _kind(name: str) -> Kind:

    for kind in KINDS:
        if kind == name:
            return kind
    raise InputError(Problem("--only", "", f"{name!r} is not a kind of figure", suggest(name, (*KINDS, LOGS_ONLY))))


def main() -> None:
    """Run the command line, and exit with the command's status."""
    app.run(app.single(show_accuracy), "scripts/accuracy")

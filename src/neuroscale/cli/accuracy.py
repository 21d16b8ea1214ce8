"""`neuroscale accuracy`: compares planning's figures with those that others measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import JsonOption, RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError, Problem

if TYPE_CHECKING:
    from neuroscale.accuracy.comparison import Kind

CASES = "tests/ground_truth"


def show_accuracy(
    cases: Annotated[
        Path | None, typer.Option("--cases", help="A folder of cases. Default: the repository's tests/ground_truth.")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="One kind of figure alone, such as verdict, weights or kv_tokens.")
    ] = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Compare planning's figures with measured ones. Exit status 1: a figure misses its target."""
    from neuroscale.accuracy.comparison import compare
    from neuroscale.accuracy.planner_answers import Planner
    from neuroscale.accuracy.reading import read_cases
    from neuroscale.accuracy.summary import holds, summarize
    from neuroscale.catalog import load_catalog
    from neuroscale.repo.layout import find_root
    from neuroscale.repo.snapshot import FolderSnapshot

    kind = None if only is None else _kind(only)
    root = find_root(repository or Path.cwd())
    read = read_cases(cases or root / CASES)
    rows = compare(read, Planner(read, load_catalog(FolderSnapshot(root))), kind)
    if not rows:
        message = "no case has this figure" if kind else "no case is judged"
        raise InputError(Problem(str(cases or CASES), kind or "", message, "Name another kind, or a folder of cases."))
    summaries = summarize(rows)
    if as_json:
        from neuroscale.cli.accuracy_json import as_mapping

        print_json(as_mapping(read, rows, summaries))
    else:
        from rich.console import Console

        from neuroscale.report.accuracy_view import print_accuracy

        print_accuracy(read, rows, summaries, Console(highlight=False))
    return ExitStatus.PASSED if holds(rows) else ExitStatus.FINDINGS


def _kind(name: str) -> Kind:
    from neuroscale.accuracy.comparison import KINDS
    from neuroscale.core.validation import suggest

    for kind in KINDS:
        if kind == name:
            return kind
    raise InputError(Problem("--only", "", f"{name!r} is not a kind of figure", suggest(name, KINDS)))

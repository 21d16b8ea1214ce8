"""`neuroscale compare`: sets services or models side by side under one load, by what was measured of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from neuroscale.actions.comparison import (
    FIGURES,
    Column,
    as_mapping,
    column_of,
    differences,
    doubts_of,
    subjects_of,
    usual_load,
)
from neuroscale.actions.open_repository import open_inputs
from neuroscale.cli.options import InputsOption, JsonOption, plain_console, print_json, say_source
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import terminal
from neuroscale.planning.speed.load import MOST_USERS


def compare(
    subjects: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Services of this clone, models with measurements, or models on an accelerator: MODEL@2xnvidia-l4.",
        ),
    ],
    users: Annotated[
        int | None,
        typer.Option("--users", help="Users who ask at once. Default: what most have measured.", min=1, max=MOST_USERS),
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option("--prompt-tokens", help="Tokens of each prompt.", min=1)] = None,
    answer_tokens: Annotated[int | None, typer.Option("--answer-tokens", help="Tokens of each answer.", min=2)] = None,
    as_json: JsonOption = False,
    repository: InputsOption = None,
) -> int:
    """Set the measured speed of services or models side by side under one load, and name what is not comparable. What
    was not measured is predicted, and says so. Exit status 1: of one, no figure is known."""
    opened = open_inputs(repository)
    say_source(opened.catalog_note)
    servers = [subject for named in subjects for subject in subjects_of(named, opened)]
    if len(servers) < 2:
        fault = f"names {len(servers)} server, and nothing to compare it with"
        raise InputError.at("the command line", "A B...", fault, "Name two services, or two models with measurements.")
    usual = usual_load(servers)
    load = (users or usual[0], prompt_tokens or usual[1], answer_tokens or usual[2])
    columns = [column_of(subject, load) for subject in servers]
    apart = [*dict.fromkeys((*differences(columns), *doubts_of(columns, opened.catalog)))]
    if as_json:
        print_json(as_mapping(load, columns, apart))
    else:
        _print(load, columns, apart)
    return ExitStatus.FINDINGS if any(column.basis == "unknown" for column in columns) else ExitStatus.PASSED


def _print(load: tuple[int, int, int], columns: Sequence[Column], apart: Sequence[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from neuroscale.report.plan_view import line

    console = plain_console(100)
    line(console, "{:,} users, prompts of {:,} tokens, answers of {:,}".format(*load))
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("")
    for column in columns:
        table.add_column(Text(terminal(column.subject.title, 80)), justify="right", overflow="fold")
    rows = [
        ("on", [f"{column.subject.count} x {column.subject.accelerator}" for column in columns]),
        ("vLLM", [column.vllm_version for column in columns]),
        ("figures are", [column.basis_in_words for column in columns]),
    ]
    for name, words, worded in FIGURES:
        values = [column.figures[name] for column in columns]
        rows.append((words, ["-" if value is None else worded(value) for value in values]))
    for words, cells in rows:
        table.add_row(words, *(Text(terminal(cell)) for cell in cells))
    console.print(table)
    for sentence in apart:
        line(console, f"- {terminal(sentence, 600)}")

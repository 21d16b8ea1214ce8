"""`neuroscale showback`: shows what services cost by OpenCost's meter, and who pays."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.chosen_metrics import COMMAND_LINE, costs_and_plans, or_local
from neuroscale.actions.open_repository import open_repository
from neuroscale.cli.options import (
    AskedEnvironmentOption,
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    OpenCostOption,
    RepositoryOption,
    WindowOption,
    plain_console,
    print_json,
)
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import terminal
from neuroscale.core.validation import suggest
from neuroscale.metering.notes import notes_on_history
from neuroscale.metering.showback import BY, Statement, statement_of
from neuroscale.metering.window import read_window
from neuroscale.report import showback_view


def show_costs(
    window: WindowOption,
    by: Annotated[
        str, typer.Option("--by", help="Who pays: cost-center, owner, service, model, environment or namespace.")
    ] = "cost-center",
    environment: AskedEnvironmentOption = "",
    opencost_url: OpenCostOption = "",
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw the rows into this file (.svg or .png).")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table for spreadsheets.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit status 1 also if a node has no price.")
    ] = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Show what services cost, by OpenCost's meter: rows that add up to the bill, with mixtures of experts weighted
    by active parameters beside it. Exit status: 0 the bill is complete, 1 a warning names what is missing in it
    or wrong, 2 OpenCost cannot be asked or gives no figures."""
    chosen = next((grouping for grouping in BY if grouping == by), None)
    if chosen is None:
        raise InputError.at(COMMAND_LINE, "--by", f"rows cannot be grouped by {by!r}", suggest(by, BY))
    if as_csv and as_json:
        raise InputError.at(COMMAND_LINE, "--csv", "stands beside --json", "Give one of them.")
    opened = open_repository(repository)
    span = read_window(window, datetime.now(UTC))
    where = or_local(Where(context, kubeconfig, state), opencost_url, environment, opened.root)
    with costs_and_plans(opened, span, environment, where, opencost_url) as known:
        place = known.opencost.place
    notes = notes_on_history(known.history, "note")
    statement = statement_of(known.meter, chosen, known.facts, tuple(opened.settings.environments), notes)
    if picture is not None:
        from neuroscale.report.showback_view import write_showback_picture

        write_showback_picture(statement, picture)
    _show(statement, place, as_csv=as_csv, as_json=as_json)
    warned = any(note.level == "warning" for note in statement.notes) or (strict and bool(statement.unpriced))
    return ExitStatus.FINDINGS if warned else ExitStatus.PASSED


def _show(statement: Statement, place: str, *, as_csv: bool, as_json: bool) -> None:
    if as_json:
        print_json(showback_view.as_mapping(statement, place))
    elif as_csv:
        typer.echo(showback_view.as_csv(statement), nl=False)
        for note in statement.notes:
            typer.echo(f"{note.level.capitalize()}: {terminal(note.text, 2000)}", err=True)
    else:
        showback_view.print_statement(statement, place, plain_console(120))

"""`neuroscale reconcile`: compares plans' estimates with metered costs, and keeps the issue about differences."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.chosen_metrics import costs_and_plans, or_local
from neuroscale.actions.open_repository import open_repository
from neuroscale.actions.workflow_environment import repository_url
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
from neuroscale.core.errors import ExitStatus
from neuroscale.forge.connect import connect
from neuroscale.forge.sticky_comment import keep_issue
from neuroscale.forge.token import find_token
from neuroscale.metering.comparison import Comparison, Threshold, compare
from neuroscale.metering.notes import notes_on_history
from neuroscale.metering.services import compared_environments, promises
from neuroscale.metering.window import read_window
from neuroscale.report.reconciliation_view import as_mapping, issue_marker, issue_text, issue_title, print_comparison


def reconcile_costs(
    window: WindowOption = "7d",
    environment: AskedEnvironmentOption = "",
    opencost_url: OpenCostOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the comparison alone, and write no issue.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw estimates and meter into this file (.svg or .png).")
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Compare what services cost with what the plans that they had at that time said, and keep one issue on the forge
    about the differences beyond the settings' threshold: the command opens the issue, updates its text and closes it.
    Exit status: 0 no difference is so large, 1 one is or cannot be computed, 2 OpenCost or the forge does not
    answer."""
    opened = open_repository(repository)
    span = read_window(window, datetime.now(UTC))
    where = Where(context, kubeconfig, state)
    if dry_run:  # The issue is about real costs, unless --state names the local platform.
        where = or_local(where, opencost_url, environment, opened.root)
    environments = opened.settings.environments
    with costs_and_plans(opened, span, environment, where, opencost_url) as known:
        meter, facts, place = known.meter, known.facts, known.opencost.place
        chosen = (environment,) if environment else compared_environments(meter.metered, facts, environments)
        promised = promises(known.history, chosen)
    comparison = compare(meter, facts, promised, chosen, notes_on_history(known.history, "warning"))
    limits = opened.settings.reconciliation
    threshold = Threshold(limits.usd, limits.percent)
    if picture is not None:
        from neuroscale.report.reconciliation_view import write_reconciliation_picture

        write_reconciliation_picture(comparison, threshold, picture)
    if as_json:
        print_json(as_mapping(comparison, threshold, place))
    else:
        print_comparison(comparison, threshold, place, plain_console(160))
    settled = not comparison.beyond(threshold) and not comparison.unknown
    warned = any(note.level == "warning" for note in comparison.notes)
    complete = settled and not warned
    if not dry_run:
        teams = {team.namespace: team.reached_by for team in opened.catalog.teams.values()}
        _keep_issue(comparison, threshold, chosen, teams, complete=complete, to_errors=as_json)
    return ExitStatus.PASSED if complete else ExitStatus.FINDINGS


def _keep_issue(
    comparison: Comparison,
    threshold: Threshold,
    environments: Sequence[str],
    teams: Mapping[str, str],
    *,
    complete: bool,
    to_errors: bool,
) -> None:
    differs = bool(comparison.beyond(threshold))
    # If not everything was compared, an old difference may still exist: an open issue then says that, and stays open.
    text = None if complete else issue_text(comparison, threshold, teams)
    title = issue_title(environments, differs=differs)
    forge = connect(repository_url(os.environ), find_token())
    written = keep_issue(forge, issue_marker(environments), title, text, may_open=differs)
    typer.echo(f"Issue: {written.outcome}{f': {written.issue.url}' if written.issue else ''}", err=to_errors)

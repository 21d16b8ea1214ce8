"""Prints the outcome of a request, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

from neuroscale.cli.options import print_json
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal
from neuroscale.forge.catalog_change import Outcome as CatalogOutcome
from neuroscale.forge.request_flow import Change, NoDifference, NotPassed, Outcome, Refused, Requested

_DONE = {
    "opened": "Opened pull request",
    "updated": "Brought up to date pull request",
    "unchanged": "Nothing to do: up to date is pull request",
}


def print_outcome(outcome: Outcome, *, as_json: bool) -> int:
    """Print the outcome; returns 0 if the service is already served as requested, or its pull request is open."""
    if isinstance(outcome, Refused):
        return _refused(outcome, as_json=as_json)
    if isinstance(outcome, NotPassed):
        return _not_passed(outcome, as_json=as_json)
    if isinstance(outcome, NoDifference):
        return _no_difference(outcome, as_json=as_json)
    return _requested(outcome, as_json=as_json)


def _refused(outcome: Refused, *, as_json: bool) -> int:
    if as_json:
        _print_json("refused", plan=outcome.plan.model_dump(mode="json"), notes=[])
        return ExitStatus.FINDINGS
    from rich.console import Console

    from neuroscale.report.plan_view import print_plan

    print_plan(outcome.plan, Console(highlight=False))
    typer.echo("Nothing was pushed.")
    return ExitStatus.FINDINGS


def _not_passed(outcome: NotPassed, *, as_json: bool) -> int:
    verdict = outcome.verdict
    if as_json:
        from neuroscale.report.json_report import to_json

        _print_json("not_passed", **_facts(outcome.change), verdict=json.loads(to_json(verdict)), notes=[])
        return verdict.exit_status
    from rich.console import Console

    from neuroscale.report.terminal import print_verdict

    print_verdict(verdict, Console(highlight=False))
    typer.echo("Nothing was pushed.")
    return verdict.exit_status


def _no_difference(outcome: NoDifference, *, as_json: bool) -> int:
    notes, pull, change = list(outcome.notes), outcome.pull, outcome.change
    if pull is not None:
        notes.append(f"{pull.url} is open for this service, and stays as it is: close it if it is not wanted any more.")
    if as_json:
        url, number = (pull.url, pull.number) if pull else (None, None)
        _print_json("no_difference", **_facts(change), url=url, number=number, notes=notes)
        return ExitStatus.PASSED
    typer.echo(f"{change.base.branch} already holds {change.path.folder} as requested: nothing to do, no pull request.")
    _print_notes(notes)
    return ExitStatus.PASSED


def _requested(outcome: Requested, *, as_json: bool) -> int:
    published = outcome.published
    pull = published.pull
    if as_json:
        _print_json(
            published.result,
            **_facts(outcome.change),
            url=pull.url,
            number=pull.number,
            repository=published.repository.slug,
            commit=published.commit,
            notes=list(outcome.notes),
        )
        return ExitStatus.PASSED
    typer.echo(f"{_DONE[published.result]} {pull.number}: {terminal(pull.url)}")
    typer.echo(f"  {terminal(pull.title)}")
    typer.echo(f"  branch {outcome.change.branch} of {published.repository.slug}, commit {published.commit}")
    _print_notes(outcome.notes)
    return ExitStatus.PASSED


def print_proposal(outcome: CatalogOutcome, facts: dict[str, Any], *, as_json: bool) -> int:
    """Print the outcome of a change of the catalog; `facts` are added for programs."""
    published, verdict = outcome.published, outcome.verdict
    if as_json:
        from neuroscale.report.json_report import to_json

        result = published.result if published else "not_passed" if verdict else "no_difference"
        told: dict[str, Any] = {"branch": outcome.branch, "base_commit": outcome.base.commit}
        if published:
            told |= {"url": published.pull.url, "number": published.pull.number, "commit": published.commit}
        if verdict:
            told["verdict"] = json.loads(to_json(verdict))
        print_json({**facts, "outcome": result, **told})
    elif published:
        typer.echo(f"{_DONE[published.result]} {published.pull.number}: {terminal(published.pull.url)}")
        _print_notes(published.notes)
    elif verdict:
        from rich.console import Console

        from neuroscale.report.terminal import print_verdict

        print_verdict(verdict, Console(highlight=False))
        typer.echo("Nothing was pushed.")
    else:
        typer.echo(f"{outcome.base.branch} has it already: nothing to do, no pull request.")
    return verdict.exit_status if verdict else ExitStatus.PASSED


def _facts(change: Change) -> dict[str, str]:
    return {
        "environment": change.path.environment,
        "service": change.path.service,
        "branch": change.branch,
        "base_branch": change.base.branch,
        "base_commit": change.base.commit,
    }


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"  {terminal(note)}")


def _print_json(outcome: str, **fields: Any) -> None:
    print_json({"schema_version": 1, "outcome": outcome, **fields})

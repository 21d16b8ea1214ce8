"""Prints the outcome of a request and of a change of the catalog, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from neuroscale.cli.options import plain_console, print_json
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal
from neuroscale.forge.request_flow import Outcome, Refused

_DONE = {
    "opened": "Opened pull request",
    "updated": "Brought up to date pull request",
    "unchanged": "Nothing to do: up to date is pull request",
}


def print_outcome(outcome: Refused | Outcome, *, as_json: bool, facts: Mapping[str, Any] | None = None) -> int:
    """Print the outcome of a change of a service; returns 0 if main has it already, or its pull request is open.

    `facts` are added for programs.
    """
    if isinstance(outcome, Refused):
        return _refused(outcome, as_json=as_json)
    service, notes = outcome.service, list(outcome.notes)
    if outcome.unwanted is not None:
        url = outcome.unwanted.url
        notes.append(f"{url} is open for this service, and stays as it is: close it if it is not wanted any more.")
    if as_json:
        told: dict[str, Any] = {
            "schema_version": 1,
            "base_branch": outcome.base.branch,
            "notes": notes,
            **(facts or {}),
        }
        if service is not None:
            told |= {"environment": service.environment, "service": service.service}
        if outcome.published:
            told["repository"] = outcome.published.repository.slug
        elif not outcome.verdict:
            pull = outcome.unwanted
            told |= {"url": pull.url if pull else None, "number": pull.number if pull else None}
        return _print_json(outcome, told)
    if published := outcome.published:
        typer.echo(f"{_DONE[published.result]} {published.pull.number}: {terminal(published.pull.url)}")
        typer.echo(f"  {terminal(published.pull.title)}")
        typer.echo(f"  branch {outcome.branch} of {published.repository.slug}, commit {published.commit}")
    elif outcome.verdict:
        status = _not_passed(outcome)
        _print_notes(notes)
        return status
    else:
        folder = service.folder if service else "everything"
        has = f"has no {folder}" if outcome.is_removal else f"already has {folder} as wanted"
        typer.echo(f"{outcome.base.branch} {has}: nothing to do, no pull request.")
    _print_notes(notes)
    return ExitStatus.PASSED


def print_proposal(outcome: Outcome, facts: Mapping[str, Any], *, as_json: bool) -> int:
    """Print the outcome of a change of the catalog; `facts` are added for programs."""
    if as_json:
        return _print_json(outcome, facts)
    if published := outcome.published:
        typer.echo(f"{_DONE[published.result]} {published.pull.number}: {terminal(published.pull.url)}")
        _print_notes(published.notes)
    elif outcome.verdict:
        return _not_passed(outcome)
    else:
        typer.echo(f"{outcome.base.branch} has it already: nothing to do, no pull request.")
    return ExitStatus.PASSED


def _refused(outcome: Refused, *, as_json: bool) -> int:
    from neuroscale.planning.advice import advise
    from neuroscale.report.advice_view import instead, print_instead
    from neuroscale.report.plan_view import print_plan

    advice = advise(outcome.request, outcome.inputs.catalog, outcome.inputs.settings)
    if as_json:
        plan = outcome.plan.model_dump(mode="json")
        choices = instead(advice)
        print_json({"schema_version": 1, "outcome": "refused", "plan": plan, "choices": choices, "notes": []})
        return ExitStatus.FINDINGS
    console = plain_console()
    print_plan(outcome.plan, console)
    print_instead(advice, console)
    typer.echo("Nothing was pushed.")
    return ExitStatus.FINDINGS


def _not_passed(outcome: Outcome) -> int:
    if (verdict := outcome.verdict) is None:
        return ExitStatus.PASSED
    from neuroscale.report.terminal import print_verdict

    print_verdict(verdict, plain_console())
    typer.echo("Nothing was pushed.")
    return verdict.exit_status


def _print_json(outcome: Outcome, facts: Mapping[str, Any]) -> int:
    """Print what every outcome has, and the `facts`; returns the exit status."""
    published, verdict = outcome.published, outcome.verdict
    told = {**facts, "outcome": published.result if published else "not_passed" if verdict else "no_difference"}
    told |= {"branch": outcome.branch, "base_commit": outcome.base.commit}
    if published:
        told |= {"url": published.pull.url, "number": published.pull.number, "commit": published.commit}
    if verdict:
        from neuroscale.report.json_report import to_json

        told["verdict"] = json.loads(to_json(verdict))
    print_json(told)
    return verdict.exit_status if verdict else ExitStatus.PASSED


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"  {terminal(note)}")

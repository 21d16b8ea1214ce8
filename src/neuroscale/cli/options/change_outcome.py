"""Runs a change of a service or of the catalog for a command, and prints what follows from it and what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic

import typer

from neuroscale.actions.measurement_records import Made, Measured, figures, proposal
from neuroscale.actions.service_change import ForgeChoice
from neuroscale.catalog.measurements import measurement_values
from neuroscale.cli.options import TO_STDERR, plain_console, print_json, say_progress
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal
from neuroscale.forge.commits import holds
from neuroscale.forge.file_changes import CATALOG_BRANCHES, Make, T, propose
from neuroscale.forge.request_flow import Change, Draft, Outcome, Refused, Service
from neuroscale.forge.service_changes import compared
from neuroscale.forge.service_pull_request import Publisher
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.written_files import changed_files, write_files
from neuroscale.report import change_view

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
        printed: dict[str, Any] = {
            "schema_version": 1,
            "base_branch": outcome.base.branch,
            "notes": notes,
            **(facts or {}),
        }
        if service is not None:
            printed |= {"environment": service.environment, "service": service.service}
        if outcome.published:
            printed["repository"] = outcome.published.repository.slug
        elif not outcome.verdict:
            pull = outcome.unwanted
            printed |= {"url": pull.url if pull else None, "number": pull.number if pull else None}
        return _print_json(outcome, printed)
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
    """Print the outcome of a change of files outside services; `facts` are added for programs."""
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
    printed = {**facts, "outcome": published.result if published else "not_passed" if verdict else "no_difference"}
    printed |= {"branch": outcome.branch, "base_commit": outcome.base.commit}
    if published:
        printed |= {"url": published.pull.url, "number": published.pull.number, "commit": published.commit}
    if verdict:
        from neuroscale.report.json_report import to_json

        printed["verdict"] = json.loads(to_json(verdict))
    print_json(printed)
    return verdict.exit_status if verdict else ExitStatus.PASSED


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"  {terminal(note)}")


@dataclass(frozen=True)
class Printed(Generic[T]):
    """How a command prints a proposal to the catalog: for people, for programs, and the path of its main file."""

    show: Callable[[T], None]
    facts: Callable[[T], Mapping[str, Any]]
    path: Callable[[T], str]


def run_change(
    forge: ForgeChoice, change: Callable[[Path, Publisher], Change], *, dry_run: bool, as_json: bool, instead: str = ""
) -> int:
    """Run the change that `change` makes for the clone at a root and its forge. A dry run without a token looks at the
    clone alone. Returns the exit status.

    `instead`: what helps where the gate refuses.
    """

    def show(service: Service, draft: Draft) -> None:
        if not as_json:
            _print_draft(service, draft)

    with forge.desk(TO_STDERR, only_looks=dry_run) as desk:
        wanted = change(forge.root, desk.publisher)
        if dry_run:
            looked = desk.look(wanted)
            if isinstance(looked, Refused):
                return print_outcome(looked, as_json=as_json)
            show(*looked)
            return _dry_run(*looked, as_json=as_json)
        outcome = desk.propose(wanted, show)
    if isinstance(outcome, Refused):
        return print_outcome(outcome, as_json=as_json)
    if instead and outcome.verdict:
        outcome = replace(outcome, notes=(*outcome.notes, instead))
    return print_outcome(outcome, as_json=as_json, facts=_facts(outcome.draft) if outcome.draft else {})


def change_catalog(
    choice: ForgeChoice | None,
    root: Path,
    subject: str,
    make: Make[T],
    printed: Printed[T],
    *,
    as_json: bool,
    dry_run: bool | None = None,
) -> int:
    """Write the files of a proposal to the catalog, or open its pull request if a forge is chosen; with `dry_run`, do
    neither (None: the command does not know it). `subject`: a word for its branch. Returns the exit status. Raises
    InputError."""
    if choice is not None and not dry_run:
        with choice.opened(TO_STDERR) as (git, publisher):
            outcome, change = propose(git, publisher, f"{CATALOG_BRANCHES}{subject}", make, say_progress)
        if not as_json:
            printed.show(change)
        return print_proposal(outcome, printed.facts(change), as_json=as_json)
    snapshot = FolderSnapshot(root)
    proposal = make(snapshot, snapshot)
    changed = changed_files(snapshot, proposal.files) if dry_run else write_files(root, snapshot, proposal.files)
    if as_json:
        tried = {} if dry_run is None else {"dry_run": dry_run}
        print_json({**printed.facts(proposal.made), "changed": changed, **tried})
        return ExitStatus.PASSED
    printed.show(proposal.made)
    for path in changed:
        typer.echo(f"{path}: {'would be changed (--dry-run)' if dry_run else 'written'}")
    if not changed:
        typer.echo(f"{printed.path(proposal.made)}: is up to date")
    return ExitStatus.PASSED


def record(measured: Measured, root: Path, choice: ForgeChoice | None, *, dry_run: bool, as_json: bool) -> int:
    """Put a measurement into its model's file, or open the pull request of that. Returns the exit status."""

    def facts(change: Made) -> Mapping[str, Any]:
        return {
            "schema_version": 1,
            "model": measured.model,
            "path": change.path,
            "measurement": measurement_values(change.measurement),
            "remarks": list(change.remarks),
        }

    def show(change: Made) -> None:
        typer.echo(terminal(f"{measured.model}: {change.measurement.title}", 400))
        for sentence in (*figures(change.measurement), *change.remarks):
            typer.echo(f"  {terminal(sentence, 400)}")

    printed = Printed(show, facts, lambda change: change.path)
    subject = f"measured-{measured.model.rpartition('/')[2]}"
    make = partial(proposal, measured)
    return change_catalog(choice, root, subject, make, printed, as_json=as_json, dry_run=dry_run)


def _dry_run(service: Service, draft: Draft, *, as_json: bool) -> int:
    path = service.path
    if as_json:
        facts = {
            "schema_version": 1,
            "outcome": "dry_run",
            "environment": path.environment,
            "service": path.service,
            "branch": service.branch,
            "base_branch": service.main.base.branch,
            "base_commit": service.main.base.commit,
            "notes": [*([note] if (note := service.main.base.note) else []), *draft.notes],
        }
        print_json({**facts, **_facts(draft)})
        return ExitStatus.PASSED
    for note in draft.notes:
        typer.echo(f"  {terminal(note, 1000)}")
    if service.main.base.note:
        typer.echo(terminal(service.main.base.note, 1000))
    if holds(service.main.git, service.main.base.commit, path.folder, draft.files):
        typer.echo(f"{service.main.base.branch} {'has' if draft.files else 'lacks'} {path.folder} as wanted already.")
    on_top = f", on top of {service.there.pull.url}" if service.there else ""
    typer.echo(f"Dry run on {service.main.base.branch} ({service.main.base.commit[:12]}){on_top}: nothing was pushed.")
    return ExitStatus.PASSED


def _print_draft(service: Service, draft: Draft) -> None:
    console = plain_console(width=150)
    beside = None
    if draft.source is not None and draft.subject is not None:
        beside = compared(draft.source, draft.subject.request, draft.subject.plan)
        before = beside.plan_before
        titles = (before.environment if before else "there", beside.environment)
        change_view.print_change(beside, console, titles)
        typer.echo()
    if draft.subject is not None:
        report = draft.subject.report
        if beside is None or not draft.subject.is_new:
            change_view.print_change(report, console)
        typer.echo(f"The merge: {terminal(change_view.merge(report), 1000)}")
    elif not draft.files and service.merged is not None:
        for line in draft.message.split("\n\n"):
            typer.echo(terminal(line, 1000))


def _facts(draft: Draft) -> dict[str, Any]:
    """The table, and what the merge does, for programs."""
    if draft.subject is None:
        sentences = [line for line in draft.message.split("\n\n")[1:] if line]
        return {"changes": [], "said": sentences}
    return {"changes": change_view.as_rows(draft.subject.report), "merge": change_view.merge(draft.subject.report)}

"""Runs a change of one service on the forge for a command, and prints what follows from it and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NamedTuple, ParamSpec

import typer

from neuroscale.cli.options import plain_console, print_json, say_progress
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import terminal

if TYPE_CHECKING:
    from neuroscale.forge.request_flow import Change, Draft, Main, Service
    from neuroscale.forge.service_pull_request import Publisher
    from neuroscale.gate.verdict import ServiceReport

P = ParamSpec("P")

ChangedServiceArgument = Annotated[
    str,
    typer.Argument(help="A service of the forge's main branch: its folder, ENVIRONMENT/SERVICE, or its name alone."),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Only show what follows: nothing is judged or pushed. Without a token, by this clone's main branch.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why: it stands in the pull request.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="FIELD=VALUE: an answer of the form (longest_prompt_tokens=16384), or an override of the plan "
        "(overrides.max_num_seqs=64, with --reason and --until). Again for more.",
    ),
]
UnsetOption = Annotated[
    list[str] | None,
    typer.Option("--unset", help="A field to leave out: a typical length, or an override (overrides.max_num_seqs)."),
]
UntilOption = Annotated[str, typer.Option("--until", help="The last day of the overrides that --set sets: 2027-01-31.")]


def once_for_each_main(
    make: Callable[Concatenate[Main, P], Sequence[str]],
) -> Callable[Concatenate[Main, P], Sequence[str]]:
    """Sentences that cost a question to a cluster: made again only where the forge's main branch moved meanwhile."""
    made: dict[str, Sequence[str]] = {}

    def kept(main: Main, /, *rest: P.args, **named: P.kwargs) -> Sequence[str]:
        if main.base.commit not in made:
            made[main.base.commit] = make(main, *rest, **named)
        return made[main.base.commit]

    return kept


class Forge(NamedTuple):
    """The repository and the forge that the options of a command name."""

    repository: Path | None
    remote: str
    token_file: Path | None
    local: bool

    def if_asked(self, *, pull_request: bool) -> Forge | None:
        """None where no pull request is asked for. Raises InputError where --local stands without it."""
        if pull_request:
            return self
        if self.local:
            told, fix = "names a forge, and no pull request is asked for", "Add --pull-request, or leave --local out."
            raise InputError.at("the command line", "--local", told, fix)
        return None


def run_change(
    forge: Forge,
    change: Callable[[Path, Publisher], Change],
    *,
    dry_run: bool,
    as_json: bool,
    beside: Callable[[Draft], ServiceReport | None] | None = None,
    instead: str = "",
) -> int:
    """Run the change that `change` makes for the clone at a root and its forge. A dry run without a token looks at the
    clone alone. Returns the exit status.

    `beside`: another service to compare with first. `instead`: what helps where the gate refuses.
    """
    from neuroscale.cli.open_repository import opened_publisher
    from neuroscale.cli.request_outcome import print_outcome
    from neuroscale.forge.request_flow import Desk, Refused
    from neuroscale.repo.layout import find_root

    root = find_root(forge.repository or Path.cwd())
    shown: list[tuple[Service, Draft]] = []

    def show(service: Service, draft: Draft) -> None:
        if not as_json and not shown:
            _print_draft(service, draft, beside(draft) if beside else None)
        shown[:] = [(service, draft)]

    opened = opened_publisher(root, forge.remote, forge.token_file, local=forge.local, only_looks=dry_run)
    with opened as (git, publisher):
        desk = Desk(git, publisher, say_progress)
        wanted = change(root, publisher)
        if dry_run:
            looked = desk.look(wanted)
            if isinstance(looked, Refused):
                return print_outcome(looked, as_json=as_json)
            show(*looked)
            return _dry_run(*looked, as_json=as_json)
        outcome = desk.bring(wanted, show)
    facts = _facts(shown[-1][1]) if shown else {}
    if instead and not isinstance(outcome, Refused) and outcome.verdict:
        outcome = replace(outcome, notes=(*outcome.notes, instead))
    return print_outcome(outcome, as_json=as_json, facts=facts)


def _dry_run(service: Service, draft: Draft, *, as_json: bool) -> int:
    from neuroscale.forge.branches import holds

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
    there = f", on top of {service.there.pull.url}" if service.there else ""
    typer.echo(f"Dry run on {service.main.base.branch} ({service.main.base.commit[:12]}){there}: nothing was pushed.")
    return ExitStatus.PASSED


def _print_draft(service: Service, draft: Draft, beside: ServiceReport | None) -> None:
    from neuroscale.report import change_view

    console = plain_console(width=150)
    if beside is not None:
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
    from neuroscale.report import change_view

    if draft.subject is None:
        said = [line for line in draft.message.split("\n\n")[1:] if line]
        return {"changes": [], "said": said}
    return {"changes": change_view.as_rows(draft.subject.report), "merge": change_view.merge(draft.subject.report)}

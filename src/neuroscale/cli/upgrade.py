"""`neuroscale upgrade`: plans services anew where what they were planned from moved, each in a pull request."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroscale.actions.service_change import ForgeChoice
from neuroscale.cli.options import (
    TO_STDERR,
    JsonOption,
    LocalForgeOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
    plain_console,
    print_json,
)
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import counted, terminal
from neuroscale.core.validation import suggest
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.rendering.upgrade import Upgrade, look
from neuroscale.repo.git import Git
from neuroscale.repo.layout import SETTINGS, TEAMS, ServicePath
from neuroscale.repo.services import find_service, services_of
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot, Snapshot
from neuroscale.report.upgrade_view import as_mapping, print_upgrades, until_now

if TYPE_CHECKING:
    from neuroscale.forge.upgrades import Done


@dataclass(frozen=True)
class Chosen:
    """The services that a command line names."""

    services: tuple[str, ...] = ()
    team: str = ""
    environment: str = ""
    every: bool = False


@dataclass
class Looked:
    """What planning anew would change: of how many services, and which. `worse` are the upgrades that make a service
    worse; `unusable` says why a service could not be planned."""

    where: str
    count: int
    upgrades: dict[ServicePath, Upgrade] = field(default_factory=dict)
    worse: dict[ServicePath, Upgrade] = field(default_factory=dict)
    unusable: dict[ServicePath, str] = field(default_factory=dict)


def upgrade_services(
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SERVICE]...", help="Services: each its folder, ENVIRONMENT/SERVICE or name."),
    ] = None,
    team: Annotated[str, typer.Option("--team", help="Every service of this team.")] = "",
    environment: Annotated[str, typer.Option("--environment", help="Every service of this environment.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Every service.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            help="The most pull requests to open now. Default: as many as upgrades.open_at_once of the settings lets "
            "be open.",
            min=1,
        ),
    ] = None,
    also_worse: Annotated[
        bool, typer.Option("--also-worse", help="Also services that get dearer, slower or tight by it.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the table alone, from the clone's main branch; with --local, from that forge's.",
        ),
    ] = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Plan services anew where the catalog, the template, the planner or a runtime's image moved since they were
    planned: one pull request a service, and only so many open at one time as the settings say. Answers stay. Run it
    again to open the next ones. `neuroscale replan` is the offline half of it: it plans one folder of the work tree
    anew, and opens nothing. Exit status: 1 if a service could not be upgraded.
    """
    chosen = Chosen(tuple(services or ()), team, environment, every)
    _check(chosen)
    choice = ForgeChoice(repository, remote, token_file, local)
    root = choice.root
    done: Mapping[ServicePath, Done] = {}
    if dry_run and not local:
        with contextlib.closing(Git(root)) as git:
            looked = _look(*_of_clone(root, git), chosen, root, also_worse=also_worse)
    else:
        from neuroscale.forge.upgrades import open_batch

        with choice.desk(TO_STDERR) as desk:
            main = desk.main()
            where = f"{main.base.branch} at {main.base.commit[:12]}"
            looked = _look(where, main.snapshot, main.inputs, chosen, root, also_worse=also_worse)
            at_once = main.inputs.settings.upgrades.open_at_once
            if not dry_run:
                again = bool(chosen.services)
                done = open_batch(desk, looked.upgrades, at_once, limit or at_once, declined_too=again)
    _print(looked, done, as_json=as_json, dry_run=dry_run)
    stopped = looked.unusable or any(opened.result in ("left out", "refused") for opened in done.values())
    return ExitStatus.FINDINGS if stopped else ExitStatus.PASSED


def _check(chosen: Chosen) -> None:
    groups = chosen.team or chosen.environment
    if sum(map(bool, (chosen.services, groups, chosen.every))) != 1:
        fault = "names no service" if not (chosen.services or groups or chosen.every) else "names services in two ways"
        fix = "Name services, or give --team and --environment, or --all."
        raise InputError.at("the command line", "SERVICE", fault, fix)


def _of_clone(root: Path, git: Git) -> tuple[str, Snapshot, PlanningInputs]:
    """The clone's main branch, as it was last fetched; without git, the work tree."""
    settings = read_planning_inputs(FolderSnapshot(root)).settings
    branch = settings.repository.default_branch
    with contextlib.closing(Clone(root, branch)) as clone:
        clone.fetch()
        tip = clone.tip
    snapshot: Snapshot = FolderSnapshot(root) if tip is None else GitSnapshot(git, tip)
    where = "the work tree" if tip is None else f"{branch} at {tip[:12]}"
    return where, snapshot, read_planning_inputs(snapshot)


def _look(
    where: str, snapshot: Snapshot, inputs: PlanningInputs, chosen: Chosen, root: Path, *, also_worse: bool
) -> Looked:
    paths = services_of(snapshot)
    if chosen.team and chosen.team not in inputs.catalog.teams:
        fix = suggest(chosen.team, inputs.catalog.teams, TEAMS)
        raise InputError.at("the command line", "--team", f"{chosen.team!r} is not a team of the catalog", fix)
    if chosen.environment and chosen.environment not in inputs.settings.environments:
        message = f"{chosen.environment!r} is not an environment of the settings"
        fix = suggest(chosen.environment, inputs.settings.environments, SETTINGS)
        raise InputError.at("the command line", "--environment", message, fix)
    named = {find_service(name, paths, root, where) for name in chosen.services}
    looked = Looked(where, 0)
    for path in paths:
        if (named and path not in named) or chosen.environment not in ("", path.environment):
            continue
        try:
            request, upgrade = look(snapshot, path, inputs)
        except InputError as error:
            looked.count += 1
            looked.unusable[path] = str(error)
            continue
        if chosen.team not in ("", request.team):
            continue
        looked.count += 1
        if upgrade is not None:
            # A service that cannot be planned any more is never upgraded.
            takes = not upgrade.worse or (also_worse and upgrade.after.verdict != "refused")
            (looked.upgrades if takes else looked.worse)[path] = upgrade
    return looked


def _print(looked: Looked, done: Mapping[ServicePath, Done], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json(_mapping(looked, done, dry_run=dry_run))
        return
    typer.echo(
        f"{looked.where}: {len(looked.upgrades):,} of {counted(looked.count, 'service')} would change by planning anew"
    )
    if looked.upgrades:
        typer.echo("")
        print_upgrades(looked.upgrades, plain_console(200))
    _list("Left out, since they get worse; --also-worse takes those that can be served", _worse(looked))
    _list("Not planned", [f"{path.name}: {why}" for path, why in looked.unusable.items()])
    results = ("opened", "updated", "unchanged", "waiting", "declined", "refused", "left out")
    for result in results:
        rows = [
            f"{path.name}: {' '.join(filter(None, (opened.url, opened.why)))}"
            for path, opened in done.items()
            if opened.result == result
        ]
        _list(result.capitalize(), rows)
    if any(opened.result == "waiting" for opened in done.values()):
        typer.echo("\nRun the command again once some of the open ones are merged or closed.")


def _worse(looked: Looked) -> list[str]:
    return [
        f"{path.name}: {'; '.join(upgrade.worse)}" + (f". {until_now(upgrade)}" if upgrade.missed else "")
        for path, upgrade in looked.worse.items()
    ]


def _list(heading: str, rows: Sequence[str]) -> None:
    if rows:
        typer.echo(f"\n{heading}")
    for row in rows:
        typer.echo(f"  {terminal(row, 1000)}")


def _mapping(looked: Looked, done: Mapping[ServicePath, Done], *, dry_run: bool) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "base": looked.where,
        "dry_run": dry_run,
        "services": looked.count,
        "upgrades": [
            {
                "service": path.name,
                **as_mapping(upgrade),
                "result": done[path].result if path in done else None,
                "url": done[path].url if path in done else "",
                "why": done[path].why if path in done else "",
            }
            for path, upgrade in looked.upgrades.items()
        ],
        "left_out": [{"service": path.name, **as_mapping(upgrade)} for path, upgrade in looked.worse.items()],
        "not_planned": [{"service": path.name, "why": why} for path, why in looked.unusable.items()],
    }

"""`neuroscale repository`: makes a platform repository of an organisation's own, and brings it to another version."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroscale.actions.open_repository import read_file
from neuroscale.actions.service_change import ForgeChoice
from neuroscale.cli.options import (
    TO_STDERR,
    JsonOption,
    LocalForgeOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
    print_json,
)
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import counted, plainly_counted, terminal, terminal_lines
from neuroscale.repo.layout import find_root

if TYPE_CHECKING:
    from neuroscale.actions.repository_upgrade import Upgraded

_HELP = "Make a platform repository of an organisation's own, and bring it to another version of the tool."
app = typer.Typer(no_args_is_help=True, help=_HELP)

ReleasesOption = Annotated[
    str | None,
    typer.Option("--releases", help="The publisher's list of releases: a file or an address. Default: the pin's."),
]
WheelOption = Annotated[
    Path | None,
    typer.Option("--wheel", help="This tool's wheel, whose digest becomes the pin. Default: as it was installed."),
]
WriteOption = Annotated[
    bool, typer.Option("--write", help="Change the work tree, conflicts with markers included, and open nothing.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would change; write and push nothing.")]
AcceptLossOption = Annotated[
    bool, typer.Option("--accept-loss", help="Go on where edits of files that the tool owns would be lost.")
]

_MOST = 100
"""Files of one kind that are named; edits that would go are all named."""


@app.callback()
def _group() -> None:
    """Make a platform repository of an organisation's own, and bring it to another version of the tool."""


@app.command("init")
def make_repository(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to write to; a new one, or an empty clone.")
    ],
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help="A file with the answers. Without it, the command asks for what it needs."),
    ] = None,
    wheel: WheelOption = None,
    releases: Annotated[
        str | None,
        typer.Option(
            "--releases",
            metavar="FILE|URL",
            help="The list of the wheel's publisher, whom the pin then names. Default: releases.json beside the wheel.",
        ),
    ] = None,
) -> int:
    """Write a repository with settings, teams, budgets, what they render to, policies, the form, workflows and owners.
    Run again with the same answers, it writes nothing."""
    from neuroscale.actions.new_repository import write_repository
    from neuroscale.rendering.new_repository import read_new_repository

    if answers is not None:
        text, where = read_file(answers), str(answers)
    elif _is_terminal():
        from neuroscale.core.yaml_io import dump

        text, where = dump(_asked()), "the answers"
    else:
        message = "is missing, and nobody can be asked: the input is not a terminal"
        raise InputError.at("the command line", "--answers", message, "Name a file, such as docs/adopt.md shows one.")
    written = write_repository(folder, read_new_repository(text, where), wheel, releases, where)
    there = f", {written.unchanged} were there already" if written.unchanged else ""
    typer.echo(f"{terminal(str(folder))}: {plainly_counted(len(written.paths), 'file')} written{there}.")
    if written.pin.publisher is None:
        typer.echo(
            "The pin names no publisher, so the gate accepts no other version of the tool: name a list of releases "
            "with --releases, or set publisher and signature in platform/neuroscale.yaml, in a change of their own."
        )
    elif written.pin.releases is None:
        typer.echo("The pin names no list of releases: write its address there, or name it with --releases to upgrade.")
    if written.paths:
        typer.echo("Look at platform/settings.yaml, then: git init --initial-branch=main, git add, commit and push.")
    return ExitStatus.PASSED


@app.command("upgrade")
def upgrade(
    to: Annotated[str | None, typer.Option("--to", help="The version to take. Default: the newest release.")] = None,
    releases: ReleasesOption = None,
    write: WriteOption = False,
    dry_run: DryRunOption = False,
    accept_loss: AcceptLossOption = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Open the pull request by which the repository takes another version of the tool: the organisation's own files
    stay, edits of delivered files are merged, everything else is written anew. The new version does it, installed by
    its digest, after its publisher's signature was checked. Run again, it brings the pull request up to date. Exit
    status: 1 if a conflict is left for a person, or if edits of the tool's own files would go without --accept-loss."""
    from neuroscale.actions.repository_upgrade import Wanted, upgrade_repository

    choice = ForgeChoice(repository, remote, token_file, local)
    wanted = Wanted(accept_loss, write, dry_run, to, releases)
    done = upgrade_repository(choice, wanted, TO_STDERR)
    return done if isinstance(done, int) else _print_upgraded(done)


@app.command("adopt")
def adopt(
    wheel: WheelOption = None,
    releases: Annotated[
        str | None,
        typer.Option("--releases", help="The list of the wheel's publisher, whom the pin then names: file or address."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="COMMIT",
            help="The tool's own commit that the fork began from, or merged last. Default: the version's tag, else the "
            "wheel, which lacks documents and tests.",
        ),
    ] = None,
    write: WriteOption = False,
    dry_run: DryRunOption = False,
    accept_loss: AcceptLossOption = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Open the pull request by which a fork that holds the tool's own code pins the tool instead: the tool's files go,
    the organisation's own files and its edits of delivered files stay. Exit status: 1 if files of the tool that were
    edited, or files beside them, would go without --accept-loss; they are named."""
    from neuroscale.actions.repository_adoption import Adoption, adopt_repository

    choice = ForgeChoice(repository, remote, token_file, local)
    wanted = Adoption(accept_loss, write, dry_run, wheel, releases, against)
    if (done := adopt_repository(choice, wanted, TO_STDERR)) is None:
        typer.echo("This repository holds no code of the tool any more: nothing to do.")
        return ExitStatus.PASSED
    return _print_upgraded(done)


@app.command("status")
def status(releases: ReleasesOption = None, as_json: JsonOption = False, repository: RepositoryOption = None) -> int:
    """Show the pinned version and the newest release, what the releases in between bring, which delivered files are
    edited here, and which files of the tool differ from what it delivers or renders."""
    from neuroscale.actions.repository_upgrade import repository_status

    now = repository_status(find_root(repository or Path.cwd()), releases)
    if as_json:
        newer = None if now.newer is None else [entry.model_dump(mode="json") for entry in now.newer]
        facts = {"pinned": now.pin.model_dump(mode="json"), "running": now.running, "newer": newer}
        files = {"edited": now.edited, "differing": now.differing}
        reasons = {"no_list": now.no_list, "not_compared": now.not_compared}
        print_json({"schema_version": 1, **facts, **files, **reasons})
        return ExitStatus.PASSED
    typer.echo(f"Pinned: neuroscale {now.pin.version}. Running: {now.running}.")
    if now.newer is None:
        typer.echo(f"Newer releases: not known. {terminal(now.no_list, 1000)}")
    elif not now.newer:
        typer.echo("Newer releases: none.")
    else:
        typer.echo(f"Newest release: {now.newer[0].version}, {counted(len(now.newer), 'release')} ahead.")
    for release in now.newer or ():
        typer.echo(f"\n{release.version}\n{terminal_lines(release.changes, 20_000)}".rstrip())
    if now.newer:
        typer.echo("\nTake it: neuroscale repository upgrade")
    if now.not_compared:
        typer.echo(f"Files: not compared, since {terminal(now.not_compared, 1000)}")
    _list("Edited here; an upgrade merges them", now.edited or ())
    _list("Of the tool, and not as it delivers or renders them", now.differing or ())
    return ExitStatus.PASSED


def _print_upgraded(done: Upgraded) -> int:
    """Print an upgrade, and what became of it. Returns the exit status."""
    from neuroscale.cli.options.change_outcome import print_proposal
    from neuroscale.report.repository_upgrade_view import AFTERWARDS, groups, summary

    if not done.upgrade.files and not done.stopped:
        typer.echo(f"This repository is already at {done.upgrade.new}.")
        return ExitStatus.PASSED
    for line in summary(done.upgrade):
        typer.echo(line)
    for name, paths in groups(done.upgrade).items():
        _list(name, paths, most=max(_MOST, len(done.upgrade.lost)))
    _list("Services", done.services)
    _list("Conflicts", (str(problem) for problem in done.upgrade.conflicts))
    typer.echo("")
    if done.outcome is not None:
        exit_status = print_proposal(done.outcome, {}, as_json=False)
        typer.echo(AFTERWARDS)
        return exit_status
    if done.written:
        typer.echo(f"{plainly_counted(len(done.written), 'file')} written to the work tree.")
    elif done.upgrade.lost and done.stopped:
        typer.echo("Nothing was changed. --accept-loss lets these edits go.")
    elif done.stopped:
        typer.echo("Nothing was changed. --write writes the files with git's markers, for you to resolve.")
    else:
        typer.echo("Dry run: nothing was changed.")
    if done.written and done.upgrade.conflicts:
        typer.echo("Resolve the conflicts, and run the command again with --write: it renders the rest.")
    return ExitStatus.FINDINGS if done.stopped else ExitStatus.PASSED


def _list(heading: str, rows: Iterable[str], most: int | None = None) -> None:
    shown = list(rows)
    if shown:
        typer.echo(f"\n{heading}:")
    for row in shown[:most]:
        typer.echo(f"  {terminal(row, 2000)}")
    if len(shown[most or len(shown) :]):
        typer.echo(f"  and {len(shown[most:]):,} more")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _asked() -> dict[str, Any]:
    """The answers of a person at a terminal, in the form of the file."""
    answers: dict[str, Any] = {
        "schema_version": 1,
        "organization": typer.prompt("The organisation's name"),
        "repository": typer.prompt("The address of the repository, https://HOST/OWNER/NAME"),
        "domain": typer.prompt("The domain of the services, such as models.example.com"),
    }
    if owners := typer.prompt(
        "Who approves changes on GitHub, such as @acme/platform (empty: another forge)", default=""
    ):
        answers["owners"] = owners.split()
    environments: dict[str, Any] = {}
    while name := typer.prompt("An environment's name (empty: no more)", default=""):
        cluster = typer.prompt(f"{name}: its cluster (gke, eks, kind, local)")
        environment: dict[str, Any] = {"cluster": cluster}
        if cluster == "local":
            environment |= {"accelerators": ["cpu"], "hub": False, "store": "file:///mnt/models"}
        else:
            environment["domain"] = typer.prompt(f"{name}: its domain", default=f"{name}.{answers['domain']}")
            environment["production"] = typer.confirm(f"{name}: do people depend on it?", default=False)
            environment["accelerators"] = typer.prompt(
                f"{name}: accelerators, such as nvidia-l4 nvidia-h100-80gb"
            ).split()
            environment["price_lists"] = typer.prompt(f"{name}: price lists", default="").split()
            if store := typer.prompt(
                f"{name}: models of your own lie in (gs://..., s3://..., empty: nowhere)", default=""
            ):
                environment["store"] = store
        environments[name] = environment
    teams: dict[str, Any] = {}
    budgets: dict[str, Any] = {}
    while name := typer.prompt("A team's name (empty: no more)", default=""):
        centre = typer.prompt(f"{name}: its cost centre")
        teams[name] = {"cost_center": centre, "contact": typer.prompt(f"{name}: its e-mail address")}
        if centre not in budgets and (
            monthly := typer.prompt(f"{centre}: USD a month at most (empty: no budget)", default="")
        ):
            budgets[centre] = {"monthly_usd": monthly, "owner": name}
    return {**answers, "environments": environments, "teams": teams, "budgets": budgets}

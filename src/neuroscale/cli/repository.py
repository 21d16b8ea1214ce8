"""`neuroscale repository`: makes a platform repository of an organisation's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroscale.actions.open_repository import read_file
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import plainly_counted, terminal

app = typer.Typer(no_args_is_help=True, help="Make a platform repository of an organisation's own.")


@app.callback()
def _group() -> None:
    """Make a platform repository of an organisation's own."""


@app.command("init")
def make_repository(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to write to; a new one, or an empty clone.")
    ],
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help="A file with the answers. Without it, the command asks for what it needs."),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", help="This tool's wheel, whose digest becomes the pin. Default: as it was installed."),
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
    written = write_repository(folder, read_new_repository(text, where), wheel, where)
    there = f", {written.unchanged} were there already" if written.unchanged else ""
    typer.echo(f"{terminal(str(folder))}: {plainly_counted(len(written.paths), 'file')} written{there}.")
    if written.paths:
        typer.echo("Look at platform/settings.yaml, then: git init --initial-branch=main, git add, commit and push.")
    return ExitStatus.PASSED


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

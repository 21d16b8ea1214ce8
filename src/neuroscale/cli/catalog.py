"""`neuroscale catalog`: make entries of the catalog, and keep it up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.options import JsonOption, PullRequestOption, RemoteOption, RepositoryOption, TokenFileOption
from neuroscale.core.errors import ExitStatus

app = typer.Typer(
    name="catalog",
    help="The catalog: add models, find what is out of date, render the form.",
    no_args_is_help=True,
)


@app.command("add")
def add_model(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A name of the Hub (OWNER/MODEL), a folder, or a config.json.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="The model's name, where the Hub is not asked: OWNER/MODEL of the Hub.")
    ] = None,
    fields: Annotated[
        Path | None,
        typer.Option("--fields", help="A YAML file with fields of the entry that the model's files do not contain."),
    ] = None,
    environment: Annotated[
        str | None, typer.Option("--environment", help="Show the fit on its accelerators alone. Default: all of them.")
    ] = None,
    pull_request: PullRequestOption = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Make a model's entry from its config and the headers of its files, and show what it fits on. An entry that is
    there keeps what people wrote into it."""
    from neuroscale.cli.catalog_add import AddOptions, add

    wanted = AddOptions(model, name, fields, environment)
    return add(wanted, repository, remote if pull_request else None, token_file, as_json=as_json)


@app.command("check")
def check_catalog(as_json: JsonOption = False, repository: RepositoryOption = None) -> int:
    """List the entries that are out of date: a model whose revision is not the Hub's newest, prices older than 90 days,
    an image without a digest. Exit status 0: no entry is out of date; 1: some are; 3: the Hub did not give every
    revision."""
    from neuroscale.cli.catalog_check import check

    return check(repository, as_json=as_json)


@app.command("form")
def render_form(repository: RepositoryOption = None) -> int:
    """Write the form's list of models as the catalog has them, grouped by family."""
    from neuroscale.catalog import load_catalog
    from neuroscale.core.files import write_public
    from neuroscale.rendering.scaffolder.model_list import with_models
    from neuroscale.rendering.scaffolder.template import load_template
    from neuroscale.repo.layout import find_root
    from neuroscale.repo.snapshot import FolderSnapshot

    root = find_root(repository or Path.cwd())
    snapshot = FolderSnapshot(root)
    template = load_template(snapshot)
    text = with_models(template, load_catalog(snapshot))
    if text == template.files["template.yaml"]:
        typer.echo(f"{template.where}: is up to date")
    else:
        write_public(root / template.where, text)
        typer.echo(f"{template.where}: written")
    return ExitStatus.PASSED

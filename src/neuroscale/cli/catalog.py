"""`neuroscale catalog`: makes entries of the catalog, finds those that are out of date, and renders the form's list."""

from __future__ import annotations

import dataclasses
import textwrap
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroscale.actions.catalog_entry import AddOptions, Made, fields_of, fit_line, proposal
from neuroscale.actions.measurement_records import of_bench
from neuroscale.actions.open_repository import repository_root
from neuroscale.actions.service_change import ForgeChoice
from neuroscale.catalog import load_catalog
from neuroscale.catalog.model_lookup import find_model, placed
from neuroscale.catalog.settings import load_settings
from neuroscale.catalog.staleness import Remark, Staleness, staleness
from neuroscale.cli.options import (
    JsonOption,
    LocalForgeOption,
    PullRequestOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
    print_json,
)
from neuroscale.cli.options.change_outcome import Printed, change_catalog, record
from neuroscale.core.errors import ExitStatus
from neuroscale.core.files import write_public
from neuroscale.core.printable import counted, terminal
from neuroscale.models.hub import HubModel
from neuroscale.rendering.scaffolder.form import as_configured, label
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.snapshot import FolderSnapshot


def check(repository: Path | None, *, as_json: bool) -> int:
    """Print what is out of date and what could not be checked. Raises InputError if the catalog cannot be read."""
    catalog = load_catalog(FolderSnapshot(repository_root(repository)))
    today = datetime.now(UTC).date()
    result = staleness(catalog, today, _newest)
    stale, unknown = result.of("stale"), result.of("unknown")
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "checked_on": str(today),
                "compared": {"revisions": result.revisions, "prices": result.prices, "images": result.images},
                "stale": [dataclasses.asdict(remark) for remark in stale],
                "unknown": [dataclasses.asdict(remark) for remark in unknown],
            }
        )
    else:
        _print_staleness(result)
    if unknown:
        return ExitStatus.UNTRUSTED
    return ExitStatus.FINDINGS if stale else ExitStatus.PASSED


def _newest(name: str) -> str:
    return HubModel(name).revision


def _print_staleness(result: Staleness) -> None:
    """One paragraph for each message: entries that need the same repair stand together."""
    alike: dict[tuple[str, str], list[Remark]] = {}
    for remark in result.remarks:
        alike.setdefault((remark.state, remark.message), []).append(remark)
    for (state, message), remarks in alike.items():
        if len(remarks) == 1:
            typer.echo(terminal(f"{state}: {remarks[0].entry}: {message}. {remarks[0].fix}"))
            continue
        fixes = dict.fromkeys(remark.fix.replace(remark.entry.partition("/")[2], "NAME") for remark in remarks)
        fix = next(iter(fixes)) if len(fixes) == 1 else " ".join(remark.fix for remark in remarks)
        typer.echo(terminal(f"{state}: {len(remarks)} entries: {message}. {fix}"))
        for row in textwrap.wrap(", ".join(remark.entry for remark in remarks), 116, break_on_hyphens=False):
            typer.echo(f"  {terminal(row)}")
    typer.echo(
        f"{len(result.of('stale'))} out of date, {len(result.of('unknown'))} unknown. Compared: "
        f"{counted(result.revisions, 'revision')}, {counted(result.prices, 'price list')}, "
        f"{counted(result.images, 'image')}."
    )
    if result.of("unknown"):
        typer.echo("Exit status 3: what is unknown may be out of date. Run it again where the Hub can be reached.")


def add(wanted: AddOptions, repository: Path | None, forge: ForgeChoice | None, *, as_json: bool) -> int:
    """Write the entry, or open its pull request if a forge is named. Raises InputError."""
    root = repository_root(repository)
    fields = fields_of(wanted.fields)
    found = find_model(wanted.model, wanted.name, datetime.now(UTC).date())
    model = placed(found, wanted.store, hub=wanted.hub)
    printed = Printed(_print_entry, _mapping, lambda entry_change: entry_change.path)
    make = partial(proposal, model, fields, wanted.environment)
    return change_catalog(forge, root, model.name.rsplit("/", 1)[-1], make, printed, as_json=as_json)


def _print_entry(entry_change: Made) -> None:
    typer.echo(terminal(label(entry_change.catalog.models[entry_change.name], entry_change.catalog)))
    for note in entry_change.catalog.models[entry_change.name].facts.notes:
        typer.echo(f"Note: {terminal(note, 400)}")
    for name, fits in entry_change.fits.items():
        typer.echo(f"In {name}:")
        for fit in fits:
            typer.echo(f"  {terminal(fit_line(entry_change, fit))}")


def _mapping(entry_change: Made) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "model": entry_change.name,
        "path": entry_change.path,
        "fits": {name: [dataclasses.asdict(fit) for fit in fits] for name, fits in entry_change.fits.items()},
    }


app = typer.Typer(
    name="catalog", help="The catalog: add models, find what is out of date, render the form.", no_args_is_help=True
)


@app.command("add")
def add_model(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A name of the Hub (OWNER/MODEL), a folder, or a config.json.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="The model's name, where the Hub is not asked, such as OWNER/MODEL.")
    ] = None,
    fields: Annotated[
        Path | None,
        typer.Option("--fields", help="A YAML file with fields of the entry that the model's files do not contain."),
    ] = None,
    environment: Annotated[
        str | None, typer.Option("--environment", help="Show the fit on its accelerators alone. Default: all of them.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", help="The weights are in this folder below models.store of the settings."),
    ] = None,
    hub: Annotated[bool, typer.Option("--hub", help="The weights are on the Hub, in the repository --name.")] = False,
    pull_request: PullRequestOption = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Make a model's entry from its config and the headers of its files, and show what it fits on. An entry that is
    there keeps what people wrote into it."""

    wanted = AddOptions(model, name, fields, environment, store, hub)
    forge = ForgeChoice(repository, remote, token_file, local).if_asked(pull_request=pull_request)
    return add(wanted, repository, forge, as_json=as_json)


@app.command("record")
def record_measurement(
    bench: Annotated[Path, typer.Option("--from", help="The bench.json of a run of `neuroscale bench`.")],
    pull_request: PullRequestOption = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the measurement; write and push nothing.")] = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Put what a benchmark measured into its model's file: plans and `speed` then rest on it. A run with failed
    requests, or of a server that is not known, is refused. A second time changes nothing."""
    forge = ForgeChoice(repository, remote, token_file, local).if_asked(pull_request=pull_request)
    root = repository_root(repository)
    measured = of_bench(bench, load_catalog(FolderSnapshot(root)))
    return record(measured, root, forge, dry_run=dry_run, as_json=as_json)


@app.command("check")
def check_catalog(as_json: JsonOption = False, repository: RepositoryOption = None) -> int:
    """List the entries that are out of date: a model whose revision is not the Hub's newest, prices older than 90 days,
    an image without a digest. Exit status 0: no entry is out of date; 1: some are; 3: the Hub did not give every
    revision."""

    return check(repository, as_json=as_json)


@app.command("form")
def render_form(repository: RepositoryOption = None) -> int:
    """Write the form's models, teams, environments and repository."""
    root = repository_root(repository)
    snapshot = FolderSnapshot(root)
    template = load_template(snapshot)
    text = as_configured(template, load_catalog(snapshot), load_settings(snapshot))
    if text == template.files["template.yaml"]:
        typer.echo(f"{template.where}: is up to date")
    else:
        write_public(root / template.where, text)
        typer.echo(f"{template.where}: written")
    return ExitStatus.PASSED

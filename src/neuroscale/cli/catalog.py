"""`neuroscale catalog`: makes entries of the catalog, finds those that are out of date, and renders the form's list."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.model_lookup import FoundModel, find_model
from neuroscale.catalog.new_entry import entry_path, entry_text, entry_values
from neuroscale.catalog.settings import Settings, load_settings
from neuroscale.catalog.staleness import Remark, Staleness, staleness
from neuroscale.cli.open_repository import opened_publisher
from neuroscale.cli.options import (
    JsonOption,
    LocalForgeOption,
    PullRequestOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
    print_json,
    say_progress,
)
from neuroscale.cli.request_outcome import print_proposal
from neuroscale.cli.service_change import Forge
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.files import read_bounded, write_public
from neuroscale.core.printable import counted, terminal
from neuroscale.core.validation import suggest
from neuroscale.core.yaml_io import decode, read_mapping
from neuroscale.forge.request_flow import CatalogChange, propose
from neuroscale.models.hub import HubModel
from neuroscale.planning.rejected_choices import AcceleratorFit, fits_of
from neuroscale.rendering.scaffolder.form import label, with_models
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.layout import CATALOG, find_root
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot, Snapshot


def write_files(root: Path, snapshot: Snapshot, files: Mapping[str, str]) -> list[str]:
    """Write the files that differ, and return their paths. Raises InputError, before it writes, if a path is a link."""
    for path in files:
        for place in [path, *map(str, [*Path(path).parents][:-1])]:
            if (root / place).is_symlink():
                raise InputError.at(place, "", "is a symlink", "Replace it by a plain file or folder.")
    changed = [path for path, text in files.items() if snapshot.read(path) != text.encode()]
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_public(root / path, files[path])
    return changed


def check(repository: Path | None, *, as_json: bool) -> int:
    """Print what is out of date and what could not be checked. Raises InputError if the catalog cannot be read."""
    catalog = load_catalog(FolderSnapshot(find_root(repository or Path.cwd())))
    today = datetime.now(UTC).date()
    found = staleness(catalog, today, _newest)
    stale, unknown = found.of("stale"), found.of("unknown")
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "checked_on": str(today),
                "compared": {"revisions": found.revisions, "prices": found.prices, "images": found.images},
                "stale": [dataclasses.asdict(remark) for remark in stale],
                "unknown": [dataclasses.asdict(remark) for remark in unknown],
            }
        )
    else:
        _print_staleness(found)
    if unknown:
        return ExitStatus.UNTRUSTED
    return ExitStatus.FINDINGS if stale else ExitStatus.PASSED


def _newest(name: str) -> str:
    return HubModel(name).revision


def _print_staleness(found: Staleness) -> None:
    """One paragraph for each message: entries that need the same repair stand together."""
    alike: dict[tuple[str, str], list[Remark]] = {}
    for remark in found.remarks:
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
        f"{len(found.of('stale'))} out of date, {len(found.of('unknown'))} unknown. Compared: "
        f"{counted(found.revisions, 'revision')}, {counted(found.prices, 'price list')}, "
        f"{counted(found.images, 'image')}."
    )
    if found.of("unknown"):
        typer.echo("Exit status 3: what is unknown may be out of date. Run it again where the Hub can be reached.")


_MOST_BYTES = 64 * 1024  # the largest file of fields


@dataclass(frozen=True)
class AddOptions:
    """The options of the command: the model, its name, a file of fields, and the environment to show."""

    model: str
    name: str | None
    fields: Path | None
    environment: str | None


@dataclass(frozen=True)
class Made:
    """The entry, the files that change, by path, and the accelerators that it fits on in each environment."""

    name: str
    path: str
    files: Mapping[str, str]
    fits: Mapping[str, list[AcceleratorFit]]
    catalog: Catalog


def add(wanted: AddOptions, repository: Path | None, forge: Forge | None, *, as_json: bool) -> int:
    """Write the entry, or open its pull request if a forge is named. Raises InputError."""
    root = find_root(repository or Path.cwd())
    said = _fields(wanted.fields)
    found = find_model(wanted.model, wanted.name, datetime.now(UTC).date())
    if forge is not None:
        return _propose(root, found, said, wanted.environment, forge, as_json=as_json)
    snapshot = FolderSnapshot(root)
    made = _make(found, said, wanted.environment, snapshot, snapshot)
    changed = write_files(root, snapshot, made.files)
    if as_json:
        print_json({**_mapping(made), "changed": changed})
        return ExitStatus.PASSED
    _print_entry(made)
    for path in changed:
        typer.echo(f"{path}: written")
    if not changed:
        typer.echo(f"{made.path}: is up to date")
    return ExitStatus.PASSED


def _make(
    found: FoundModel, said: Mapping[str, Any], environment: str | None, base: Snapshot, newest: Snapshot
) -> Made:
    """The entry, checked as a part of the base's catalog, and the form's list with it."""
    path = entry_path(found.name)
    data = newest.read(path)
    there = None if data is None else read_mapping(decode(data, path), path).value
    if there is not None and there.get("name") != found.name:
        raise InputError.at(
            path, "name", f"is {there.get('name')!r}, not {found.name!r}", "Rename one of the two models."
        )
    was, is_now = ((one or {}).get("model_type") for one in ((there or {}).get("config"), found.facts.config))
    if there is not None and was != is_now:
        told = f"is the entry of another architecture ({was}), and the files are of {is_now}"
        raise InputError.at(path, found.name, told, "Give another name with --name, or remove the entry first.")
    values = entry_values(found, there, said)
    text = decode(data, path) if data is not None and values == there else entry_text(values)
    files = {entry.path: base.read(entry.path) or b"" for entry in base.entries(CATALOG)}
    catalog = load_catalog(MemorySnapshot({**files, path: text.encode()}))
    settings = load_settings(base)
    template = load_template(base)
    changes = {path: text, template.where: with_models(template, catalog)}
    fits = {
        name: fits_of(found.name, name, catalog, settings.environments[name])
        for name in _environments(settings, environment)
    }
    return Made(found.name, path, changes, fits, catalog)


def _environments(settings: Settings, named: str | None) -> list[str]:
    if named is not None and named not in settings.environments:
        fix = suggest(named, settings.environments)
        raise InputError.at("the command line", "--environment", f"{named!a} is not in the settings", fix)
    return list(settings.environments) if named is None else [named]


def _fields(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    text = decode(read_bounded(path, _MOST_BYTES, "Name a file that holds fields of the entry."), str(path))
    values: Mapping[str, Any] = read_mapping(text, str(path)).value
    for key in ("name", "config"):
        if key in values:
            raise InputError.at(str(path), key, "comes from the model's files", "Remove it; --name gives another name.")
    return values


def _propose(
    root: Path,
    found: FoundModel,
    said: Mapping[str, Any],
    environment: str | None,
    forge: Forge,
    *,
    as_json: bool,
) -> int:
    last: list[Made] = []

    def make(base: Snapshot, newest: Snapshot) -> CatalogChange:
        made = _make(found, said, environment, base, newest)
        last[:] = [made]
        return CatalogChange(made.files, f"Add {found.name} to the catalog", _sentences(made, found))

    with opened_publisher(root, forge.remote, forge.token_file, local=forge.local) as (git, publisher):
        outcome = propose(git, publisher, found.name.rsplit("/", 1)[-1], make, say_progress)
    if not as_json:
        _print_entry(last[0])
    return print_proposal(outcome, _mapping(last[0]), as_json=as_json)


def _sentences(made: Made, found: FoundModel) -> tuple[str, ...]:
    """The text of the pull request, for a reviewer of the entry."""
    entry = made.catalog.models[made.name]
    told = [f"{label(entry, made.catalog)}.", f"Read from {found.where}.", *entry.facts.notes]
    for name, fits in made.fits.items():
        told.append(f"In {name}: {'; '.join(_line(made, fit) for fit in fits)}.")
    return tuple(told)


def _print_entry(made: Made) -> None:
    typer.echo(terminal(label(made.catalog.models[made.name], made.catalog)))
    for note in made.catalog.models[made.name].facts.notes:
        typer.echo(f"Note: {terminal(note, 400)}")
    for name, fits in made.fits.items():
        typer.echo(f"In {name}:")
        for fit in fits:
            typer.echo(f"  {terminal(_line(made, fit))}")


def _line(made: Made, fit: AcceleratorFit) -> str:
    title = made.catalog.accelerators[fit.accelerator].title
    if not fit.count:
        return f"{title}: not served. {fit.reason}"
    tight = " (tight)" if fit.tight else ""
    return f"{fit.count} x {title}{tight}: {counted(fit.users, 'request')} of {fit.context:,} tokens at once"


def _mapping(made: Made) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "model": made.name,
        "path": made.path,
        "fits": {name: [dataclasses.asdict(fit) for fit in fits] for name, fits in made.fits.items()},
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
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Make a model's entry from its config and the headers of its files, and show what it fits on. An entry that is
    there keeps what people wrote into it."""

    wanted = AddOptions(model, name, fields, environment)
    forge = Forge(repository, remote, token_file, local).if_asked(pull_request=pull_request)
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
    from neuroscale.cli.measurements import record_bench

    forge = Forge(repository, remote, token_file, local).if_asked(pull_request=pull_request)
    return record_bench(bench, repository, forge, dry_run=dry_run, as_json=as_json)


@app.command("check")
def check_catalog(as_json: JsonOption = False, repository: RepositoryOption = None) -> int:
    """List the entries that are out of date: a model whose revision is not the Hub's newest, prices older than 90 days,
    an image without a digest. Exit status 0: no entry is out of date; 1: some are; 3: the Hub did not give every
    revision."""

    return check(repository, as_json=as_json)


@app.command("form")
def render_form(repository: RepositoryOption = None) -> int:
    """Write the form's list of models as the catalog has them, grouped by family."""
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

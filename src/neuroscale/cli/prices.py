"""`neuroscale prices`: takes a provider's exported price list into the catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from neuroscale.catalog import load_catalog
from neuroscale.catalog.price_export import Export, WantedPrices
from neuroscale.catalog.price_list import PriceList
from neuroscale.catalog.price_update import Update, list_path, read_export, updated
from neuroscale.catalog.settings import load_settings
from neuroscale.cli.catalog import write_files
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
from neuroscale.core.files import read_bounded
from neuroscale.core.printable import counted, first_of, terminal
from neuroscale.core.validation import parse
from neuroscale.core.yaml_io import decode
from neuroscale.forge.request_flow import CatalogChange, propose
from neuroscale.repo.layout import CATALOG, find_root
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot, Snapshot

_MOST_BYTES = 512 * 1024 * 1024  # the offer file of EC2 in a large region has some 400 MB
_SMALLER = "Name the file of one region or service, or keep only the products with accelerators in it."
_NAMED = 20  # products without a price that the text names


@dataclass(frozen=True)
class Asked:
    """The options of the command."""

    file: Path
    price_list: str | None
    region: str | None
    tier: Literal["on-demand", "spot"]
    factor: float


@dataclass(frozen=True)
class Made:
    """The export, the list that it makes, and the environments whose settings name the list."""

    export: Export
    update: Update
    environments: tuple[str, ...]
    factor: Decimal


def update(asked: Asked, repository: Path | None, forge: Forge | None, *, as_json: bool) -> int:
    """Write the price list, or open its pull request if a forge is named. Raises InputError."""
    root = find_root(repository or Path.cwd())
    text = decode(read_bounded(asked.file, _MOST_BYTES, _SMALLER), str(asked.file))
    if forge is not None:
        return _propose(root, asked, text, forge, as_json=as_json)
    snapshot = FolderSnapshot(root)
    made = _make(asked, text, snapshot, snapshot)
    changed = write_files(root, snapshot, {made.update.path: made.update.text})
    if as_json:
        print_json({**_mapping(made), "changed": changed})
        return ExitStatus.PASSED
    _print(made)
    typer.echo(f"{made.update.path}: {'written' if changed else 'is up to date'}")
    return ExitStatus.PASSED


def _make(asked: Asked, text: str, base: Snapshot, newest: Snapshot) -> Made:
    """The list, checked as a part of the base's catalog."""
    accelerators = load_catalog(base).accelerators
    today = datetime.now(UTC).date()
    export = read_export(text, str(asked.file), WantedPrices(asked.region, asked.tier), accelerators, today)
    suffix = "" if asked.tier == "on-demand" else f"-{asked.tier}"
    name = asked.price_list or f"{export.provider}-{export.region}{suffix}"
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        fix = "Write lower-case letters, digits and hyphens, such as aws-eu-west-1."
        raise InputError.at("the command line", "--list", f"{name!a} cannot be the name of a list", fix)
    path = list_path(name)
    data = newest.read(path)
    there_text = None if data is None else decode(data, path)
    there = None if there_text is None else parse(PriceList, there_text, path)
    made = updated(name, there_text, there, export, Decimal(repr(asked.factor)))
    files = {entry.path: base.read(entry.path) or b"" for entry in base.entries(CATALOG)}
    load_catalog(MemorySnapshot({**files, path: made.text.encode()}))
    environments = load_settings(base).environments
    using = tuple(sorted(each for each, one in environments.items() if name in one.price_lists))
    return Made(export, made, using, Decimal(repr(asked.factor)))


def _propose(root: Path, asked: Asked, text: str, forge: Forge, *, as_json: bool) -> int:
    last: list[Made] = []

    def make(base: Snapshot, newest: Snapshot) -> CatalogChange:
        written = _make(asked, text, base, newest).update
        # The text says what a merge changes, so it compares with the base.
        made = _make(asked, text, base, base)
        last[:] = [made]
        return CatalogChange({written.path: written.text}, f"Update the prices of {made.update.name}", _sentences(made))

    snapshot = FolderSnapshot(root)
    name = _make(asked, text, snapshot, snapshot).update.name
    with opened_publisher(root, forge.remote, forge.token_file, local=forge.local) as (git, publisher):
        outcome = propose(git, publisher, f"prices-{name}", make, say_progress)
    if not as_json:
        _print(last[0])
    return print_proposal(outcome, _mapping(last[0]), as_json=as_json)


def _sentences(made: Made) -> tuple[str, ...]:
    """What the file changes, for a reviewer and for a terminal."""
    export, update = made.export, made.update
    told = [f"{export.source}, of {export.date}: {counted(len(export.prices), 'price')} for {update.name}."]
    told += [f"{change}." for change in update.changes if not change.large]
    told += [
        f"Changes more than {made.factor}-fold, or now includes other parts: {change}. Check it."
        for change in update.large
    ]
    if not update.changes:
        told.append("No price changes.")
    if left := [f"{one.product} ({one.reason})" for one in export.unread]:
        told.append(f"Left alone: {first_of(left, _NAMED, '; ')}.")
    if not made.environments:
        told.append(f"No environment uses {update.name}: name it in price_lists of platform/settings.yaml.")
    return tuple(told)


def _print(made: Made) -> None:
    for sentence in _sentences(made):
        typer.echo(terminal(sentence, 4000))


def _mapping(made: Made) -> dict[str, Any]:
    export, update = made.export, made.update
    return {
        "schema_version": 1,
        "list": update.name,
        "path": update.path,
        "region": export.region,
        "tier": export.tier,
        "date": str(export.date),
        "prices": len(export.prices),
        "changes": [
            {
                "what": change.what,
                "before": None if change.before is None else format(change.before, "f"),
                "after": None if change.after is None else format(change.after, "f"),
                "large": change.large,
            }
            for change in update.changes
        ],
        "left_alone": [{"product": one.product, "reason": one.reason} for one in export.unread],
        "other_products": export.others,
        "environments": list(made.environments),
    }


app = typer.Typer(name="prices", help="The catalog's prices: bring them up to date.", no_args_is_help=True)


class TierName(StrEnum):
    """The tiers that a provider's export can have."""

    on_demand = "on-demand"
    spot = "spot"


@app.callback()
def _prices() -> None:
    """The catalog's prices: bring them up to date."""


@app.command("update")
def update_prices(
    file: Annotated[
        Path,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A provider's export: SKUs of Compute Engine from Google's Cloud Billing Catalog, or AWS's offer "
            "file of AmazonEC2 (JSON).",
        ),
    ],
    price_list: Annotated[
        str | None,
        typer.Option("--list", help="The price list to write. Default: PROVIDER-REGION, such as aws-eu-west-1."),
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="The provider's region. Default: the only one in the file.")
    ] = None,
    tier: Annotated[TierName, typer.Option("--tier", help="Which prices to take.")] = TierName.on_demand,
    factor: Annotated[
        float, typer.Option("--factor", min=1.0, max=1000.0, help="Name prices that change by more than this factor.")
    ] = 1.5,
    pull_request: PullRequestOption = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Take the prices of accelerators out of a provider's export into a price list of the catalog. Prices that the
    file does not have stay with their own date. A second run with the same file changes nothing."""

    asked = Asked(file, price_list, region, tier.value, factor)
    forge = Forge(repository, remote, token_file, local).if_asked(pull_request=pull_request)
    return update(asked, repository, forge, as_json=as_json)

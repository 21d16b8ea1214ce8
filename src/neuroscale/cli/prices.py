"""`neuroscale prices`: takes a provider's exported price list into the catalog."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroscale.actions.open_repository import repository_root
from neuroscale.actions.price_update import Made, PriceOptions, export_text, proposal, sentences
from neuroscale.actions.service_change import ForgeChoice
from neuroscale.cli.options import (
    JsonOption,
    LocalForgeOption,
    PullRequestOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
)
from neuroscale.cli.options.change_outcome import Printed, change_catalog
from neuroscale.core.printable import terminal
from neuroscale.repo.snapshot import FolderSnapshot


def update(options: PriceOptions, repository: Path | None, forge: ForgeChoice | None, *, as_json: bool) -> int:
    """Write the price list, or open its pull request if a forge is named. Raises InputError."""
    root = repository_root(repository)
    make = partial(proposal, options, export_text(options))
    snapshot = FolderSnapshot(root)
    name = "" if forge is None else make(snapshot, snapshot).made.update.name
    printed = Printed(_print, _mapping, lambda list_change: list_change.update.path)
    return change_catalog(forge, root, f"prices-{name}", make, printed, as_json=as_json)


def _print(list_change: Made) -> None:
    for sentence in sentences(list_change):
        typer.echo(terminal(sentence, 4000))


def _mapping(list_change: Made) -> dict[str, Any]:
    export, update = list_change.export, list_change.update
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
        "left_alone": [{"product": product.product, "reason": product.reason} for product in export.unread],
        "other_products": export.others,
        "environments": list(list_change.environments),
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
            help="A provider's export: SKUs of Compute Engine from Google's Cloud Billing Catalog (one answer, or a "
            "list of all pages), or AWS's offer file of AmazonEC2 (JSON).",
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

    options = PriceOptions(file, price_list, region, tier.value, factor)
    forge = ForgeChoice(repository, remote, token_file, local).if_asked(pull_request=pull_request)
    return update(options, repository, forge, as_json=as_json)

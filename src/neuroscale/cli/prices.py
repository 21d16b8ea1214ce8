"""`neuroscale prices`: take a provider's exported price list into the catalog."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.options import JsonOption, PullRequestOption, RemoteOption, RepositoryOption, TokenFileOption

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
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Take the prices of accelerators out of a provider's export into a price list of the catalog. Prices that the
    file does not have stay with their own date. A second run with the same file changes nothing."""
    from neuroscale.cli.prices_update import Asked, update

    asked = Asked(file, price_list, region, tier.value, factor)
    return update(asked, repository, remote if pull_request else None, token_file, as_json=as_json)

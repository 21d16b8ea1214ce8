"""Prints the report of `neuroscale catalog check`."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import typer

from neuroscale.catalog import load_catalog
from neuroscale.catalog.staleness import Staleness, staleness
from neuroscale.cli.json_output import print_json
from neuroscale.core.counting import counted
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal
from neuroscale.repo.layout import find_root
from neuroscale.repo.snapshot import FolderSnapshot


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
        _print(found)
    if unknown:
        return ExitStatus.UNTRUSTED
    return ExitStatus.FINDINGS if stale else ExitStatus.PASSED


def _newest(name: str) -> str:
    from neuroscale.models.hub import HubModel

    return HubModel(name).revision


def _print(found: Staleness) -> None:
    for remark in found.remarks:
        typer.echo(terminal(f"{remark.state}: {remark.entry}: {remark.message}. {remark.fix}"))
    typer.echo(
        f"{len(found.of('stale'))} out of date, {len(found.of('unknown'))} unknown. Compared: "
        f"{counted(found.revisions, 'revision')}, {counted(found.prices, 'price list')}, "
        f"{counted(found.images, 'image')}."
    )

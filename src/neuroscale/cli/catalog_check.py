"""Prints the report of `neuroscale catalog check`."""

from __future__ import annotations

import dataclasses
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import typer

from neuroscale.catalog import load_catalog
from neuroscale.catalog.staleness import Remark, Staleness, staleness
from neuroscale.cli.json_output import print_json
from neuroscale.core.errors import ExitStatus
from neuroscale.core.plurals import counted
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

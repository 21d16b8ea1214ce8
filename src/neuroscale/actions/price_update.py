"""Makes the proposal to bring a price list of the catalog up to date."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

from neuroscale.catalog import load_catalog
from neuroscale.catalog.price_export import Export, WantedPrices
from neuroscale.catalog.price_list import PriceList
from neuroscale.catalog.price_update import Update, list_path, read_export, updated
from neuroscale.catalog.settings import load_settings
from neuroscale.core.errors import InputError
from neuroscale.core.files import read_bounded
from neuroscale.core.printable import counted, first_of
from neuroscale.core.validation import parse
from neuroscale.core.yaml_io import decode
from neuroscale.forge.file_changes import FilesChange
from neuroscale.repo.layout import CATALOG
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot

_MOST_BYTES = 512 * 1024 * 1024  # the offer file of EC2 in a large region has some 400 MB
_SMALLER = "Name the file of one region or service, or keep only the products with accelerators in it."
_NAMED = 20  # products without a price that the text names


@dataclass(frozen=True)
class PriceOptions:
    """The options of the command."""

    file: Path
    price_list: str | None
    region: str | None
    tier: Literal["on-demand", "spot"]
    factor: float


@dataclass(frozen=True)
class Made:
    """The export, the list that it makes, the environments whose settings name the list, and the `others` of the same
    provider that some environment names."""

    export: Export
    update: Update
    environments: tuple[str, ...]
    others: tuple[str, ...]
    factor: Decimal


def export_text(options: PriceOptions) -> str:
    """The text of the export. Raises InputError if it cannot be read."""
    return decode(read_bounded(options.file, _MOST_BYTES, _SMALLER), str(options.file))


def proposal(options: PriceOptions, text: str, base: Snapshot, newest: Snapshot) -> FilesChange[Made]:
    """The change of the catalog for the files of main, and those of the open pull request. Raises InputError."""
    written = _make(options, text, base, newest).update
    # The text says what a merge changes, so it compares with the base.
    change = _make(options, text, base, base)
    title = f"Update the prices of {change.update.name}"
    return FilesChange({written.path: written.text}, title, sentences(change), change)


def _make(options: PriceOptions, text: str, base: Snapshot, newest: Snapshot) -> Made:
    """The list, checked as a part of the base's catalog."""
    accelerators = load_catalog(base).accelerators
    today = datetime.now(UTC).date()
    export = read_export(text, str(options.file), WantedPrices(options.region, options.tier), accelerators, today)
    suffix = "" if options.tier == "on-demand" else f"-{options.tier}"
    name = options.price_list or f"{export.provider}-{export.region}{suffix}"
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        fix = "Write lower-case letters, digits and hyphens, such as aws-eu-west-1."
        raise InputError.at("the command line", "--list", f"{name!a} cannot be the name of a list", fix)
    path = list_path(name)
    data = newest.read(path)
    there_text = None if data is None else decode(data, path)
    present = None if there_text is None else parse(PriceList, there_text, path)
    update = updated(name, there_text, present, export, Decimal(repr(options.factor)))
    files = {entry.path: base.read(entry.path) or b"" for entry in base.entries(CATALOG)}
    load_catalog(MemorySnapshot({**files, path: update.text.encode()}))
    environments = load_settings(base).environments
    using = tuple(sorted(each for each, environment in environments.items() if name in environment.price_lists))
    used = {each for environment in environments.values() for each in environment.price_lists}
    others = tuple(sorted(each for each in used - {name} if each.startswith(export.provider)))
    return Made(export, update, using, others, Decimal(repr(options.factor)))


def sentences(list_change: Made) -> tuple[str, ...]:
    """What the file changes, for a reviewer and for a terminal."""
    export, update = list_change.export, list_change.update
    lines = [f"{export.source}, of {export.date}: {counted(len(export.prices), 'price')} for {update.name}."]
    lines += [f"{change}." for change in update.changes if not change.large]
    lines += [
        f"Changes more than {list_change.factor}-fold, or now includes other parts: {change}. Check it."
        for change in update.large
    ]
    if not update.changes:
        lines.append("No price changes.")
    if left := [f"{product.product} ({product.reason})" for product in export.unread]:
        lines.append(f"Left alone: {first_of(left, _NAMED, '; ')}.")
    if not list_change.environments:
        instead = f", or renew {first_of(list_change.others, _NAMED, ' or ')} with --list" if list_change.others else ""
        lines.append(f"No environment uses {update.name}: name it in price_lists of platform/settings.yaml{instead}.")
    return tuple(lines)

"""Reads a provider's export, and brings a price list up to date with it, as the text of its file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from itertools import takewhile
from typing import Any

from neuroscale.catalog.aws_prices import read_offers
from neuroscale.catalog.google_prices import read_skus
from neuroscale.catalog.price_export import TIERS, Export, Unread, WantedPrices
from neuroscale.catalog.price_list import Price, PriceList
from neuroscale.core.errors import InputError
from neuroscale.core.money_and_time import amount, usd
from neuroscale.core.yaml_io import dump
from neuroscale.repo.layout import CATALOG


@dataclass(frozen=True)
class PriceChange:
    """A price before (None: new) and after (None: the export has none, and it stays). US dollars per hour.

    `large`: it changes by more than the stated factor, up or down. `note`: what else changes about it.
    """

    what: str
    before: Decimal | None
    after: Decimal | None
    large: bool = False
    note: str = ""

    def __str__(self) -> str:
        if self.after is None:
            return f"{self.what}: stays at {usd(self.before or Decimal(0))} an hour, since the file has no price for it"
        if self.before is None:
            return f"{self.what}: {usd(self.after)} an hour, new"
        return f"{self.what}: {amount(self.before)} to {usd(self.after)} an hour{self.note}"


@dataclass(frozen=True)
class Update:
    """The file's new text, and the changes of its prices: one for each figure that is new, changes or stays behind."""

    name: str
    path: str
    text: str
    changes: tuple[PriceChange, ...]

    @property
    def large(self) -> tuple[PriceChange, ...]:
        """The changes by more than the stated factor."""
        return tuple(one for one in self.changes if one.large)


def read_export(text: str, where: str, wanted: WantedPrices, accelerators: Collection[str], today: date) -> Export:
    """The prices in `text`, the file `where`, for accelerators of the catalog.

    Raises InputError if the file has neither format, is not as its provider publishes it, or has no price to take.
    """
    value = _joined(_json(text, where), where)
    readers: dict[str, Callable[..., Export]] = {"skus": read_skus, "products": read_offers}
    for key, read in readers.items():
        if isinstance(value, dict) and key in value:
            export = read(value, where, wanted)
            break
    else:
        raise InputError.at(
            where,
            "",
            "has neither `skus` nor `products`",
            "Name an export of Google's Cloud Billing Catalog (an answer of services/ID/skus, a list of its pages, or "
            "one of their SKUs) or an offer file of the AWS Price List.",
        )
    if export.date > today + timedelta(days=1):
        raise InputError.at(where, "", f"is of {export.date}, which is in the future", "Correct the date in it.")
    return _of_catalog(export, where, accelerators)


def _joined(value: Any, where: str) -> Any:
    """Google's SKUs as one answer, where the file is a list: of its answer's pages, or of the SKUs of all pages.

    Raises InputError where a page is missing: the last one alone names no page after it.
    """
    if not isinstance(value, list) or not value or not all(isinstance(part, dict) for part in value):
        return value
    if all("skuId" in part for part in value):
        return {"skus": value}
    if not all(isinstance(part.get("skus"), list) for part in value):
        return value
    if sum(not part.get("nextPageToken") for part in value) != 1:
        message = "does not have the pages of one answer: exactly one of them, the last, names no page after it"
        raise InputError.at(where, "nextPageToken", message, "Export every page of the price list once.")
    return {"skus": [sku for part in value for sku in part["skus"]]}


def _covers(region: str, of_export: str) -> bool:
    """Whether a list of `region` may hold prices of an export's region: its own, or any where it says `US regions`."""
    area = re.fullmatch(r"([A-Za-z]+) regions", region)
    return region == of_export or (area is not None and of_export.startswith(f"{area[1].lower()}-"))


def _of_catalog(export: Export, where: str, accelerators: Collection[str]) -> Export:
    known = tuple(one for one in export.prices if one.accelerator in accelerators)
    strangers = [
        Unread(one.instance.name if one.instance else one.accelerator, f"the catalog has no {one.accelerator}")
        for one in export.prices
        if one not in known
    ]
    unread = (*export.unread, *strangers)
    if not known:
        reasons = "; ".join(f"{one.product}: {one.reason}" for one in unread[:5])
        raise InputError.at(
            where,
            "",
            f"has no {export.tier} price of an accelerator of the catalog in {export.region}"
            + (f" ({reasons})" if reasons else ""),
            "Name a file of the service that has them: Compute Engine of Google Cloud, or AmazonEC2 of AWS.",
        )
    return replace(export, prices=tuple(sorted(known, key=lambda one: one.key)), unread=unread)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError.at(
            where, "", f"is not JSON: {error.msg}", "Export the price list again.", error.lineno
        ) from error
    except (RecursionError, ValueError) as error:
        raise InputError.at(where, "", "is not JSON that can be read", "Export the price list again.") from error


def list_path(name: str) -> str:
    """The path of a price list in the repository."""
    return f"{CATALOG}/prices/{name}.yaml"


def updated(name: str, text: str | None, there: PriceList | None, export: Export, factor: Decimal) -> Update:
    """The list `name` with the export's prices; `text` and `there` are its file and its content (None: it is new).

    Prices that the export does not have stay, with their own date and source. A list of a whole area (`US regions`)
    becomes one of the export's region. Raises InputError where the list is of
    another region or tier, or newer than the export.
    """
    path = list_path(name)
    tier = TIERS[export.tier]
    if there is None or text is None:
        values = _values(_Head(name, export.source, export.date, export.region, tier), export.prices)
        return Update(name, path, dump(values), tuple(_changes({}, export.prices, factor)))
    for field, old, new, suits in (
        ("region", there.region, export.region, _covers(there.region, export.region)),
        ("tier", there.tier, tier, there.tier == tier),
    ):
        if not suits:
            message = f"is {old!a}, and the file's prices are of {new!a}"
            fix = f"Write another name with --list, or correct `{field}` in the list."
            raise InputError.at(path, field, message, fix)
    mine = {one.key: one for one in there.prices}
    fresh = {one.key for one in export.prices}
    newest = max([there.date, *(one.date for one in there.prices if one.date and one.key in fresh)])
    if newest > export.date:
        message = f"is {newest}, but the file's prices are of {export.date}"
        raise InputError.at(path, "date", message, "Export the provider's prices again.")
    behind = [one for key, one in mine.items() if key not in fresh]
    # The list's own date and source hold for its rates of vCPU and memory, and for prices without their own.
    whole = not behind and there.vcpu_hour is None and there.memory_gib_hour is None
    day, source = (export.date, export.source) if whole else (there.date, there.source)
    head = _Head(name, source, day, export.region, tier, there.vcpu_hour, there.memory_gib_hour)
    dated = [one.model_copy(update={"date": one.date or export.date}) for one in export.prices]
    values = _values(head, (*dated, *behind))
    if _same(PriceList.model_validate_json(json.dumps(values)), there):
        written = text
    else:
        comments = takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True))
        written = "".join(comments) + dump(values)
    return Update(name, path, written, tuple(_changes(mine, export.prices, factor)))


@dataclass(frozen=True)
class _Head:
    name: str
    source: str
    date: date
    region: str
    tier: str
    vcpu_hour: Decimal | None = None
    memory_gib_hour: Decimal | None = None


def _values(head: _Head, prices: Iterable[Price]) -> dict[str, Any]:
    """The values of a list's file. A price's own date is left out where it is the list's."""
    rows = []
    for price in sorted(prices, key=lambda one: one.key):
        row = price.model_dump(mode="json", exclude_none=True)
        if price.date == head.date:
            del row["date"]
        rows.append(row)
    return {
        "name": head.name,
        "source": head.source,
        "date": str(head.date),
        "region": head.region,
        "tier": head.tier,
        "vcpu_hour": _text(head.vcpu_hour),
        "memory_gib_hour": _text(head.memory_gib_hour),
        "prices": rows,
    }


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")


def _same(one: PriceList, other: PriceList) -> bool:
    """Whether both lists say the same, whatever the order of their prices."""
    first, second = (
        each.model_copy(update={"prices": tuple(sorted(each.prices, key=lambda price: price.key))}).model_dump()
        for each in (one, other)
    )
    return first == second


def _changes(
    mine: Mapping[tuple[str, int, str], Price], prices: Iterable[Price], factor: Decimal
) -> Iterator[PriceChange]:
    fresh = {one.key: one for one in prices}
    for key in sorted({*mine, *fresh}):
        accelerator, count, instance = key
        what = f"{count} x {accelerator}{f' on {instance}' if instance else ''}"
        old, new = mine.get(key), fresh.get(key)
        if new is None and old is not None:
            yield PriceChange(what, old.usd, None)
        elif new is not None and old is None:
            yield PriceChange(what, None, new.usd)
        elif new is not None and old is not None:
            yield from _change(what, old, new, factor)


def _change(what: str, old: Price, new: Price, factor: Decimal) -> Iterator[PriceChange]:
    """The change of the price, and of its own rates for vCPU and memory."""
    other_parts = (old.unit, sorted(old.includes)) != (new.unit, sorted(new.includes))
    note = f", now with {' and '.join(new.includes) or 'nothing else'} included" if other_parts else ""
    if old.usd != new.usd or note:
        yield PriceChange(what, old.usd, new.usd, bool(note) or _is_large(old.usd, new.usd, factor), note)
    for part, before, after in (
        ("a vCPU", old.vcpu_hour, new.vcpu_hour),
        ("a GiB", old.memory_gib_hour, new.memory_gib_hour),
    ):
        if before != after and after is not None:
            large = before is not None and _is_large(before, after, factor)
            yield PriceChange(f"{part} beside {what}", before, after, large)


def _is_large(before: Decimal, after: Decimal, factor: Decimal) -> bool:
    return max(before, after) > factor * min(before, after)

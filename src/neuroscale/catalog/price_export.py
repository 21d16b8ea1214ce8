"""Reads a provider's exported price list: the prices that it has for accelerators of the catalog, and what it leaves.

Two formats, as their providers publish them: Google's Cloud Billing Catalog (the answer of `services/ID/skus`) and an
offer file of the AWS Price List. https://cloud.google.com/billing/v1/how-tos/catalog-api,
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from neuroscale.catalog.price_list import HOST_DEFAULTS, PLACEHOLDER_PRICES, Price
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.printable import one_line
from neuroscale.core.validation import from_document, shorten, suggest
from neuroscale.core.yaml_io import Document

Tier = Literal["on-demand", "spot"]

TIERS: Mapping[Tier, str] = {"on-demand": "on-demand list price", "spot": "spot list price"}
"""The tier of a price list, as its file says it."""

_REGION = re.compile(r"[a-z][a-z0-9-]{2,40}[a-z0-9]")
_STEP = Decimal("0.0000000001")  # the digits that a price list holds
_DEAREST = Decimal(10_000)  # US dollars an hour of an instance: a larger amount is a typing error


@dataclass(frozen=True)
class Unread:
    """A product of the file that gives no price, by its provider's name, with the reason."""

    product: str
    reason: str


@dataclass(frozen=True)
class WantedPrices:
    """What to read: `region` as the provider names it (None: the only one in the file), and the tier."""

    region: str | None
    tier: Tier


@dataclass(frozen=True)
class Export:
    """The prices of one region and tier. `others`: how many products of the file have nothing to do with accelerators.

    `date`: the day at which the provider says that the prices hold.
    """

    provider: str
    region: str
    tier: Tier
    date: date
    source: str
    prices: tuple[Price, ...]
    unread: tuple[Unread, ...]
    others: int


class ProviderDocument(BaseModel):
    """A part of a provider's file, whose fields are in camel case; fields that nothing reads are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False, alias_generator=to_camel)


Part = TypeVar("Part", bound=ProviderDocument)


class NoPriceError(Exception):
    """A product gives no price; the text is the reason."""


def section(value: Any, where: str, field: str, kind: type[Part]) -> Part:
    """A part of the file, typed. Raises InputError with the field's whole path."""
    if not isinstance(value, dict):
        raise InputError.at(where, field, f"{shorten(value)} is not an object", "Export the price list again.")
    try:
        return from_document(kind, Document(value), where)
    except InputError as error:
        raise InputError(
            [
                Problem(where, f"{field}.{one.field}".strip("."), one.message, "Export the price list again.")
                for one in error.problems
            ]
        ) from error


def chosen_region(regions: Iterable[str], wanted: WantedPrices, where: str) -> str:
    """The region to read: the wanted one, or the only one. Raises InputError if there is no such one."""
    known = sorted({one for one in regions if _REGION.fullmatch(one)})
    if wanted.region is not None:
        if wanted.region not in known:
            message = f"has no accelerators in {wanted.region!a}"
            raise InputError.at(where, "", message, f"Write another --region. {suggest(wanted.region, known)}")
        return wanted.region
    if len(known) != 1:
        message = f"has accelerators in {len(known)} regions"
        raise InputError.at(where, "", message, f"Name one with --region: {', '.join(known[:60]) or 'none'}.")
    return known[0]


def day_of(text: str, where: str, field: str) -> date:
    """The day of a time as providers write it, such as 2026-06-10T00:00:00Z. Raises InputError."""
    try:
        return datetime.fromisoformat(text).date()
    except ValueError as error:
        fix = "Write a time such as 2026-06-10T00:00:00Z."
        raise InputError.at(where, field, f"{shorten(text)} is not a time", fix) from error


def amount(usd: Decimal, *, of_host: bool = False) -> Decimal:
    """An hourly price with as many digits as a price list holds. Raises NoPriceError for what cannot be a price.

    `of_host`: the rate of a machine's vCPUs or memory, which may be what OpenCost assumes where it knows none.
    """
    if usd <= 0:
        raise NoPriceError(f"{usd} is not a price")
    if usd in PLACEHOLDER_PRICES - (HOST_DEFAULTS if of_host else frozenset()):
        raise NoPriceError(f"{usd} is a placeholder of another tool, not a price")
    if usd > _DEAREST:
        raise NoPriceError(f"{usd} USD an hour is too high to be a price")
    if usd < _STEP:
        raise NoPriceError(f"{usd} USD an hour is below what a price list can hold")
    plain = usd.quantize(_STEP).normalize()
    return plain.quantize(Decimal("0.01")) if plain == plain.quantize(Decimal("0.01")) else plain


def name(text: str) -> str:
    """A provider's word as printable text on one line, of at most 120 characters."""
    return one_line(text, 120)

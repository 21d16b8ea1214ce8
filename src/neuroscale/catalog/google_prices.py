"""Reads the SKUs of Compute Engine out of an export of Google's Cloud Billing Catalog (`services/ID/skus`).

A machine with GPUs is billed by GPU, vCPU and GiB of memory, each with a SKU of its own. SKUs are told apart by their
descriptions, such as `Nvidia L4 GPU running in Americas` and `G2 Instance Ram running in Americas`. Cloud Run's GPUs,
TPUs, local SSDs, reservations and commitments are not read, nor GPUs that Google sells only in whole machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from neuroscale.catalog.price_export import (
    TIERS,
    Export,
    NoPriceError,
    ProviderDocument,
    Tier,
    Unread,
    WantedPrices,
    amount,
    chosen_region,
    day_of,
    name,
    section,
)
from neuroscale.catalog.price_list import Price
from neuroscale.core.errors import InputError

# The GPU in a description, the accelerator of the catalog, and the series of machines that it comes with.
# https://cloud.google.com/compute/docs/accelerator-optimized-machines
_GPUS: Mapping[str, tuple[str, str]] = {
    "a100": ("nvidia-a100-40gb", "A2"),
    "a100 80gb": ("nvidia-a100-80gb", "A2"),
    "h100 80gb": ("nvidia-h100-80gb", "A3"),
    "h200 141gb": ("nvidia-h200-141gb", "A3Ultra"),
    "l4": ("nvidia-l4", "G2"),
    "rtx 6000 96gb": ("nvidia-rtx-pro-6000", "G4"),
    "t4": ("tesla-t4", "N1"),
}
# GPUs of machines of one size: the price of one GPU would be that of a share, which nobody can rent.
_ONLY_WHOLE: Mapping[str, str] = {"h200 141gb": "a3-ultragpu-8g"}
_GPU = re.compile(
    r"(?:nvidia )?(?:tesla )?(?P<gpu>[a-z0-9 ]+?)(?: gpu)?(?: attached to spot preemptible vms)? running in .+",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"(?:spot preemptible )?(?P<series>[a-z0-9]+) (?:predefined )?instance (?P<part>core|ram) running in .+",
    re.IGNORECASE,
)
_USAGE: Mapping[Tier, str] = {"on-demand": "OnDemand", "spot": "Preemptible"}
_HOURS: Mapping[str, Decimal] = {"s": Decimal(3600), "min": Decimal(60), "h": Decimal(1), "d": Decimal(1) / Decimal(24)}
_SERVICE = "Compute Engine"


class _Category(ProviderDocument):
    service_display_name: str = ""
    resource_group: str = ""
    usage_type: str = ""


class _Sku(ProviderDocument):
    sku_id: str
    description: str
    category: _Category
    service_regions: tuple[str, ...] = ()


class _Money(ProviderDocument):
    currency_code: str
    units: str | int = "0"
    nanos: int = 0


class _Rate(ProviderDocument):
    start_usage_amount: float = 0
    unit_price: _Money


class _Expression(ProviderDocument):
    usage_unit: str
    tiered_rates: tuple[_Rate, ...]


class _Pricing(ProviderDocument):
    pricing_expression: _Expression
    effective_time: str


class _Priced(ProviderDocument):
    pricing_info: tuple[_Pricing, ...] = ()


@dataclass(frozen=True)
class _Item:
    """A SKU with its place in the file. `unit`: what its price must be for, beside the time; `of_host`: no GPU."""

    sku: _Sku
    value: Mapping[str, Any]
    field: str
    unit: str
    of_host: bool = False


@dataclass(frozen=True)
class _Rated:
    sku: str
    hourly: Decimal
    day: date


def read_skus(value: Mapping[str, Any], where: str, wanted: WantedPrices) -> Export:
    """The prices of GPUs with their machines' vCPUs and memory. Raises InputError for a file that is not an export."""
    skus = value["skus"]
    if not isinstance(skus, list):
        raise InputError.at(where, "skus", "is not a list", "Export the price list again.")
    if value.get("nextPageToken"):
        message = "says that more pages follow, so prices may be missing"
        fix = "Name a file with a list of all pages, or one with the SKUs of all pages."
        raise InputError.at(where, "nextPageToken", message, fix)
    # Most SKUs are about something else, and a list has tens of thousands: those alone are read whole.
    read = [
        (section(one, where, f"skus[{index}]", _Sku), one, index) for index, one in enumerate(skus) if _may_matter(one)
    ]
    tier = [(sku, one, index) for sku, one, index in read if sku.category.usage_type == _USAGE[wanted.tier]]
    region = chosen_region(
        (each for sku, _, _ in tier if sku.category.resource_group == "GPU" for each in sku.service_regions),
        wanted,
        where,
    )
    gpus: dict[str, list[_Item]] = {}
    hosts: dict[tuple[str, str], list[_Item]] = {}
    unread: list[Unread] = []
    for sku, one, index in tier:
        if region not in sku.service_regions:
            continue
        gpu, host = _GPU.fullmatch(sku.description), _HOST.fullmatch(sku.description)
        if host:
            part = host["part"].lower()
            item = _Item(sku, one, f"skus[{index}]", "GiBy." if part == "ram" else "", of_host=True)
            hosts.setdefault((host["series"].lower(), part), []).append(item)
        elif gpu and gpu["gpu"].lower() in _GPUS and sku.category.service_display_name == _SERVICE:
            gpus.setdefault(gpu["gpu"].lower(), []).append(_Item(sku, one, f"skus[{index}]", ""))
        else:
            unread.append(Unread(name(sku.description), "no accelerator is known by this description"))
    prices: list[tuple[Price, date]] = []
    for kind, items in sorted(gpus.items()):
        try:
            prices.append(_price(kind, items, hosts, where))
        except NoPriceError as error:
            unread.append(Unread(name(items[0].sku.description), str(error)))
    day = max((one for _, one in prices), default=date.min)
    return Export(
        provider="google-cloud",
        region=region,
        tier=wanted.tier,
        date=day,
        source=f"Google's Cloud Billing Catalog, service {_SERVICE}: {TIERS[wanted.tier]} in {region}, without local "
        "SSDs, and without the vCPUs and memory of a machine that no pod requests",
        prices=tuple(one.model_copy(update={"date": when}) for one, when in prices),
        unread=tuple(unread),
        others=len(skus) - len(unread) - sum(map(len, (*gpus.values(), *hosts.values()))),
    )


def _may_matter(sku: Any) -> bool:
    """Whether a SKU is about accelerators or their machines, or is not a SKU at all, which `section` then tells."""
    category = sku.get("category") if isinstance(sku, dict) else None
    description = sku.get("description") if isinstance(sku, dict) else None
    if not isinstance(category, dict) or not isinstance(description, str):
        return True
    about = category.get("resourceGroup") in ("GPU", "TPU") or "gpu" in description.lower().split()
    return about or bool(_HOST.fullmatch(description))


def _price(
    kind: str, items: list[_Item], hosts: Mapping[tuple[str, str], list[_Item]], where: str
) -> tuple[Price, date]:
    accelerator, series = _GPUS[kind]
    if kind in _ONLY_WHOLE:
        machine = _ONLY_WHOLE[kind]
        raise NoPriceError(f"Google sells it only in machines of eight: write a price per instance-hour of {machine}")
    gpu = _rated(items, where, "the GPU")
    core, ram = (
        _rated(hosts.get((series.lower(), part), []), where, f"{what} of {series}")
        for part, what in (("core", "vCPUs"), ("ram", "memory"))
    )
    ids = ", ".join(f"{what} {one.sku}" for what, one in (("GPU", gpu), ("vCPU", core), ("memory", ram)))
    price = Price(
        accelerator=accelerator,
        count=1,
        unit="accelerator-hour",
        usd=gpu.hourly,
        includes=(),
        vcpu_hour=core.hourly,
        memory_gib_hour=ram.hourly,
        source=f"{_SERVICE} {series}, SKUs: {ids}",
    )
    # The oldest of the three: each was valid on its own day.
    return price, min(gpu.day, core.day, ram.day)


def _rated(items: Iterable[_Item], where: str, what: str) -> _Rated:
    """The one price of these SKUs. Raises NoPriceError where there is none, or where they differ."""
    rated = [_hourly(one, where) for one in items]
    if not rated:
        raise NoPriceError(f"the file has no price of {what} there")
    amounts = {one.hourly for one in rated}
    if len(amounts) > 1:
        skus = ", ".join(sorted(one.sku for one in rated))
        raise NoPriceError(f"the file has {len(amounts)} prices of {what} there ({skus})")
    return min(rated, key=lambda one: (one.day, one.sku))


def _hourly(item: _Item, where: str) -> _Rated:
    """US dollars an hour (of one, or of one GiB) by the newest pricing. Raises NoPriceError and InputError."""
    priced = section(item.value, where, item.field, _Priced).pricing_info
    if not priced:
        raise NoPriceError(f"the SKU {name(item.sku.sku_id)} has no price")
    days = [
        day_of(one.effective_time, where, f"{item.field}.pricingInfo[{at}].effectiveTime")
        for at, one in enumerate(priced)
    ]
    day, at = max((one, index) for index, one in enumerate(days))
    expression = priced[at].pricing_expression
    unit = expression.usage_unit
    time = unit.removeprefix(item.unit)
    if not unit.startswith(item.unit) or time not in _HOURS:
        raise NoPriceError(f"the SKU {name(item.sku.sku_id)} is priced by {name(unit)}, not by a time")
    rates = sorted(expression.tiered_rates, key=lambda one: one.start_usage_amount)
    field = f"{item.field}.pricingInfo[{at}].pricing_expression.tieredRates"
    # A first tier of nothing is a free allowance, which does not last for a service.
    usd = next((found for one in rates if (found := _usd(one.unit_price, where, field)) != 0), Decimal(0))
    return _Rated(name(item.sku.sku_id), amount(usd * _HOURS[time], of_host=item.of_host), day)


def _usd(money: _Money, where: str, field: str) -> Decimal:
    """Whole units and billionths of one, as Google writes an amount. Raises InputError for another currency."""
    if money.currency_code != "USD":
        fix = "Export it with currencyCode=USD."
        raise InputError.at(where, field, f"is in {name(money.currency_code)!a}, not in USD", fix)
    units = str(money.units)
    if not re.fullmatch(r"[0-9]{1,9}", units) or not 0 <= money.nanos < 10**9:
        message = f"{name(units)} units and {money.nanos} nanos are not an amount"
        raise InputError.at(where, field, message, "Export the price list again.")
    return Decimal(units) + Decimal(money.nanos) / 10**9

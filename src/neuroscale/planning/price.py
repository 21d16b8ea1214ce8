"""Computes the price of a plan in decimals: US dollars, 730 hours a month."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal

from neuroscale.catalog import Catalog, Price, PriceList
from neuroscale.planning.plan import Cost, Replicas

HOURS_PER_MONTH = Decimal(730)


@dataclass(frozen=True)
class PodPrice:
    """US dollars per hour of one replica, and the source of the figures."""

    hourly: Decimal
    price_list: str
    date: date
    source: str
    told: str  # the source as the price or its list gives it; `source` names the list before it
    instance: str = ""  # the machine ("": none is named)


def pod_price(
    catalog: Catalog,
    lists: tuple[str, ...],
    accelerator: str,
    count: int,
    cpu: Decimal | int,
    memory_gib: Decimal | int,
) -> PodPrice | None:
    """The price of accelerators, and of the vCPU and memory (GiB) that their price leaves out; None without a price. A
    pod without an accelerator (`accelerator` is "", or not a resource) costs its vCPU and memory alone."""
    found = catalog.price(accelerator, count, lists, cpu, memory_gib)
    if found is None:
        if accelerator and catalog.accelerators[accelerator].resource:
            return None
        return _host_price(catalog, lists, cpu, memory_gib)
    price_list, price = found
    return _from(price_list, price_list.hourly(price, count, cpu, memory_gib), price)


def _host_price(
    catalog: Catalog, lists: tuple[str, ...], cpu: Decimal | int, memory_gib: Decimal | int
) -> PodPrice | None:
    for price_list in (catalog.prices[name] for name in lists):
        if price_list.vcpu_hour is not None and price_list.memory_gib_hour is not None:
            return _from(price_list, price_list.vcpu_hour * cpu + price_list.memory_gib_hour * memory_gib)
    return None


def _from(price_list: PriceList, hourly: Decimal, price: Price | None = None) -> PodPrice:
    told = price_list.source if price is None else price.source or price_list.source
    source = f"{price_list.name}, {price_list.tier}, {price_list.region}: {told}"
    instance = price.instance.name if price and price.instance else ""
    return PodPrice(hourly, price_list.name, (price and price.date) or price_list.date, source, told, instance)


def per_million(price: PodPrice, tokens_per_second: float) -> Decimal | None:
    """US dollars of one replica for a million tokens at that rate, to a hundredth of a cent."""
    return per_million_at(price.hourly, tokens_per_second)


def per_million_at(hourly: Decimal, tokens_per_second: float) -> Decimal | None:
    """US dollars for a million tokens at that rate, of what costs `hourly` an hour; None for a rate of 0."""
    if tokens_per_second <= 0:
        return None
    return _round(hourly * 1_000_000 / (Decimal(repr(tokens_per_second)) * 3600), "0.0001")


def cost(price: PodPrice | None, replicas: Replicas) -> Cost:
    """The cost of the replicas that run: the fewest, since nothing scales between them and the most."""
    if price is None:
        return Cost(hourly=None, monthly_min=None, monthly_max=None, price_date=None, price_source="")
    monthly = _round(price.hourly * replicas.min * HOURS_PER_MONTH, "0.01")
    return Cost(
        hourly=_round(price.hourly * replicas.min, "0.0001"),
        monthly_min=monthly,
        monthly_max=monthly,
        price_date=price.date,
        price_source=price.source,
    )


def _round(amount: Decimal, step: str) -> Decimal:
    return amount.quantize(Decimal(step), ROUND_HALF_UP)

"""Writes the catalog's prices of nodes in the form that OpenCost's CSV provider reads.

OpenCost's own prices are placeholders ($0.95 for an hour of any GPU), so every node gets a price here.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from neuroscale.catalog import Catalog
from neuroscale.catalog.entries import Accelerator
from neuroscale.catalog.price_list import Price, PriceList
from neuroscale.core.units import GIB
from neuroscale.manifests.pod_resources import quantity

COUNTED: Final = "nvidia.com/gpu"
"""The one extended resource whose hours OpenCost counts; nodes with another are priced by CPU and memory as a whole."""

UNPRICED: Final = "# no price: "
"""How the line begins that names a node for which no list has a price; OpenCost passes over it."""

_NOTHING = Decimal(0)
_LEAST = Decimal("0.000002")  # US dollars for an hour of a GiB: OpenCost writes prices with six decimals
_BY_NAME = "metadata.name"
_BY_LABEL = "kubernetes.io/hostname"


def node_prices(nodes: Iterable[Mapping[str, Any]], catalog: Catalog, lists: tuple[str, ...]) -> str:
    """Two lines for each node, without a head, as OpenCost reads them: an hour of its CPU and memory together, and an
    hour of one accelerator, in US dollars.

    `nodes`: as Kubernetes knows them, with the label `kubernetes.io/hostname`. A node for which no list has a price
    costs next to nothing, because OpenCost would otherwise use a placeholder; a line of comment names it.

    OpenCost 1.108 multiplies the price of an accelerator with the node's number of them, and takes the product for the
    price of one. So the line holds the price divided by that number. It also takes a CPU or GiB that costs nothing for
    an outlier, and then charges a whole hour of the node in any window. So these cost some millionths of a dollar,
    which the node's accelerators cost less.
    """
    cpu_hour, gib_hour = _host_prices(catalog, lists)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for node in nodes:
        name = node["metadata"]["name"]
        labels = node["metadata"].get("labels", {})
        capacity = node["status"]["capacity"]
        found = _priced(labels, capacity, catalog, lists)
        host = device = _NOTHING
        least = _LEAST * (cpu_hour / gib_hour * quantity(capacity["cpu"]) + quantity(capacity["memory"]) / GIB)
        if found is None:
            text.write(f"{UNPRICED}{name}\n")
        else:
            price_list, accelerator, price = found
            host = _host_price(capacity, price_list, price)
            number = int(capacity[accelerator.resource])
            each = price.usd / price.count
            if accelerator.resource == COUNTED:
                device = (each - max(_NOTHING, least - host) / number) / number
            else:
                host += each * number
        writer.writerow(_line("node", _BY_NAME, name, max(host, least)))
        writer.writerow(_line("gpu", _BY_LABEL, name, device))
    return text.getvalue()


def default_prices(catalog: Catalog, lists: tuple[str, ...]) -> str:
    """OpenCost's `default.json`: how it divides a node's price between CPU and memory. All else costs 0."""
    cpu, memory = _host_prices(catalog, lists)
    nothing = ("GPU", "storage", "zoneNetworkEgress", "regionNetworkEgress", "internetNetworkEgress")
    prices = {"CPU": cpu, "spotCPU": cpu, "RAM": memory, "spotRAM": memory, **dict.fromkeys(nothing, _NOTHING)}
    fields = {"provider": "custom", "description": "Prices of platform/catalog/prices"}
    return json.dumps({**fields, **{name: str(price) for name, price in prices.items()}}, indent=2) + "\n"


def _host_prices(catalog: Catalog, lists: tuple[str, ...]) -> tuple[Decimal, Decimal]:
    """US dollars for an hour of a core and of a GiB, from the first list that has both; the least where none has."""
    for one in (catalog.prices[name] for name in lists):
        if one.vcpu_hour and one.memory_gib_hour:
            return one.vcpu_hour, one.memory_gib_hour
    return _LEAST, _LEAST


def _priced(
    labels: Mapping[str, str], capacity: Mapping[str, Any], catalog: Catalog, lists: tuple[str, ...]
) -> tuple[PriceList, Accelerator, Price] | None:
    """The accelerator of a node, and its price where a list has one."""
    for accelerator in catalog.accelerators.values():
        here = accelerator.resource in capacity and accelerator.node_selector.items() <= labels.items()
        if here and accelerator.node_selector:
            found = catalog.price(accelerator.name, max(accelerator.counts), lists)
            return None if found is None else (found[0], accelerator, found[1])
    return None


def _host_price(capacity: Mapping[str, Any], prices: PriceList, price: Price) -> Decimal:
    """What CPU and memory of a node cost an hour beside its accelerators."""
    host = _NOTHING
    if "cpu" not in price.includes:
        host += (price.vcpu_hour or prices.vcpu_hour or _NOTHING) * quantity(capacity["cpu"])
    if "memory" not in price.includes:
        host += (price.memory_gib_hour or prices.memory_gib_hour or _NOTHING) * quantity(capacity["memory"]) / GIB
    return host


def _line(kind: str, field: str, name: str, price: Decimal) -> list[str]:
    """EndTimestamp, InstanceID, Region, AssetClass, InstanceIDField, InstanceType, MarketPriceHourly, Version.

    The type is the node's name: OpenCost charges nodes of one type the price of the first of them.
    """
    return ["", name, "", kind, field, name, format(price, "f"), ""]

"""Reads the instances with accelerators out of an offer file of the AWS Price List for AmazonEC2.

An instance has one price for everything in it, so that a pod costs the whole instance. The offer file names no model
of GPU: the family of the instance tells it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from neuroscale.catalog.price_export import (
    TIERS,
    Export,
    NoPriceError,
    ProviderDocument,
    Unread,
    WantedPrices,
    amount,
    chosen_region,
    day_of,
    name,
    section,
)
from neuroscale.catalog.price_list import Instance, Price
from neuroscale.core.errors import InputError

# https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html
_FAMILIES: Mapping[str, str] = {
    "g4dn": "tesla-t4",
    "g5": "nvidia-a10g",
    "g6": "nvidia-l4",
    "g6e": "nvidia-l40s",
    "p4d": "nvidia-a100-40gb",
    "p4de": "nvidia-a100-80gb",
    "p5": "nvidia-h100-80gb",
    "p5e": "nvidia-h200-141gb",
    "p5en": "nvidia-h200-141gb",
    "p6-b200": "nvidia-b200",
}
# An instance as a node of a Kubernetes cluster has it; a file may lack an attribute. Capacity Blocks, which are paid in
# advance, have 0 as their price on demand, and another operation is another licence.
_PLAIN: Mapping[str, str] = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "operation": "RunInstances",
}


class _File(ProviderDocument):
    offer_code: str
    publication_date: str


class _Attributes(ProviderDocument):
    instance_type: str
    region_code: str
    vcpu: str
    memory: str
    gpu: str


class _Product(ProviderDocument):
    sku: str
    attributes: _Attributes


class _Dimension(ProviderDocument):
    unit: str
    price_per_unit: dict[str, str]


class _Offer(ProviderDocument):
    price_dimensions: dict[str, _Dimension]


def read_offers(value: Mapping[str, Any], where: str, wanted: WantedPrices) -> Export:
    """The prices of instances with accelerators. Raises InputError for a file that is not an offer file of EC2."""
    if wanted.tier != "on-demand":
        message = f"AWS publishes no {wanted.tier} prices in an offer file"
        raise InputError.at(where, "", message, "Leave --tier out.")
    # Without its products and terms, which are hundreds of megabytes and mostly about something else.
    file = section({key: one for key, one in value.items() if not isinstance(one, dict)}, where, "", _File)
    if file.offer_code != "AmazonEC2":
        fix = "Name the offer file of AmazonEC2."
        raise InputError.at(where, "offerCode", f"is {name(file.offer_code)!a}", fix)
    all_products, terms = (_object(value, key, where) for key in ("products", "terms"))
    products = [
        section(one, where, f"products.{name(key)}", _Product)
        for key, one in all_products.items()
        if _with_accelerators(one)
    ]
    region = chosen_region((one.attributes.region_code for one in products), wanted, where)
    prices: list[Price] = []
    unread: list[Unread] = []
    here = [one for one in products if one.attributes.region_code == region]
    for product in here:
        try:
            prices.append(_price(product, terms, where))
        except NoPriceError as error:
            unread.append(Unread(name(product.attributes.instance_type), str(error)))
    keys = [one.key for one in prices]
    twice = {key for key in keys if keys.count(key) > 1}
    unread += [Unread(key[2], "the file has it more than once") for key in sorted(twice)]
    return Export(
        provider="aws",
        region=region,
        tier=wanted.tier,
        date=day_of(file.publication_date, where, "publicationDate"),
        source=f"AWS Price List, offer file of AmazonEC2: {TIERS[wanted.tier]} in {region}, Linux, shared tenancy",
        prices=tuple(one for one in prices if one.key not in twice),
        unread=tuple(unread),
        others=len(all_products) - len(here),
    )


def _object(value: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    found = value.get(key)
    if not isinstance(found, dict):
        raise InputError.at(where, key, "is not an object", "Export the price list again.")
    return found


def _with_accelerators(product: Any) -> bool:
    attributes = product.get("attributes") if isinstance(product, dict) else None
    if not isinstance(attributes, dict) or product.get("productFamily") != "Compute Instance":
        return False
    plain = all(attributes.get(key, value) == value for key, value in _PLAIN.items())
    return plain and attributes.get("gpu") not in (None, "", "0", "NA")


def _price(product: _Product, terms: Mapping[str, Any], where: str) -> Price:
    told = product.attributes
    accelerator = _FAMILIES.get(told.instance_type.partition(".")[0])
    if accelerator is None:
        raise NoPriceError("no accelerator is known by this family")
    memory = re.fullmatch(r"([0-9]{1,3}(?:,?[0-9]{3})*(?:\.[0-9]+)?) GiB", told.memory)
    if memory is None or not all(re.fullmatch(r"[1-9][0-9]{0,3}", one) for one in (told.gpu, told.vcpu)):
        raise NoPriceError(
            f"{name(told.gpu)} GPUs, {name(told.vcpu)} vCPUs and {name(told.memory)} are not an instance's size"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,60}", told.instance_type):
        raise NoPriceError("its name is not one of an instance type")
    return Price(
        accelerator=accelerator,
        count=int(told.gpu),
        unit="instance-hour",
        usd=_hourly(product.sku, terms, where),
        includes=("cpu", "memory"),
        instance=Instance(
            name=told.instance_type, vcpu=int(told.vcpu), memory_gib=Decimal(memory[1].replace(",", "")).normalize()
        ),
        source=f"AmazonEC2, SKU {name(product.sku)}",
    )


def _hourly(sku: str, terms: Mapping[str, Any], where: str) -> Decimal:
    """US dollars an hour on demand. Raises NoPriceError and InputError."""
    demand = terms.get("OnDemand")
    offers = demand.get(sku) if isinstance(demand, dict) else None
    if not isinstance(offers, dict) or not offers:
        raise NoPriceError("the file has no price on demand for it")
    at = f"terms.OnDemand.{name(sku)}"
    found: set[Decimal] = set()
    for code, offer in offers.items():
        for dimension in section(offer, where, f"{at}.{name(code)}", _Offer).price_dimensions.values():
            if dimension.unit != "Hrs":
                raise NoPriceError(f"it is priced by {name(dimension.unit)}, not by hours (Hrs)")
            usd = dimension.price_per_unit.get("USD")
            if usd is None:
                raise NoPriceError(f"its price is in {name(', '.join(dimension.price_per_unit))}, not in USD")
            if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,12})?", usd):
                message = f"{name(usd)!a} is not an amount"
                raise InputError.at(where, f"{at}.{name(code)}", message, "Export the price list again.")
            found.add(Decimal(usd))
    if len(found) != 1:
        raise NoPriceError(f"the file has {len(found)} prices on demand for it")
    return amount(found.pop())

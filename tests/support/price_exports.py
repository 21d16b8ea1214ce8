"""Small exports of price lists in their providers' formats. The amounts are invented."""

from __future__ import annotations

from typing import Any

DAY = "2026-06-20T09:00:00.000Z"


def sku(
    sku_id: str,
    description: str,
    nanos: int,
    *,
    units: str = "0",
    group: str = "GPU",
    unit: str = "h",
    usage: str = "OnDemand",
    regions: tuple[str, ...] = ("us-central1",),
    day: str = DAY,
    service: str = "Compute Engine",
    free: bool = False,
) -> dict[str, Any]:
    """One SKU of Google's Cloud Billing Catalog."""
    price = {"currencyCode": "USD", "units": units, "nanos": nanos}
    rates = [{"startUsageAmount": 0, "unitPrice": price}]
    if free:
        nothing = {"currencyCode": "USD", "units": "0", "nanos": 0}
        rates = [
            {"startUsageAmount": 0, "unitPrice": nothing},
            {"startUsageAmount": 240000, "unitPrice": price},
        ]
    return {
        "name": f"services/6F81-5844-456A/skus/{sku_id}",
        "skuId": sku_id,
        "description": description,
        "category": {
            "serviceDisplayName": service,
            "resourceFamily": "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": rates,
                    "usageUnitDescription": "hour",
                },
                "currencyConversionRate": 1,
                "effectiveTime": day,
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": list(regions)},
    }


def google_skus() -> list[dict[str, Any]]:
    """L4 machines in two regions, H100 machines in one, an unknown GPU, and something without accelerators."""
    return [
        sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", 560_040_000),
        sku("AAAA-0002", "G2 Instance Core running in Iowa", 24_988_000, group="CPU"),
        sku("AAAA-0003", "G2 Instance Ram running in Iowa", 2_927_000, group="RAM", unit="GiBy.h"),
        sku(
            "AAAA-0004",
            "Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa",
            220_000_000,
            usage="Preemptible",
        ),
        sku("BBBB-0001", "Nvidia H100 80GB GPU running in Iowa", 796_000_000, units="9"),
        sku("BBBB-0002", "A3 Instance Core running in Iowa", 29_000_000, group="CPU"),
        sku("BBBB-0003", "A3 Instance Ram running in Iowa", 2_500_000, group="RAM", unit="GiBy.h"),
        sku("CCCC-0001", "Nvidia L4 GPU running in Belgium", 616_000_000, regions=("europe-west1",)),
        sku("DDDD-0001", "Nvidia Tesla K80 GPU running in Iowa", 450_000_000),
        sku("EEEE-0001", "Storage PD Capacity in Iowa", 40_000_000, group="PDStandard", unit="GiBy.mo"),
    ]


def google(*skus: dict[str, Any]) -> dict[str, Any]:
    """An export of the Cloud Billing Catalog: the answer of services/ID/skus."""
    return {"skus": list(skus or google_skus()), "nextPageToken": ""}


def product(sku_id: str, instance: str, gpus: int, vcpu: int, memory: str, **attributes: str) -> dict[str, Any]:
    """One product of an offer file of AmazonEC2."""
    return {
        "sku": sku_id,
        "productFamily": "Compute Instance",
        "attributes": {
            "servicecode": "AmazonEC2",
            "location": "EU (Ireland)",
            "regionCode": "eu-west-1",
            "instanceType": instance,
            "vcpu": str(vcpu),
            "memory": memory,
            "gpu": str(gpus),
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            **attributes,
        },
    }


def offer(sku_id: str, usd: str, unit: str = "Hrs", currency: str = "USD") -> dict[str, Any]:
    """The term of a product on demand."""
    code = f"{sku_id}.JRTCKXETXF"
    return {
        code: {
            "offerTermCode": "JRTCKXETXF",
            "sku": sku_id,
            "effectiveDate": "2026-06-01T00:00:00Z",
            "priceDimensions": {
                f"{code}.6YS6EN2CT7": {
                    "rateCode": f"{code}.6YS6EN2CT7",
                    "unit": unit,
                    "beginRange": "0",
                    "endRange": "Inf",
                    "pricePerUnit": {currency: usd},
                    "appliesTo": [],
                }
            },
            "termAttributes": {},
        }
    }


def aws() -> dict[str, Any]:
    """An offer file: two instances with one L4, one with four, one with eight A100, a family that nobody knows, and
    products that are no nodes with accelerators."""
    products = [
        product("L4XL", "g6.xlarge", 1, 4, "16 GiB"),
        product("L42XL", "g6.2xlarge", 1, 8, "32 GiB"),
        product("L412XL", "g6.12xlarge", 4, 48, "192 GiB"),
        product("P4DE", "p4de.24xlarge", 8, 96, "1,152 GiB"),
        product("ODD", "zz9.xlarge", 1, 4, "16 GiB"),
        product("WIN", "g6.xlarge", 1, 4, "16 GiB", operatingSystem="Windows"),
        product("M7", "m7i.large", 0, 2, "8 GiB"),
    ]
    usd = {"L4XL": "0.9000000000", "L42XL": "1.1000000000", "L412XL": "5.2000000000", "P4DE": "30.4000000000"}
    usd |= {"ODD": "3.0000000000", "WIN": "1.3", "M7": "0.1"}
    return {
        "formatVersion": "v1.0",
        "offerCode": "AmazonEC2",
        "version": "20260615000000",
        "publicationDate": "2026-06-15T20:00:00Z",
        "products": {one["sku"]: one for one in products},
        "terms": {"OnDemand": {one: offer(one, amount) for one, amount in usd.items()}, "Reserved": {}},
    }

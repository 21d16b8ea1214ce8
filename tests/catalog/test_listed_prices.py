"""The price lists of this repository: each price is dated and has a source, and whole instances have their own."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cost_examples import prices
from neuroscale.catalog import Catalog
from neuroscale.catalog.price_list import Instance, Price
from neuroscale.planning.price import pod_price


def test_each_price_has_a_date_and_a_source_that_can_be_looked_up() -> None:
    for price_list in prices().catalog.prices.values():
        for price in price_list.prices:
            source = price.source or price_list.source
            assert any(word in source for word in ("https://", "#", "list price of")), (price_list.name, price.key)
            assert (price.date or price_list.date).year >= 2025


@pytest.mark.parametrize(
    ("price_list", "accelerator", "count", "hourly"),
    [
        ("google-cloud-machines", "nvidia-a100-80gb", 1, "5.0688"),
        ("google-cloud-machines", "nvidia-a100-80gb", 8, "40.5504"),
        ("google-cloud-machines", "nvidia-h200-141gb", 8, "83.492"),
        ("google-cloud-machines", "nvidia-h200-141gb", 1, None),
        ("aws-us-east-1", "nvidia-a100-80gb", 8, "27.44705"),
        ("aws-us-east-1", "nvidia-h100-80gb", 8, "55.04"),
        ("aws-us-east-1", "nvidia-h200-141gb", 8, "63.296"),
        ("aws-us-east-1", "nvidia-h200-141gb", 4, None),
        ("digitalocean", "amd-mi300x", 1, "2.59"),
        ("digitalocean", "amd-mi300x", 8, "20.72"),
    ],
)
def test_a_pod_with_all_accelerators_of_an_instance_costs_the_instance(
    price_list: str, accelerator: str, count: int, hourly: str | None
) -> None:
    found = pod_price(prices().catalog, (price_list,), accelerator, count, 4, 64)
    assert (found and found.hourly) == (hourly and Decimal(hourly))


def catalog_with(*own: Price) -> Catalog:
    """The catalog and a list `own` of these prices; a vCPU costs a dollar in it, and a GiB a cent."""
    known = prices().catalog
    listed = known.prices["google-cloud"].model_copy(
        update={"name": "own", "vcpu_hour": Decimal(1), "memory_gib_hour": Decimal("0.01"), "prices": own}
    )
    return Catalog(known.models, known.accelerators, {**known.prices, "own": listed}, known.runtimes, known.teams)


def l4(usd: str, **instance: Any) -> Price:
    if not instance:
        return Price(accelerator="nvidia-l4", count=1, unit="accelerator-hour", usd=Decimal(usd), includes=())
    return Price(
        accelerator="nvidia-l4",
        count=1,
        unit="instance-hour",
        usd=Decimal(usd),
        includes=("cpu", "memory"),
        instance=Instance(**instance),
    )


def test_the_price_by_which_the_whole_pod_is_cheapest_holds() -> None:
    catalog = catalog_with(l4("0.5"), l4("3", name="g2-standard-16", vcpu=16, memory_gib=Decimal(64)))
    found = pod_price(catalog, ("own",), "nvidia-l4", 1, 8, 32)
    assert found is not None
    assert found.hourly == 3  # and not 0.5 + 8 x 1 + 32 x 0.01
    small = pod_price(catalog, ("own",), "nvidia-l4", 1, 1, 4)
    assert small is not None
    assert small.hourly == Decimal("1.54")

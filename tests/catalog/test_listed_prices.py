"""The price lists of this repository: each price is dated and has a source, and whole instances have their own."""

from __future__ import annotations

from datetime import date
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
        ("aws-us-east-1", "nvidia-b200", 8, "113.9328"),
        ("aws-us-east-1", "nvidia-a100-40gb", 8, "21.957642"),
        ("aws-us-east-1", "nvidia-l40s", 8, "30.13118"),
        ("aws-us-east-1", "nvidia-l40s", 2, None),
        ("google-cloud-machines", "nvidia-a100-40gb", 1, "3.673385"),
        ("google-cloud-machines", "nvidia-a100-40gb", 8, "29.38708"),
        ("google-cloud", "tpu-v5e-1", 1, "1.20"),
        ("google-cloud", "tpu-v5e-8", 8, "9.60"),
        ("digitalocean", "amd-mi300x", 1, "2.59"),
        ("digitalocean", "amd-mi300x", 8, "20.72"),
    ],
)
def test_a_pod_with_all_accelerators_of_an_instance_costs_the_instance(
    price_list: str, accelerator: str, count: int, hourly: str | None
) -> None:
    found = pod_price(prices().catalog, (price_list,), accelerator, count, 4, 64)
    assert (found and found.hourly) == (hourly and Decimal(hourly))


@pytest.mark.parametrize(
    ("accelerator", "cpu", "memory_gib", "instance"),
    [
        ("tesla-t4", 3, 8, "g4dn.xlarge"),
        ("tesla-t4", 4, 8, "g4dn.2xlarge"),
        ("nvidia-a10g", 4, 24, "g5.2xlarge"),
        ("nvidia-l40s", 3, 24, "g6e.xlarge"),
        ("nvidia-l40s", 3, 40, "g6e.2xlarge"),
    ],
)
def test_a_pod_with_one_accelerator_costs_the_smallest_instance_that_holds_it(
    accelerator: str, cpu: int, memory_gib: int, instance: str
) -> None:
    found = pod_price(prices().catalog, ("aws-us-east-1",), accelerator, 1, cpu, memory_gib)
    assert found is not None
    assert (found.instance, found.date) == (instance, date(2026, 8, 26))


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


@pytest.mark.parametrize(
    ("cpu", "memory_gib", "fits"),
    [
        # A node of 4 vCPUs and 16 GiB keeps 0.08 vCPUs and 2.7 GiB, one of 96 and 1,360 GiB 0.31 and 34.06.
        ("3.92", "13.3", True),
        ("3.93", "13", False),
        ("3", "13.4", False),
        ("3.99", "15.9", False),
    ],
)
def test_a_pod_fits_on_an_instance_beside_what_its_node_keeps(cpu: str, memory_gib: str, fits: bool) -> None:
    small = Instance(name="g6.xlarge", vcpu=4, memory_gib=Decimal(16))
    assert small.holds(Decimal(cpu), Decimal(memory_gib)) is fits


def test_a_large_node_keeps_a_small_share() -> None:
    large = Instance(name="a2-ultragpu-8g", vcpu=96, memory_gib=Decimal(1360))
    assert large.holds(Decimal("95.69"), Decimal(1325))
    assert not large.holds(Decimal("95.7"), Decimal(1325))
    assert not large.holds(Decimal("95"), Decimal(1326))

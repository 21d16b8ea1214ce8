"""The price lists of this repository: each price is dated and has a source, and whole instances have their own."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cost_examples import prices
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

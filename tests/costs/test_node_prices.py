"""The catalog's prices as OpenCost reads them."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from typing import Any

import pytest

from neuroscale.costs.node_prices import UNPRICED, default_prices, node_prices
from neuroscale.local.kwok import simulated_nodes
from platform_repository import CATALOG, SETTINGS

LISTS = ("google-cloud",)


def rows(text: str) -> dict[tuple[str, str], list[str]]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {(row[3], row[1]): row for row in csv.reader(lines)}


def node(name: str, **changes: Any) -> dict[str, Any]:
    found = next(one for one in simulated_nodes(SETTINGS, CATALOG, ["dev", "prod"]) if name in one["metadata"]["name"])
    return {**found, "status": {"capacity": {**found["status"]["capacity"], **changes}}}


def test_an_accelerator_costs_its_price_though_opencost_multiplies_it_with_their_number() -> None:
    """OpenCost 1.108 charges per accelerator: the line's price x the node's number of them."""
    number = max(CATALOG.accelerators["nvidia-l4"].counts)
    found = rows(node_prices([node("nvidia-l4")], CATALOG, LISTS))
    assert Decimal(found["gpu", "simulated-nvidia-l4-1"][6]) * number == Decimal("0.72")


def test_a_node_costs_its_cpu_and_memory_where_the_accelerators_price_does_not_include_them() -> None:
    found = rows(node_prices([node("nvidia-l4"), node("nvidia-h100-80gb")], CATALOG, LISTS))
    host, h100, devices = (
        Decimal(found[key][6])
        for key in (
            ("node", "simulated-nvidia-l4-1"),
            ("node", "simulated-nvidia-h100-80gb-1"),
            ("gpu", "simulated-nvidia-h100-80gb-1"),
        )
    )
    # 224 cores at $0.0864 and 2,048 GiB at $0.009
    assert host == Decimal("37.7856")
    # OpenCost charges a whole hour of a node whose CPU costs nothing, so it gets a part of the accelerators' price.
    assert 0 < h100 < Decimal("0.01")
    assert float(h100 + 8 * 8 * devices) == pytest.approx(8 * 10.98)
    assert all(len(line) == 8 for line in found.values())


def test_accelerators_that_opencost_does_not_count_are_in_the_price_of_their_node() -> None:
    found = rows(node_prices([node("tpu-v6e-4")], CATALOG, LISTS))
    assert {key: Decimal(line[6]) for key, line in found.items()} == {
        ("node", "simulated-tpu-v6e-4-1"): Decimal("5.50"),
        ("gpu", "simulated-tpu-v6e-4-1"): 0,
    }


@pytest.mark.parametrize("lists", [LISTS, ()])
def test_a_node_without_a_price_costs_next_to_nothing_and_is_named(lists: tuple[str, ...]) -> None:
    text = node_prices([node("nvidia-h200-141gb")], CATALOG, lists)
    assert f"{UNPRICED}simulated-nvidia-h200-141gb-1" in text.splitlines()
    found = rows(text)
    assert Decimal(found["gpu", "simulated-nvidia-h200-141gb-1"][6]) == 0
    assert 0 < Decimal(found["node", "simulated-nvidia-h200-141gb-1"][6]) < Decimal("0.02")


def test_nodes_of_one_kind_may_have_different_numbers_of_accelerators() -> None:
    one = node("nvidia-l4", **{"nvidia.com/gpu": "1"})
    one["metadata"] = {**one["metadata"], "name": "small"}
    found = rows(node_prices([node("nvidia-l4"), one], CATALOG, LISTS))
    assert Decimal(found["gpu", "small"][6]) == Decimal("0.72")


def test_no_node_has_the_type_of_another_one() -> None:
    """OpenCost charges all nodes of a type the price of the first line of that type."""
    lines = rows(node_prices([node("nvidia-l4"), node("nvidia-h100-80gb")], CATALOG, LISTS))
    assert all(line[5] == line[1] for line in lines.values())


def test_no_placeholder_of_opencost_is_left() -> None:
    found = json.loads(default_prices(CATALOG, LISTS))
    assert (found["CPU"], found["RAM"], found["GPU"], found["storage"]) == ("0.0864", "0.009", "0", "0")
    assert Decimal(json.loads(default_prices(CATALOG, ()))["CPU"]) < Decimal("0.00001")

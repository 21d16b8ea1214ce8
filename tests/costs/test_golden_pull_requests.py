"""Pull requests as people open them, and the change of the bill, worked out by hand.

An L4 costs 0.72 US dollars an hour, a vCPU 0.0864 and a GiB 0.009; an H100 with its CPU and memory 10.98. A month has
730 hours. A replica of the 12B model (L4, 4 vCPUs, 16 GiB): 0.72 + 0.3456 + 0.144 = 1.2096 an hour, 883.008 a month.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from cost_examples import autoscaler, inference_service, pod_spec, prices, repriced, service, workload
from neuroscale.catalog.budgets import Budget, Budgets
from neuroscale.catalog.settings import CostRules
from neuroscale.costs.change import Service, compare
from neuroscale.costs.rules import CenterTotal, judge_costs
from neuroscale.planning.plan import Plan
from report_examples import GEMMA_MOE

TODAY = date(2026, 7, 1)


def served(
    fewest: int = 1, most: int = 1, *, memory: str = "16Gi", node: str = "nvidia-l4", team: str = "search"
) -> dict[str, Any]:
    """An InferenceService with one GPU and 4 vCPUs."""
    pod = pod_spec(gpu=1, cpu=4, memory=memory) | {"nodeSelector": {"cloud.google.com/gke-accelerator": node}}
    value = inference_service({**pod, "minReplicas": fewest, "maxReplicas": most})
    value["metadata"]["labels"] = {"cost-center": f"cc-{team}"}
    value["metadata"]["namespace"] = f"team-{team}"
    return value


def scaled(most: int) -> tuple[dict[str, Any], ...]:
    """A Deployment of the same pods with KEDA's autoscaler from one replica to `most`."""
    return workload(replicas=1), autoscaler("ScaledObject", "chat", minReplicaCount=1, maxReplicaCount=most)


def plan(tokens_per_second: float) -> Plan:
    """A plan for one L4 with this speed for one user."""
    resources = GEMMA_MOE.resources.model_copy(update={"accelerator_resource": "nvidia.com/gpu"})
    speed = GEMMA_MOE.speed.model_copy(update={"decode_tokens_per_second": tokens_per_second})
    return GEMMA_MOE.model_copy(
        update={"resources": resources, "speed": speed, "accelerator": "nvidia-l4", "accelerator_count": 1}
    )


@dataclass(frozen=True)
class Money:
    """US dollars a month: with the fewest replicas, and with the most."""

    past: tuple[str, str]
    new: tuple[str, str]
    difference: tuple[str, str]
    centers: tuple[tuple[str, str], ...]


NOTHING = ("0.00", "0.00")
GOLDEN: dict[str, tuple[Service, Money]] = {
    # 883.008 x 1 and x 3 = 2649.024
    "new service": (
        service((), (served(1, 3),)),
        Money(NOTHING, ("883.01", "2649.02"), ("883.01", "2649.02"), (("cc-search", "2649.02"),)),
    ),
    # 10.98 x 730 = 8015.40; 8015.40 - 883.01 = 7132.39
    "bigger accelerator": (
        service((served(),), (served(node="nvidia-h100-80gb"),)),
        Money(("883.01",) * 2, ("8015.40",) * 2, ("7132.39",) * 2, (("cc-search", "7132.39"),)),
    ),
    # 883.008 x 2 = 1766.016, x 3 = 2649.024, x 4 = 3532.032
    "replicas up": (
        service((served(1, 3),), (served(2, 4),)),
        Money(("883.01", "2649.02"), ("1766.02", "3532.03"), ("883.01", "883.01"), (("cc-search", "883.01"),)),
    ),
    # 26B in place of 12B: 16 GiB more. 0.72 + 0.3456 + 0.288 = 1.3536; x 730 = 988.128
    "model swapped": (
        service((served(),), (served(memory="32Gi"),)),
        Money(("883.01",) * 2, ("988.13",) * 2, ("105.12",) * 2, (("cc-search", "105.12"),)),
    ),
    "service removed": (
        service((served(1, 3),), ()),
        Money(("883.01", "2649.02"), NOTHING, ("-883.01", "-2649.02"), (("cc-search", "-2649.02"),)),
    ),
    "team moved": (
        service((served(1, 3),), (served(1, 3, team="support"),)),
        Money(
            ("883.01", "2649.02"),
            ("883.01", "2649.02"),
            NOTHING,
            (("cc-search", "-2649.02"), ("cc-support", "2649.02")),
        ),
    ),
    # 883.008 x 10 = 8830.08; 8830.08 - 2649.02 = 6181.06
    "autoscaler raised": (
        service(scaled(3), scaled(10)),
        Money(("883.01", "2649.02"), ("883.01", "8830.08"), ("0.00", "6181.06"), (("cc-ml-inference", "6181.06"),)),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_change_of_the_bill_is_what_a_person_works_out(name: str) -> None:
    change, money = GOLDEN[name]
    cost = compare([change], prices(), prices(), TODAY)
    assert cost is not None
    (row,) = cost.services
    for found, expected in ((row.past, money.past), (row.new, money.new), (row.difference, money.difference)):
        assert found is not None
        assert (str(found.min), str(found.max)) == expected
    assert cost.total.difference == row.difference
    assert tuple((one.cost_center, str(one.difference.max)) for one in cost.cost_centers) == money.centers
    assert cost.unpriced == ()


def test_a_price_changed_in_the_catalog_alone_is_no_change_of_what_runs_and_warns_of_its_budget() -> None:
    same = service((served(),), (served(),))
    assert compare([same], repriced("nvidia-l4", "0.80"), prices(), TODAY) is None
    # 0.80 + 0.3456 + 0.144 = 1.2896; x 730 = 941.408, against a budget of 900.
    budget = Budget(cost_center="cc-search", monthly_usd=Decimal(900), owner="ann")
    budgets = Budgets({"cc-search": budget}, {}, {"cc-search": "budgets/cc-search.yaml"})
    totals = {"cc-search": CenterTotal(past=Decimal("883.01"), new=Decimal("941.41"), by_prices=True)}
    (found,) = judge_costs(None, totals, CostRules(over_budget="block"), budgets, TODAY, 90)
    assert (found.level, "941.41 USD a month" in found.message) == ("warn", True)


def test_a_price_changed_with_a_service_counts_at_both_prices() -> None:
    change = service((served(),), (served(2, 2),))
    cost = compare([change], repriced("nvidia-l4", "0.80"), prices(), TODAY)
    assert cost is not None
    # 1.2896 x 730 = 941.408 and x 2 = 1882.816, at the new price; 883.01 more at the old one.
    assert (str(cost.total.past.max), str(cost.total.new.max)) == ("941.41", "1882.82")
    assert cost.prices_altered
    assert cost.at_base_prices is not None
    assert str(cost.at_base_prices.difference.max) == "883.01"


@pytest.mark.parametrize(
    ("memory", "speed", "hourly", "per_million"),
    [
        # Cloud Run: 4 x 0.000024 + 16 x 0.0000025 + 0.0002 = 0.000336 a second; / 80 x 10^6 = 4.20.
        ("16Gi", 80.0, "1.2096", "4.20"),
        # 4 x 0.000024 + 32 x 0.0000025 + 0.0002 = 0.000376 a second; / 61.67 x 10^6 = 6.097.
        ("32Gi", 61.67, "1.3536", "6.10"),
    ],
    ids=["12B QAT at 80 tokens/s", "26B QAT at 61.67 tokens/s"],
)
def test_gemma_on_an_l4_costs_what_was_published_of_it(
    memory: str, speed: float, hourly: str, per_million: str
) -> None:
    """1.21 dollars an hour and 4.20 a million tokens; 1.35 and 6.10 with 32 GiB."""
    change = service((), (served(memory=memory),), plan=plan(speed))
    cost = compare([change], prices(), prices(), TODAY)
    assert cost is not None
    (row,) = cost.services
    assert str(row.workloads[0].hourly) == hourly
    assert row.output_tokens is not None
    assert str(row.output_tokens.usd_per_million) == per_million

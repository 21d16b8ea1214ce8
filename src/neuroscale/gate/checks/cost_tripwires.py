"""Holds known-bad changes of the bill for each rule on cost: every run of the cost check must refuse them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from neuroscale.catalog.budgets import Budget, Budgets, Rule
from neuroscale.catalog.settings import CostRules, LargeChange
from neuroscale.costs.bill import CostChange, PriceListUsed, Range, ServiceCost, Totals, UnpricedItem
from neuroscale.costs.rules import CenterTotal

_NAME = "tripwire"


@dataclass(frozen=True)
class CostTripwire:
    """A change that `rule` must refuse by these rules, budgets and totals."""

    rule: Rule
    cost: CostChange
    rules: CostRules
    totals: Mapping[str, CenterTotal] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=lambda: Budgets({}, {}, {}))


def cost_tripwires(today: date) -> tuple[CostTripwire, ...]:
    """One for each way in which a rule finds a change."""
    item = UnpricedItem(environment=_NAME, service=_NAME, subject="Pod", reason="no price", side="after")
    old = PriceListUsed(name=_NAME, date=today, region="", tier="", source="", old=True)
    ahead = old.model_copy(update={"old": False, "ahead": True})
    budget = Budget(cost_center=_NAME, monthly_usd=Decimal("99.99"), owner=_NAME)
    dollars, percent = (
        CostRules(large_change=LargeChange.model_validate({"level": "block", **threshold}))
        for threshold in ({"usd_a_month": Decimal(99)}, {"percent": 9})
    )
    return (
        CostTripwire(
            "over-budget",
            _change(),
            CostRules(over_budget="block"),
            {_NAME: CenterTotal(Decimal(0), Decimal(100))},
            Budgets({_NAME: budget}, {}, {_NAME: _NAME}),
        ),
        CostTripwire("without-price", _change(unpriced=item), CostRules(without_price="block")),
        CostTripwire("stale-price", _change(prices=old), CostRules(stale_price="block")),
        CostTripwire("stale-price", _change(prices=ahead), CostRules(stale_price="block")),
        CostTripwire("large-change", _change(_service(0, 100)), dollars),
        CostTripwire("large-change", _change(_service(100, 0)), dollars),
        CostTripwire("large-change", _change(_service(0, 50, "a"), _service(0, 50, "b")), dollars),
        CostTripwire("large-change", _change(_service(0, None), unpriced=item), dollars),
        CostTripwire("large-change", _change(_service(100, 110)), percent),
        CostTripwire("large-change", _change(_service(100, 90)), percent),
    )


def _service(past: int, new: int | None, name: str = _NAME) -> ServiceCost:
    """A service that costs so many US dollars a month; None is not known."""
    before, after = (None if usd is None else Range(min=Decimal(usd), max=Decimal(usd)) for usd in (past, new))
    difference = None if new is None else Range(min=Decimal(new - past), max=Decimal(new - past))
    return ServiceCost(
        environment=_NAME,
        name=name,
        change="changed",
        past=before,
        new=after,
        difference=difference,
        partly=new is None,
        workloads_before=(),
        workloads=(),
    )


def _change(
    *services: ServiceCost, unpriced: UnpricedItem | None = None, prices: PriceListUsed | None = None
) -> CostChange:
    nothing = Range(min=Decimal(0), max=Decimal(0))
    return CostChange(
        total=Totals(past=nothing, new=nothing, difference=nothing),
        left_out=0,
        services=services,
        cost_centers=(),
        unpriced=(unpriced,) if unpriced else (),
        price_lists=(prices,) if prices else (),
        prices_altered=False,
        at_base_prices=None,
    )

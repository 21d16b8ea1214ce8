"""Known-bad changes of the bill, one for each rule on cost: every run of the cost check must refuse them."""

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
    """One for each rule."""
    item = UnpricedItem(environment=_NAME, service=_NAME, subject="Pod", reason="no price", side="after")
    old = PriceListUsed(name=_NAME, date=today, region="", tier="", source="", old=True)
    budget = Budget(cost_center=_NAME, monthly_usd=Decimal("99.99"), owner=_NAME)
    large = LargeChange(level="block", usd_a_month=Decimal(99))
    return (
        CostTripwire(
            "over-budget",
            _change(),
            CostRules(over_budget="block"),
            {_NAME: CenterTotal(Decimal(0), Decimal(100))},
            Budgets({_NAME: budget}, {}, {_NAME: _NAME}),
        ),
        CostTripwire("without-price", _change(item), CostRules(without_price="block")),
        CostTripwire("stale-price", _change(old), CostRules(stale_price="block")),
        CostTripwire("large-change", _change(), CostRules(large_change=large)),
    )


def _change(one: UnpricedItem | PriceListUsed | None = None) -> CostChange:
    """A service of 100 US dollars a month that is added."""
    past, new = (Range(min=Decimal(usd), max=Decimal(usd)) for usd in (0, 100))
    service = ServiceCost(
        environment=_NAME,
        name=_NAME,
        change="added",
        past=past,
        new=new,
        difference=new,
        partly=False,
        workloads_before=(),
        workloads=(),
    )
    return CostChange(
        total=Totals(past=past, new=new, difference=new),
        left_out=0,
        services=(service,),
        cost_centers=(),
        unpriced=(one,) if isinstance(one, UnpricedItem) else (),
        price_lists=(one,) if isinstance(one, PriceListUsed) else (),
        prices_altered=False,
        at_base_prices=None,
    )

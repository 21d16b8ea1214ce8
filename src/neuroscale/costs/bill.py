"""Holds the change of the bill for the verdict and its reports. Amounts are US dollars, decimals as text."""

from __future__ import annotations

from datetime import date
from typing import Literal

from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import Money


class Range(Frozen):
    """US dollars a month of 730 hours: with the fewest replicas and with the most. A fall is negative."""

    min: Money
    max: Money


class WorkloadCost(Frozen):
    """Pods that start and stop together, at the prices of the merge result.

    `accelerators` (of the kind `accelerator`, "" without one), `cpu` in cores, `memory_gib` in GiB (2^30 bytes) and
    `hourly` in US dollars are about one replica.
    """

    subject: str
    cost_center: str
    replicas_min: int
    replicas_max: int
    accelerator: str
    accelerators: int
    cpu: Money
    memory_gib: Money
    hourly: Money
    monthly: Range
    price_lists: tuple[str, ...]


class TokenPrice(Frozen):
    """An estimate: US dollars for a million output tokens while `users` keep each replica busy without a pause.

    `tokens_per_second` is the speed of one replica that the service's plan expects at the asked load. Plans from before
    planner 3.0.0 expect one of one user on an idle replica (`users` is None).
    """

    usd_per_million: Money
    tokens_per_second: Money
    users: int | None = None


class ServiceCost(Frozen):
    """Past, new and the difference of one service; `environment` is "" for a file outside all environments.

    None stands for an unknown amount. `partly`: the amounts leave out parts of the service without a price (see the
    verdict's `unpriced`). `output_tokens` is None if no plan of the service gives its speed.
    """

    environment: str
    name: str
    change: Literal["added", "changed", "removed"]
    past: Range | None
    new: Range | None
    difference: Range | None
    partly: bool
    workloads_before: tuple[WorkloadCost, ...]
    workloads: tuple[WorkloadCost, ...]
    output_tokens: TokenPrice | None = None


class CenterCost(Frozen):
    """The share of one cost centre in those services of the change whose difference is known."""

    cost_center: str
    past: Range
    new: Range
    difference: Range


class Totals(Frozen):
    """Past, new and difference of several services together."""

    past: Range
    new: Range
    difference: Range


class UnpricedItem(Frozen):
    """An item that no amount counts, with the reason. `side`: whether it exists before the change, or after it."""

    environment: str
    service: str
    subject: str
    reason: str
    side: Literal["before", "after", "both"]


class PriceListUsed(Frozen):
    """A price list that amounts come from. `date` and `source`: those of the prices used, the date of the oldest of
    them; or the date of the newest if it lies in the future. `old`: it is more than 90 days ago. `ahead`: it lies in
    the future, so nobody can say how old the prices are."""

    name: str
    date: date
    region: str
    tier: str
    source: str
    old: bool
    ahead: bool = False  # a base's gate may be too old to write it


class BudgetUse(Frozen):
    """The cost of all services of a cost centre, a month with the most replicas, after the change; and its budget.

    `unknown` counts the services whose cost is not in the amount.
    """

    cost_center: str
    monthly: Money
    budget: Money
    unknown: int


class CostChange(Frozen):
    """The change of the monthly cost, computed from the manifests of base and merge result.

    Both sides are priced with the prices of the merge result. `total` and `cost_centers` cover the services whose
    difference is known; `left_out` counts the others. `prices_altered`: the change alters prices or accelerators of
    the catalog; `at_base_prices` is then the total at the prices before (None if those cannot be read). `budgets`:
    those of the cost centres of the change.
    """

    hours_per_month: Literal[730] = 730
    total: Totals
    left_out: int
    services: tuple[ServiceCost, ...]
    cost_centers: tuple[CenterCost, ...]
    unpriced: tuple[UnpricedItem, ...]
    price_lists: tuple[PriceListUsed, ...]
    prices_altered: bool
    at_base_prices: Totals | None
    budgets: tuple[BudgetUse, ...] = ()

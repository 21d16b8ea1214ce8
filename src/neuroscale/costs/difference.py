"""Compares base and merge result: computes how a change alters the monthly bill of the services that it touches.

Describes the platform's own programs as a service of each environment, so that they are priced as services are.

They are charged to no team: their cost centre is `OWN`, which has no budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Literal

from neuroscale.catalog.settings import Settings
from neuroscale.catalog.staleness import OLDEST_PRICE_DAYS, in_the_future
from neuroscale.costs.bill import (
    CenterCost,
    CostChange,
    PriceListUsed,
    Range,
    ServiceCost,
    TokenPrice,
    Totals,
    UnpricedItem,
    WorkloadCost,
)
from neuroscale.costs.pricing import Prices, Used, price_workload
from neuroscale.manifests.objects import COST_CENTER
from neuroscale.manifests.workloads import Unpriced, read_workloads
from neuroscale.planning.plan import Plan
from neuroscale.rendering.platform.chart_pods import platform_pods
from neuroscale.repo.snapshot import Snapshot

PRICES_ARE_OLD_AFTER = timedelta(days=OLDEST_PRICE_DAYS)

_NOTHING = Decimal("0.00")
_SECONDS_AN_HOUR = 3600
_MILLION = 10**6


@dataclass(frozen=True)
class Side:
    """A service before or after a change."""

    objects: tuple[Mapping[str, Any], ...] = ()
    unreadable: tuple[Unpriced, ...] = ()  # the files that could not be read, each with the reason
    empty: bool = False  # whether the service does not exist
    runtimes: tuple[Mapping[str, Any], ...] = ()  # the known serving runtimes beside its own


@dataclass(frozen=True)
class ChangedService:
    """A service that a change touches."""

    environment: str
    name: str
    before: Side
    after: Side
    plan: Plan | None = None  # after the change, if it can be read


@dataclass(frozen=True)
class Priced:
    """The cost of one side of a service, and the prices used."""

    workloads: tuple[WorkloadCost, ...]  # the pods with a price
    unpriced: tuple[Unpriced, ...]  # the parts without one
    used: frozenset[Used] = field(compare=False)

    @property
    def decisive(self) -> Counter[tuple[str, str]]:
        return Counter((part.subject, part.content) for part in self.unpriced if part.decisive)


@dataclass(frozen=True)
class _Compared:
    service: ChangedService
    before: Priced
    after: Priced

    @property
    def known(self) -> bool:
        """Whether the difference is known: pods without a price must be the same on both sides, and so cancel out."""
        return self.before.decisive == self.after.decisive


def compare(
    services: Iterable[ChangedService], prices: Prices, prices_before: Prices | None, today: date
) -> CostChange | None:
    """The cost of the change; None if the change alters nothing that costs anything.

    Both sides are priced with `prices`, the prices of the merge result; if these have a `base`, the side before the
    change is by the base alone. `prices_before`: the prices of the base, if they can be read.
    """
    services = list(services)
    compared = list(_differing(services, prices))
    if not compared:
        return None
    altered = prices_before is None or not prices.same_as(prices_before)
    at_base = None
    if altered and prices_before is not None:
        touched = [comparison.service for comparison in compared]
        at_base = _totals([comparison for comparison in _compared(touched, prices_before) if comparison.known])
    known = [comparison for comparison in compared if comparison.known]
    return CostChange(
        total=_totals(known),
        left_out=len(compared) - len(known),
        services=tuple(sorted(map(_service_cost, compared), key=lambda cost: (cost.environment, cost.name))),
        cost_centers=tuple(_centers(known)),
        unpriced=tuple(item for comparison in compared for item in _items(comparison)),
        price_lists=tuple(_price_lists(compared, prices, today)),
        prices_altered=altered,
        at_base_prices=at_base,
    )


def price_side(side: Side, environment: str, prices: Prices) -> tuple[tuple[WorkloadCost, ...], bool]:
    """The cost of one side of a service, and whether it is complete: all pods have a price."""
    cost = priced(side, environment, prices)
    return cost.workloads, not cost.decisive


def _compared(services: Iterable[ChangedService], prices: Prices) -> list[_Compared]:
    return [
        _Compared(
            service,
            priced(service.before, service.environment, prices),
            priced(service.after, service.environment, prices),
        )
        for service in services
    ]


def _differing(services: Iterable[ChangedService], prices: Prices) -> Iterator[_Compared]:
    """The services whose pods differ by the catalog and the settings of any side, priced as `compare` says.

    A changed catalog may take one accelerator for another, so that both sides of a service look alike.
    """
    for service in services:
        sides = [_compared([service], side)[0] for side in prices.sides]
        if not any(compared.before != compared.after for compared in sides):
            continue
        if prices.base is None:
            yield sides[0]
        else:
            yield _Compared(service, sides[0].before, priced(service.after, service.environment, prices))


def priced(side: Side, environment: str, prices: Prices) -> Priced:
    """The cost of one side of a service."""
    workloads_read = read_workloads(side.objects, side.runtimes)
    workloads: list[WorkloadCost] = []
    unpriced = [*side.unreadable, *workloads_read.unpriced]
    used: set[Used] = set()
    for workload in workloads_read.priced:
        try:
            cost, missing, bases = price_workload(workload, environment, prices)
        except ValueError as error:
            content = repr((workload.cost_center, workload.pods, workload.bounds))
            unpriced.append(Unpriced(workload.subject, str(error), decisive=True, content=content))
        else:
            workloads.append(cost)
            unpriced += missing
            used |= bases
    workloads.sort(key=_order)
    unpriced.sort(key=lambda part: (part.subject, part.reason, part.content))
    return Priced(tuple(workloads), tuple(unpriced), frozenset(used))


def _order(cost: WorkloadCost) -> tuple[object, ...]:
    """Every field that objects decide: two objects of one name and price may still differ in their requests."""
    pods = (cost.accelerator, cost.accelerators, cost.cpu, cost.memory_gib, cost.monthly.min, cost.monthly.max)
    return cost.subject, cost.cost_center, cost.hourly, cost.replicas_min, cost.replicas_max, *pods, cost.price_lists


def _service_cost(compared: _Compared) -> ServiceCost:
    service, before, after = compared.service, compared.before, compared.after
    past = None if _hidden(compared, before) else _sum(before.workloads)
    new = None if _hidden(compared, after) else _sum(after.workloads)
    change: Literal["added", "changed", "removed"] = (
        "removed" if service.after.empty else "added" if service.before.empty else "changed"
    )
    return ServiceCost(
        environment=service.environment,
        name=service.name,
        change=change,
        past=past,
        new=new,
        difference=_minus(new, past) if compared.known and past is not None and new is not None else None,
        partly=bool(before.unpriced or after.unpriced),
        workloads_before=before.workloads,
        workloads=after.workloads,
        output_tokens=_output_tokens(after.workloads, service.plan),
    )


def _hidden(compared: _Compared, side: Priced) -> bool:
    """Whether an amount for this side would be meaningless, since none of its pods has a price."""
    return not compared.known and not side.workloads and bool(side.decisive)


def _output_tokens(workloads: Sequence[WorkloadCost], plan: Plan | None) -> TokenPrice | None:
    """The price of a million output tokens at the speed that the plan expects for exactly these pods."""
    if plan is None or plan.verdict == "refused" or len(workloads) != 1:
        return None
    rates = plan.load.tokens_per_second if plan.load else None
    expected = rates.replica.value if rates else None if plan.load else plan.speed.decode_tokens_per_second
    if not expected:
        return None
    pods = workloads[0]
    device = plan.accelerator if plan.resources.accelerator_resource else ""
    count = plan.accelerator_count if device else 0
    if (pods.accelerator, pods.accelerators) != (device, count):
        return None
    speed = Decimal(repr(expected))
    price = (pods.hourly * _MILLION / (speed * _SECONDS_AN_HOUR)).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return TokenPrice(
        usd_per_million=price, tokens_per_second=speed, users=plan.load.replica_users if plan.load else None
    )


def _totals(known: Sequence[_Compared]) -> Totals:
    past = _sum([workload for service in known for workload in service.before.workloads])
    new = _sum([workload for service in known for workload in service.after.workloads])
    return Totals(past=past, new=new, difference=_minus(new, past))


def _centers(known: Sequence[_Compared]) -> list[CenterCost]:
    before = [workload for service in known for workload in service.before.workloads]
    after = [workload for service in known for workload in service.after.workloads]
    rows = []
    for center in sorted({workload.cost_center for workload in (*before, *after)}):
        past, new = (
            _sum([workload for workload in side if workload.cost_center == center]) for side in (before, after)
        )
        rows.append(CenterCost(cost_center=center, past=past, new=new, difference=_minus(new, past)))
    return rows


def _sum(workloads: Iterable[WorkloadCost]) -> Range:
    monthly = [workload.monthly for workload in workloads]
    return Range(
        min=sum((amount.min for amount in monthly), _NOTHING), max=sum((amount.max for amount in monthly), _NOTHING)
    )


def _minus(minuend: Range, subtrahend: Range) -> Range:
    return Range(min=minuend.min - subtrahend.min, max=minuend.max - subtrahend.max)


def _items(compared: _Compared) -> list[UnpricedItem]:
    """The items without a price, each of them once."""
    before, after = (
        {(part.subject, part.reason) for part in side.unpriced} for side in (compared.before, compared.after)
    )
    items = []
    for subject, reason in sorted(before | after):
        was, stays = (subject, reason) in before, (subject, reason) in after
        side: Literal["before", "after", "both"] = "both" if was and stays else "after" if stays else "before"
        items.append(
            UnpricedItem(
                environment=compared.service.environment,
                service=compared.service.name,
                subject=subject,
                reason=reason,
                side=side,
            )
        )
    return items


def _price_lists(compared: Iterable[_Compared], prices: Prices, today: date) -> list[PriceListUsed]:
    """The price lists that any amount comes from, the oldest first: each with the date of its oldest price that is
    used, and with the sources of those that are."""
    used = sorted({basis for service in compared for side in (service.before, service.after) for basis in side.used})
    rows = []
    for name in {basis.price_list for basis in used}:
        bases = [basis for basis in used if basis.price_list == name]
        oldest, newest = min(basis.date for basis in bases), max(basis.date for basis in bases)
        ahead = in_the_future(newest, today)
        rows.append(
            PriceListUsed(
                name=name,
                date=newest if ahead else oldest,
                region=prices.price_list(name).region,
                tier=prices.price_list(name).tier,
                source="; ".join(dict.fromkeys(basis.source for basis in bases)),
                old=today - oldest > PRICES_ARE_OLD_AFTER,
                ahead=ahead,
            )
        )
    return sorted(rows, key=lambda row: (row.date, row.name))


OWN = "(the platform's own)"
"""The cost centre of the platform's programs."""
NAME = "(platform)"
"""The name of the platform's programs among the services of an environment."""


def platform_side(snapshot: Snapshot, settings: Settings, environment: str) -> Side:
    """The platform's programs in an environment; empty where `neuroscale local up` runs them. Raises InputError."""
    known = settings.environments.get(environment)
    if known is None or known.cluster == "local":
        return Side(empty=True)
    pods = platform_pods(snapshot, settings, environment)
    objects = tuple({**pod, "metadata": {**pod["metadata"], "labels": {COST_CENTER: OWN}}} for pod in pods.objects)
    unknown = tuple(Unpriced(f"chart {chart.name}", chart.reason, True, chart.content) for chart in pods.unknown)
    return Side(objects=objects, unreadable=unknown)

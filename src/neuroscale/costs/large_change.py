"""Finds large changes of the bill: of one service, of all services of a change together, and of an unknown size."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from neuroscale.catalog.settings import LargeChange
from neuroscale.core.plurals import counted
from neuroscale.costs.bill import CostChange, ServiceCost, WorkloadCost
from neuroscale.costs.platform import NAME
from neuroscale.manifests.workloads import NO_BOUND
from neuroscale.rendering.platform.chart_pods import FILE as CHART_PODS
from neuroscale.repo.layout import MANIFESTS

_NAMED = 3
_FIX = "Make sure that it is meant; an exception from large-change lifts this for the service."
_FIX_UNKNOWN = (
    "Give all its pods a price and a highest number; an exception from large-change lifts this for the service."
)
_FIX_TOGETHER = "Make sure that it is meant; an exception from large-change takes its service out of the sum."


class Large(NamedTuple):
    """A large change: of the service `subject` (`ENVIRONMENT/SERVICE`), or of several together ("")."""

    subject: str
    file: str
    message: str
    fix: str


def large_changes(
    cost: CostChange, rule: LargeChange, excepted: Collection[str], unpriced_environments: Collection[str]
) -> Iterator[Large]:
    """The large changes. Where the rule blocks, a change of unknown size is one.

    `excepted`: services that an exception covers; they do not count in the sum. In `unpriced_environments` nothing has
    a price on purpose, so nothing is unknown there. The platform's own programs are judged by what has a price:
    upstream's charts request nothing for many of them.
    """
    if rule.level == "off":
        return
    together: list[tuple[ServiceCost, Decimal]] = []
    for service in cost.services:
        name = _name(service)
        is_known = service.difference is not None and not _unbounded(cost, service)
        difference = _difference(service)
        reason = _alone(service, difference, rule, is_known)
        if reason:
            file = CHART_PODS if service.name == NAME else f"{MANIFESTS}/{name}"
            yield Large(name, file, f"{name} {reason}", _FIX)
            continue
        is_priced_there = service.name != NAME and service.environment not in unpriced_environments
        if not is_known and is_priced_there and rule.level == "block":
            yield Large(name, f"{MANIFESTS}/{name}", f"{name} {_why_unknown(cost, service)}", _FIX_UNKNOWN)
            continue
        if name not in excepted:
            together.append((service, difference))
    total = sum((difference for _, difference in together), Decimal(0))
    if rule.usd_a_month is not None and abs(total) > rule.usd_a_month:
        yield Large("", MANIFESTS, _told_together(together, total, rule.usd_a_month), _FIX_TOGETHER)


def without_a_bill_before(cost: CostChange, rule: LargeChange) -> list[str]:
    """The services that cost nothing before the change, and that no threshold judges: a percentage of nothing says
    nothing."""
    if rule.level == "off" or rule.usd_a_month is not None:
        return []
    return [_name(one) for one in cost.services if _difference(one) > 0 and not _most(one.workloads_before)]


def _alone(service: ServiceCost, difference: Decimal, rule: LargeChange, is_known: bool) -> str:
    past = service.past.max if service.past else _most(service.workloads_before)
    parts = "" if is_known else ", not counting the parts without a known cost"
    words = f"changes the bill by {difference:+,.2f} USD a month with the most replicas{parts}"
    if rule.usd_a_month is not None and abs(difference) > rule.usd_a_month:
        return f"{words}, more than {rule.usd_a_month:,.2f}"
    if rule.percent is not None and past and abs(difference) * 100 > past * rule.percent:
        return f"{words}, more than {rule.percent} % of {past:,.2f}"
    return ""


def _difference(service: ServiceCost) -> Decimal:
    """US dollars a month with the most replicas. If a part has no price, the rise of the others: a fall may mean only
    that something lost its price."""
    if service.difference is not None:
        return service.difference.max
    return max(_most(service.workloads) - _most(service.workloads_before), Decimal(0))


def _most(workloads: Sequence[WorkloadCost]) -> Decimal:
    return sum((one.monthly.max for one in workloads), Decimal(0))


def _unbounded(cost: CostChange, service: ServiceCost) -> bool:
    key = (service.environment, service.name)
    return any(
        (one.environment, one.service) == key and one.reason == NO_BOUND and one.side != "before"
        for one in cost.unpriced
    )


def _why_unknown(cost: CostChange, service: ServiceCost) -> str:
    key = (service.environment, service.name)
    told = [f"{one.subject}: {one.reason}" for one in cost.unpriced if (one.environment, one.service) == key]
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return f"changes the bill by an amount that is not known ({'; '.join(told[:_NAMED])}{more})"


def _told_together(together: Sequence[tuple[ServiceCost, Decimal]], total: Decimal, usd: Decimal) -> str:
    largest = sorted(together, key=lambda one: (-abs(one[1]), _name(one[0])))[:_NAMED]
    names = ", ".join(f"{_name(service)} {difference:+,.2f}" for service, difference in largest)
    return (
        f"{counted(len(together), 'service')} together change the bill by {total:+,.2f} USD a month with the most "
        f"replicas, more than {usd:,.2f}; the largest: {names}"
    )


def _name(service: ServiceCost) -> str:
    return "/".join(filter(None, (service.environment, service.name)))

"""Judges how a change alters the bill, by the rules on cost: budgets, thresholds and the age of prices.

Finds large changes of the bill: of one service, of all services of a change together, and of an unknown size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import NamedTuple

from neuroscale.catalog.budgets import Budget, Budgets, CostException
from neuroscale.catalog.settings import CostRules, LargeChange, Level
from neuroscale.core.money_and_time import amount, usd
from neuroscale.core.printable import counted, first_of
from neuroscale.costs.bill import CostChange, ServiceCost, WorkloadCost
from neuroscale.costs.difference import NAME
from neuroscale.manifests.workloads import NO_BOUND
from neuroscale.rendering.platform.chart_pods import WORKLOADS_FILE as CHART_PODS
from neuroscale.repo.layout import BUDGETS, CATALOG, MANIFESTS
from neuroscale.request.service_request import fault_of

_NAMED = 3
_FIX = "Make sure that it is meant; an exception from large-change lifts this for the service."
_FIX_UNKNOWN = (
    "Give all its pods a price and a highest number; an exception from large-change lifts this for the service."
)
_FIX_TOGETHER = "Make sure that it is meant; an exception from large-change takes its service out of the sum."


class Large(NamedTuple):
    """A large change of a service, or of several together."""

    subject: str  # ENVIRONMENT/SERVICE, or "" for several
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
    return [
        _name(service) for service in cost.services if _difference(service) > 0 and not _most(service.workloads_before)
    ]


def _alone(service: ServiceCost, difference: Decimal, rule: LargeChange, is_known: bool) -> str:
    past = service.past.max if service.past else _most(service.workloads_before)
    parts = "" if is_known else ", not counting the parts without a known cost"
    words = f"changes the bill by {usd(difference, signed=True)} a month with the most replicas{parts}"
    if rule.usd_a_month is not None and abs(difference) > rule.usd_a_month:
        return f"{words}, more than {usd(rule.usd_a_month)}"
    if rule.percent is not None and past and abs(difference) * 100 > past * rule.percent:
        return f"{words}, more than {rule.percent} % of {usd(past)}"
    return ""


def _difference(service: ServiceCost) -> Decimal:
    """US dollars a month with the most replicas. If a part has no price, the rise of the others: a fall may mean only
    that something lost its price."""
    if service.difference is not None:
        return service.difference.max
    return max(_most(service.workloads) - _most(service.workloads_before), Decimal(0))


def _most(workloads: Sequence[WorkloadCost]) -> Decimal:
    return sum((workload.monthly.max for workload in workloads), Decimal(0))


def _unbounded(cost: CostChange, service: ServiceCost) -> bool:
    key = (service.environment, service.name)
    return any(
        (item.environment, item.service) == key and item.reason == NO_BOUND and item.side != "before"
        for item in cost.unpriced
    )


def _why_unknown(cost: CostChange, service: ServiceCost) -> str:
    key = (service.environment, service.name)
    reasons = [f"{item.subject}: {item.reason}" for item in cost.unpriced if (item.environment, item.service) == key]
    return f"changes the bill by an amount that is not known ({first_of(reasons, _NAMED, '; ')})"


def _told_together(together: Sequence[tuple[ServiceCost, Decimal]], total: Decimal, limit: Decimal) -> str:
    largest = sorted(together, key=lambda member: (-abs(member[1]), _name(member[0])))[:_NAMED]
    names = ", ".join(f"{_name(service)} {amount(difference, signed=True)}" for service, difference in largest)
    return (
        f"{counted(len(together), 'service')} together change the bill by {usd(total, signed=True)} a month with the "
        f"most replicas, more than {usd(limit)}; the largest: {names}"
    )


def _name(service: ServiceCost) -> str:
    return "/".join(filter(None, (service.environment, service.name)))


@dataclass(frozen=True)
class CenterTotal:
    """The cost of all services of a cost centre with the most replicas, in US dollars a month."""

    past: Decimal  # before the change, at the base's prices
    new: Decimal  # after the change, at the prices that decide
    unknown: tuple[str, ...] = ()  # the services whose cost the amounts leave out
    is_raised: bool = True  # whether services of the change raise it, and not prices alone
    by_prices: bool = False  # whether the change alters only prices


@dataclass(frozen=True)
class CostFinding:
    """A finding of a rule on cost."""

    rule: str
    level: Level  # "warn" or "block"
    file: str  # that a person should look at
    subject: str
    message: str
    fix: str


def judge_costs(
    cost: CostChange | None,
    totals: Mapping[str, CenterTotal],
    rules: CostRules,
    budgets: Budgets,
    today: date,
    longest_days: int,
    unpriced_environments: Collection[str] = (),
    new_centers: Mapping[str, Decimal] | None = None,
) -> list[CostFinding]:
    """The findings of the rules about a change. An exception turns a refusal into a warning that names the exception.

    `cost`: None if the change alters no manifest that costs anything. `totals`: the totals of cost centres that have a
    budget and that the change touches. `longest_days`: how many days ahead an exception may end.
    `unpriced_environments`: environments whose settings name no price list, so nothing in them has a price on purpose.
    `new_centers`: cost centres that only the change knows and that have no budget, with the US dollars a month by which
    it raises their bill; one that is known before the change may have no budget on purpose.
    """
    holding = {
        path: exception
        for path, exception in budgets.exceptions.items()
        if fault_of(exception.reason, exception.expires, today, longest_days) is None
    }
    findings = [
        *_over_budget(totals, rules.over_budget, budgets, holding),
        *_without_budget(new_centers or {}, rules.over_budget),
    ]
    if cost is not None:
        findings += [
            *_without_price(cost, rules.without_price, unpriced_environments),
            *_stale_prices(cost, rules.stale_price),
            *_large_changes(cost, rules.large_change, holding, unpriced_environments),
        ]
    return [*(_lifted(finding, holding) for finding in findings), *list_exceptions(budgets, today, longest_days)]


def _over_budget(
    totals: Mapping[str, CenterTotal], level: Level, budgets: Budgets, holding: Mapping[str, CostException]
) -> Iterator[CostFinding]:
    if level == "off":
        return
    for center, total in sorted(totals.items()):
        budget, file = budgets.budgets[center], budgets.file(center)
        unknown = _unknown(total)
        if total.new <= budget.monthly_usd:
            if unknown:
                message = f"{_of(center, total, budget)}; {unknown}, so that the budget may be exceeded"
                fix = "Give every service of the cost centre a price."
                yield CostFinding("over-budget", "warn", file, center, message, fix)
            continue
        message = f"{_of(center, total, budget)}{f'; {unknown}' if unknown else ''}"
        fix = f"Make it cheaper, or let {budget.owner} raise the budget or approve an exception from it."
        if total.by_prices or not total.is_raised:
            why = "The change does not raise it"
            if total.by_prices:
                why = "Prices changed, and nothing that is deployed"
            elif total.new > total.past:
                why = "Prices raise it, and the services of the change do not"
            yield CostFinding("over-budget", "warn", file, center, f"{message}. {why}", fix)
            continue
        path, exception = _ceiling(center, total, holding)
        if exception is not None and exception.monthly_usd is not None:
            allowed = f"{path} allows {usd(exception.monthly_usd)} until {exception.expires}"
            message = f"{message}. {allowed}: {exception.reason}"
            yield CostFinding("over-budget", "warn", file, center, message, fix)
        else:
            yield CostFinding("over-budget", level, file, center, message, fix)


def _without_budget(raised: Mapping[str, Decimal], level: Level) -> Iterator[CostFinding]:
    for center, rise in sorted(raised.items()) if level != "off" else ():
        if rise > 0:
            message = (
                f"{center} is a cost centre that the change itself brings, and it has no budget before it, so that "
                f"nothing limits the {usd(rise)} a month by which its services raise the bill"
            )
            fix = "Merge the team and the budget of its cost centre first, in a change of their own."
            yield CostFinding("over-budget", level, BUDGETS, center, message, fix)


def _of(center: str, total: CenterTotal, budget: Budget) -> str:
    return (
        f"the services of {center} would cost {usd(total.new)} a month with the most replicas "
        f"({amount(total.past)} before the change), and its budget is {amount(budget.monthly_usd)}"
    )


def _unknown(total: CenterTotal) -> str:
    if not total.unknown:
        return ""
    return f"{counted(len(total.unknown), 'service')} without a known cost: {first_of(total.unknown, _NAMED)}"


def _ceiling(center: str, total: CenterTotal, holding: Mapping[str, CostException]) -> tuple[str, CostException | None]:
    for path, exception in sorted(holding.items()):
        if (
            exception.rule == "over-budget"
            and exception.subject == center
            and total.new <= (exception.monthly_usd or 0)
        ):
            return path, exception
    return "", None


def _without_price(cost: CostChange, level: Level, unpriced: Collection[str]) -> Iterator[CostFinding]:
    """A finding for each service. Upstream's charts request nothing for many of the platform's own pods."""
    if level == "off":
        return
    reasons: dict[str, list[str]] = {}
    for item in cost.unpriced:
        if item.side != "before" and item.environment not in unpriced and item.service != NAME:
            name = f"{item.environment}/{item.service}"
            reasons.setdefault(name, []).append(f"{item.subject}: {item.reason}")
    for name, parts in sorted(reasons.items()):
        message = f"{name} has pods without a price: {first_of(parts, _NAMED, '; ')}"
        fix = f"Add the price to a list of the environment in {CATALOG}/prices/."
        yield CostFinding("without-price", level, f"{MANIFESTS}/{name}", name, message, fix)


def _stale_prices(cost: CostChange, level: Level) -> Iterator[CostFinding]:
    if level == "off":
        return
    for used in cost.price_lists:
        if used.old or used.ahead:
            age = "a day in the future, so their age is unknown" if used.ahead else "more than 90 days old"
            message = f"the prices of {used.name} are of {used.date}, {age}"
            fix = "Look at the provider's prices, correct the list and its date."
            yield CostFinding("stale-price", level, f"{CATALOG}/prices/{used.name}.yaml", used.name, message, fix)


def _large_changes(
    cost: CostChange, rule: LargeChange, holding: Mapping[str, CostException], unpriced: Collection[str]
) -> Iterator[CostFinding]:
    excepted = {exception.subject for exception in holding.values() if exception.rule == "large-change"}
    for large in large_changes(cost, rule, excepted, unpriced):
        yield CostFinding("large-change", rule.level, large.file, large.subject, large.message, large.fix)


def _lifted(finding: CostFinding, holding: Mapping[str, CostException]) -> CostFinding:
    """The finding, which an exception of its rule and subject turns into a warning."""
    if finding.level != "block" or finding.rule == "over-budget":
        return finding
    for path, exception in sorted(holding.items()):
        if (exception.rule, exception.subject) == (finding.rule, finding.subject):
            message = f"{finding.message}. {path} allows it until {exception.expires}: {exception.reason}"
            return CostFinding(finding.rule, "warn", finding.file, finding.subject, message, finding.fix)
    return finding


def list_exceptions(budgets: Budgets, today: date, longest_days: int) -> Iterator[CostFinding]:
    """A finding for every exception: a valid one is visible in each report, and an invalid one has no effect."""
    for path, exception in sorted(budgets.exceptions.items()):
        fault = fault_of(exception.reason, exception.expires, today, longest_days)
        if fault is None:
            message = (
                f"lifts {exception.rule} for {exception.subject} until {exception.expires} "
                f"(approved by {exception.approved_by}): {exception.reason}"
            )
            yield CostFinding(
                "exception", "warn", path, exception.subject, message, "Remove it when it is no longer needed."
            )
        else:
            yield CostFinding(
                "exception", "warn", path, exception.subject, f"{fault.message}, and lifts nothing", fault.fix
            )

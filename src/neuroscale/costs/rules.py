"""Judges how a change alters the bill, by the rules on cost: budgets, thresholds and the age of prices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from neuroscale.catalog.budgets import Budget, Budgets, CostException
from neuroscale.catalog.settings import CostRules, LargeChange, Level
from neuroscale.core.plurals import counted
from neuroscale.costs.bill import CostChange
from neuroscale.costs.large_change import large_changes
from neuroscale.costs.platform import NAME
from neuroscale.repo.layout import CATALOG, MANIFESTS
from neuroscale.request.expiring_exceptions import fault_of

_NAMED = 3


@dataclass(frozen=True)
class CenterTotal:
    """The cost of all services of a cost centre with the most replicas, in US dollars a month.

    `past` is before the change at the base's prices, `new` after it at the prices that decide. `unknown`: services
    whose cost the amounts leave out. `is_raised`: services of the change raise it, and not prices alone. `by_prices`:
    the change alters only prices.
    """

    past: Decimal
    new: Decimal
    unknown: tuple[str, ...] = ()
    is_raised: bool = True
    by_prices: bool = False


@dataclass(frozen=True)
class CostFinding:
    """A finding of a rule on cost; `level` is "warn" or "block". `file` is the file that a person should look at."""

    rule: str
    level: Level
    file: str
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
) -> list[CostFinding]:
    """The findings of the rules about a change. An exception turns a refusal into a warning that names the exception.

    `cost`: None if the change alters no manifest that costs anything. `totals`: the totals of cost centres that have a
    budget and that the change touches. `longest_days`: how many days ahead an exception may end.
    `unpriced_environments`: environments whose settings name no price list, so nothing in them has a price on purpose.
    """
    holding = {
        path: one
        for path, one in budgets.exceptions.items()
        if fault_of(one.reason, one.expires, today, longest_days) is None
    }
    found = [*_over_budget(totals, rules.over_budget, budgets, holding)]
    if cost is not None:
        found += [
            *_without_price(cost, rules.without_price, unpriced_environments),
            *_stale_prices(cost, rules.stale_price),
            *_large_changes(cost, rules.large_change, holding, unpriced_environments),
        ]
    return [*(_lifted(one, holding) for one in found), *list_exceptions(budgets, today, longest_days)]


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
        path, one = _ceiling(center, total, holding)
        if one is not None:
            message = f"{message}. {path} allows {one.monthly_usd:,.2f} until {one.expires}: {one.reason}"
            yield CostFinding("over-budget", "warn", file, center, message, fix)
        else:
            yield CostFinding("over-budget", level, file, center, message, fix)


def _of(center: str, total: CenterTotal, budget: Budget) -> str:
    return (
        f"the services of {center} would cost {total.new:,.2f} USD a month with the most replicas "
        f"({total.past:,.2f} before the change), and its budget is {budget.monthly_usd:,.2f}"
    )


def _unknown(total: CenterTotal) -> str:
    if not total.unknown:
        return ""
    more = f" and {len(total.unknown) - _NAMED} more" if len(total.unknown) > _NAMED else ""
    return f"{counted(len(total.unknown), 'service')} without a known cost: {', '.join(total.unknown[:_NAMED])}{more}"


def _ceiling(center: str, total: CenterTotal, holding: Mapping[str, CostException]) -> tuple[str, CostException | None]:
    for path, one in sorted(holding.items()):
        if one.rule == "over-budget" and one.subject == center and total.new <= (one.monthly_usd or 0):
            return path, one
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
    for name, told in sorted(reasons.items()):
        more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
        message = f"{name} has pods without a price: {'; '.join(told[:_NAMED])}{more}"
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
    excepted = {one.subject for one in holding.values() if one.rule == "large-change"}
    for large in large_changes(cost, rule, excepted, unpriced):
        yield CostFinding("large-change", rule.level, large.file, large.subject, large.message, large.fix)


def _lifted(found: CostFinding, holding: Mapping[str, CostException]) -> CostFinding:
    """The finding, which an exception of its rule and subject turns into a warning."""
    if found.level != "block" or found.rule == "over-budget":
        return found
    for path, one in sorted(holding.items()):
        if (one.rule, one.subject) == (found.rule, found.subject):
            message = f"{found.message}. {path} allows it until {one.expires}: {one.reason}"
            return CostFinding(found.rule, "warn", found.file, found.subject, message, found.fix)
    return found


def list_exceptions(budgets: Budgets, today: date, longest_days: int) -> Iterator[CostFinding]:
    """A finding for every exception: a valid one is visible in each report, and an invalid one has no effect."""
    for path, one in sorted(budgets.exceptions.items()):
        fault = fault_of(one.reason, one.expires, today, longest_days)
        if fault is None:
            message = (
                f"lifts {one.rule} for {one.subject} until {one.expires} (approved by {one.approved_by}): {one.reason}"
            )
            yield CostFinding("exception", "warn", path, one.subject, message, "Remove it when it is no longer needed.")
        else:
            yield CostFinding("exception", "warn", path, one.subject, f"{fault.message}, and lifts nothing", fault.fix)

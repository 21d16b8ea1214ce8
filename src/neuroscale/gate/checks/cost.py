"""The cost check: computes how a change alters the bill, and judges that by the rules of the settings.

Rules, budgets and exceptions are the base's. Where a change brings prices and services together, the dearer price of
both sides decides, and the base's price for what it replaces. Where it brings facts and services together, the dearer
plan decides, with these facts or without. So no change can make its own services cheap, or others dear. Without a rule,
the cost stands in the verdict and refuses nothing.

Holds known-bad changes of the bill for each rule on cost: every run of the cost check must refuse them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from neuroscale.catalog.budgets import Budget, Budgets, Rule, load_budgets
from neuroscale.catalog.settings import LONGEST_DAYS, CostRules, LargeChange
from neuroscale.core.errors import InputError, NeuroscaleError, UntrustedError
from neuroscale.core.money_and_time import usd
from neuroscale.core.printable import shortened
from neuroscale.costs.bill import BudgetUse, CostChange, PriceListUsed, Range, ServiceCost, Totals, UnpricedItem
from neuroscale.costs.cost_rules import CenterTotal, CostFinding, judge_costs, list_exceptions, without_a_bill_before
from neuroscale.costs.difference import NAME, OWN
from neuroscale.costs.pricing import Prices
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.checks.catalog import GATE as CATALOG_CHECK
from neuroscale.gate.checks.planned_without import Without, planned_without
from neuroscale.gate.checks.priced_change import PLATFORM_SOURCES, cost_of_change, deciding_prices, prices_of
from neuroscale.gate.checks.repository_costs import RepositoryCosts
from neuroscale.gate.evaluation import Evaluation, file_finding
from neuroscale.gate.verdict import Finding, Outcome, Severity
from neuroscale.repo.layout import BUDGETS, CATALOG, MANIFESTS, SETTINGS

_NAME = "tripwire"


@dataclass(frozen=True)
class CostTripwire:
    """A change that `rule` must refuse by these rules, budgets and totals."""

    rule: Rule
    cost: CostChange
    rules: CostRules
    totals: Mapping[str, CenterTotal] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=lambda: Budgets({}, {}, {}))
    new_centers: Mapping[str, Decimal] = field(default_factory=dict)


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
        CostTripwire("over-budget", _change(), CostRules(over_budget="block"), new_centers={_NAME: Decimal(1)}),
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


GATE = "cost"
_NAMED = 3


class CostCheck(GateCheck):
    """Hands on the cost of the change, with which the verdict's report begins."""

    name = GATE
    title = "Cost"
    needs = ("files", "catalog", "drift")

    def __init__(self) -> None:
        self._rules = CostRules()
        self._judged: CostChange | None = None
        self._new_prices: tuple[str, ...] = ()
        self._unknown = ""
        self._without_budget: list[str] = []
        self._without: tuple[Without, ...] = ()
        self._judges = False

    def left_out(self, run: Run) -> LeftOut | None:
        why = self._why_not_judged(run)
        self._judges = why is None
        if why is None or why.reason or not (run.change or run.given.services):
            return why
        # Every report shows the exceptions. Nothing depends on budgets here, so a fault of them is another check's.
        with suppress(InputError):
            if load_budgets(run.judge.snapshot).exceptions:
                return None
        return why

    def _why_not_judged(self, run: Run) -> LeftOut | None:
        change = run.change
        if change is None or not change.touches(MANIFESTS, CATALOG, SETTINGS, *PLATFORM_SOURCES):
            return LeftOut()
        with suppress(InputError):  # no settings can be read: the other checks say so
            self._rules = run.deciding_settings.costs
        levels = set(self._rules.levels.values())
        self._without = tuple(planned_without(run))
        try:
            costs = cost_of_change(change, run.judge, run.after, run.manifests, run.plans, run.today, self._without)
            if costs is not None:
                self.value, self._judged, self._new_prices = costs.shown, costs.judged, costs.new_prices
        except Exception as error:
            reason = str(error) if isinstance(error, NeuroscaleError) else f"{type(error).__name__}: {error}"
            self._unknown = f"The change of the cost is not known: {' '.join(reason.split())}"
        catalog = run.result(CATALOG_CHECK)
        if catalog is not None and catalog.check.outcome is Outcome.FINDINGS:
            # The verdict refuses the change already, and prices of a broken catalog mean nothing.
            return LeftOut("" if levels == {"off"} else "the change's catalog or settings have findings")
        if self._unknown:
            # Where a rule could refuse, a cost that nobody knows must not pass: `evaluate` says so.
            return None if "block" in levels or self._without else LeftOut()
        if self._without:
            return None
        if levels == {"off"} or (self.value is None and not change.touches(CATALOG, SETTINGS)):
            return LeftOut()
        return None

    def evaluate(self, run: Run) -> Evaluation:
        if not self._judges:
            caught = _caught(run.today)
            listed = list_exceptions(load_budgets(run.judge.snapshot), run.today, run.longest_days)
            detail = "no rule judges this run, which only lists exceptions"
            return Evaluation(tuple(map(_finding, listed)), 0, 0, "services", caught, caught, detail)
        if self._unknown:
            raise UntrustedError(f"a rule of the settings may refuse the change. {self._unknown}")
        caught = _caught(run.today)
        try:
            budgets = load_budgets(run.judge.snapshot)
        except InputError as error:
            raise UntrustedError(f"the base's budgets cannot be read: {error}") from error
        prices = deciding_prices(run.judge, run.after)
        touched = _amounts(self._judged) if self._judged else {}
        totals: Mapping[str, CenterTotal] = {}
        raised: dict[str, Decimal] = {}
        if self._rules.over_budget != "off":
            totals = (
                _totals(run, self._judged, touched, budgets, prices)
                if self._judged
                else _totals_at_new_prices(run, budgets)
            )
            self._without_budget = sorted(set(touched) - {OWN, *budgets.budgets})
            with suppress(InputError):  # then another check says what cannot be read
                before, after = (
                    {team.cost_center for team in side.catalog().teams.values()} for side in (run.judge, run.after)
                )
                new = after - before
                raised = {center: touched[center][1] - touched[center][0] for center in new & {*self._without_budget}}
            self._without_budget = [center for center in self._without_budget if center not in raised]
        if self.value:
            self.value = self.value.model_copy(update={"budgets": tuple(_uses(totals, budgets))})
        judged = self._judged
        if judged is not None and self.value is not None and judged is not self.value:
            # What the change's own prices do not know after it, and what the base's did not know before it.
            past = [item for item in judged.unpriced if item.side == "before" and item not in self.value.unpriced]
            judged = judged.model_copy(update={"unpriced": (*self.value.unpriced, *past)})
        longest = run.longest_days
        rules = judge_costs(judged, totals, self._rules, budgets, run.today, longest, prices.free, raised)
        findings = [_finding(finding) for finding in (*rules, *self._of_both_sides())]
        findings += [one.finding(GATE) for one in self._without]
        services = len(self.value.services) if self.value else 0
        compared = f"compared with the budget of {', '.join(totals)}" if totals else ""
        return Evaluation(tuple(findings), services, services, "services", caught, caught, compared)

    def _of_both_sides(self) -> Iterator[CostFinding]:
        """Notices of a change of services and prices: which price decides, and which services only new prices know."""
        shown, judged = self.value, self._judged
        if shown is None or judged is None:
            return
        where = f"{CATALOG}/prices"
        if shown.prices_altered and judged.total.new != shown.total.new:
            message = (
                f"change together with services, so the dearer price of both sides decides: by it, the services of the "
                f"change cost {usd(judged.total.new.max)} a month with the most replicas, and "
                f"{usd(shown.total.new.max)} by the prices of the change"
            )
            fix = "Merge the prices first, in a change of their own: then they decide."
            yield CostFinding("both-prices", "warn", where, "prices", message, fix)
        if self._new_prices:
            message = f"of the change itself are the only ones for {shortened(self._new_prices, _NAMED, 'service')}"
            yield CostFinding("new-price", "warn", where, "prices", message, "Compare them with their source.")

    def not_checked(self, run: Run) -> Iterable[str]:  # noqa: ARG002
        if self._unknown:
            yield self._unknown
        if self._without_budget:
            yield f"Budgets: {', '.join(self._without_budget)} has none in {BUDGETS}/."
        new = without_a_bill_before(self.value, self._rules.large_change) if self.value else []
        if new:
            names = ", ".join(new)
            yield f"Large changes: {names} cost nothing before, which only `usd_a_month` in {SETTINGS} would judge."


def _amounts(cost: CostChange) -> dict[str, tuple[Decimal, Decimal]]:
    """What the services of the change cost before and after it, by cost centre: US dollars with the most replicas."""
    past: dict[str, Decimal] = defaultdict(Decimal)
    new: dict[str, Decimal] = defaultdict(Decimal)
    for service in cost.services:
        for side, workloads in ((past, service.workloads_before), (new, service.workloads)):
            for workload in workloads:
                side[workload.cost_center] += workload.monthly.max
    return {center: (past[center], new[center]) for center in sorted({*past, *new})}


def _totals(
    run: Run, cost: CostChange, touched: Mapping[str, tuple[Decimal, Decimal]], budgets: Budgets, prices: Prices
) -> Mapping[str, CenterTotal]:
    """The totals of the cost centres that have a budget and that the change touches."""
    centers = sorted(center for center in touched if center in budgets.budgets)
    if not centers:
        return {}
    folders = {
        f"{MANIFESTS}/{'/'.join(filter(None, (service.environment, service.name)))}" for service in cost.services
    }
    services = RepositoryCosts(run.given.snapshot, folders)
    others = services.by_center(prices, centers)
    others_before = others if prices.base is None else services.by_center(prices.base, centers)
    unknown = tuple(
        f"{service.environment}/{service.name}"
        for service in cost.services
        if service.environment not in prices.free
        and service.name != NAME
        and any(
            (item.environment, item.service) == (service.environment, service.name)
            for item in cost.unpriced
            if item.side != "before"
        )
    )
    return {
        center: CenterTotal(
            past=others_before[center].usd + touched[center][0],
            new=others[center].usd + touched[center][1],
            unknown=(*others[center].unknown, *unknown),
            is_raised=touched[center][1] > touched[center][0],
        )
        for center in centers
    }


def _totals_at_new_prices(run: Run, budgets: Budgets) -> Mapping[str, CenterTotal]:
    """The totals of all budgets where a change alters nothing but prices."""
    past, new = prices_of(run.judge), prices_of(run.after)
    if past.same_as(new):
        return {}
    services = RepositoryCosts(run.given.snapshot, ())
    before, after = (services.by_center(prices, budgets.budgets) for prices in (past, new))
    return {
        center: CenterTotal(before[center].usd, after[center].usd, tuple(after[center].unknown), by_prices=True)
        for center in sorted(budgets.budgets)
    }


def _uses(totals: Mapping[str, CenterTotal], budgets: Budgets) -> Iterator[BudgetUse]:
    for center, total in totals.items():
        usd = budgets.budgets[center].monthly_usd
        yield BudgetUse(cost_center=center, monthly=total.new, budget=usd, unknown=len(total.unknown))


def _finding(finding: CostFinding) -> Finding:
    severity = Severity.ERROR if finding.level == "block" else Severity.NOTICE
    return file_finding(GATE, finding.rule, finding.file, finding.message, finding.fix, severity=severity)


def _caught(today: date) -> int:
    """How many rules refuse their known-bad change. Raises UntrustedError where one does not."""
    traps = cost_tripwires(today)
    for trap in traps:
        rules, new = trap.rules, trap.new_centers
        findings = judge_costs(trap.cost, trap.totals, rules, trap.budgets, today, LONGEST_DAYS, new_centers=new)
        if [(finding.rule, finding.level) for finding in findings] != [(trap.rule, "block")]:
            raise UntrustedError(f"the cost check did not refuse its tripwire for the rule {trap.rule!r}.")
    return len(traps)

"""The facts of a verdict in words: the phrases that more than one report uses.

`name` and `prose` are the escaping functions of the report that asks (see `text`); what is not passed through them is
made of numbers and of words from here.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from neuroscale.planning.plan import Alternative, AppliedOverride, Plan, Replicas, Speed, Startup
from neuroscale.verdict import Check, Outcome, ServiceReport

Escape = Callable[[str], str]

_LONGEST = 1e9  # seconds; what is longer was not measured


def plural(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def gib(value: float) -> str:
    """A size to two decimals, without its unit."""
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.3g}"


def amount(value: Decimal, signed: bool = False) -> str:
    """US dollars, without their unit: to the cent, a price below 100 to as many as four decimals."""
    sign = "+" if signed else ""
    cents = f"{value:{sign},.2f}"
    if abs(value) >= 100:
        return cents
    exact = f"{value:{sign},.4f}".rstrip("0")
    return exact if len(exact) > len(cents) else cents


def between(low: Decimal, high: Decimal, signed: bool = False) -> str:
    """`518.30 to 1,554.90 USD`, or one amount where the two are the same."""
    if low == high:
        return f"{amount(low, signed)} USD"
    return f"{amount(low, signed)} to {amount(high, signed)} USD"


def replicas(value: Replicas) -> str:
    """`2 replicas`, `1 to 3 replicas`."""
    return plural(value.min, "replica") if value.min == value.max else f"{value.min:,} to {value.max:,} replicas"


def accelerators(plan: Plan, name: Escape) -> str:
    """`2 x L4`."""
    return f"{plan.accelerator_count:,} x {name(plan.accelerator)}"


def placement(plan: Plan, name: Escape) -> str:
    """Model, accelerators, tensor parallelism and replicas of a plan."""
    return (
        f"{name(plan.model)} on {accelerators(plan, name)}, "
        f"tensor parallel size {plan.tensor_parallel_size:,}, {replicas(plan.replicas)}"
    )


def memory_caption(plan: Plan) -> str:
    """What the memory bar of a plan with several accelerators is about."""
    return f"GiB on each of the {plan.accelerator_count:,} accelerators:"


def differences(service: ServiceReport, name: Escape) -> list[str]:
    """What a reviewer would notice between the two plans of a service; empty where one of them is missing."""
    before, after = service.plan_before, service.plan
    if before is None or after is None:
        return []
    pairs = [
        ("verdict", before.verdict, after.verdict),
        ("model", name(before.model), name(after.model)),
        ("accelerators", accelerators(before, name), accelerators(after, name)),
        ("tensor parallel size", f"{before.tensor_parallel_size:,}", f"{after.tensor_parallel_size:,}"),
        ("replicas", replicas(before.replicas), replicas(after.replicas)),
        ("longest context", f"{before.max_model_len:,} tokens", f"{after.max_model_len:,} tokens"),
        ("concurrency", f"{before.max_concurrency:,}", f"{after.max_concurrency:,}"),
        ("runtime", name(before.runtime.image), name(after.runtime.image)),
    ]
    return [f"{what} from {old} to {new}" for what, old, new in pairs if old != new]


def price(plan: Plan) -> str:
    """What a plan costs, with the date of the price; `unknown` where it has none."""
    cost, known = plan.cost, []
    if cost.hourly is not None:
        start = "from " if plan.replicas.min != plan.replicas.max else ""
        known.append(f"{start}{amount(cost.hourly)} USD an hour")
    if cost.monthly_min is not None and cost.monthly_max is not None:
        known.append(f"{between(cost.monthly_min, cost.monthly_max)} a month of 730 h")
    if not known:
        return "unknown"
    dated = f" (price of {cost.price_date.isoformat()})" if cost.price_date else " (price without a date)"
    return ", ".join(known) + dated


def unpriced(service: ServiceReport) -> str | None:
    """The accelerator of a service whose plan has no price; None where it has one, or no plan."""
    plan = service.plan
    if plan is None or plan.verdict == "refused" or None not in (plan.cost.monthly_min, plan.cost.monthly_max):
        return None
    return plan.accelerator


def monthly_change(service: ServiceReport) -> tuple[Decimal, Decimal] | None:
    """By how many dollars a month the change moves a service, at its fewest and at its most replicas.

    None where that is unknown or where the service does not come to be: no price, no readable plan, a refused one.
    """
    before, after = _monthly(service.plan_before), _monthly(service.plan)
    if service.change == "added":
        before = (Decimal(0), Decimal(0))
    elif service.change == "removed":
        after = (Decimal(0), Decimal(0))
    if before is None or after is None:
        return None
    return after[0] - before[0], after[1] - before[1]


def _monthly(plan: Plan | None) -> tuple[Decimal, Decimal] | None:
    if plan is None or plan.verdict == "refused":
        return None
    low, high = plan.cost.monthly_min, plan.cost.monthly_max
    return None if low is None or high is None else (low, high)


def price_change(service: ServiceReport) -> str:
    """The change of the price a month, with its share of the old price.

    Empty where nothing changes or is known, and for a new service, whose change is its price.
    """
    change = monthly_change(service)
    if change is None or not any(change) or service.change == "added":
        return ""
    before = _monthly(service.plan_before)
    share = ""
    if service.change != "removed" and before is not None and before[1] > 0:
        share = f", {change[1] / before[1] * 100:+,.0f} %"
    return f"{between(*change, signed=True)} a month{share}"


def total_change(services: tuple[ServiceReport, ...]) -> str:
    """The change of the monthly price over all services for which it is known; empty where it is nothing."""
    changes = [change for service in services if (change := monthly_change(service)) is not None]
    low, high = sum((one[0] for one in changes), Decimal(0)), sum((one[1] for one in changes), Decimal(0))
    return f"{between(low, high, signed=True)} a month" if low or high else ""


def override(value: AppliedOverride, name: Escape, prose: Escape) -> str:
    """An override with what would have been planned, until when it holds, and why."""
    return (
        f"{name(value.field)} is {name(_plain(value.value))} (planned: {name(value.planned)}) "
        f"until {value.expires.isoformat()}: {prose(value.reason)}"
    )


def alternative(value: Alternative, name: Escape, prose: Escape) -> str:
    """A choice that works, with its price."""
    hourly = f", {amount(value.hourly)} USD an hour" if value.hourly is not None else ", price unknown"
    where = f"{name(value.model)} on {value.accelerator_count:,} x {name(value.accelerator)}"
    return f"{prose(value.change)} ({where}{hourly})"


def startup(value: Startup) -> str:
    """How long a pod takes to be ready, and how long its probe waits."""
    expected, budget = seconds(value.expected_seconds), seconds(value.probe_budget_seconds)
    return f"about {expected} to ready, the startup probe allows {budget}"


def speed(value: Speed) -> str:
    """What one idle replica is estimated to do; empty where nothing is known."""
    parts = []
    if value.ttft_seconds is not None:
        parts.append(f"{seconds(value.ttft_seconds)} to the first token of the longest prompt")
    if value.decode_tokens_per_second is not None:
        parts.append(f"{value.decode_tokens_per_second:.3g} tokens a second for one user")
    return f"{', '.join(parts)} (estimated)" if parts else ""


def seconds(value: float) -> str:
    """A duration: `0.42 s`, `45 s`, `12 min`, `12 min 30 s`."""
    value = min(max(value, 0.0), _LONGEST)
    if value < 10 and value != int(value):
        return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes:,} min {rest} s" if rest else f"{minutes:,} min"


def outcome(check: Check) -> str:
    """How a check ended, in words."""
    return {
        Outcome.PASSED: "passed",
        Outcome.FINDINGS: "findings",
        Outcome.UNUSABLE: "unusable input",
        Outcome.UNTRUSTED: "cannot be trusted",
        Outcome.NOT_RUN: "not run",
    }[check.outcome]


def account(check: Check, prose: Escape) -> list[str]:
    """What a check looked at and caught: `6 of 6 objects`, `5 of 5 tripwires caught`; nothing where it never began."""
    facts: list[str] = []
    if check.outcome is Outcome.NOT_RUN:
        return facts
    began = check.outcome in (Outcome.PASSED, Outcome.FINDINGS)
    if began or check.expected:
        facts.append(f"{check.evaluated:,} of {check.expected:,} {prose(check.unit)}")
    if began or check.tripwires:
        facts.append(tripwires(check.tripwires_caught, check.tripwires))
    return facts


def tripwires(caught: int, laid: int) -> str:
    """`5 of 5 tripwires caught`."""
    return f"{caught:,} of {plural(laid, 'tripwire')} caught"


def _plain(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

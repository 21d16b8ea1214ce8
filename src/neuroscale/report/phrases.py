"""Says the facts of a verdict in words: the phrases that more than one report uses.

`name` and `prose` are the escaping functions of the calling report (see `core.printable`); all other text consists of
numbers and of words from this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal

from neuroscale.core.printable import counted
from neuroscale.costs.bill import CostChange, Range, ServiceCost, TokenPrice, UnpricedItem
from neuroscale.gate.verdict import Check, Effect, Effects, Outcome, ServiceReport
from neuroscale.planning.load_choice import COVERAGE
from neuroscale.planning.plan import Alternative, AppliedOverride, Plan, Replicas, Speed, Startup

Escape = Callable[[str], str]

_LONGEST = 1e9  # seconds; a longer time cannot have been measured


def gib(value: float) -> str:
    """A size to two decimals, without its unit."""
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.3g}"


def amount(value: Decimal, signed: bool = False) -> str:
    """US dollars, without their unit: to the cent, a price below 100 to as many as four decimals."""
    sign = "+" if signed else ""
    cents = f"{value:{sign if value else ''},.2f}"
    if abs(value) >= 100:
        return cents
    exact = f"{value:{sign},.4f}".rstrip("0")
    return exact if len(exact) > len(cents) else cents


def between(low: Decimal, high: Decimal, signed: bool = False) -> str:
    """`518.30 to 1,554.90 USD`, or one amount if the two are the same."""
    return f"{amounts(low, high, signed)} USD"


def amounts(low: Decimal, high: Decimal, signed: bool = False) -> str:
    """As `between`, without the unit."""
    return amount(low, signed) if low == high else f"{amount(low, signed)} to {amount(high, signed)}"


def replicas(value: Replicas) -> str:
    """`2 replicas`, `1 to 3 replicas`."""
    return counted(value.min, "replica") if value.min == value.max else f"{value.min:,} to {value.max:,} replicas"


def accelerators(plan: Plan, name: Escape) -> str:
    """`2 x L4`."""
    return f"{plan.accelerator_count:,} x {name(plan.accelerator)}"


def placement(plan: Plan, name: Escape) -> str:
    """Model, accelerators, tensor parallelism and replicas of a plan."""
    return (
        f"{name(plan.model)} on {accelerators(plan, name)}, "
        f"tensor parallel size {plan.tensor_parallel_size:,}, {replicas(plan.replicas)}"
    )


def memory_in_use(plan: Plan) -> str:
    """`16.0 of 19.8 GiB`: of each accelerator, what a replica takes of what it may."""
    memory = plan.memory_gib
    return f"{memory.usable - memory.free:.1f} of {memory.usable:.1f} GiB"


def memory_caption(plan: Plan) -> str:
    """The caption of the memory bar of a plan with several accelerators."""
    return f"GiB on each of the {plan.accelerator_count:,} accelerators:"


def differences(service: ServiceReport, name: Escape) -> list[str]:
    """The differences between the two plans of a service that matter to a reviewer; empty if a plan is missing."""
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
    """The cost of a plan, with the date of the price; `unknown` if it has no price."""
    cost, known = plan.cost, []
    if cost.hourly is not None:
        start = "from " if cost.monthly_min != cost.monthly_max else ""
        known.append(f"{start}{amount(cost.hourly)} USD an hour")
    if cost.monthly_min is not None and cost.monthly_max is not None:
        known.append(f"{between(cost.monthly_min, cost.monthly_max)} a month of 730 h")
    if not known:
        return "unknown"
    dated = f" (price of {cost.price_date.isoformat()})" if cost.price_date else " (price without a date)"
    return ", ".join(known) + dated


def unpriced(service: ServiceReport) -> str | None:
    """The accelerator of a service whose plan has no price; None if the plan has a price, or if there is no plan."""
    plan = service.plan
    if plan is None or plan.verdict == "refused" or None not in (plan.cost.monthly_min, plan.cost.monthly_max):
        return None
    return plan.accelerator


def cost_headline(cost: CostChange | None) -> str:
    """The change of the cost in a few words, and how many services it leaves out; empty without a cost."""
    if cost is None:
        return ""
    difference = cost.total.difference
    known = f"{span(difference, signed=True)} a month" if difference.min or difference.max else ""
    unknown = f"cost of {counted(cost.left_out, 'service')} not known" if cost.left_out else ""
    return ", ".join(filter(None, (known, unknown)))


def span(value: Range, signed: bool = False) -> str:
    """An amount a month, with the fewest replicas to the most."""
    return between(value.min, value.max, signed)


def by_size(services: Iterable[ServiceCost]) -> list[ServiceCost]:
    """The services of a cost, those with an unknown difference first, then the largest differences."""

    def key(one: ServiceCost) -> tuple[bool, Decimal, str, str]:
        difference = one.difference
        size = max(abs(difference.min), abs(difference.max)) if difference else Decimal(0)
        return difference is not None, -size, one.environment, one.name

    return sorted(services, key=key)


def cost_notes(cost: CostChange, prose: Escape) -> list[str]:
    """Sentences on the basis of the amounts: omissions, the date of the prices, and altered prices."""
    notes = []
    if cost.left_out:
        notes.append(f"The total leaves out {counted(cost.left_out, 'service')} whose difference is not known.")
    for use in cost.budgets:
        most = f"{amount(use.monthly)} of {amount(use.budget)} USD a month with the most replicas"
        least = f", without {counted(use.unknown, 'service')} whose cost is not known" if use.unknown else ""
        notes.append(f"Budget of {prose(use.cost_center)}: all its services take {most}{least}.")
    for used in cost.price_lists:
        text = f"Prices of {used.date.isoformat()}: {prose(used.name)} ({prose(used.tier)}, {prose(used.region)})"
        if used.ahead:
            text += ". That day is in the future: correct it"
        elif used.old:
            text += ". They are more than 90 days old: renew them"
        notes.append(f"{text}.")
    if cost.prices_altered:
        before = cost.at_base_prices
        told = f"is {span(before.difference, signed=True)} a month" if before else "is not known"
        notes.append(
            "The change alters prices or accelerators of the catalog: past and new use the prices that it brings. "
            f"At the prices before, the difference {told}."
        )
    return notes


def effects_headline(effects: Effects | None) -> str:
    """How many services would differ, in a few words; empty if nothing was rendered anew."""
    if effects is None:
        return ""
    if not effects.changed:
        return f"{counted(effects.rendered, 'service')} rendered again; none changes"
    return f"{effects.changed:,} of {counted(effects.rendered, 'service')} rendered again would change"


def effects_lead(effects: Effects) -> str:
    """The sentence above the list of differences."""
    if not effects.rendered:
        return "No service and no example can be rendered with what the change brings."
    told = f"{counted(effects.rendered, 'service')} and examples were rendered by the base's files and by the change's"
    if not effects.differences:
        return f"{told}: their objects are the same."
    return f"{told}. {effects.changed:,} of them would change like this when they are next planned and rendered."


def effect(value: Effect, name: Escape) -> str:
    """One difference, with the number of its services."""
    sides = [side(text, name) for text in (value.before, value.after)]
    field = f" {name(value.field)}" if value.field else ""
    of = f" ({counted(value.services, 'service')}, such as {name(value.example)})" if value.example else " (no service)"
    return f"{name(value.kind)}{field}: {sides[0]} → {sides[1]}{of}"


def side(text: str | None, name: Escape) -> str:
    """One side of a difference."""
    return "not there" if text is None else name(text) if text.strip() else "empty"


def output_tokens(value: TokenPrice) -> str:
    """The price of output tokens, with the load at which it holds."""
    speed = pace(value.tokens_per_second)
    who = f"{counted(value.users, 'user')} at a time" if value.users else "one user at a time"
    return (
        f"about {amount(value.usd_per_million)} USD for a million output tokens, estimated for {who} on "
        f"each replica without a pause ({speed} tokens a second{' together' if (value.users or 1) > 1 else ''})"
    )


def no_price(item: UnpricedItem, name: Escape, prose: Escape) -> str:
    """Something without a price, with the reason."""
    when = {"before": "; before the change", "after": "", "both": "; before and after"}[item.side]
    return f"{name(place(item.environment, item.service))}, {name(item.subject)} ({prose(item.reason)}{when})"


def place(environment: str, service: str) -> str:
    """`environment/service`, or only the name for an object outside of every environment."""
    return f"{environment}/{service}" if environment else service


def override(value: AppliedOverride, name: Escape, prose: Escape) -> str:
    """An override with the planned value that it replaces, its last day, and its reason."""
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
    """The time until a pod is ready and its parts, the time that its probe allows, and its time to end."""
    expected, budget = seconds(value.expected_seconds), seconds(value.probe_budget_seconds)
    parts = [
        f"{name} {seconds(part)}"
        for name, part in (
            ("fetching", value.download_seconds),
            ("loading", value.load_seconds),
            ("compiling", value.compile_seconds),
            ("graphs", value.graphs_seconds),
            ("the rest", value.other_seconds),
        )
        if part
    ]
    of_which = f" ({', '.join(parts)})" if parts else ""
    return (
        f"up to {expected} to ready{of_which}, the startup probe allows {budget}, "
        f"{seconds(value.termination_grace_seconds)} to end"
    )


def pace(tokens_per_second: Decimal | float) -> str:
    """Tokens a second, without their unit: `41.3`, `1,240`."""
    return f"{tokens_per_second:.3g}" if tokens_per_second < 100 else f"{tokens_per_second:,.0f}"


def speed(plan: Plan) -> str:
    """The estimated speed at the asked load, with the room for more users and the price of a million tokens; of an idle
    replica in a plan from before the load counted. Empty if nothing is known and nothing is said about a load."""
    if plan.load is None:
        return _idle(plan.speed)
    load, asked = plan.load, counted(plan.load.users, "user")
    if load.ttft_seconds is None or load.tokens_per_second is None:
        return f"not known with {asked} at once ({COVERAGE[load.coverage]})"
    first, rate = load.ttft_seconds.p95, load.tokens_per_second.user
    parts = [
        f"with {asked} at once first token within {seconds(first.value)} at p95 ({seconds(first.low)} to "
        f"{seconds(first.high)})",
        f"{pace(rate.value)} tokens a second for each ({pace(rate.low)} to {pace(rate.high)})",
    ]
    if load.head_room_users is not None:
        room = load.head_room_users
        parts.append(f"room for {counted(room, 'more user')}" if room >= 0 else f"{counted(-room, 'user')} too many")
    if load.usd_per_million_output_tokens is not None:
        parts.append(f"{amount(load.usd_per_million_output_tokens)} USD a million output tokens")
    return f"{', '.join(parts)} ({COVERAGE[load.coverage]})"


def _idle(value: Speed) -> str:
    parts = []
    if value.ttft_seconds is not None:
        parts.append(f"{seconds(value.ttft_seconds)} to the first token of the longest prompt")
    if value.decode_tokens_per_second is not None:
        parts.append(f"{pace(value.decode_tokens_per_second)} tokens a second for one user")
    return f"{', '.join(parts)} (estimated)" if parts else ""


def seconds(value: float, *, fine: bool = False) -> str:
    """A duration: `0.42 s`, `45 s`, `12 min`, `12 min 30 s`; below a second `4.35 ms` if it is to be `fine`."""
    value = min(max(value, 0.0), _LONGEST)
    if fine and value < 0.9995:
        return f"{value * 1000:.3g} ms"
    if value < 10 and value != int(value):
        return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes:,} min {rest} s" if rest else f"{minutes:,} min"


def outcome(check: Check) -> str:
    """How a check ended, in words."""
    if check.outcome is Outcome.NOT_RUN and check.unjudged:
        return "not judged"
    return {
        Outcome.PASSED: "passed",
        Outcome.FINDINGS: "findings",
        Outcome.UNUSABLE: "unusable input",
        Outcome.UNTRUSTED: "cannot be trusted",
        Outcome.NOT_RUN: "not run",
    }[check.outcome]


def account(check: Check, prose: Escape) -> list[str]:
    """What a check looked at and caught: `6 of 6 objects`, `5 of 5 tripwires caught`; empty if it never began.

    Items that it could not judge do not count: `4 of 6 commands judged`, `2 not judged`.
    """
    facts: list[str] = []
    if check.outcome is Outcome.NOT_RUN and not check.unjudged:
        return facts
    began = check.outcome in (Outcome.PASSED, Outcome.FINDINGS)
    if check.unjudged:
        judged = max(check.evaluated - check.unjudged, 0)
        facts.append(f"{judged:,} of {check.expected:,} {prose(check.unit)} judged")
        facts.append(f"{check.unjudged:,} not judged")
    elif began or check.expected:
        facts.append(f"{check.evaluated:,} of {check.expected:,} {prose(check.unit)}")
    if began or check.tripwires:
        facts.append(tripwires(check.tripwires_caught, check.tripwires))
    return facts


def tripwires(caught: int, laid: int) -> str:
    """`5 of 5 tripwires caught`."""
    return f"{caught:,} of {counted(laid, 'tripwire')} caught"


def _plain(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

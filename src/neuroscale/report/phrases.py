"""Says the facts of a verdict in words: the phrases that more than one report uses.

`name` and `prose` are the escaping functions of the calling report (see `core.printable`); all other text consists of
numbers and of words from this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from neuroscale.core.money_and_time import amount, amounts, duration, pace, usd
from neuroscale.core.printable import counted
from neuroscale.costs.bill import CostChange, Range, ServiceCost, TokenPrice, UnpricedItem
from neuroscale.gate.verdict import Check, Effect, Effects, Outcome, ServiceReport
from neuroscale.planning.load_choice import COVERAGE
from neuroscale.planning.plan import Alternative, AppliedOverride, Plan, Speed, Startup
from neuroscale.planning.plan_facts import Escape, facts

_COMPARED = (
    *("Verdict", "Model", "Accelerators", "Tensor parallel size"),
    *("Replicas", "Longest context", "Concurrency", "Runtime"),
)


def gib(value: float) -> str:
    """A size to two decimals, without its unit."""
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.3g}"


def placement(plan: Plan, name: Escape) -> str:
    """Model, accelerators, tensor parallelism and replicas of a plan."""
    known = facts(plan, name)
    tensor = f"tensor parallel size {known['Tensor parallel size']}"
    return f"{known['Model']} on {known['Accelerators']}, {tensor}, {known['Replicas']}"


def memory_caption(plan: Plan) -> str:
    """The caption of the memory bar of a plan with several accelerators."""
    return f"GiB on each of the {plan.accelerator_count:,} accelerators:"


def differences(service: ServiceReport, name: Escape) -> list[str]:
    """The differences between the two plans of a service that matter to a reviewer; empty if a plan is missing."""
    if service.plan_before is None or service.plan is None:
        return []
    before, after = facts(service.plan_before, name), facts(service.plan, name)
    pairs = [(label.lower(), str(before[label]), str(after[label])) for label in _COMPARED]
    return [f"{what} from {old} to {new}" for what, old, new in pairs if old != new]


def price(plan: Plan) -> str:
    """The cost of a plan, with the date of the price; `unknown` if it has no price."""
    cost, month = plan.cost, facts(plan)["Price a month"]
    if cost.hourly is None or not month.unit:
        return "unknown"
    start = "from " if cost.monthly_min != cost.monthly_max else ""
    dated = f" (price of {cost.price_date.isoformat()})" if cost.price_date else " (price without a date)"
    return f"{start}{usd(cost.hourly)} an hour, {month} a month of 730 h{dated}"


def priced(plan: Plan, name: Escape) -> str:
    """The cost of a plan, and the accelerator without a price where that is why it is not known."""
    month = facts(plan, name)["Price a month"]
    return price(plan) if month.unit or plan.verdict == "refused" else f"{price(plan)}: {month.more}"


def rows(plan: Plan, name: Escape) -> list[tuple[str, str]]:
    """What a plan that is served costs, how long it starts, what a later change does, and its speed, where known."""
    texts = (priced(plan, name), startup(plan.startup), later_changes(plan, name), speed(plan))
    labels = ("Price", "Startup", "Rollout", "Speed")
    return [(label, text) for label, text in zip(labels, texts, strict=True) if text]


def later_changes(plan: Plan, name: Escape = str) -> str:
    """What a later change of the pods does by this plan, in a few words; empty for a plan from before."""
    later = facts(plan, name).get("A later change")
    return f"{later.value}, {later.more}" if later else ""


def cost_headline(cost: CostChange | None) -> str:
    """The change of the cost in a few words, and how many services it leaves out; empty without a cost."""
    if cost is None:
        return ""
    difference = cost.total.difference
    known = f"{span(difference, signed=True)} USD a month" if difference.min or difference.max else ""
    unknown = f"cost of {counted(cost.left_out, 'service')} not known" if cost.left_out else ""
    return ", ".join(filter(None, (known, unknown)))


def span(value: Range | None, *, signed: bool = False) -> str:
    """An amount a month with the fewest replicas to the most, without the currency."""
    return amounts(value.min, value.max, signed=signed) if value else "not known"


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
        most = f"{amount(use.monthly)} of {usd(use.budget)} a month with the most replicas"
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
        told = f"is {span(before.difference, signed=True)} USD a month" if before else "is not known"
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
        f"about {usd(value.usd_per_million)} for a million output tokens, estimated for {who} on "
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
    hourly = f", {usd(value.hourly)} an hour" if value.hourly is not None else ", price unknown"
    where = f"{name(value.model)} on {value.accelerator_count:,} x {name(value.accelerator)}"
    return f"{prose(value.change)} ({where}{hourly})"


def startup(value: Startup) -> str:
    """The time until a pod is ready and its parts, the time that its probe allows, and its time to end."""
    expected, budget = duration(value.expected_seconds), duration(value.probe_budget_seconds)
    parts = [f"{name} {duration(part)}" for name, part in value.steps.items()]
    of_which = f" ({', '.join(parts)})" if parts else ""
    return (
        f"up to {expected} to ready{of_which}, the startup probe allows {budget}, "
        f"{duration(value.termination_grace_seconds)} to end"
    )


def speed(plan: Plan) -> str:
    """The estimated speed at the asked load, with the room for more users and the price of a million tokens; of an idle
    replica in a plan from before the load counted. Empty if nothing is known and nothing is said about a load."""
    if plan.load is None:
        return _idle(plan.speed)
    known, asked = facts(plan), counted(plan.load.users, "user")
    if unknown := known.get("Speed"):
        return f"not known with {asked} at once ({unknown.more})"
    first, rate, room = known["First token"], known["Tokens a second"], plan.load.head_room_users
    parts = [
        f"with {asked} at once first token within {first.value} at p95 ({first.band})",
        f"{rate.value} tokens a second for each ({rate.band})",
    ]
    if room is not None:
        parts.append(f"{'room for ' if room >= 0 else ''}{known['Room']}")
    if million := known.get("A million output tokens"):
        parts.append(f"{million} a million output tokens")
    return f"{', '.join(parts)} ({COVERAGE[plan.load.coverage]})"


def _idle(value: Speed) -> str:
    parts = []
    if value.ttft_seconds is not None:
        parts.append(f"{duration(value.ttft_seconds)} to the first token of the longest prompt")
    if value.decode_tokens_per_second is not None:
        parts.append(f"{pace(value.decode_tokens_per_second)} tokens a second for one user")
    return f"{', '.join(parts)} (estimated)" if parts else ""


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

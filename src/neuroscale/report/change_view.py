"""Shows what a change of a service brings: its answers and its plan before and after, and what the merge does."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.printable import terminal
from neuroscale.gate.verdict import ServiceReport
from neuroscale.planning.plan import Plan
from neuroscale.planning.plan_facts import facts
from neuroscale.report import change_phrases, phrases

Row = tuple[str, str, str]
"""What differs, before and after; "" where a side does not have it."""
_ALWAYS = ("accelerators", "replicas", "memory", "price a month")


def rows(service: ServiceReport) -> list[Row]:
    """The answers that differ, and of the plan what differs, with accelerators, replicas, memory and price always."""
    told = [
        (change_phrases.LABELS.get(one.field) or one.field, one.before or "", one.after or "")
        for one in service.answers
    ]
    before, after = (_facts(plan) for plan in (service.plan_before, service.plan))
    for name in after or before:
        old, new = before.get(name, ""), after.get(name, "")
        if name in _ALWAYS or old != new:
            told.append((name, old, new))
    return told


def sentences(service: ServiceReport, there: str, here: str) -> list[str]:
    """The differences in sentences, for a pull request. `there` and `here` name the sides."""
    return [
        f"{name}: {old or 'not set'} in {there}, {new or 'not set'} in {here}"
        for name, old, new in rows(service)
        if old != new
    ]


def merge(service: ServiceReport) -> str:
    """What the merge does to the running service."""
    if service.plan is None:
        return "The service ends: Argo CD deletes it, and its callers get errors."
    return change_phrases.rollout_of(service, service.plan)


def print_change(service: ServiceReport, console: Console, titles: tuple[str, str] = ("now", "then")) -> None:
    """The table for people, without what the merge does."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in (f"{service.environment}/{service.name}", *titles):
        table.add_column(Text(terminal(title)), overflow="fold")
    for name, old, new in rows(service):
        table.add_row(*(Text(terminal(cell or "-")) for cell in (name, old, new if new != old else "same")))
    console.print(table)


def as_rows(service: ServiceReport) -> list[dict[str, Any]]:
    """The table for programs."""
    return [{"what": name, "before": old or None, "after": new or None} for name, old, new in rows(service)]


def _facts(plan: Plan | None) -> dict[str, str]:
    if plan is None:
        return {}
    known = facts(plan)
    verdict, memory, requests = known["Verdict"], known["Memory"], known["Concurrency"]
    return {
        "verdict": f"{verdict}, {verdict.more}",
        "accelerators": str(known["Accelerators"]),
        "replicas": known["Replicas"].value,
        "memory": f"{memory} {memory.more}",
        "longest context": str(known["Longest context"]),
        "requests at once": f"{requests} {requests.more}",
        "speed": phrases.speed(plan) or "not known",
        "price a month": str(known["Price a month"]),
        "runtime": str(known["Runtime"]),
        "cost centre": str(known["Cost centre"]),
        "rollout": phrases.later_changes(plan),
    }

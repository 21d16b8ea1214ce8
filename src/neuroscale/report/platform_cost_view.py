"""Prints what the platform's own programs cost in each environment, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.money_and_time import amount, amounts, usd
from neuroscale.core.printable import counted, terminal
from neuroscale.costs.difference import Priced
from neuroscale.report.plan_view import line

_RULE = "What the programs request, at the price lists' price of a vCPU and a GiB. No team's budget counts it."


def print_costs(found: Mapping[str, Priced], console: Console) -> None:
    """Show the costs of each environment to a person."""
    for environment, priced in found.items():
        low, high = _month(priced)
        title = f"The platform's own programs in {terminal(environment)}: {usd(low, high)} a month of 730 h"
        left = f", without {counted(len(priced.unpriced), 'part')} named below" if priced.unpriced else ""
        line(console, Text.assemble((title, "bold"), left))
        console.print(_table(priced))
        for used in sorted(priced.used):
            line(console, f"Prices of {used.date.isoformat()}: {terminal(used.price_list)}.")
        if priced.unpriced:
            line(console, "Not in these amounts:")
        for reason, subjects in _by_reason(priced).items():
            line(console, f"- {terminal(', '.join(subjects), 1000)}: {terminal(reason, 400)}", 2)
        console.print()
    line(console, _RULE)


def as_mapping(found: Mapping[str, Priced]) -> dict[str, Any]:
    """The costs for programs: US dollars, decimals as text; CPU in cores, memory in GiB of one replica."""
    return {
        "schema_version": 1,
        "hours_per_month": 730,
        "environments": {
            environment: {
                "monthly": dict(zip(("min", "max"), map(str, _month(priced)), strict=True)),
                "workloads": [one.model_dump(mode="json", exclude={"cost_center"}) for one in priced.workloads],
                "without_price": [{"subject": one.subject, "reason": one.reason} for one in priced.unpriced],
                "prices": [
                    {"name": one.price_list, "date": one.date.isoformat(), "source": one.source}
                    for one in sorted(priced.used)
                ],
            }
            for environment, priced in found.items()
        },
    }


def _month(priced: Priced) -> tuple[Decimal, Decimal]:
    low = sum((one.monthly.min for one in priced.workloads), Decimal("0.00"))
    return low, sum((one.monthly.max for one in priced.workloads), Decimal("0.00"))


def _table(priced: Priced) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("program", no_wrap=True)
    for name in ("replicas", "CPU", "GiB", "USD an hour", "USD a month"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in priced.workloads:
        replicas = (
            f"{one.replicas_min}" if one.replicas_min == one.replicas_max else f"{one.replicas_min}-{one.replicas_max}"
        )
        monthly = amounts(one.monthly.min, one.monthly.max)
        table.add_row(
            Text(terminal(one.subject)), replicas, str(one.cpu), str(one.memory_gib), amount(one.hourly), monthly
        )
    return table


def _by_reason(priced: Priced) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in priced.unpriced:
        found.setdefault(one.reason, []).append(one.subject)
    return found

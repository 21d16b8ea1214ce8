"""Writes a statement of what services cost, for people, for programs, and as a table."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.printable import one_line, terminal
from neuroscale.metering.notes import WEIGHTING, Note
from neuroscale.metering.showback import RULE, Statement
from neuroscale.report.plan_view import line

CURRENCY: Final = "USD, assumed: OpenCost's answers name no currency"

_AMOUNTS = ("metered", "weighted", "idle", "shared", "total", "weighted_total")


def print_statement(found: Statement, place: str, console: Console) -> None:
    """Show a statement to a person: the bill, its rows, what stands in none of them, and what to know of it."""
    line(
        console,
        Text.assemble(("Showback ", "bold"), f"of {found.window}, by {found.by}, from OpenCost at {terminal(place)}"),
    )
    line(console, Text.assemble("Bill: ", (usd(found.bill), "bold"), f" = {_parts(found)}"))
    for note in found.notes:
        if note.first:
            _print_note(note, console)
    console.print()
    console.print(_table(found))
    console.print()
    line(console, f"{RULE[0].upper()}{RULE[1:]}.")
    for part in found.shared_parts:
        line(console, f"- {terminal(part.name)}: {usd(part.amount)}", 2)
    if found.undistributed:
        line(console, f"Not distributed: {usd(found.undistributed)}, which is in the bill and in no row.")
    if found.pools_weighted:
        line(console, WEIGHTING)
    for note in found.notes:
        if not note.first:
            _print_note(note, console)


def _print_note(note: Note, console: Console) -> None:
    style = "bold yellow" if note.level == "warning" or note.first else "bold"
    line(console, Text.assemble((f"{note.level.capitalize()}: ", style), terminal(note.text, 2000)))


def as_mapping(found: Statement, place: str) -> dict[str, Any]:
    """A statement for programs. Amounts are US dollars, decimals as text."""
    return {
        "schema_version": 1,
        "opencost": place,
        "window": {"start": found.window.start.isoformat(), "end": found.window.end.isoformat()},
        "currency": CURRENCY,
        "by": found.by,
        "bill": str(found.bill),
        "metered": str(found.metered),
        "idle": None if found.idle is None else str(found.idle),
        "shared": str(found.shared),
        "nodes_without_price": list(found.unpriced),
        "undistributed": str(found.undistributed),
        "rule": RULE,
        "weighting": {"pools": found.pools_weighted, "meaning": WEIGHTING},
        "rows": [
            {
                "name": row.name,
                "unnamed": row.unnamed,
                "gpu_hours": str(row.gpu_hours),
                "exact": str(row.exact),
                **{name: str(getattr(row, name)) for name in _AMOUNTS},
            }
            for row in found.rows
        ],
        "shared_parts": [{"name": part.name, "amount": str(part.amount)} for part in found.shared_parts],
        "notes": [{"level": note.level, "text": note.text} for note in found.notes],
    }


def as_csv(found: Statement) -> str:
    """A statement as a table: a line for each row, and one for what stands in none. The last two columns add up to the
    bill."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["kind", found.by, "gpu_hours", *(f"{name}_usd" for name in _AMOUNTS)])
    for row in found.rows:
        amounts = [str(getattr(row, name)) for name in _AMOUNTS]
        writer.writerow(["unnamed" if row.unnamed else "row", _cell(row.name), str(row.gpu_hours), *amounts])
    if found.undistributed:
        amounts = ["0.00"] * 4 + [str(found.undistributed)] * 2
        writer.writerow(["undistributed", "", "0", *amounts])
    return text.getvalue()


def usd(amount: Decimal) -> str:
    """`$1,234.50`, `-$0.50`."""
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"


def price_text(price: Decimal) -> str:
    """A price as it is, which may have more decimals than cents: `$0.0118`, `$2.20`."""
    return f"{'-' if price < 0 else ''}${abs(price):,f}"


def _parts(found: Statement) -> str:
    idle = "idle unknown" if found.idle is None else f"idle {usd(found.idle)}"
    return f"services {usd(found.metered)} + {idle} + shared {usd(found.shared)}"


def _table(found: Statement) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(found.by, no_wrap=True)
    table.add_column("GPU hours", justify="right", no_wrap=True)
    for name in _AMOUNTS:
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    for row in found.rows:
        table.add_row(
            Text(terminal(row.name)), f"{row.gpu_hours:,.2f}", *(usd(getattr(row, name)) for name in _AMOUNTS)
        )
    sums = (sum((getattr(row, name) for row in found.rows), Decimal(0)) for name in _AMOUNTS)
    hours = sum((row.gpu_hours for row in found.rows), Decimal(0))
    table.add_row("all rows", f"{hours:,.2f}", *map(usd, sums), style="bold")
    return table


def _cell(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    text = one_line(name)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text

"""Writes a statement of what services cost, for people, for programs, and as a table.

Draws who pays what: a bar for each row, and a mark at its weighted total.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.money_and_time import amount, usd
from neuroscale.core.printable import counted, one_line, terminal
from neuroscale.metering.notes import WEIGHTING, Note
from neuroscale.metering.showback import RULE, Row, Statement
from neuroscale.report.picture_file import (
    COLUMN,
    FAINT,
    IDLE,
    METERED,
    RED,
    SHARED,
    bar_axes,
    column,
    height_of,
    title_and_legend,
    write_figure,
)
from neuroscale.report.plan_view import line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CURRENCY: Final = "USD, assumed: OpenCost's answers name no currency"

_AMOUNTS = ("metered", "weighted", "idle", "shared", "total", "weighted_total")


def print_statement(found: Statement, place: str, console: Console) -> None:
    """Show a statement to a person: the bill, its rows, what stands in none of them, and what to know of it."""
    line(
        console,
        Text.assemble(
            ("Showback ", "bold"), f"of {found.window} in USD, by {found.by}, from OpenCost at {terminal(place)}"
        ),
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
            Text(terminal(row.name)), f"{row.gpu_hours:,.2f}", *(amount(getattr(row, name)) for name in _AMOUNTS)
        )
    sums = (sum((getattr(row, name) for row in found.rows), Decimal(0)) for name in _AMOUNTS)
    hours = sum((row.gpu_hours for row in found.rows), Decimal(0))
    table.add_row("all rows", f"{hours:,.2f}", *map(amount, sums), style="bold")
    return table


def _cell(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    text = one_line(name)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


_WEIGHTED = 0.865  # where the column of weighted totals ends, of the picture's width
_MOST = 12  # rows; the rest is one bar
_FACES = {"metered": METERED, "idle": IDLE, "shared": SHARED}


def write_showback_picture(found: Statement, path: Path) -> None:
    """Writes the picture as SVG or PNG, by the path's suffix. Raises InputError where it cannot, and writes nothing."""
    bars = _bars(found.rows)
    title = f"What {found.window} cost in USD, by {found.by}"
    write_figure(path, title, (8, height_of(len(bars))), lambda figure: _draw(figure, found, bars, title))


def _bars(rows: Sequence[Row]) -> list[tuple[str, dict[str, Decimal], Decimal]]:
    """The name, the parts and the weighted total of each bar."""
    shown = list(rows) if len(rows) <= _MOST else list(rows[: _MOST - 1])
    bars = [(row.name, {part: getattr(row, part) for part in _FACES}, row.weighted_total) for row in shown]
    if rest := rows[len(shown) :]:
        parts = {part: sum((getattr(row, part) for row in rest), Decimal(0)) for part in _FACES}
        bars.append((f"{len(rest)} others", parts, sum((row.weighted_total for row in rest), Decimal(0))))
    return bars


def _draw(
    figure: Figure, found: Statement, bars: Sequence[tuple[str, dict[str, Decimal], Decimal]], title: str
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    span = max((max(sum(parts.values()), mark) for _, parts, mark in bars), default=Decimal(0)) or Decimal(1)
    right = 0.72 if found.pools_weighted else 0.85
    axes = bar_axes(figure, [name for name, _, _ in bars], float(span), right=right)
    column(axes, COLUMN, -1, "total")
    if found.pools_weighted:
        column(axes, _WEIGHTED, -1, "weighted total", RED)
    for position, (_, parts, mark) in enumerate(bars):
        end = Decimal(0)
        for part, cost in parts.items():
            start, end = end, end + cost
            axes.barh(position, float(cost), left=float(start), height=0.66, color=_FACES[part], linewidth=0)
        column(axes, COLUMN, position, amount(end))
        if found.pools_weighted:
            axes.plot([float(mark)] * 2, [position - 0.42, position + 0.42], color=RED, linewidth=2.2)
            column(axes, _WEIGHTED, position, amount(mark), RED)
    left = f", {usd(found.undistributed)} of it in no row" if found.undistributed else ""
    incomplete = "; incomplete" if any(note.level == "warning" for note in found.notes) else ""
    too_low = "; too low: " + counted(len(found.unpriced), "node") + " without a price" if found.unpriced else ""
    keys: list[Patch | Line2D] = [Patch(facecolor=face, edgecolor=FAINT, label=part) for part, face in _FACES.items()]
    if found.pools_weighted:
        keys.append(Line2D([], [], color=RED, linewidth=2.2, label="total weighted by active parameters"))
    title_and_legend(figure, title, f"Bill {usd(found.bill)}{left}{incomplete}{too_low}", keys)

"""Draws who pays what: a bar for each row, and a mark at its weighted total."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.core.plurals import counted
from neuroscale.metering.showback import Row, Statement
from neuroscale.report.bar_picture import COLUMN, IDLE, METERED, SHARED, amount, bar_axes, height_of, title_and_legend
from neuroscale.report.picture_file import FAINT, RED, write_figure
from neuroscale.report.showback_view import usd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WEIGHTED = 0.865  # where the column of weighted totals ends, of the picture's width
_MOST = 12  # rows; the rest is one bar
_FACES = {"metered": METERED, "idle": IDLE, "shared": SHARED}


def write_showback_picture(found: Statement, path: Path) -> None:
    """Writes the picture as SVG or PNG, by the path's suffix. Raises InputError where it cannot, and writes nothing."""
    bars = _bars(found.rows)
    title = f"What {found.window} cost, by {found.by}"
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
    amount(axes, COLUMN, -1, "total")
    if found.pools_weighted:
        amount(axes, _WEIGHTED, -1, "weighted total", RED)
    for position, (_, parts, mark) in enumerate(bars):
        end = Decimal(0)
        for part, cost in parts.items():
            start, end = end, end + cost
            axes.barh(position, float(cost), left=float(start), height=0.66, color=_FACES[part], linewidth=0)
        amount(axes, COLUMN, position, usd(end))
        if found.pools_weighted:
            axes.plot([float(mark)] * 2, [position - 0.42, position + 0.42], color=RED, linewidth=2.2)
            amount(axes, _WEIGHTED, position, usd(mark), RED)
    left = f", {usd(found.undistributed)} of it in no row" if found.undistributed else ""
    incomplete = "; incomplete" if any(note.level == "warning" for note in found.notes) else ""
    too_low = "; too low: " + counted(len(found.unpriced), "node") + " without a price" if found.unpriced else ""
    keys: list[Patch | Line2D] = [Patch(facecolor=face, edgecolor=FAINT, label=part) for part, face in _FACES.items()]
    if found.pools_weighted:
        keys.append(Line2D([], [], color=RED, linewidth=2.2, label="total weighted by active parameters"))
    title_and_legend(figure, title, f"Bill {usd(found.bill)}{left}{incomplete}{too_low}", keys)

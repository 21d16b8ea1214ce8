"""Who pays what, as a picture: a bar for each row, and a mark where its weighted total lies."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.core.printable import one_line
from neuroscale.metering.showback import Row, Statement
from neuroscale.report.picture_file import FAINT, INK, PAPER, RED, write_figure
from neuroscale.report.showback_view import usd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WEIGHTED = 0.865  # where the column of weighted totals ends, of the picture's width
_MOST = 12  # rows; the rest is one bar
_FACES = {"metered": "#2f5d9b", "idle": "#e8b04a", "shared": "#aab4be"}


def write_showback_picture(found: Statement, path: Path) -> None:
    """Writes the picture as SVG or PNG, by the path's suffix. Raises InputError where it cannot, and writes nothing."""
    bars = _bars(found.rows)
    title = f"What {found.window} did cost, by {found.by}"
    height = 1.97 + 0.36 * max(1, len(bars))
    write_figure(path, title, (8, height), lambda figure: _draw(figure, found, bars, title, height))


def _bars(rows: Sequence[Row]) -> list[tuple[str, dict[str, Decimal], Decimal]]:
    """The name, the parts and the weighted total of each bar."""
    shown = list(rows) if len(rows) <= _MOST else list(rows[: _MOST - 1])
    bars = [
        (one_line(row.name, 34), {part: getattr(row, part) for part in _FACES}, row.weighted_total) for row in shown
    ]
    if rest := rows[len(shown) :]:
        parts = {part: sum((getattr(row, part) for row in rest), Decimal(0)) for part in _FACES}
        bars.append((f"{len(rest)} others", parts, sum((row.weighted_total for row in rest), Decimal(0))))
    return bars


def _draw(
    figure: Figure,
    found: Statement,
    bars: Sequence[tuple[str, dict[str, Decimal], Decimal]],
    title: str,
    height: float,
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    right = 0.72 if found.pools_weighted else 0.85
    axes = figure.add_axes((0.28, 0.78 / height, right - 0.28, 1 - 1.72 / height))
    span = max((max(sum(parts.values()), mark) for _, parts, mark in bars), default=Decimal(0)) or Decimal(1)
    for position, (_, parts, mark) in enumerate(bars):
        end = Decimal(0)
        for part, amount in parts.items():
            start, end = end, end + amount
            axes.barh(position, float(amount), left=float(start), height=0.66, color=_FACES[part], linewidth=0)
        if found.pools_weighted:
            axes.plot([float(mark)] * 2, [position - 0.42, position + 0.42], color=RED, linewidth=2.2)
        _amount(axes, 0.985, position, usd(end), INK)
        if found.pools_weighted:
            _amount(axes, _WEIGHTED, position, usd(mark), RED)
    axes.set(xlim=(0, float(span) * 1.005), ylim=(max(1, len(bars)) - 0.4, -0.6))
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"${value:,.10g}")
    axes.grid(axis="x", color="#e3e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    _amount(axes, 0.985, -1, "total", INK)
    if found.pools_weighted:
        _amount(axes, _WEIGHTED, -1, "weighted", RED)
    left = f", {usd(found.undistributed)} of it in no row" if found.undistributed else ""
    incomplete = "; incomplete" if any(note.level == "warning" for note in found.notes) else ""
    figure.text(0.02, 1 - 0.28 / height, title, color=INK, weight="bold")
    figure.text(0.02, 1 - 0.5 / height, f"Bill {usd(found.bill)}{left}{incomplete}", color=INK, fontsize=9)
    keys: list[Patch | Line2D] = [Patch(facecolor=face, edgecolor=FAINT, label=part) for part, face in _FACES.items()]
    if found.pools_weighted:
        keys.append(Line2D([], [], color=RED, linewidth=2.2, label="total weighted by active parameters"))
    figure.legend(
        handles=keys,
        loc="lower left",
        bbox_to_anchor=(0.01, 0.0),
        ncols=len(keys),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        facecolor=PAPER,
    )


def _amount(axes: Axes, right: float, position: float, text: str, color: str) -> None:
    """An amount in a column of the figure that ends at `right`, beside the bar at `position`."""
    from matplotlib.transforms import blended_transform_factory

    place = blended_transform_factory(axes.figure.transFigure, axes.transData)
    axes.text(right, position, text, transform=place, ha="right", va="center", color=color, fontsize=9, clip_on=False)

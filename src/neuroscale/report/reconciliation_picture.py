"""Draws estimates beside metered costs: two bars for each of the services that differ most."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.metering.comparison import Compared, Comparison, Threshold
from neuroscale.report.bar_picture import (
    COLUMN,
    ESTIMATE,
    IDLE,
    METERED,
    amount,
    bar_axes,
    height_of,
    title_and_legend,
)
from neuroscale.report.picture_file import FAINT, INK, RED, write_figure
from neuroscale.report.reconciliation_view import name, signed, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 12  # services


def write_reconciliation_picture(found: Comparison, threshold: Threshold, path: Path) -> None:
    """Writes the picture as SVG or PNG, by the path's suffix. Raises InputError where it cannot, and writes nothing."""
    rows = [one for one in found.services if one.difference is not None][:_MOST]
    title = f"Estimate against meter, {found.meter.window}"
    size = (8, height_of(len(rows)))
    write_figure(path, title, size, lambda figure: _draw(figure, found, threshold, rows, title))


def _draw(figure: Figure, found: Comparison, threshold: Threshold, rows: Sequence[Compared], title: str) -> None:
    from matplotlib.patches import Patch

    span = max((max(one.estimate or Decimal(0), one.metered + one.idle) for one in rows), default=Decimal(0))
    axes = bar_axes(figure, [name(one) for one in rows], float(span or 1), right=0.82)
    amount(axes, COLUMN, -1, "difference")
    for position, one in enumerate(rows):
        axes.barh(position - 0.18, float(one.estimate or 0), height=0.3, color=ESTIMATE, edgecolor=FAINT, linewidth=0.6)
        axes.barh(position + 0.18, float(one.metered), height=0.3, color=METERED, linewidth=0)
        axes.barh(position + 0.18, float(one.idle), left=float(one.metered), height=0.3, color=IDLE, linewidth=0)
        amount(axes, COLUMN, position, signed(one.difference or Decimal(0)), RED if threshold.passed_by(one) else INK)
    keys = [
        Patch(facecolor=face, edgecolor=FAINT, label=label)
        for label, face in (("estimate", ESTIMATE), ("metered", METERED), ("idle", IDLE))
    ]
    left = len(found.services) - len(found.unknown) - len(rows)
    more = f" {left} more not drawn." if left else ""
    title_and_legend(figure, title, f"{verdict(found, threshold)}{more}", keys)

"""Draws what a million tokens cost, by model."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.core.plurals import counted
from neuroscale.metering.cents import price_of
from neuroscale.metering.tokens import TokenCost
from neuroscale.metering.window import Window
from neuroscale.report.bar_picture import COLUMN, METERED, amount, bar_axes, height_of, title_and_legend
from neuroscale.report.picture_file import write_figure
from neuroscale.report.showback_view import price_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 12  # models
_MILLION = 10**6


def by_model(rows: Sequence[TokenCost]) -> list[tuple[str, Decimal]]:
    """US dollars per million tokens of each model, over its services whose price is known; the dearest first.

    Exact costs are added, so that the price of a model with one service is that service's.
    """
    sums: dict[str, tuple[Fraction, Fraction]] = {}
    for row in rows:
        if row.counted is not None and row.each is not None:
            cost, tokens = sums.get(row.model, (Fraction(0), Fraction(0)))
            there = Fraction(row.counted.prompt) + Fraction(row.counted.generation)
            sums[row.model] = cost + Fraction(row.cost), tokens + there
    prices = [(model or "(no model)", price_of(cost, tokens / _MILLION)) for model, (cost, tokens) in sums.items()]
    return sorted(prices, key=lambda one: (-one[1], one[0]))


def write_token_cost_picture(rows: Sequence[TokenCost], window: Window, path: Path) -> None:
    """Writes the picture as SVG or PNG, by the path's suffix. Raises InputError where it cannot, and writes nothing."""
    prices = by_model(rows)
    title = f"Cost per million tokens by model, {window}"
    height = height_of(min(_MOST, len(prices)))
    write_figure(path, title, (8, height), lambda figure: _draw(figure, rows, prices, title))


def _draw(figure: Figure, rows: Sequence[TokenCost], known: Sequence[tuple[str, Decimal]], title: str) -> None:
    prices = known[:_MOST]
    span = max((price for _, price in prices), default=Decimal(0)) or Decimal(1)
    axes = bar_axes(figure, [name for name, _ in prices], float(span), right=0.86)
    for position, (_, price) in enumerate(prices):
        axes.barh(position, float(price), height=0.6, color=METERED, linewidth=0)
        amount(axes, COLUMN, position, price_text(price))
    unknown = sum(row.each is None for row in rows)
    left = len(known) - len(prices)
    more = f" And {counted(left, 'cheaper model')} not drawn." if left else ""
    missing = f" {counted(unknown, 'service')} without a known price not drawn." if unknown else ""
    title_and_legend(figure, title, f"Prompt and generation together, without idle and shared.{more}{missing}", ())

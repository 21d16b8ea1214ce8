"""Writes what a million tokens cost, for people and for programs.

Draws what a million tokens cost, by model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.money_and_time import amount, usd
from neuroscale.core.printable import counted, terminal
from neuroscale.metering.allocation import experts_touched, price_of
from neuroscale.metering.inference import InferenceCost, InferenceCosts
from neuroscale.metering.notes import Note, listed
from neuroscale.metering.tokens import TokenCost
from neuroscale.metering.window import Window
from neuroscale.report.picture_file import COLUMN, METERED, bar_axes, column, height_of, title_and_legend, write_figure
from neuroscale.report.plan_view import line
from neuroscale.report.showback_view import CURRENCY

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
    title = f"Cost in USD per million tokens by model, {window}"
    height = height_of(min(_MOST, len(prices)))
    write_figure(path, title, (8, height), lambda figure: _draw(figure, rows, prices, title))


def _draw(figure: Figure, rows: Sequence[TokenCost], known: Sequence[tuple[str, Decimal]], title: str) -> None:
    prices = known[:_MOST]
    span = max((price for _, price in prices), default=Decimal(0)) or Decimal(1)
    axes = bar_axes(figure, [name for name, _ in prices], float(span), right=0.86)
    for position, (_, price) in enumerate(prices):
        axes.barh(position, float(price), height=0.6, color=METERED, linewidth=0)
        column(axes, COLUMN, position, amount(price))
    unknown = sum(row.each is None for row in rows)
    left = len(known) - len(prices)
    more = f" And {counted(left, 'cheaper model')} not drawn." if left else ""
    missing = f" {counted(unknown, 'service')} without a known price not drawn." if unknown else ""
    title_and_legend(figure, title, f"Prompt and generation together, without idle and shared.{more}{missing}", ())


MEANING = (
    "A price is what OpenCost charges the service (without idle and shared costs) over the tokens that its servers "
    "counted, prompt and generation together. Prompt tokens that came out of the prefix cache count as well."
)


OWN_MEANING = (
    "OpenCost's own cost of tokens (/inferenceCost) holds a share of idle costs and of the programs before the servers."
)


@dataclass(frozen=True)
class Own:
    """OpenCost's own cost of tokens: None where it computes none, or where `fault` says why it cannot be used."""

    costs: InferenceCosts | None = None
    fault: str = ""


Experts = Mapping[str, tuple[int, int]]
"""By model: its routed experts, and how many of them a token takes. Dense models are not there."""


def print_token_costs(
    rows: Sequence[TokenCost],
    window: Window,
    place: str,
    output_weight: Decimal | None,
    experts: Experts,
    console: Console,
    own: Own | None = None,
    notes: Sequence[Note] = (),
) -> None:
    """Show a person each service's price of a million tokens, or why it is not known; of mixtures of experts also how
    much of the model a step read. OpenCost's own figures stand beside, by model and namespace, where it has them."""
    head = f"of {window}, from OpenCost at {terminal(place)}"
    line(console, Text.assemble(("Cost in USD per million tokens ", "bold"), head))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("service", "model"):
        table.add_column(title, no_wrap=True)
    titles = ["cost", "tokens in", "tokens out", "per million"]
    if output_weight is not None:
        titles += ["in", "out"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        counts = ("", "") if row.counted is None else (f"{row.counted.prompt:,.0f}", f"{row.counted.generation:,.0f}")
        apart = [] if output_weight is None else [_price(row.prompt), _price(row.generation)]
        names = (Text(terminal(name)) for name in (f"{row.namespace}/{row.service}", row.model))
        table.add_row(*names, amount(row.cost), *counts, _price(row.each), *apart)
    console.print(table)
    line(console, MEANING)
    if output_weight is not None:
        line(
            console, f"Apart: an output token is priced {output_weight} times an input token, as --output-weight says."
        )
    for row in rows:
        if row.why_unknown:
            line(console, f"- {terminal(f'{row.namespace}/{row.service}')} has no price: {row.why_unknown}", 2)
    for row in rows:
        share = touched(row, experts)
        if share is not None and row.counted is not None:
            count, taken = experts[row.model]
            name = terminal(f"{row.namespace}/{row.service}")
            text = (
                f"- {name}: {row.counted.batch:.1f} requests ran at once while any did. A step that decodes so many "
                f"tokens reads {share:.0%} of the {count} experts, not the {taken / count:.0%} that one token takes."
            )
            line(console, text, 2)
    for note in notes:
        line(console, f"{note.level.capitalize()}: {terminal(note.text, 2000)}")
    if own is not None:
        _print_own(own, console)


def _print_own(own: Own, console: Console) -> None:
    if own.fault:
        line(console, f"OpenCost's own cost of tokens is not used: {terminal(own.fault)}")
    elif own.costs is not None:
        line(console, OWN_MEANING)
        for one in own.costs.models:
            name = terminal(f"{one.model} in {one.namespace}")
            if not one.known:
                line(console, f"- {name}: unknown, since {_why_unknown(one)}", 2)
                continue
            apart = f"{_price(one.input)} in, {_price(one.output)} out"
            by = f", divided by {terminal(one.method)}" if one.method else ""
            line(console, f"- {name}: {usd(one.cost)}, {_price(one.each)} per million ({apart}{by})", 2)
        if own.costs.empty:
            times = listed(tuple(map(str, own.costs.empty)))
            line(console, f"- OpenCost names no model in {times}: the figures above lack that time.", 2)


def _why_unknown(one: InferenceCost) -> str:
    if one.partly and one.cost > 0:
        return "OpenCost charged nothing for its tokens in a part of the window"
    return "OpenCost found no pods whose label names this model"


def touched(row: TokenCost, experts: Experts) -> float | None:
    """The share of the experts that a step read at the measured number of requests; None where that is not known."""
    if row.model not in experts or row.counted is None or row.counted.batch is None:
        return None
    count, taken = experts[row.model]
    return experts_touched(count, taken, max(1.0, row.counted.batch))


def as_mapping(
    rows: Sequence[TokenCost],
    window: Window,
    place: str,
    output_weight: Decimal | None,
    experts: Experts,
    own: Own | None = None,
    notes: Sequence[Note] = (),
) -> dict[str, Any]:
    """The same for programs. Amounts are US dollars, decimals as text."""
    return {
        "schema_version": 1,
        "opencost": place,
        "window": {"start": window.start.isoformat(), "end": window.end.isoformat()},
        "currency": CURRENCY,
        "output_weight": None if output_weight is None else str(output_weight),
        "meaning": MEANING,
        "services": [
            {
                "namespace": row.namespace,
                "service": row.service,
                "model": row.model,
                "cost": str(row.cost),
                "prompt_tokens": None if row.counted is None else f"{row.counted.prompt:.0f}",
                "generation_tokens": None if row.counted is None else f"{row.counted.generation:.0f}",
                "usd_per_million": _text(row.each),
                "usd_per_million_prompt": _text(row.prompt),
                "usd_per_million_generation": _text(row.generation),
                "requests_at_once": None if row.counted is None else row.counted.batch,
                "experts_touched": touched(row, experts),
                "why_unknown": row.why_unknown,
            }
            for row in rows
        ],
        "notes": [{"level": note.level, "text": note.text} for note in notes],
        "opencost_inference": _own_mapping(own or Own()),
    }


def _own_mapping(own: Own) -> dict[str, Any]:
    return {
        "meaning": OWN_MEANING,
        "available": own.costs is not None,
        "fault": own.fault,
        "models": [
            {
                "namespace": one.namespace,
                "model": one.model,
                "cost": str(one.cost) if one.known else None,
                "prompt_tokens": f"{one.prompt:.0f}",
                "generation_tokens": f"{one.generation:.0f}",
                "usd_per_million": _text(one.each),
                "usd_per_million_prompt": _text(one.input),
                "usd_per_million_generation": _text(one.output),
                "divided_by": one.method,
            }
            for one in (own.costs.models if own.costs else ())
        ],
        "empty": [str(one) for one in (own.costs.empty if own.costs else ())],
    }


def _price(value: Decimal | None) -> str:
    return "unknown" if value is None else amount(value)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)

"""Writes the comparison of estimates with metered costs, for people, for programs, and as the text of an issue.

Draws estimates beside metered costs: two bars for each of the services that differ most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.money_and_time import amount, usd
from neuroscale.core.printable import counted, markdown, markdown_cell, markdown_code, terminal
from neuroscale.metering.comparison import CAUSES, Compared, Comparison, Threshold
from neuroscale.report.picture_file import (
    COLUMN,
    ESTIMATE,
    FAINT,
    IDLE,
    INK,
    METERED,
    RED,
    bar_axes,
    column,
    height_of,
    title_and_legend,
    write_figure,
)
from neuroscale.report.plan_view import line
from neuroscale.report.showback_view import CURRENCY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MEANING = (
    "The estimate is the price of the fewest replicas of the plan that was merged at each time, over the hours of "
    "which there is data. Causes: hours (pods were there for another time), replicas (more or fewer than the fewest), "
    "price (an hour of a replica cost something else), idle (the service's part of what nodes cost beyond requests)."
)
_MOST = 100  # services in an issue
_CHANGES = 5  # of one service's plan


def print_comparison(found: Comparison, threshold: Threshold, place: str, console: Console) -> None:
    """Show a person each service, the largest difference first, and which differences count."""
    window = found.meter.window
    line(
        console,
        Text.assemble(
            ("Estimate against meter ", "bold"),
            f"of {window} in USD, {found.measured_hours} of {window.hours:.2f} hours measured, ",
            f"from OpenCost at {terminal(place)}",
        ),
    )
    line(console, verdict(found, threshold))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("service", no_wrap=True)
    for title in ("estimate", "metered", "idle", "difference", "", *CAUSES):
        table.add_column(title, justify="right", no_wrap=True)
    for one in found.services:
        causes = [amount(one.causes[cause], signed=True) if one.causes else "" for cause in CAUSES]
        table.add_row(
            Text(terminal(name(one))),
            "unknown" if one.estimate is None else amount(one.estimate),
            amount(one.metered),
            amount(one.idle),
            "unknown" if one.difference is None else amount(one.difference, signed=True),
            "" if one.percent is None else f"{one.percent:+}%",
            *causes,
            style="bold" if threshold.passed_by(one) else "",
        )
    console.print(table)
    line(console, MEANING)
    for one in found.services:
        if one.changes:
            line(console, f"- {terminal(name(one))} in this window: {terminal(_changes(one), 1000)}", 2)
    for one in found.unknown:
        line(console, f"- {terminal(name(one))} cannot be compared: {one.why_unknown}", 2)
    for note in found.notes:
        line(console, f"{note.level.capitalize()}: {terminal(note.text, 2000)}")


def as_mapping(found: Comparison, threshold: Threshold, place: str) -> dict[str, Any]:
    """The comparison for programs. Amounts are US dollars, decimals as text."""
    window = found.meter.window
    return {
        "schema_version": 1,
        "opencost": place,
        "window": {"start": window.start.isoformat(), "end": window.end.isoformat()},
        "currency": CURRENCY,
        "measured_hours": str(found.measured_hours),
        "threshold": {"usd": str(threshold.usd), "percent": str(threshold.percent)},
        "services": [
            {
                "environment": one.environment,
                "namespace": one.namespace,
                "service": one.service,
                "estimate": _text(one.estimate),
                "metered": str(one.metered),
                "idle": str(one.idle),
                "difference": _text(one.difference),
                "percent": _text(one.percent),
                "causes": None if one.causes is None else {cause: str(one.causes[cause]) for cause in CAUSES},
                "beyond": threshold.passed_by(one),
                "why_unknown": one.why_unknown,
                "changes": list(one.changes),
            }
            for one in found.services
        ],
        "notes": [{"level": note.level, "text": note.text} for note in found.notes],
    }


def issue_title(environments: Sequence[str], *, differs: bool = True) -> str:
    """The title of the issue about these environments; `differs`: whether a difference counts."""
    told = "differs from the estimate" if differs else "cannot be compared in full"
    return f"Metered cost {told}: {', '.join(environments) or 'unknown environment'}"


def issue_marker(environments: Sequence[str]) -> str:
    """The first line of its text, by which it is found again: one issue for the environments of one OpenCost."""
    return f"<!-- neuroscale-reconcile {','.join(environments)} -->"


def issue_text(found: Comparison, threshold: Threshold, teams: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text of the issue, in Markdown: what differs beyond the threshold, why, and what is not known.

    `teams`: each team and whom it wants told, by its namespace.
    """
    beyond = found.beyond(threshold)
    window = found.meter.window
    parts = [
        verdict(found, threshold) if beyond else _nothing_counts(found),
        f"Of {window}, {found.measured_hours} of {window.hours:.2f} hours measured by OpenCost.",
    ]
    if beyond:
        parts.append(_markdown_table(beyond[:_MOST]))
    if len(beyond) > _MOST:
        parts.append(f"And {counted(len(beyond) - _MOST, 'more service')}: see `neuroscale reconcile --dry-run`.")
    if changed := [one for one in beyond[:_MOST] if one.changes]:
        rows = [f"- {markdown(f'{name(one)}: {_changes(one)}', 1000)}" for one in changed]
        parts.append("Merged or removed within this time:\n\n" + "\n".join(rows))
    if beyond:
        parts.append(MEANING)
    named = dict.fromkeys(teams[one.namespace] for one in beyond[:_MOST] if one.namespace in teams)
    if named:
        parts.append("Tell these teams: " + ", ".join(markdown_code(team, 400) for team in named) + ".")
    if found.unknown:
        rows = [f"- {markdown(f'{name(one)}: {one.why_unknown}')}" for one in found.unknown[:_MOST]]
        parts.append("Cannot be compared:\n\n" + "\n".join(rows))
    if found.notes:
        parts.append("\n".join(f"- {note.level.capitalize()}: {markdown(note.text, 1000)}" for note in found.notes))
    parts.append("`neuroscale reconcile` writes this issue anew and closes it when no difference counts any more.")
    return "\n\n".join(parts) + "\n"


def verdict(found: Comparison, threshold: Threshold) -> str:
    """How many of the compared services differ by more than the limits, and how many cannot be compared."""
    limit = f"{usd(threshold.usd)} and {threshold.percent} %"
    number, unknown = len(found.beyond(threshold)), len(found.unknown)
    whole = counted(len(found.services) - unknown, "compared service" if unknown else "service")
    left = f" {counted(unknown, 'service')} cannot be compared." if unknown else ""
    return f"{number or 'None'} of {whole} {'differs' if number < 2 else 'differ'} by more than {limit}.{left}"


def _nothing_counts(found: Comparison) -> str:
    if not found.unknown:
        return "No difference counts, but the meter is incomplete: see the warnings below."
    return f"No difference counts; {counted(len(found.unknown), 'service')} cannot be compared."


def _changes(one: Compared) -> str:
    """The last changes of a service's plan within the window."""
    left = len(one.changes) - _CHANGES
    return "; ".join((*([f"{counted(left, 'change')} before"] if left > 0 else ()), *one.changes[-_CHANGES:]))


def name(one: Compared) -> str:
    """`environment/service`, with the namespace where the environment is not known."""
    return f"{one.environment or one.namespace}/{one.service}"


def _markdown_table(rows: Sequence[Compared]) -> str:
    titles = ("service", "estimate", "metered", "idle", "difference", *CAUSES)
    lines = [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1)]
    for one in rows:
        percent = "" if one.percent is None else f" ({one.percent:+} %)"
        cells = [
            markdown_cell(name(one)),
            usd(one.estimate or Decimal(0)),
            usd(one.metered),
            usd(one.idle),
            f"{usd(one.difference or Decimal(0), signed=True)}{percent}",
            *(usd(one.causes[cause], signed=True) if one.causes else "" for cause in CAUSES),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


_MOST_BARS = 12  # services


def write_reconciliation_picture(found: Comparison, threshold: Threshold, path: Path) -> None:
    """Writes the picture as SVG or PNG, by the path's suffix. Raises InputError where it cannot, and writes nothing."""
    rows = [one for one in found.services if one.difference is not None][:_MOST_BARS]
    title = f"Estimate against meter in USD, {found.meter.window}"
    size = (8, height_of(len(rows)))
    write_figure(path, title, size, lambda figure: _draw(figure, found, threshold, rows, title))


def _draw(figure: Figure, found: Comparison, threshold: Threshold, rows: Sequence[Compared], title: str) -> None:
    from matplotlib.patches import Patch

    span = max((max(one.estimate or Decimal(0), one.metered + one.idle) for one in rows), default=Decimal(0))
    axes = bar_axes(figure, [name(one) for one in rows], float(span or 1), right=0.82)
    column(axes, COLUMN, -1, "difference")
    for position, one in enumerate(rows):
        axes.barh(position - 0.18, float(one.estimate or 0), height=0.3, color=ESTIMATE, edgecolor=FAINT, linewidth=0.6)
        axes.barh(position + 0.18, float(one.metered), height=0.3, color=METERED, linewidth=0)
        axes.barh(position + 0.18, float(one.idle), left=float(one.metered), height=0.3, color=IDLE, linewidth=0)
        color = RED if threshold.passed_by(one) else INK
        column(axes, COLUMN, position, amount(one.difference or Decimal(0), signed=True), color)
    keys = [
        Patch(facecolor=face, edgecolor=FAINT, label=label)
        for label, face in (("estimate", ESTIMATE), ("metered", METERED), ("idle", IDLE))
    ]
    left = len(found.services) - len(found.unknown) - len(rows)
    more = f" {left} more not drawn." if left else ""
    title_and_legend(figure, title, f"{verdict(found, threshold)}{more}", keys)

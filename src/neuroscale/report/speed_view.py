"""Writes how fast a model answers under a load: a table for people, and a picture over the number of users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from neuroscale.core.money_and_time import duration, pace
from neuroscale.core.printable import one_line, plainly_counted, terminal
from neuroscale.planning.load_choice import COVERAGE
from neuroscale.planning.speed import Estimate, SpeedUnderLoad
from neuroscale.report.picture_file import FAINT, INK, METERED, write_figure
from neuroscale.report.plan_view import field, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def print_speed(
    speed: SpeedUnderLoad,
    rows: Sequence[SpeedUnderLoad],
    title: str,
    p95_ttft: float | None,
    largest: int | None,
    console: Console,
) -> None:
    """Print the speed under one load, with its band, and a table of `rows` over users. `title`: model and accelerators.
    `largest`: the most users that keep `p95_ttft` seconds (both None if not asked for)."""
    load = speed.load
    asked = (
        plainly_counted(load.users, "user")
        if load.requests_per_second is None
        else f"{load.requests_per_second:g} requests a second"
    )
    lengths = f"{load.prompt_tokens:,} tokens in, {load.answer_tokens:,} out"
    line(console, f"{terminal(title)}: {asked}, {lengths}")
    if speed.coverage != "unknown":
        first, other = (speed.ttft_p50, speed.ttft_p95), (speed.inter_token_p50, speed.inter_token_p95)
        for name, times in (("First token", first), ("Each other token", other)):
            middle, most = (_with_band(each, duration) for each in times)
            field(console, name, f"{middle} in the middle, {most} for 95 of 100")
        user, total = (_with_band(each, pace) for each in (speed.tokens_per_second_user, speed.tokens_per_second_total))
        field(console, "Tokens a second", f"{user} for a user, {total} in all")
    if p95_ttft is not None:
        known = "unknown" if largest is None else plainly_counted(largest, "user") + " at most"
        field(console, f"First token in {duration(p95_ttft)}", known)
    field(console, "Coverage", COVERAGE[speed.coverage])
    for reason in speed.reasons:
        line(console, f"- {terminal(reason)}", 4)
    if speed.coverage != "unknown" and rows:
        console.print(_table(rows))


def _table(rows: Sequence[SpeedUnderLoad]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    names = ("users", "TTFT p50", "TTFT p95", "token p50", "token p95", "user tokens/s", "all")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        times = (row.ttft_p50, row.ttft_p95, row.inter_token_p50, row.inter_token_p95)
        rates = (row.tokens_per_second_user, row.tokens_per_second_total)
        table.add_row(
            f"{row.load.users:,}",
            *("" if each is None else duration(each.value) for each in times),
            *("" if each is None else pace(each.value) for each in rates),
        )
    return table


def _with_band(estimate: Estimate | None, worded: Callable[[float], str]) -> str:
    """`120 ms (90 ms to 160 ms)`."""
    if estimate is None:
        return "unknown"
    return f"{worded(estimate.value)} ({worded(estimate.low)} to {worded(estimate.high)})"


def write_speed_picture(rows: Sequence[SpeedUnderLoad], title: str, path: Path) -> None:
    """Writes the figures over users as SVG or PNG, by the path's suffix: lines with their bands.

    Raises InputError for another suffix, or if the file cannot be written; then it writes nothing.
    """
    title = one_line(title, 86)
    write_figure(path, title, (8, 3.6), lambda figure: _draw(figure, [row for row in rows if row.ttft_p95], title))


_Figure = Callable[[SpeedUnderLoad], "Estimate | None"]
_DRAWN: tuple[tuple[str, str, _Figure], ...] = (
    ("first token, p95 (s)", "log", lambda row: row.ttft_p95),
    ("tokens a second of a user", "linear", lambda row: row.tokens_per_second_user),
    ("tokens a second in all", "linear", lambda row: row.tokens_per_second_total),
)


def _draw(figure: Figure, rows: Sequence[SpeedUnderLoad], title: str) -> None:
    figure.text(0.02, 0.94, title, color=INK, weight="bold")
    if not rows:
        figure.text(0.02, 0.5, "No figure is known.", color=INK)
        return
    load = rows[0].load
    lengths = f"prompts of {load.prompt_tokens:,} tokens, answers of {load.answer_tokens:,}; {rows[0].coverage}"
    figure.text(0.02, 0.875, f"{lengths}; the band holds 8 of 10 measurements", color=INK, fontsize=9)
    for place, (name, scale, value) in enumerate(_DRAWN):
        axes = figure.add_axes((0.07 + 0.325 * place, 0.16, 0.25, 0.62))
        _curve(axes, [row.load.users for row in rows], [value(row) for row in rows], scale)
        axes.set_title(name, color=INK, fontsize=9)


def _curve(axes: Axes, users: Sequence[int], values: Sequence[Estimate | None], scale: str) -> None:
    known = [(count, value) for count, value in zip(users, values, strict=True) if value is not None]
    counts = [count for count, _ in known]
    axes.fill_between(
        counts, [value.low for _, value in known], [value.high for _, value in known], color="#d5e0ef", linewidth=0
    )
    axes.plot(counts, [value.value for _, value in known], color=METERED, linewidth=1.8, marker="o", markersize=3)
    if scale == "log":
        axes.set(xscale="log", yscale="log")
    else:
        axes.set(xscale="log", ylim=(0, 1.08 * max((value.high for _, value in known), default=1.0)))
    axes.set_xticks(counts[::3], [f"{count}" for count in counts[::3]])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.yaxis.set_minor_formatter(lambda _value, _at: "")
    axes.tick_params(colors=INK, labelsize=8)
    axes.grid(color="#e3e7eb", linewidth=0.7)
    axes.set_xlabel("users", color=INK, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)

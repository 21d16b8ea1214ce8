"""Shows the choices for a request side by side: a table for people, the same for programs, and a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from neuroscale.core.money_and_time import amount, duration, pace
from neuroscale.core.printable import one_line, plainly_counted, terminal
from neuroscale.planning.advice import Advice, Advised
from neuroscale.planning.plan_facts import load_facts
from neuroscale.report.picture_file import FAINT, INK, METERED, write_figure
from neuroscale.report.plan_view import field, line
from neuroscale.request.service_request import Request

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = (
    *("", "replicas x accelerators", "USD a\nmonth", "USD a\nmillion\ntokens", "first\ntoken\np95"),
    *("tokens/s\nof a\nuser", "in all", "more\nusers", "speed is"),
)
_WORDS = (0, 1, len(_COLUMNS) - 1)
"""The places of the columns that hold words; the others hold numbers."""
_HEAD = 3
"""Lines of the columns' names."""


def print_advice(advice: Advice, request: Request, console: Console) -> None:
    """A table of the figures of the choices that work, and below it what each one is, and why it lost."""
    users, first = plainly_counted(request.concurrent_users, "user"), duration(request.p95_ttft_seconds)
    asked = f"{users} at once, first token in {first}"
    line(console, f"{terminal(request.model)} for {asked}; best {advice.by} first, * is the plan's choice")
    works = [one for one in advice.choices if one.works]
    if works:
        _print_table(works, console)
    else:
        line(console, "No choice works.", 2)
    for place, one in enumerate(advice.choices, 1):
        _print_choice(place, one, console)
    line(console, terminal(advice.laptop, 1000))


def _print_table(works: Sequence[Advised], console: Console) -> None:
    """The figures of choices side by side. A number is never broken: a narrow terminal wraps whole lines."""
    heads = [(*[""] * (_HEAD - len(words)), *words) for words in (name.split("\n") for name in _COLUMNS)]
    rows = [(f"{place}{'*' if one.chosen else ''}", *_cells(one)) for place, one in enumerate(works, 1)]
    columns = [(*head, *map(terminal, cells)) for head, cells in zip(heads, zip(*rows, strict=True), strict=True)]
    widths = [max(map(len, column)) for column in columns]
    for cells in zip(*columns, strict=True):
        padded = (
            cell.ljust(width) if place in _WORDS else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        line(console, " ".join(padded), 2)


def _print_choice(place: int, one: Advised, console: Console) -> None:
    """What a choice is, what speaks against it, and how sure it is."""
    where = f"{place}. {_setup(one)}. " if one.works else f"{one.count} x {one.accelerator}, {one.model}: "
    unsure = f" Not sure: {', and '.join(one.risks)}." if one.risks else ""
    if told := (one.against + unsure).strip():
        line(console, terminal(f"{where}{told}", 2000), 2)


_MOST_INSTEAD = 6
"""Choices that a refusal shows side by side."""


def _instead(advice: Advice) -> list[Advised]:
    """The best choices that work in place of a refused plan."""
    return [one for one in advice.choices if one.works][:_MOST_INSTEAD]


def print_instead(advice: Advice, console: Console) -> None:
    """The choices that work for the answers of a refused plan side by side; nothing if none does."""
    if not (works := _instead(advice)):
        return
    field(console, "Side by side", "what works for these answers, cheapest first")
    _print_table(works, console)
    for place, one in enumerate(works, 1):
        _print_choice(place, one, console)


def instead(advice: Advice) -> list[dict[str, Any]]:
    """The same for programs, as `as_mapping` has them."""
    return [_mapping(one) for one in _instead(advice)]


def _cells(one: Advised) -> tuple[str, ...]:
    load, room = one.load, one.load.head_room_users if one.load else None
    known = {fact.label: fact.value for fact in load_facts(load)}
    return (
        f"{one.replicas} x {one.count} {one.accelerator}",
        "not known" if one.monthly is None else amount(one.monthly),
        *(known.get(name, "not known") for name in ("A million output tokens", "First token", "Tokens a second")),
        "not known" if one.tokens_per_second is None else pace(one.tokens_per_second),
        "not known" if room is None else f"{room:,}",
        load.coverage if load else "unknown",
    )


def _setup(one: Advised) -> str:
    """The model with its weights, the replicas, and the context of a choice."""
    weights = "16-bit" if one.weights == "none" else one.weights
    cache = "" if one.kv_cache_dtype == "auto" else f", KV cache in {one.kv_cache_dtype}"
    replicas = plainly_counted(one.replicas, "replica")
    return f"{one.model} ({weights}{cache}), {replicas}, context of {one.context:,} tokens"


def as_mapping(advice: Advice, request: Request) -> dict[str, Any]:
    """The advice for programs: every choice with its figures, null where one is not known."""
    return {
        "schema_version": 1,
        "service": request.service,
        "environment": request.environment,
        "model": request.model,
        "by": advice.by,
        "choices": [_mapping(one) for one in advice.choices],
        "laptop": advice.laptop,
    }


def _mapping(one: Advised) -> dict[str, Any]:
    fields = {each.name: getattr(one, each.name) for each in dataclasses.fields(one)}
    return {
        **{name: value for name, value in fields.items() if name not in ("hourly", "monthly", "load")},
        "hourly_usd": None if one.hourly is None else str(one.hourly),
        "monthly_usd": None if one.monthly is None else str(one.monthly),
        "tokens_per_second": one.tokens_per_second,
        "load": one.load.model_dump(mode="json") if one.load else None,
    }


def write_advice_picture(advice: Advice, title: str, path: Path) -> None:
    """Writes the choices that work as points, by their price and their time to the first token, as SVG or PNG.

    Raises InputError for another suffix, or if the file cannot be written; then it writes nothing.
    """
    title = one_line(title, 80)
    write_figure(path, title, (8, 4), lambda figure: _draw(figure, advice, title))


def _draw(figure: Figure, advice: Advice, title: str) -> None:
    figure.text(0.02, 0.93, title, color=INK, weight="bold")
    shown = [one for one in advice.choices if one.works and one.monthly is not None and one.ttft_seconds is not None]
    if not shown:
        figure.text(0.02, 0.5, "No choice has a known price and a known speed.", color=INK)
        return
    axes = figure.add_axes((0.09, 0.14, 0.58, 0.72))
    for place, one in enumerate(shown, 1):
        prices, times = [float(one.monthly or 0)], [one.ttft_seconds or 0.0]
        axes.plot(prices, times, marker="o", linestyle="none", color=METERED if one.chosen else FAINT)
        axes.annotate(str(place), (prices[0], times[0]), textcoords="offset points", xytext=(5, 4), color=INK)
        label = f"{place}{'*' if one.chosen else ''}: {one.replicas} x {one.count} {one.accelerator},"
        figure.text(
            0.69,
            0.86 - min(0.05, 0.75 / len(shown)) * place,
            one_line(f"{label} {one.model.rpartition('/')[2]}", 48),
            fontsize=6,
            color=INK,
        )
    axes.set_xlabel("USD a month", color=INK, fontsize=9)
    axes.set_ylabel("first token at p95 (s)", color=INK, fontsize=9)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)

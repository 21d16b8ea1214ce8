"""Prints in the terminal whether a model fits."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from neuroscale.core.plurals import counted
from neuroscale.core.printable import terminal
from neuroscale.planning.fit import Choice, Fit
from neuroscale.planning.fit.messages import context_range
from neuroscale.report.memory_bar import memory_bar
from neuroscale.report.plan_view import field, line

_WIDEST_BAR = 72
_STYLES = {"fits": "green", "tight": "yellow", "refused": "red"}
_WORDS = {"fits": "fits", "tight": "fits, but tight", "refused": "refused"}
_CLOSE = "refused, but close: it may start"


def print_fit(result: Fit, console: Console, length: int | None = None) -> None:
    """Show a fit to a person: the verdict, the memory bar, what vLLM prints, why, and what works instead."""
    where = f"{result.count} x {terminal(result.accelerator)}"
    close = result.verdict == "refused" and bool(result.close)
    style = f"bold {'yellow' if close else _STYLES[result.verdict]}"
    told = _CLOSE if close else _WORDS[result.verdict]
    line(console, Text.assemble((f"{terminal(result.model)} ", "bold"), f"on {where}: ", (told, style)))
    if result.count > 1:
        line(console, "GiB of memory on each accelerator:", 2)
    width = max(20, min(_WIDEST_BAR, console.width - 4))
    for row in memory_bar(result.memory_gib, width, ascii_only=console.options.ascii_only).split("\n"):
        line(console, row, 2)
    if result.verdict != "refused":
        field(console, "KV cache", f"{result.kv_cache_tokens:,} tokens as vLLM {terminal(result.version)} counts them")
        field(
            console,
            "Requests at once",
            f"{result.max_concurrency:.2f} of {result.max_model_len:,} tokens"
            + (f", {result.at_once(length):.2f} of {length:,} tokens" if length else ""),
        )
    if result.max_context:
        field(
            console,
            "Longest context",
            f"{result.max_context:,} tokens{context_range(result)}, prompt and answer together",
        )
    if result.log:
        field(console, "vLLM prints", "")
    for printed in result.log:
        line(console, terminal(printed), 4)
    field(console, "Why", f"confidence {result.confidence}, {counted(len(result.reasons), 'reason')}")
    for reason in result.reasons:
        line(console, f"- {terminal(reason)}", 4)
    if result.choices:
        field(console, "Instead", "these start")
    for choice in result.choices:
        line(console, f"- {_choice(choice)}", 4)


def _choice(choice: Choice) -> str:
    said = f" ({terminal(' '.join(choice.arguments))})" if choice.arguments else ""
    where = f"on {choice.accelerator_count} x {terminal(choice.accelerator)}"
    price = f", {choice.hourly:.4f} US dollars per hour" if choice.hourly is not None else ", price unknown"
    source = f" ({terminal(choice.price_source)})" if choice.price_source else ""
    tight = " (tight)" if choice.tight else ""
    return f"{terminal(choice.change)}{said} {where}{tight}{price}{source}"

"""Prints a plan, whether a model fits, and whether a cluster has room for a plan, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from neuroscale.core.money_and_time import usd
from neuroscale.core.printable import counted, terminal
from neuroscale.planning.fit import Choice, Fit
from neuroscale.planning.fit.messages import context_range
from neuroscale.planning.plan import Memory, Plan
from neuroscale.planning.plan_facts import VERDICTS
from neuroscale.report import phrases
from neuroscale.report.memory_bar import memory_bar

if TYPE_CHECKING:  # a plan that is not compared with a cluster needs no client
    from neuroscale.cluster.capacity import Capacity

_WIDEST_BAR = 72
_STYLES = {"fits": "green", "tight": "yellow", "refused": "red"}
_CLOSE = "refused, but close: it may start"


def print_plan(plan: Plan, console: Console) -> None:
    """Show a plan to a person: what was chosen, what it costs, and why."""
    line(
        console, Text.assemble((f"{terminal(plan.environment)}/{terminal(plan.service)} ", "bold"), verdict_word(plan))
    )
    print_placement(plan, console)
    if plan.verdict != "refused":
        for label, text in phrases.rows(plan, terminal):
            field(console, label, text)
        field(console, "Runtime", f"{terminal(plan.runtime.name)} {terminal(plan.runtime.version)}")
        field(console, "vLLM", terminal(" ".join(plan.vllm_args), 4000))
    print_overrides(plan, console)
    print_reasons(plan, console)
    print_alternatives(plan, console)


def verdict_word(plan: Plan) -> tuple[str, str]:
    """The verdict of a plan, with its style."""
    return VERDICTS[plan.verdict], f"bold {_STYLES[plan.verdict]}"


def print_placement(plan: Plan, console: Console) -> None:
    """The model and its accelerators, and the memory bar."""
    line(console, phrases.placement(plan, terminal), 2)
    if plan.accelerator_count > 1:
        line(console, phrases.memory_caption(plan), 2)
    _print_bar(plan.memory_gib, console)


def _print_bar(memory: Memory, console: Console) -> None:
    width = max(20, min(_WIDEST_BAR, console.width - 4))
    for row in memory_bar(memory, width, ascii_only=console.options.ascii_only).split("\n"):
        line(console, row, 2)


def print_overrides(plan: Plan, console: Console) -> None:
    """The overrides of a plan, with reason and expiry."""
    for override in plan.overrides:
        field(console, "Override", phrases.override(override, terminal, terminal), "yellow")


def print_reasons(judged: Plan | Fit, console: Console) -> None:
    """Confidence and reasons."""
    field(console, "Why", f"confidence {judged.confidence}, {counted(len(judged.reasons), 'reason')}")
    for reason in judged.reasons:
        line(console, f"- {terminal(reason)}", 4)


def print_alternatives(plan: Plan, console: Console) -> None:
    """What works instead of a refused plan."""
    if plan.alternatives:
        field(console, "Instead", "these work")
    for alternative in plan.alternatives:
        line(console, f"- {phrases.alternative(alternative, terminal, terminal)}", 4)


def field(console: Console, name: str, value: str, style: str = "") -> None:
    """A line `Name  value` under a heading."""
    line(console, Text.assemble((f"{name}: ", f"bold {style}".strip()), value), 2)


def line(console: Console, value: str | Text, indent: int = 0) -> None:
    """One line of escaped text; nothing in it is read as markup.

    A terminal gets it wrapped with its indent; a pipe gets it in one line, so that it can be searched.
    """
    text = Text(value) if isinstance(value, str) else value
    if console.options.ascii_only:
        text.plain = text.plain.encode("ascii", "backslashreplace").decode("ascii")
    rows = text.wrap(console, max(20, console.width - indent)) if console.is_terminal else [text]
    for row in rows:
        row.rstrip()
        console.print(Text.assemble(" " * indent, row), soft_wrap=True, highlight=False)


def print_fit(result: Fit, console: Console, length: int | None = None) -> None:
    """Show a fit to a person: the verdict, the memory bar, what vLLM prints, why, and what works instead."""
    where = f"{result.count} x {terminal(result.accelerator)}"
    close = result.verdict == "refused" and bool(result.close)
    style = f"bold {'yellow' if close else _STYLES[result.verdict]}"
    told = _CLOSE if close else VERDICTS[result.verdict]
    line(console, Text.assemble((f"{terminal(result.model)} ", "bold"), f"on {where}: ", (told, style)))
    if result.count > 1:
        line(console, "GiB of memory on each accelerator:", 2)
    _print_bar(result.memory_gib, console)
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
    print_reasons(result, console)
    if result.choices:
        field(console, "Instead", "these start")
    for choice in result.choices:
        line(console, f"- {_choice(choice)}", 4)


def _choice(choice: Choice) -> str:
    said = f" ({terminal(' '.join(choice.arguments))})" if choice.arguments else ""
    where = f"on {choice.accelerator_count} x {terminal(choice.accelerator)}"
    price = f", {usd(choice.hourly)} an hour" if choice.hourly is not None else ", price unknown"
    source = f" ({terminal(choice.price_source)})" if choice.price_source else ""
    tight = " (tight)" if choice.tight else ""
    return f"{terminal(choice.change)}{said} {where}{tight}{price}{source}"


def print_room(room: Capacity, name: str, console: Console) -> None:
    """Print the room in the cluster of that name, below a plan."""
    field(console, f"Cluster {terminal(name)}", f"{room.verdict}: {terminal(room.summary)}")
    for pool in room.pools:
        free = "unknown" if pool.free is None else f"{pool.free:,}"
        there = f"{free} of {pool.allocatable:,} {pool.resource} free"
        told = f"{counted(pool.nodes, 'node')}, {pool.usable:,} usable, {there}"
        line(console, f"- node pool {terminal(pool.name)}: {terminal(told)}", 4)
    for finding in room.findings:
        line(console, f"- {terminal(finding.message)} {terminal(finding.remedy)}", 4)
    for note in room.notes:
        line(console, f"- {terminal(note)}", 4)
    if room.verdict == "unknown":
        line(console, "- Ask as a user who may list nodes, pods, resource quotas and limit ranges.", 4)

"""Prints the lessons and their results, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from neuroscale.core.plurals import counted
from neuroscale.core.printable import terminal, terminal_lines
from neuroscale.milestones.lessons import Lesson, Part
from neuroscale.milestones.run_table import word
from neuroscale.milestones.running import Ending, Outcome, State

_SHOWN_LINES = 15
"""The lines that are shown of the output of a program that does not hold."""
_STYLES = {State.HOLDS: "green", State.REFUTED: "bold red", State.NOT_RUN: "yellow", State.BROKEN: "bold red"}
_REASONS: dict[Part, str] = {
    "before": "the failure no longer happens: the lesson is history, and its page must say so",
    "after": "nothing prevents the failure any more",
}


def print_list(lessons: Sequence[Lesson], console: Console) -> None:
    """Show the lessons to a person, with how each shows its failure and what it needs."""
    table = Table(
        Column("lesson", no_wrap=True, overflow="fold"),
        "what went wrong",
        "evidence",
        "needs",
        box=None,
        pad_edge=False,
    )
    for one in lessons:
        table.add_row(terminal(one.name), terminal(one.title), one.evidence, terminal(", ".join(one.needs)))
    console.print(table)


def list_as_mapping(lessons: Sequence[Lesson]) -> dict[str, Any]:
    """The lessons for programs."""
    return {
        "schema_version": 1,
        "lessons": [_facts(one) for one in lessons],
    }


def _facts(lesson: Lesson) -> dict[str, Any]:
    return {"name": lesson.name, "title": lesson.title, "needs": list(lesson.needs), "evidence": lesson.evidence}


def print_beginning(number: int, of: int, lesson: Lesson, console: Console) -> None:
    """Print which lesson begins."""
    console.print(f"{number}/{of}  {terminal(lesson.name)}", markup=False)


def print_progress(text: str, console: Console) -> None:
    """Print what happens to the local platform of the lessons."""
    console.print(f"    {terminal_lines(text).replace(chr(10), chr(10) + '    ')}", markup=False, soft_wrap=True)


def print_outcomes(outcomes: Sequence[Outcome], stale: Sequence[str], console: Console) -> None:
    """Show the table, and below it why a lesson is not green."""
    table = Table(
        Column("lesson", no_wrap=True, overflow="fold"),
        "before fails as described",
        "after holds",
        box=None,
        pad_edge=False,
    )
    table.add_column("seconds", justify="right")
    for one in outcomes:
        cells = [
            f"[{_STYLES[ending.state]}]{word(one.lesson, part, ending.state)}[/]"
            for part, ending in one.endings.items()
        ]
        table.add_row(terminal(one.lesson.name), *cells, f"{one.seconds:.1f}")
    console.print()
    console.print(table)
    for one in outcomes:
        _print_why(one, console)
    if stale:
        console.print("\nPages that hold another output than this run's (renew them with --renew):", markup=False)
        for name in stale:
            console.print(f"  {terminal(name)}", markup=False)
    green, red = sum(one.green for one in outcomes), sum(one.red for one in outcomes)
    rest = len(outcomes) - green - red
    words = [f"{green} of {counted(len(outcomes), 'lesson')} held"]
    words += [f"{red} red"] if red else []
    words += [f"{rest} not run, which is not green"] if rest else []
    console.print(f"\n{', '.join(words)}; {sum(one.seconds for one in outcomes):.0f} s", markup=False)


def _print_why(outcome: Outcome, console: Console) -> None:
    told = ""
    for part, ending in outcome.endings.items():
        if ending.state is State.HOLDS or ending.reason == told:
            continue
        told = ending.reason
        console.print(f"\n{terminal(outcome.lesson.name)}, {part}: {_why(part, ending)}", markup=False, soft_wrap=True)
        if ending.state is not State.NOT_RUN:
            for line in ending.output.splitlines()[-_SHOWN_LINES:]:
                console.print(f"    {terminal(line)}", markup=False, soft_wrap=True)


def _why(part: Part, ending: Ending) -> str:
    if ending.state is State.REFUTED:
        return f"{_REASONS[part]}. {terminal(ending.reason)}"
    return f"{ending.state}. {terminal(ending.reason)}"


def as_mapping(outcomes: Sequence[Outcome], stale: Sequence[str]) -> dict[str, Any]:
    """The results of the lessons, for programs."""
    return {
        "schema_version": 1,
        "lessons": [
            {
                **_facts(one.lesson),
                "green": one.green,
                "seconds": round(one.seconds, 1),
                **{
                    part: {"state": ending.state, "seconds": round(ending.seconds, 1), "reason": ending.reason}
                    for part, ending in one.endings.items()
                },
            }
            for one in outcomes
        ],
        "stale_pages": list(stale),
    }

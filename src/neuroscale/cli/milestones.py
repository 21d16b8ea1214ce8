"""`neuroscale milestones`: runs the lessons of `milestones/`, and prints their results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from neuroscale.cli.options import JsonOption, RepositoryOption, plain_console, print_json
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.files import write_public
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import counted, terminal, terminal_lines
from neuroscale.milestones.lessons import FOLDER, Lesson, Part, choose, find_lessons, find_places, is_current, renew
from neuroscale.milestones.run_table import PAGE, renewed, word
from neuroscale.milestones.running import Ending, LessonRun, State, run_lessons
from neuroscale.repo.layout import SETTINGS

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
    for lesson in lessons:
        table.add_row(terminal(lesson.name), terminal(lesson.title), lesson.evidence, terminal(", ".join(lesson.needs)))
    console.print(table)


def list_as_mapping(lessons: Sequence[Lesson]) -> dict[str, Any]:
    """The lessons for programs."""
    return {"schema_version": 1, "lessons": [_facts(lesson) for lesson in lessons]}


def _facts(lesson: Lesson) -> dict[str, Any]:
    return {"name": lesson.name, "title": lesson.title, "needs": list(lesson.needs), "evidence": lesson.evidence}


def print_beginning(number: int, of: int, lesson: Lesson, console: Console) -> None:
    """Print which lesson begins."""
    console.print(f"{number}/{of}  {terminal(lesson.name)}", markup=False)


def print_progress(text: str, console: Console) -> None:
    """Print what happens to the local platform of the lessons."""
    console.print(f"    {terminal_lines(text).replace(chr(10), chr(10) + '    ')}", markup=False, soft_wrap=True)


def print_outcomes(outcomes: Sequence[LessonRun], stale: Sequence[str], console: Console) -> None:
    """Show the table, and below it why a lesson is not green."""
    table = Table(
        Column("lesson", no_wrap=True, overflow="fold"),
        "before fails as described",
        "after holds",
        box=None,
        pad_edge=False,
    )
    table.add_column("seconds", justify="right")
    for outcome in outcomes:
        cells = [
            f"[{_STYLES[ending.state]}]{word(outcome.lesson, part, ending.state)}[/]"
            for part, ending in outcome.endings.items()
        ]
        table.add_row(terminal(outcome.lesson.name), *cells, f"{outcome.seconds:.1f}")
    console.print()
    console.print(table)
    for outcome in outcomes:
        _print_why(outcome, console)
    if stale:
        console.print("\nPages that hold another output than this run's (renew them with --renew):", markup=False)
        for name in stale:
            console.print(f"  {terminal(name)}", markup=False)
    green, red = sum(outcome.green for outcome in outcomes), sum(outcome.red for outcome in outcomes)
    rest = len(outcomes) - green - red
    words = [f"{green} of {counted(len(outcomes), 'lesson')} held"]
    words += [f"{red} red"] if red else []
    words += [f"{rest} not run, which is not green"] if rest else []
    console.print(f"\n{', '.join(words)}; {duration(sum(outcome.seconds for outcome in outcomes))}", markup=False)


def _print_why(outcome: LessonRun, console: Console) -> None:
    reason = ""
    for part, ending in outcome.endings.items():
        if ending.state is State.HOLDS or ending.reason == reason:
            continue
        reason = ending.reason
        console.print(f"\n{terminal(outcome.lesson.name)}, {part}: {_why(part, ending)}", markup=False, soft_wrap=True)
        if ending.state is not State.NOT_RUN:
            for line in ending.output.splitlines()[-_SHOWN_LINES:]:
                console.print(f"    {terminal(line)}", markup=False, soft_wrap=True)


def _why(part: Part, ending: Ending) -> str:
    if ending.state is State.REFUTED:
        return f"{_REASONS[part]}. {terminal(ending.reason)}"
    return f"{ending.state}. {terminal(ending.reason)}"


def as_mapping(outcomes: Sequence[LessonRun], stale: Sequence[str]) -> dict[str, Any]:
    """The results of the lessons, for programs."""
    return {
        "schema_version": 1,
        "lessons": [
            {
                **_facts(outcome.lesson),
                "green": outcome.green,
                "seconds": round(outcome.seconds, 1),
                **{
                    part: {"state": ending.state, "seconds": round(ending.seconds, 1), "reason": ending.reason}
                    for part, ending in outcome.endings.items()
                },
            }
            for outcome in outcomes
        ],
        "stale_pages": list(stale),
    }


def run_milestones(
    names: Annotated[list[str] | None, typer.Argument(help="Lessons. Default: all.")] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="List the lessons, their evidence and what they need; run nothing.")
    ] = False,
    without_platform: Annotated[
        bool, typer.Option("--without-platform", help="Leave out the lessons that need the local platform.")
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Write the output into the pages of the lessons, and the table.")
    ] = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Run the lessons: each failure, with the real tool where it can run here, then how it is prevented. For the
    lessons that need the local platform it starts one in .state/milestones, unless one runs in .state/local. Exit
    status 1: a failure no longer happens, or is not prevented; 3: a lesson was not run."""

    root, source = find_places(repository)
    lessons = choose(find_lessons(source), names or [], without_platform=without_platform)
    if renew and not (source / SETTINGS).is_file():
        message, fix = "writes into pages, and these came with the package", "Run it in a complete clone."
        raise InputError.at("the command line", "--renew", message, fix)
    console = plain_console()
    if listed:
        if as_json:
            print_json(list_as_mapping(lessons))
        else:
            print_list(lessons, console)
        return ExitStatus.PASSED
    from contextlib import closing

    progress = Console(stderr=True, highlight=False)
    outcomes = []
    stale: list[str] = []

    def begins(number: int, lesson: Lesson) -> None:
        print_beginning(number, len(lessons), lesson, progress)

    with closing(run_lessons(lessons, root, begins, lambda text: print_progress(text, progress))) as run:
        for outcome in run:
            outcomes.append(outcome)
            lesson = outcome.lesson
            if renew:
                _renew(outcome)
            stale += [
                f"{lesson.name}/{lesson.page(part).name}"
                for part, ending in outcome.endings.items()
                if ending.state == "holds" and not is_current(lesson, part, ending.output)
            ]
    if renew:
        _renew_table(source, outcomes)
    if as_json:
        print_json(as_mapping(outcomes, stale))
    else:
        print_outcomes(outcomes, stale, console)
    if any(outcome.red for outcome in outcomes):
        return ExitStatus.FINDINGS
    return ExitStatus.PASSED if all(outcome.green for outcome in outcomes) else ExitStatus.UNTRUSTED


def _renew(outcome: LessonRun) -> None:
    """Write the outputs that hold into their pages."""
    for part, ending in outcome.endings.items():
        if ending.state == "holds":
            try:
                renew(outcome.lesson, part, ending.output)
            except ValueError as error:
                fix = "Mark the place in the page as milestones/README.md says."
                raise InputError.at(str(outcome.lesson.page(part)), "", str(error), fix) from error


def _renew_table(root: Path, outcomes: list[LessonRun]) -> None:
    """Write the rows of these lessons into the table of the last run."""
    page = root / FOLDER / PAGE
    try:
        text = page.read_text(encoding="utf-8")
        write_public(page, renewed(text, find_lessons(root), outcomes, datetime.now(UTC).date()))
    except (OSError, ValueError) as error:
        fix = "Mark the place of the table as in the original page."
        raise InputError.at(str(page), "", str(error), fix) from error

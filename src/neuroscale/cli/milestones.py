"""`neuroscale milestones`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import JsonOption, RepositoryOption
from neuroscale.core.errors import ExitStatus


def run_milestones(
    names: Annotated[list[str] | None, typer.Argument(help="Lessons. Default: all.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the lessons and what they need; run nothing.")] = False,
    without_platform: Annotated[
        bool, typer.Option("--without-platform", help="Leave out the lessons that need the local platform.")
    ] = False,
    renew: Annotated[bool, typer.Option("--renew", help="Write the output into the pages of the lessons.")] = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Run the lessons: each failure with the real tool, then how it is prevented here. Exit status 1: a failure no
    longer happens, or is not prevented; 3: a lesson was not run."""
    from rich.console import Console

    from neuroscale.cli import milestones_view as view
    from neuroscale.milestones.lessons import choose, find_lessons
    from neuroscale.milestones.pages import is_current
    from neuroscale.milestones.running import run_lesson
    from neuroscale.repo.layout import find_root

    lessons = choose(find_lessons(find_root(repository or Path.cwd())), names or [], without_platform=without_platform)
    console = Console(highlight=False)
    if listed:
        if as_json:
            print_json(view.list_as_mapping(lessons))
        else:
            view.print_list(lessons, console)
        return ExitStatus.PASSED
    progress = Console(stderr=True, highlight=False)
    outcomes = []
    stale: list[str] = []
    for number, lesson in enumerate(lessons, 1):
        view.print_beginning(number, len(lessons), lesson, progress)
        outcome = run_lesson(lesson)
        outcomes.append(outcome)
        if renew:
            _renew(outcome)
        stale += [
            f"{lesson.name}/{lesson.page(part).name}"
            for part, ending in outcome.endings.items()
            if ending.state == "holds" and not is_current(lesson, part, ending.output)
        ]
    if as_json:
        print_json(view.as_mapping(outcomes, stale))
    else:
        view.print_outcomes(outcomes, stale, console)
    if any(outcome.red for outcome in outcomes):
        return ExitStatus.FINDINGS
    return ExitStatus.PASSED if all(outcome.green for outcome in outcomes) else ExitStatus.UNTRUSTED


def _renew(outcome: object) -> None:
    """Write the outputs that hold into their pages."""
    from neuroscale.core.errors import InputError, Problem
    from neuroscale.milestones.pages import renew
    from neuroscale.milestones.running import Outcome

    assert isinstance(outcome, Outcome)
    for part, ending in outcome.endings.items():
        if ending.state == "holds":
            try:
                renew(outcome.lesson, part, ending.output)
            except ValueError as error:
                fix = "Mark the place in the page as milestones/README.md says."
                raise InputError(Problem(str(outcome.lesson.page(part)), "", str(error), fix)) from error

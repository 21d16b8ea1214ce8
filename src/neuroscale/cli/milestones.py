"""`neuroscale milestones`: runs the lessons of `milestones/`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import JsonOption, RepositoryOption
from neuroscale.core.errors import ExitStatus

if TYPE_CHECKING:
    from neuroscale.milestones.running import Outcome


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
    from rich.console import Console

    from neuroscale.cli import milestones_view as view
    from neuroscale.milestones.lessons import Lesson, choose, find_lessons
    from neuroscale.repo.layout import find_root

    root = find_root(repository or Path.cwd())
    lessons = choose(find_lessons(root), names or [], without_platform=without_platform)
    console = Console(highlight=False)
    if listed:
        if as_json:
            print_json(view.list_as_mapping(lessons))
        else:
            view.print_list(lessons, console)
        return ExitStatus.PASSED
    from contextlib import closing

    from neuroscale.milestones.lesson_run import run_lessons
    from neuroscale.milestones.pages import is_current

    progress = Console(stderr=True, highlight=False)
    outcomes = []
    stale: list[str] = []

    def begins(number: int, lesson: Lesson) -> None:
        view.print_beginning(number, len(lessons), lesson, progress)

    with closing(run_lessons(lessons, root, begins, lambda text: view.print_progress(text, progress))) as run:
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
        _renew_table(root, outcomes)
    if as_json:
        print_json(view.as_mapping(outcomes, stale))
    else:
        view.print_outcomes(outcomes, stale, console)
    if any(outcome.red for outcome in outcomes):
        return ExitStatus.FINDINGS
    return ExitStatus.PASSED if all(outcome.green for outcome in outcomes) else ExitStatus.UNTRUSTED


def _renew(outcome: Outcome) -> None:
    """Write the outputs that hold into their pages."""
    from neuroscale.core.errors import InputError, Problem
    from neuroscale.milestones.pages import renew

    for part, ending in outcome.endings.items():
        if ending.state == "holds":
            try:
                renew(outcome.lesson, part, ending.output)
            except ValueError as error:
                fix = "Mark the place in the page as milestones/README.md says."
                raise InputError(Problem(str(outcome.lesson.page(part)), "", str(error), fix)) from error


def _renew_table(root: Path, outcomes: list[Outcome]) -> None:
    """Write the rows of these lessons into the table of the last run."""
    from neuroscale.core.errors import InputError, Problem
    from neuroscale.core.files import write_public
    from neuroscale.milestones.lessons import FOLDER, find_lessons
    from neuroscale.milestones.run_table import PAGE, renewed

    page = root / FOLDER / PAGE
    try:
        text = page.read_text(encoding="utf-8")
        write_public(page, renewed(text, find_lessons(root), outcomes, datetime.now(UTC).date()))
    except (OSError, ValueError) as error:
        fix = "Mark the place of the table as in the original page."
        raise InputError(Problem(str(page), "", str(error), fix)) from error

"""Runs several lessons: first those that need no platform, then the others on one local platform."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path

from neuroscale.core.errors import NeuroscaleError
from neuroscale.milestones.lesson_platform import lesson_platform
from neuroscale.milestones.lessons import Lesson
from neuroscale.milestones.running import Outcome, not_run, run_lesson
from neuroscale.repo.layout import LOCAL_STATE, MILESTONES_STATE

_NO_START = "The local platform did not start: "


def run_lessons(
    lessons: Sequence[Lesson], root: Path, begins: Callable[[int, Lesson], None], tell: Callable[[str], None]
) -> Generator[Outcome, None, None]:
    """The outcome of each lesson of the repository `root`. Close the generator: that ends the platform it started.

    `begins` gets the number of each lesson, from 1, before it runs; `tell` the progress of the platform's start, and
    the log of a process that fails. Then the lessons that need the platform are not run.
    """
    ordered = sorted(lessons, key=lambda lesson: lesson.needs_platform)
    platform: Path | None = None
    failed = ""
    with ExitStack() as stack:
        for number, lesson in enumerate(ordered, 1):
            begins(number, lesson)
            if lesson.needs_platform and platform is None and not failed and lesson.missing() is None:
                own = root / MILESTONES_STATE
                try:
                    platform = stack.enter_context(lesson_platform(root / LOCAL_STATE, own, root, tell))
                except NeuroscaleError as error:
                    failed = f"{_NO_START}{str(error).splitlines()[0]}"
                    tell(f"{_NO_START}{error}")
                    if own.exists():
                        tell(f"All its logs: neuroscale local logs --state {own}")
            if lesson.needs_platform and failed:
                yield not_run(lesson, failed)
            else:
                yield run_lesson(lesson, platform=platform)

"""Runs a lesson's programs, and reports their results.

Runs several lessons: first those that need no platform, then the others on one local platform.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from neuroscale.core.errors import ExitStatus, NeuroscaleError
from neuroscale.core.money_and_time import duration
from neuroscale.milestones.lesson_platform import lesson_platform
from neuroscale.milestones.lessons import (
    EXAMPLE_VARIABLE,
    FALSE,
    HOLDS,
    PARTS,
    REFUTED,
    REPOSITORY_VARIABLE,
    STATE_VARIABLE,
    VLLM,
    Lesson,
    Part,
)
from neuroscale.repo.layout import LOCAL_STATE, MILESTONES_STATE, SETTINGS

SECONDS = 180.0
"""The runner ends a program that takes longer; each takes a few seconds on two idle cores."""
PLATFORM_SECONDS = 600.0
"""The same for a program that needs the platform or serves a model: vLLM starts slowly beside other work."""


class State(StrEnum):
    """The result of a program."""

    HOLDS = "holds"
    """Every claim of the program is true."""
    REFUTED = "refuted"
    """A claim is false: in `before`, the tool no longer fails; in `after`, nothing prevents the failure."""
    NOT_RUN = "not run"
    """This machine lacks something that the program needs."""
    BROKEN = "broken"
    """The program crashed, took too long, or claimed nothing."""


@dataclass(frozen=True)
class Ending:
    """How a program ended: its output, its run time in seconds, and the reason if it did not hold."""

    state: State
    output: str
    seconds: float
    reason: str = ""


@dataclass(frozen=True)
class LessonRun:
    """The results of both programs of a lesson."""

    lesson: Lesson
    before: Ending
    after: Ending

    @property
    def endings(self) -> dict[Part, Ending]:
        return {"before": self.before, "after": self.after}

    @property
    def seconds(self) -> float:
        return self.before.seconds + self.after.seconds

    @property
    def green(self) -> bool:
        """Whether the failure still happens, and is prevented here."""
        return self.before.state is self.after.state is State.HOLDS

    @property
    def red(self) -> bool:
        """Whether a program does not hold or is broken; a lesson that was not run is neither green nor red."""
        return any(ending.state in (State.REFUTED, State.BROKEN) for ending in (self.before, self.after))


def run_lesson(
    lesson: Lesson,
    *,
    platform: Path | None = None,
    seconds: float | None = None,
    places: Mapping[str, Path] | None = None,
) -> LessonRun:
    """Run `before`, then `after`. Run neither if a tool that the lesson needs is missing.

    `platform`: the state folder of the local platform, for a lesson that needs one; default: the repository's own.
    `places`: the values of REPOSITORY_VARIABLE and EXAMPLE_VARIABLE.
    """
    missing = lesson.missing()
    if missing is not None:
        return not_run(lesson, missing)
    limit = seconds or (PLATFORM_SECONDS if lesson.needs_platform or VLLM in lesson.needs else SECONDS)
    told = {**(places or {}), **({STATE_VARIABLE: platform} if platform else {})}
    before, after = (run_part(lesson, part, limit, told) for part in PARTS)
    return LessonRun(lesson, before, after)


def not_run(lesson: Lesson, reason: str) -> LessonRun:
    """The outcome of a lesson that this machine cannot run."""
    ending = Ending(State.NOT_RUN, "", 0.0, reason)
    return LessonRun(lesson, ending, ending)


def run_part(lesson: Lesson, part: Part, limit: float, places: Mapping[str, Path]) -> Ending:
    """Run one program of a lesson for at most `limit` seconds, and read its claims from what it prints."""
    began = time.monotonic()
    status, output = _run([sys.executable, str(lesson.program(part))], lesson.folder, limit, places)
    took = time.monotonic() - began
    if status is None:
        return Ending(State.BROKEN, output, took, f"It was ended after {duration(limit)}.")
    lines = output.splitlines()
    true, false = (sum(line.startswith(mark) for line in lines) for mark in (HOLDS, FALSE))
    if status == ExitStatus.UNTRUSTED and not true and not false:
        return Ending(State.NOT_RUN, output, took, lines[-1] if lines else "It did not say why.")
    if status == REFUTED and false:
        return Ending(State.REFUTED, output, took, next(line for line in lines if line.startswith(FALSE)))
    if status != ExitStatus.PASSED:
        return Ending(State.BROKEN, output, took, f"Exit status {status}: {lines[-1] if lines else 'no output'}")
    if false or not true:
        return Ending(State.BROKEN, output, took, "It ended with 0 and made no true claim.")
    return Ending(State.HOLDS, output, took)


def _run(argv: list[str], folder: Path, limit: float, places: Mapping[str, Path]) -> tuple[int | None, str]:
    """The exit status (None if the runner ended the program) and the output, both streams in one."""
    # The width of tables must not depend on the terminal.
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
    environment.pop("FORCE_COLOR", None)
    for name in (STATE_VARIABLE, REPOSITORY_VARIABLE, EXAMPLE_VARIABLE):
        environment.pop(name, None)
    environment |= {name: str(place) for name, place in places.items()}
    # Where the program finds `lesson_tools`.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder.parent), environment.get("PYTHONPATH"))))
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        _end(process)
        output, _ = process.communicate()
        status = None
    except BaseException:
        _end(process)
        raise
    return status, output


def _end(process: subprocess.Popen[str]) -> None:
    """End the program and all processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


_NO_START = "The local platform did not start: "
_NO_REPOSITORY = "The local platform needs a platform repository: run the lesson in a clone."


def run_lessons(
    lessons: Sequence[Lesson], root: Path, begins: Callable[[int, Lesson], None], tell: Callable[[str], None]
) -> Generator[LessonRun, None, None]:
    """The outcome of each lesson of the repository `root`. Close the generator: that ends the platform it started.

    Lessons read the example organisation's files, and judge them by the policies of `root`.
    `begins` gets the number of each lesson, from 1, before it runs; `tell` the progress of the platform's start, and
    the log of a process that fails. Then the lessons that need the platform are not run.
    """
    # Only here: it takes a second, and a list of the lessons does not need it.
    from neuroscale.rendering.example_files import example_folder

    ordered = sorted(lessons, key=lambda lesson: lesson.needs_platform)
    platform: Path | None = None
    failed = ""
    with ExitStack() as stack:
        example = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="neuroscale-example-"))).resolve()
        example_folder(example, root)
        places = {REPOSITORY_VARIABLE: root, EXAMPLE_VARIABLE: example}
        for number, lesson in enumerate(ordered, 1):
            begins(number, lesson)
            if lesson.needs_platform and not (root / SETTINGS).is_file():
                failed = _NO_REPOSITORY
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
                yield run_lesson(lesson, platform=platform, places=places)

"""Keeps the table of the last run of each lesson in `milestones/README.md`, between two marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import counted
from neuroscale.milestones.lessons import PAGES, Evidence, Lesson, Part
from neuroscale.milestones.running import LessonRun, State

PAGE = "README.md"
_START, _END = "<!-- the last run of each lesson -->", "<!-- end of the last run -->"
_BLOCK = re.compile(rf"{re.escape(_START)}\n.*?{re.escape(_END)}", re.DOTALL)
_ROW = re.compile(
    r"^\| \[(?P<name>[^\]]+)\]\([^)]+\) \| (?P<before>[^|]+) \| (?P<after>[^|]+) \| (?P<seconds>[\d.]+) "
    r"\| (?P<day>\d{4}-\d\d-\d\d) \|$",
    re.MULTILINE,
)
_HEAD = ("| lesson | before fails as described | after holds | seconds | run on |", "| --- | --- | --- | ---: | --- |")
_WORDS: dict[Part, dict[State, str]] = {
    "before": {State.HOLDS: "yes", State.REFUTED: "NO: history"},
    "after": {State.HOLDS: "yes", State.REFUTED: "NO"},
}
_OTHER_WORDS = {State.NOT_RUN: "not run", State.BROKEN: "BROKEN"}


@dataclass(frozen=True)
class LastRun:
    """The last run of a lesson: what the table says of its programs, their seconds, and the day."""

    name: str
    before: str
    after: str
    seconds: float
    day: date


def word(lesson: Lesson, part: Part, state: State) -> str:
    """The result of a program in the tables: a `before` in which no tool failed says what it shows instead."""
    if part == "before" and state is State.HOLDS and lesson.evidence is not Evidence.REAL_TOOL:
        return lesson.evidence
    return _WORDS[part].get(state) or _OTHER_WORDS[state]


def rows(page: str) -> dict[str, LastRun]:
    """The rows of the page by the lesson's name; those of lessons that never ran are left out."""
    block = _BLOCK.search(page)
    parts = _ROW.finditer(block[0]) if block else ()
    return {
        row["name"]: LastRun(
            row["name"], row["before"], row["after"], float(row["seconds"]), date.fromisoformat(row["day"])
        )
        for row in parts
    }


def renewed(page: str, lessons: Sequence[Lesson], outcomes: Iterable[LessonRun], today: date) -> str:
    """The page with a row for each of `lessons`: from `outcomes`, and as before for a lesson that was not run.

    Raises ValueError if the page does not have exactly one place for the table.
    """
    known = rows(page)
    for run in outcomes:
        if run.green or run.red:
            before, after = (word(run.lesson, part, ending.state) for part, ending in run.endings.items())
            known[run.lesson.name] = LastRun(run.lesson.name, before, after, run.seconds, today)
    parts = []
    for title, chosen in (
        ("Without a platform", [lesson for lesson in lessons if not lesson.needs_platform]),
        ("On the local platform, whose start is not counted", [lesson for lesson in lessons if lesson.needs_platform]),
    ):
        if chosen:
            ran = [known[lesson.name] for lesson in chosen if lesson.name in known]
            total = sum(row.seconds for row in ran)
            number = counted(len(chosen), "lesson")
            summary = (
                f"{title}: {number}, {duration(total)}."
                if len(ran) == len(chosen)
                else f"{title}: {len(ran)} of {number} ran."
            )
            parts.append(
                "\n".join([summary, "", *_HEAD, *(_line(lesson, known.get(lesson.name)) for lesson in chosen)])
            )
    block = "\n\n".join([_START, *parts, _END])
    new, places = _BLOCK.subn(lambda _: block, page)
    if places != 1:
        raise ValueError(f"{places} places are marked `{_START}` ... `{_END}`, and there must be one")
    return new


def _line(lesson: Lesson, row: LastRun | None) -> str:
    link = f"[{lesson.name}]({lesson.name}/{PAGES['before']})"
    if row is None:
        return f"| {link} | not run | not run | - | - |"
    return f"| {link} | {row.before} | {row.after} | {row.seconds:.1f} | {row.day.isoformat()} |"

"""The table of the last run of each lesson, in milestones/README.md."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from lesson_folders import README, write_lesson
from neuroscale.milestones.lessons import Lesson, find_lessons
from neuroscale.milestones.run_table import LastRun, renewed, rows
from neuroscale.milestones.running import Ending, LessonRun, State, not_run

MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)


@pytest.fixture
def lessons(tmp_path: Path) -> list[Lesson]:
    write_lesson(tmp_path, "a-tool")
    write_lesson(tmp_path, "b-log", evidence="recorded log")
    write_lesson(tmp_path, "c-platform", needs="platform")
    return find_lessons(tmp_path)


def ran(lesson: Lesson, before: State = State.HOLDS) -> LessonRun:
    return LessonRun(lesson, Ending(before, "", 1.25), Ending(State.HOLDS, "", 2.5))


def test_a_run_of_all_lessons_fills_the_table_with_the_platforms_apart(lessons: list[Lesson]) -> None:
    page = renewed(README, lessons, [ran(one) for one in lessons], MONDAY)
    assert page.startswith("# Lessons\n")
    assert page.endswith("\nMore.\n")
    assert "Without a platform: 2 lessons, 7.5 s." in page
    assert "On the local platform, whose start is not counted: 1 lesson, 3.75 s." in page
    assert "| [b-log](b-log/BEFORE.md) | recorded log | yes | 3.8 | 2026-11-23 |" in page
    assert renewed(page, lessons, [ran(one) for one in lessons], MONDAY) == page


def test_a_run_of_some_lessons_leaves_the_rows_of_the_others(lessons: list[Lesson]) -> None:
    page = renewed(README, lessons, [ran(one) for one in lessons[:2]], MONDAY)
    assert "On the local platform, whose start is not counted: 0 of 1 lesson ran." in page
    assert "| [c-platform](c-platform/BEFORE.md) | not run | not run | - | - |" in page
    outcomes = [not_run(lessons[0], "no tool"), ran(lessons[1], State.REFUTED)]
    assert rows(renewed(page, lessons, outcomes, TUESDAY)) == {
        "a-tool": LastRun("a-tool", "yes", "yes", 3.8, MONDAY),
        "b-log": LastRun("b-log", "NO: history", "yes", 3.8, TUESDAY),
    }


def test_the_row_of_a_lesson_that_is_gone_goes(lessons: list[Lesson]) -> None:
    page = renewed(README, lessons, [ran(one) for one in lessons], MONDAY)
    assert rows(renewed(page, lessons[1:], [], TUESDAY)).keys() == {"b-log", "c-platform"}


@pytest.mark.parametrize("page", ["# Lessons\n", README + README])
def test_a_page_without_exactly_one_place_is_refused(lessons: list[Lesson], page: str) -> None:
    with pytest.raises(ValueError, match="there must be one"):
        renewed(page, lessons, [], MONDAY)

"""The lessons themselves: each failure still happens with the real tool, and is still prevented."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from neuroscale.milestones.lessons import FOLDER, PARTS, VLLM, Lesson, find_lessons
from neuroscale.milestones.pages import is_current, pasted
from neuroscale.milestones.running import run_lesson

ROOT = Path(__file__).resolve().parents[2]
LESSONS = find_lessons(ROOT)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_is_complete(lesson: Lesson) -> None:
    for part in PARTS:
        assert os.access(lesson.program(part), os.X_OK)
        assert pasted(lesson, part), "run `neuroscale milestones --renew`"
        words = lesson.page(part).read_text().split("<!-- output", 1)[0].split()
        assert len(words) >= 60, "a page says in prose what happened"


def test_the_table_of_the_folder_names_every_lesson() -> None:
    table = (ROOT / FOLDER / "README.md").read_text()
    assert [lesson.name for lesson in LESSONS if f"]({lesson.name}/BEFORE.md)" not in table] == []


@pytest.mark.tools
@pytest.mark.parametrize(
    "lesson",
    [
        # Two starts of vLLM.
        pytest.param(one, marks=(pytest.mark.slow,) if VLLM in one.needs else (), id=one.name)
        for one in LESSONS
        if not one.needs_platform
    ],
)
def test_a_failure_happens_as_told_and_is_prevented_here(kyverno_once: None, lesson: Lesson) -> None:
    outcome = run_lesson(lesson)
    assert {part: ending.reason for part, ending in outcome.endings.items()} == dict.fromkeys(PARTS, "")
    assert outcome.green
    stale = [lesson.page(part).name for part in PARTS if not is_current(lesson, part, outcome.endings[part].output)]
    assert stale == [], f"run `neuroscale milestones {lesson.name} --renew`"

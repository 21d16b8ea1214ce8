"""The lessons themselves: each failure still happens with the real tool, and is still prevented."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from comparisons import MILESTONES
from lesson_folders import LESSONS, assert_as_told
from lesson_tools.recorded import RECORDED
from neuroscale.milestones.lessons import FOLDER, GATE, PARTS, VLLM, Evidence, Lesson, pasted
from neuroscale.milestones.run_table import rows, word
from neuroscale.milestones.running import State

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_PLATFORM = [one for one in LESSONS if not one.needs_platform]
SAMPLE = [one for one in WITHOUT_PLATFORM if VLLM not in one.needs][::3]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_is_complete(lesson: Lesson) -> None:
    for part in PARTS:
        assert os.access(lesson.program(part), os.X_OK)
        assert pasted(lesson, part), "run `neuroscale milestones --renew`"
        assert "program.gate(" not in lesson.program(part).read_text() or GATE in lesson.needs
        words = lesson.page(part).read_text().split("<!-- output", 1)[0].split()
        assert len(words) >= 60, "a page says in prose what happened"


@pytest.mark.parametrize(
    "lesson", [one for one in LESSONS if one.evidence is Evidence.RECORDED_LOG], ids=lambda lesson: lesson.name
)
def test_a_lesson_from_a_log_prints_the_recorded_figures_and_their_source(lesson: Lesson) -> None:
    page = " ".join((pasted(lesson, "before") or "").split())
    assert re.search(
        rf"{RECORDED} elsewhere, not run here: \S+ in tests/ground_truth\. Source: .+ It (started|failed)", page
    )


def test_the_table_of_the_folder_names_every_lesson() -> None:
    table = (ROOT / FOLDER / "README.md").read_text()
    assert [lesson.name for lesson in LESSONS if f"]({lesson.name}/BEFORE.md)" not in table] == []


def test_the_table_of_the_last_run_names_exactly_the_lessons_that_exist_and_shows_them_green() -> None:
    table = rows((ROOT / FOLDER / "README.md").read_text())
    assert table.keys() == {lesson.name for lesson in LESSONS}, "run `neuroscale milestones --renew`"
    shown = {name: (row.before, row.after) for name, row in table.items()}
    assert shown == {one.name: (word(one, "before", State.HOLDS), "yes") for one in LESSONS}


@pytest.mark.tools
@pytest.mark.parametrize(
    "lesson",
    [
        # Two starts of vLLM.
        pytest.param(one, marks=(pytest.mark.slow,) if VLLM in one.needs else (), id=one.name)
        for one in MILESTONES.sample(WITHOUT_PLATFORM, SAMPLE)
    ],
)
def test_a_failure_happens_as_told_and_is_prevented_here(kyverno_once: None, lesson: Lesson) -> None:
    assert_as_told(lesson)

"""The lessons that need the local platform, on the one that all tests share."""

from __future__ import annotations

import pytest

from lesson_folders import LESSONS, assert_as_told
from neuroscale.milestones.lessons import Lesson
from platform_lab import Platform


@pytest.mark.platform
@pytest.mark.slow
@pytest.mark.parametrize("lesson", [one for one in LESSONS if one.needs_platform], ids=lambda lesson: str(lesson.name))
def test_a_failure_happens_as_told_and_is_prevented_on_the_platform(platform: Platform, lesson: Lesson) -> None:
    assert_as_told(lesson, platform.folder)

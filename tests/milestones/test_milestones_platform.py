"""The lessons that need the local platform, on the one that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gitops_lab import ROOT, GitOps
from lesson_folders import LESSONS, assert_as_told
from neuroscale.milestones.lessons import Lesson
from platform_lab import Platform

CHANGED = "manifests/local/tiny-moe/networkpolicy.yaml"
"""The lesson on drift changes the object of this file by hand."""


@pytest.fixture
def deployed(gitops: GitOps) -> Iterator[None]:
    """Deploy that file where the platform began without this repository's services, as the demo's does in a test."""
    missing = not gitops.exists(CHANGED)
    if missing:
        gitops.merge({CHANGED: (ROOT / CHANGED).read_text(encoding="utf-8")}, "Deploy what a lesson changes")
    yield
    if missing:
        gitops.merge({CHANGED: None}, "Remove what a lesson changed")


@pytest.mark.platform
@pytest.mark.slow
@pytest.mark.usefixtures("deployed")
@pytest.mark.parametrize("lesson", [one for one in LESSONS if one.needs_platform], ids=lambda lesson: str(lesson.name))
def test_a_failure_happens_as_told_and_is_prevented_on_the_platform(platform: Platform, lesson: Lesson) -> None:
    assert_as_told(lesson, platform.folder)

"""The lessons that need the local platform, on the one that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gitops_lab import GitOps, service_files
from lesson_folders import LESSONS, assert_as_told
from neuroscale.milestones.lessons import Lesson
from platform_lab import Platform

SERVICE = "tiny-moe"
"""The lesson on drift changes an object of this service by hand."""


@pytest.fixture
def deployed(gitops: GitOps) -> Iterator[None]:
    """Deploy that service where the platform began without this repository's services, as the demo's does in a test.

    On simulated nodes, and with all its files: a folder that lacks one ends the commands that others run meanwhile.
    """
    missing = not gitops.exists(f"manifests/local/{SERVICE}/request.yaml")
    files = service_files(SERVICE)
    if missing:
        gitops.merge(files, "Deploy what a lesson changes")
    yield
    if missing:
        gitops.merge(dict.fromkeys(files), "Remove what a lesson changed")


@pytest.mark.platform
@pytest.mark.slow
@pytest.mark.usefixtures("deployed")
@pytest.mark.parametrize("lesson", [one for one in LESSONS if one.needs_platform], ids=lambda lesson: str(lesson.name))
def test_a_failure_happens_as_told_and_is_prevented_on_the_platform(platform: Platform, lesson: Lesson) -> None:
    assert_as_told(lesson, platform.folder)

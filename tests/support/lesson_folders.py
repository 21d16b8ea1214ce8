"""Writes folders of lessons for tests of their runner, and runs the repository's lessons."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from neuroscale.core.delivered import EXAMPLE
from neuroscale.core.delivered import FOLDER as REPOSITORY
from neuroscale.milestones.lessons import EXAMPLE_VARIABLE, PARTS, Lesson, find_lessons, is_current
from neuroscale.milestones.running import run_lesson
from neuroscale.rendering.example_files import example_folder
from neuroscale.repo.layout import SETTINGS

LESSONS = find_lessons(REPOSITORY)
"""The lessons of this repository."""

PAGE = "# Something went wrong\n\nText.\n\n<!-- output of ./{part} -->\n<!-- end of output -->\n\nMore.\n"
README = "# Lessons\n\n<!-- the last run of each lesson -->\n<!-- end of the last run -->\n\nMore.\n"
START = "from lesson_tools.program import Program, run\n"
TRUE = f"{START}run(lambda program: program.claim('It is so.', True))\n"
UNTRUE = f"{START}run(lambda program: program.claim('It is so.', False))\n"


def write_repository(root: Path) -> None:
    """Write a platform repository with links to the policies, template and platform files of this one."""
    for path in (*(REPOSITORY / "platform").iterdir(), REPOSITORY / "policies", REPOSITORY / "templates"):
        link = root / path.relative_to(REPOSITORY)
        link.parent.mkdir(exist_ok=True)
        if path != REPOSITORY / SETTINGS:
            link.symlink_to(path)
    (root / SETTINGS).write_bytes((EXAMPLE / SETTINGS).read_bytes())


def write_lesson(
    root: Path, name: str, before: str = TRUE, after: str = TRUE, needs: str = "", evidence: str = "real tool"
) -> None:
    """Write the four files of a lesson into `milestones/` of a repository; with the first, the README and the tools."""
    folder = root / "milestones" / name
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder.parent / "README.md").exists():
        (folder.parent / "lesson_tools").symlink_to(REPOSITORY / "milestones/lesson_tools")
        (folder.parent / "README.md").write_text(README)
    (folder / "before").write_text(before)
    (folder / "after").write_text(after)
    marks = {"needs": needs, "evidence": evidence}
    told = "".join(f"<!-- {mark}: {value} -->\n" for mark, value in marks.items() if value)
    (folder / "BEFORE.md").write_text(PAGE.format(part="before") + told)
    (folder / "AFTER.md").write_text(PAGE.format(part="after"))


@functools.cache
def _example() -> Path:
    """The example organisation's repository, once for all lessons of this process."""
    folder = Path(tempfile.mkdtemp(prefix="neuroscale-example-")).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    example_folder(folder)
    return folder


def assert_as_told(lesson: Lesson, platform: Path | None = None) -> None:
    """Run a lesson: both programs must hold, and its pages must show what they print."""
    outcome = run_lesson(lesson, platform=platform, places={EXAMPLE_VARIABLE: _example()})
    assert {part: ending.reason for part, ending in outcome.endings.items()} == dict.fromkeys(PARTS, "")
    assert outcome.green
    stale = [lesson.page(part).name for part in PARTS if not is_current(lesson, part, outcome.endings[part].output)]
    assert stale == [], f"run `neuroscale milestones {lesson.name} --renew`"

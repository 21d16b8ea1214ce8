"""The local platform that `neuroscale milestones` starts for the lessons that need one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import Said, commands
from lesson_folders import START, TRUE, write_lesson, write_repository
from neuroscale.core.errors import UntrustedError
from neuroscale.local.state import LocalError
from neuroscale.milestones import lesson_platform
from neuroscale.milestones.lessons import STATE_VARIABLE

pytestmark = pytest.mark.slow  # it starts a program for each case

NAMES_ITS_PLATFORM = f"""import os
{START}state = os.environ.get({STATE_VARIABLE!r}, 'nowhere')
run(lambda program: program.claim(f'The platform is in {{state}}.', True))
"""


class Recorded:
    """Stands in for the starts and stops of the local platform, which take a minute, and remembers them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, Path]] = []
        self.error: Exception | None = None
        patch.setattr(lesson_platform, "up", self.up)
        patch.setattr(lesson_platform, "down", self.down)

    def up(self, folder: Path, root: Path, options: Any, tell: Callable[[str], None]) -> None:
        self.done.append(("up", folder))
        folder.mkdir(parents=True)
        tell("  1.0 s  etcd is healthy")
        assert options.cluster
        assert "local" in options.environments
        if self.error is not None:
            raise self.error

    def down(self, folder: Path, tell: Callable[[str], None], *, delete: bool) -> None:
        assert delete
        self.done.append(("down", folder))
        folder.rmdir()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A platform repository with a lesson that needs the platform, and another one behind it."""
    write_repository(tmp_path)
    write_lesson(tmp_path, "a-needs-it", before=NAMES_ITS_PLATFORM, needs="platform")
    write_lesson(tmp_path, "b-does-not", before=NAMES_ITS_PLATFORM)
    return tmp_path


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    return commands(capsys, monkeypatch, "milestones")


def output_of(root: Path, name: str) -> str:
    return (root / "milestones" / name / "BEFORE.md").read_text()


def test_a_platform_starts_for_the_lessons_that_need_one_and_ends_with_them(
    root: Path, recorded: Recorded, command: Callable[..., Said]
) -> None:
    said = command("--renew", "--repository", root)
    own = root / ".state/milestones"
    assert said.status == 0
    assert recorded.done == [("up", own), ("down", own)]
    assert f"one starts in {own}" in said.err
    assert "etcd is healthy" in said.err
    assert said.err.index("b-does-not") < said.err.index("a-needs-it"), "lessons without a platform come first"
    assert f"The platform is in {own}." in output_of(root, "a-needs-it").replace("\n", " ")
    assert "The platform is in nowhere." in output_of(root, "b-does-not")


def test_no_platform_starts_where_no_lesson_needs_one(
    root: Path, recorded: Recorded, command: Callable[..., Said]
) -> None:
    assert command("b-does-not", "--repository", root).status == 0
    assert command("--without-platform", "--repository", root).status == 0
    assert recorded.done == []


def test_a_platform_that_runs_already_is_used_and_stays(
    root: Path, recorded: Recorded, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lesson_platform, "running_cluster", lambda folder, root: folder / "kubeconfig")
    said = command("--renew", "--repository", root)
    assert said.status == 0
    assert recorded.done == []
    assert f"The platform is in {root / '.state/local'}." in output_of(root, "a-needs-it").replace("\n", " ")


def test_a_platform_that_does_not_start_leaves_its_lessons_not_run_with_the_log_of_the_failing_process(
    root: Path, recorded: Recorded, command: Callable[..., Said]
) -> None:
    recorded.error = LocalError("etcd does not run: it has ended. The last lines of etcd.log:\n  | disk is full")
    said = command("--repository", root)
    assert said.status == 3
    assert "disk is full" in said.err
    assert f"neuroscale local logs --state {root / '.state/milestones'}" in said.err
    assert "1 of 2 lessons held, 1 not run" in said.out
    assert "etcd does not run" in said.out

    recorded.error = None
    said = command("--repository", root)
    assert said.status == 0
    assert "of an earlier run" in said.err


def test_a_platform_is_not_called_running_where_none_runs(root: Path) -> None:
    with pytest.raises(UntrustedError, match="No local cluster runs"):
        lesson_platform.running_cluster(root / "state", root)


def test_a_lesson_says_that_no_platform_runs(root: Path, recorded: Recorded, command: Callable[..., Said]) -> None:
    uses = f"{START}run(lambda program: program.platform())\n"
    write_lesson(root, "a-needs-it", before=uses, after=TRUE, needs="platform")
    said = command("--repository", root)
    assert said.status == 3
    assert "No local cluster runs" in said.out

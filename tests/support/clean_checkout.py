"""Checks whether the tests wrote files into the checkout that git does not ignore, and so outside of `WRITTEN`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_BEFORE = pytest.StashKey[frozenset[str]]()


def _untracked() -> frozenset[str]:
    """Files that git neither tracks nor ignores; none if this is not a clone."""
    command = ["git", "-C", str(_ROOT), "ls-files", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return frozenset(done.stdout.split("\0")) - {""}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember the files before the run."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = _untracked()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail in CI, where nobody else writes; elsewhere somebody may have added a file meanwhile."""
    before = session.config.stash.get(_BEFORE, None)
    if before is not None and (new := sorted(_untracked() - before)):
        print(f"\nWritten into the checkout during the tests: {', '.join(new)}")
        if os.environ.get("CI"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

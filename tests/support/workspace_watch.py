"""Records the files that jobs write into their checkouts while they run: the forge's runner removes a checkout with its
job.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from neuroscale.local.state import State
from neuroscale.local.workflow_runner import Runner
from neuroscale.repo.layout import is_written

_PAUSE = 0.2  # seconds
_REMOVED_MEANWHILE = (FileNotFoundError, NotADirectoryError)
_is_written = cache(is_written)  # asked about each name in each checkout, five times a second


@dataclass
class Written:
    """Paths within the checkouts: files outside of WRITTEN, and the first parts of WRITTEN's own."""

    files: set[str] = field(default_factory=set)
    allowed: set[str] = field(default_factory=set)

    def beside(self, tracked: Set[str]) -> set[str]:
        """Files that existed although git does not track them and WRITTEN does not name them."""
        return {path for path in self.files if path not in tracked}


@contextlib.contextmanager
def watched(state: State) -> Iterator[Written]:
    """Watch all checkouts of the runner's jobs, several times a second."""
    found, ended = Written(), threading.Event()

    def watch() -> None:
        while not ended.wait(_PAUSE):
            with contextlib.suppress(*_REMOVED_MEANWHILE):
                for git in (Runner(state).folder / "work").glob("*/hostexecutor/.git"):
                    _look(git.parent, "", found)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _look(folder: Path, prefix: str, found: Written) -> None:
    # A file that a job removes meanwhile did exist.
    with contextlib.suppress(*_REMOVED_MEANWHILE), os.scandir(folder) as entries:
        for entry in entries:
            path = f"{prefix}{entry.name}"
            if path == ".git":
                continue
            if _is_written(entry.name):
                found.allowed.add(path)
            elif entry.is_dir(follow_symlinks=False):
                _look(Path(entry.path), f"{path}/", found)
            else:
                found.files.add(path)

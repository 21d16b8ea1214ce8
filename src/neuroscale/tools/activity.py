"""Says how long a program and its children have done nothing at all."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

_LITTLE = 1.0
"""Seconds of processor time: a program that waits for ever wakes up now and then, and uses less in ten minutes."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Activity:
    """The activity of a session's processes, and of `files` that they write.

    A process is active that uses the processor, or that reads or writes a byte of anything, files and connections
    included (proc(5): `utime`, `stime`, `rchar` and `wchar`, each with those of ended children).
    """

    def __init__(self, session: int, files: Sequence[Path]) -> None:
        self._session = session
        self._files = files
        self._mark = self._look()
        self._since = time.monotonic()

    def idle_seconds(self) -> float:
        """The seconds since something was seen to happen; each call looks anew."""
        seconds, counted = self._look()
        if abs(seconds - self._mark[0]) >= _LITTLE or counted != self._mark[1]:
            self._mark = (seconds, counted)
            self._since = time.monotonic()
        return time.monotonic() - self._since

    def _look(self) -> tuple[float, int]:
        """Seconds of processor time; bytes that were read, written and are in the files."""
        ticks, counted = 0, sum(file.stat().st_size for file in self._files)
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError):  # it ended meanwhile
                    # The name in brackets may hold spaces; behind it: state, parent, group, session.
                    fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    if int(fields[3]) == self._session:
                        ticks += sum(map(int, fields[11:15]))
                        text = (folder / "io").read_text()
                        counted += sum(int(line.split()[1]) for line in text.splitlines()[:2])
        return ticks / _TICKS, counted

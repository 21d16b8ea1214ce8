"""Keeps two set-ups from working on the same part at once: each part has a lock of its own, which names its holder.

The system releases a lock with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from neuroscale.tools.running import BROKEN_OFF, SetupError, say

_POLL_SECONDS = 0.5


@contextmanager
def locked(path: Path, doing: str) -> Iterator[None]:
    """Hold a part's lock while `doing` its work; wait for another set-up that holds it, and say for which and since
    when."""
    with _opened(path) as file:
        told = ""
        while not _take(file, fcntl.LOCK_EX):
            if threading.current_thread() is not threading.main_thread() and BROKEN_OFF.is_set():
                raise SetupError(f"{doing} was broken off.")
            # The holder's text comes a moment after its lock.
            if (holder := _holder(file)) and holder != told:
                say(f"      waiting for another set-up: {holder}")
                told = holder
            time.sleep(_POLL_SECONDS)
        file.seek(0)
        file.truncate()
        json.dump({"process": os.getpid(), "since": time.time(), "doing": doing}, file)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a lock together with others that use the same thing, so that nobody removes it meanwhile."""
    with _opened(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Whether nobody else holds the lock; if so, it is held until the end of the block."""
    with _opened(path) as file:
        yield _take(file, fcntl.LOCK_EX)


def _opened(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a+", encoding="utf-8")


def _take(file: IO[str], kind: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        return True
    return False


def _holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        held = json.load(file)
        since = time.strftime("%H:%M:%S", time.localtime(held["since"]))
        return f"process {held['process']} has been at it since {since} ({held['doing']})."
    except (ValueError, KeyError, TypeError):
        return ""

"""Makes temporary folders that a killed program does not leave behind for ever."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW = 60.0  # seconds in which another program may have made its folder and not locked it yet


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A new folder in the temporary folder, with a name that begins with `prefix`, removed at the end.

    The system releases the folder's lock when its program dies in whatever way. Older folders of the same prefix and
    user that nobody locks are removed first.
    """
    _remove_left(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_left(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another user's, no folder, in use, or removed meanwhile
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(descriptor)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _NEW:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)

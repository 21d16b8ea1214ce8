"""Writes files that appear whole or not at all, and reads files of bounded size that a user named.

Makes temporary folders that a killed program does not leave behind for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from neuroscale.core.errors import InputError

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


class Owner(Protocol):
    """The user and the group that a file gets."""

    @property
    def uid(self) -> int: ...

    @property
    def gid(self) -> int: ...


def write_private(path: Path, text: str, owner: Owner | None = None) -> None:
    """Replace a file by one of mode 0600, whole or not at all. Its folder must not be writable for others."""
    _replace(path, text, owner, 0o600)


def write_public(path: Path, text: str | bytes) -> None:
    """As `write_private`, for a file without secrets that other users may read."""
    _replace(path, text, None, 0o644)


def _replace(path: Path, text: str | bytes, owner: Owner | None, mode: int) -> None:
    descriptor, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            if owner is not None:
                os.fchown(file.fileno(), owner.uid, owner.gid)
            os.fchmod(file.fileno(), mode)
        Path(half).replace(path)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise


def sha256(data: bytes) -> str:
    """`sha256:` and the 64 hexadecimal digits of the data's digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def text_if_there(path: Path) -> str:
    """The text of a file; empty if there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def read_bounded(path: Path, most: int, fix: str) -> bytes:
    """The bytes of a file that a user named, `most` at most.

    `fix`: what to name instead of a folder or a larger file. Raises InputError if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except IsADirectoryError as error:
        raise InputError.at(str(path), "", "is a folder", fix) from error
    except OSError as error:
        raise InputError.at(str(path), "", f"cannot be read: {error.strerror}", "Name a readable file.") from error
    except ValueError as error:  # a NUL byte in the path
        raise InputError.at(ascii(str(path)), "", "is not a path", "Name a readable file.") from error
    if len(data) > most:
        raise InputError.at(str(path), "", f"is larger than {most} bytes", fix)
    return data

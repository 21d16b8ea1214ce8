"""Writes files that appear whole or not at all, and reads files of bounded size that a user named."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol

from neuroscale.core.errors import InputError, Problem


class Owner(Protocol):
    """The user and the group that a file gets."""

    @property
    def uid(self) -> int: ...

    @property
    def gid(self) -> int: ...


def write_private(path: Path, text: str, owner: Owner | None = None) -> None:
    """Replace a file by one of mode 0600, whole or not at all. Its folder must not be writable for others."""
    _replace(path, text, owner, 0o600)


def write_public(path: Path, text: str) -> None:
    """As `write_private`, for a file without secrets that other users may read."""
    _replace(path, text, None, 0o644)


def _replace(path: Path, text: str, owner: Owner | None, mode: int) -> None:
    descriptor, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if owner is not None:
                os.fchown(file.fileno(), owner.uid, owner.gid)
            os.fchmod(file.fileno(), mode)
        Path(half).replace(path)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise


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
        raise InputError(Problem(str(path), "", "is a folder", fix)) from error
    except OSError as error:
        raise InputError(
            Problem(str(path), "", f"cannot be read: {error.strerror}", "Name a readable file.")
        ) from error
    except ValueError as error:  # a NUL byte in the path
        raise InputError(Problem(ascii(str(path)), "", "is not a path", "Name a readable file.")) from error
    if len(data) > most:
        raise InputError(Problem(str(path), "", f"is larger than {most} bytes", fix))
    return data

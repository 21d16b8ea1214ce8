"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol


class Owner(Protocol):
    """Whose a file becomes."""

    @property
    def uid(self) -> int: ...

    @property
    def gid(self) -> int: ...


def write_private(path: Path, text: str, owner: Owner | None = None) -> None:
    """Replace a file by one of mode 0600, whole or not at all. Its folder must not be writable for others."""
    descriptor, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if owner is not None:
                os.fchown(file.fileno(), owner.uid, owner.gid)
        Path(half).replace(path)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise


def write_public(path: Path, text: str) -> None:
    """As `write_private`, for a file without secrets that the processes' users read."""
    write_private(path, text)
    path.chmod(0o644)

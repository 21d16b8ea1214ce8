"""Writes files into a work tree: those that differ, and none through a symlink."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from neuroscale.core.errors import InputError
from neuroscale.core.files import write_public
from neuroscale.repo.snapshot import Snapshot

Content = str | bytes | None
"""What a file is to hold; None: there is to be no such file."""


def as_bytes(content: Content) -> bytes | None:
    """The content as a file holds it."""
    return content.encode() if isinstance(content, str) else content


def write_files(root: Path, snapshot: Snapshot, files: Mapping[str, Content]) -> list[str]:
    """Write the files that differ, in their order, and return their paths. A file that is executable stays so, and a
    folder that is left empty goes. Raises InputError, before it writes, if a path is a link."""
    for path in files:
        for place in [path, *map(str, [*Path(path).parents][:-1])]:
            if (root / place).is_symlink():
                raise InputError.at(place, "", "is a symlink", "Replace it by a plain file or folder.")
    changed = changed_files(snapshot, files)
    for path in changed:
        file, content = root / path, as_bytes(files[path])
        if content is None:
            file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other files may remain in it
                os.removedirs(file.parent)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        was_executable = os.access(file, os.X_OK)
        write_public(file, content)
        if was_executable:
            file.chmod(0o755)
    return changed


def changed_files(snapshot: Snapshot, files: Mapping[str, Content]) -> list[str]:
    """The paths of the files that differ from a snapshot's."""
    return [path for path, content in files.items() if snapshot.read(path) != as_bytes(content)]

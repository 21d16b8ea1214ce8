"""Writes files into a work tree: those that differ, and none through a symlink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from neuroscale.core.errors import InputError
from neuroscale.core.files import write_public
from neuroscale.repo.snapshot import Snapshot


def write_files(root: Path, snapshot: Snapshot, files: Mapping[str, str]) -> list[str]:
    """Write the files that differ, and return their paths. Raises InputError, before it writes, if a path is a link."""
    for path in files:
        for place in [path, *map(str, [*Path(path).parents][:-1])]:
            if (root / place).is_symlink():
                raise InputError.at(place, "", "is a symlink", "Replace it by a plain file or folder.")
    changed = changed_files(snapshot, files)
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_public(root / path, files[path])
    return changed


def changed_files(snapshot: Snapshot, files: Mapping[str, str]) -> list[str]:
    """The paths of the files that differ from a snapshot's."""
    return [path for path, text in files.items() if snapshot.read(path) != text.encode()]

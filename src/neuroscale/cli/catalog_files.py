"""Writes files of the catalog into a repository's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.core.errors import InputError, Problem

if TYPE_CHECKING:
    from neuroscale.repo.snapshot import Snapshot


def write_files(root: Path, snapshot: Snapshot, files: Mapping[str, str]) -> list[str]:
    """Write the files that differ, and return their paths. Raises InputError, before it writes, if a path is a link."""
    from neuroscale.core.files import write_public

    for path in files:
        for place in [path, *map(str, [*Path(path).parents][:-1])]:
            if (root / place).is_symlink():
                raise InputError(Problem(place, "", "is a symlink", "Replace it by a plain file or folder."))
    changed = [path for path, text in files.items() if snapshot.read(path) != text.encode()]
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_public(root / path, files[path])
    return changed

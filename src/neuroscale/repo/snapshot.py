"""Reads the files of a repository at one moment: from a folder on disk, or from a tree in git without a checkout."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal, Protocol, TypeVar

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import decode
from neuroscale.repo.git import Git, TooLargeError, check_size

T = TypeVar("T")
Kind = Literal["file", "executable", "symlink", "submodule", "folder", "other"]


@dataclass(frozen=True, order=True)
class Entry:
    """One path of a snapshot, relative to its root with `/`. `object_id` is git's, "" outside git."""

    path: str
    kind: Kind
    object_id: str = ""


class Snapshot(Protocol):
    """Read access to files by their path relative to the repository's root."""

    def entries(self, *prefixes: str) -> list[Entry]:
        """Everything below `prefixes` (folders or single paths), sorted by path; symlinks are not followed."""

    def read(self, path: str) -> bytes | None:
        """The content of a regular file, or None if there is no regular file at that path.

        Raises TooLargeError for a file of more than LARGEST_OBJECT bytes.
        """


class FolderSnapshot:
    """A folder on disk. It reads nothing outside: symlinks are listed and never followed."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def entries(self, *prefixes: str) -> list[Entry]:
        found: set[Entry] = set()
        for prefix in prefixes or ("",):
            start = self.root / prefix
            if self._through_symlink(prefix):
                continue
            if start.is_symlink() or not start.is_dir():
                if start.is_symlink() or start.exists():
                    found.add(self._entry(start))
                continue
            for folder, folders, files in os.walk(start, onerror=_unreadable):
                below = Path(folder)
                for name in list(folders):
                    if name == ".git":
                        folders.remove(name)
                    elif (below / name).is_symlink():
                        found.add(self._entry(below / name))
                found.update(self._entry(below / name) for name in files)
        return sorted(found)

    def read(self, path: str) -> bytes | None:
        target = self.root / path
        if self._through_symlink(path) or target.is_symlink() or not target.is_file():
            return None
        check_size(path, target.stat().st_size)
        return target.read_bytes()

    def _through_symlink(self, path: str) -> bool:
        parts = PurePosixPath(path).parts
        if _leaves(path):
            return True
        return any((self.root.joinpath(*parts[:length])).is_symlink() for length in range(1, len(parts)))

    def _entry(self, path: Path) -> Entry:
        mode = path.lstat().st_mode
        kind: Kind
        if stat.S_ISLNK(mode):
            kind = "symlink"
        elif stat.S_ISREG(mode):
            kind = "executable" if mode & 0o111 else "file"
        else:
            kind = "other"
        return Entry(path.relative_to(self.root).as_posix(), kind)


def _leaves(path: str) -> bool:
    """Whether a path could lead out of the repository."""
    return path.startswith("/") or ".." in path.split("/")


def _unreadable(error: OSError) -> None:
    problem = Problem(str(error.filename), "", f"cannot be read: {error.strerror}", "Allow reading it.")
    raise InputError(problem) from error


class MemorySnapshot:
    """Files that exist only in memory: path to content, all of one kind unless `kinds` says otherwise."""

    def __init__(self, files: Mapping[str, bytes], kinds: Mapping[str, Kind] | None = None) -> None:
        self._files = dict(files)
        self._kinds = dict(kinds or {})

    def entries(self, *prefixes: str) -> list[Entry]:
        paths = {*self._files, *self._kinds}
        return sorted(
            Entry(path, self._kinds.get(path, "file"))
            for path in paths
            if not prefixes or any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes)
        )

    def read(self, path: str) -> bytes | None:
        return self._files.get(path) if self._kinds.get(path, "file") in ("file", "executable") else None


class ChangedSnapshot:
    """Another snapshot with some files replaced, added or removed (None)."""

    def __init__(self, snapshot: Snapshot, files: Mapping[str, bytes | None]) -> None:
        self._snapshot = snapshot
        self._files = files

    def entries(self, *prefixes: str) -> list[Entry]:
        changed = MemorySnapshot({path: data for path, data in self._files.items() if data is not None})
        others = (entry for entry in self._snapshot.entries(*prefixes) if entry.path not in self._files)
        return sorted([*others, *changed.entries(*prefixes)])

    def read(self, path: str) -> bytes | None:
        return self._files[path] if path in self._files else self._snapshot.read(path)


class GitSnapshot:
    """A tree in a git repository, read from its object store."""

    _KINDS: ClassVar[dict[str, Kind]] = {
        "100644": "file",
        "100755": "executable",
        "120000": "symlink",
        "160000": "submodule",
    }

    def __init__(self, git: Git, tree: str) -> None:
        self.git = git
        self.tree = tree
        self._ids: dict[str, str] = {}

    def entries(self, *prefixes: str) -> list[Entry]:
        found = []
        for line in self.git.records("ls-tree", "-r", "-z", "--full-tree", self.tree, "--", *prefixes):
            meta, path = line.split("\t", 1)
            mode, _, object_id = meta.split(" ")
            found.append(Entry(path, self._KINDS.get(mode, "other"), object_id))
            self._ids.setdefault(path, object_id)  # of a damaged tree, git reads the first entry of a name
        return sorted(found)

    def children(self, folder: str) -> list[Entry]:
        """Everything that lies directly in a folder, sorted by path. A folder has the id of its tree."""
        found = []
        for line in self.git.records("ls-tree", "-z", "--full-tree", self.tree, "--", f"{folder}/"):
            meta, path = line.split("\t", 1)
            mode, _, object_id = meta.split(" ")
            found.append(Entry(path, "folder" if mode == "040000" else self._KINDS.get(mode, "other"), object_id))
        return sorted(found)

    def read(self, path: str) -> bytes | None:
        """As `Snapshot.read`, but a symlink reads as the path that it holds: git's answer does not tell the two apart.

        `entries` does, and the gate refuses links.
        """
        if _leaves(path):
            return None
        # By its id, git finds a file in a third of the time in which it follows the path from the root.
        return self.git.read_object(self._ids.get(path) or f"{self.tree}:{path}", path=path)


def child_folders(snapshot: Snapshot, folder: str) -> dict[str, str]:
    """The paths of the folders that lie directly in a folder, with git's ids of their trees ("" outside git)."""
    if isinstance(snapshot, GitSnapshot):
        return {entry.path: entry.object_id for entry in snapshot.children(folder) if entry.kind == "folder"}
    depth = folder.count("/") + 2
    parts = (entry.path.split("/") for entry in snapshot.entries(folder))
    return {"/".join(part[:depth]): "" for part in parts if len(part) > depth}


def read_all(snapshot: Snapshot, entries: Sequence[Entry]) -> dict[str, bytes]:
    """The contents of many regular files by their paths, in few processes where they lie in git.

    A file that is missing or too large is left out.
    """
    if isinstance(snapshot, GitSnapshot):
        blobs = snapshot.git.read_blobs([entry.object_id for entry in entries])
        return {entry.path: blobs[entry.object_id] for entry in entries if entry.object_id in blobs}
    found = {}
    for entry in entries:
        with suppress(TooLargeError):
            if (data := snapshot.read(entry.path)) is not None:
                found[entry.path] = data
    return found


LARGEST_TEXT = 256 * 1024
LARGEST_OF_SERVICE = 128 * 1024  # bytes of a request or a plan
"""The size of the largest settings, catalog, template or policy file that is read, in bytes."""


def read_text(snapshot: Snapshot, path: str, most: int = LARGEST_TEXT) -> str:
    """The text of a file that must exist.

    Raises InputError if it is missing, not UTF-8 or has more than `most` bytes.
    """
    data = snapshot.read(path)
    if data is None:
        raise InputError.at(path, "", "is missing", "Restore the file.")
    if len(data) > most:
        told = f"has {len(data)} bytes, which is far more than such a file has"
        raise InputError.at(path, "", told, f"Write at most {most} bytes.")
    return decode(data, path)


def read_file(snapshot: Snapshot, path: str, load: Callable[[str, str], T]) -> T | None:
    """What `load` makes of the text and the path of a file of a service; None if the file does not exist.

    Raises InputError if it cannot be read or has more than `LARGEST_OF_SERVICE` bytes.
    """
    return None if snapshot.read(path) is None else load(read_text(snapshot, path, LARGEST_OF_SERVICE), path)


def read_folder(snapshot: Snapshot, folder: str) -> dict[str, str]:
    """The text of every file of a folder, by path in the repository. Raises InputError for anything but plain files of
    text."""
    entries = snapshot.entries(folder)
    if other := next((entry for entry in entries if entry.kind != "file"), None):
        raise InputError.at(other.path, "", f"is no plain file but of kind {other.kind}", "Replace it by a plain file.")
    return {entry.path: decode(snapshot.read(entry.path) or b"", entry.path) for entry in entries}


class Texts:
    """The texts of one folder, at most `most` bytes of them together."""

    def __init__(self, snapshot: Snapshot, folder: str, most: int) -> None:
        self._snapshot = snapshot
        self._folder = folder
        self._most = most
        self._read = 0

    def read(self, path: str) -> str:
        """As `read_text`. Also raises InputError after `most` bytes."""
        text = read_text(self._snapshot, path) if self._read <= self._most else ""
        self._read += len(text)
        if self._read > self._most:
            told = f"is not read: the files of {self._folder} have more than {self._most} bytes"
            raise InputError.at(path, "", told, "Remove what is not needed.")
        return text

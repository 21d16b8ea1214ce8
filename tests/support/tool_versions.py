"""Versions of the tool as data, made by changes of the delivered files, and repositories that pin them.

Catalog and policies are few, so that a repository is rendered in a moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from neuroscale.core import delivered
from neuroscale.core.yaml_io import dump
from neuroscale.rendering.new_repository import delivered_paths, new_files, read_new_repository
from neuroscale.rendering.repository_upgrade import ToolVersion
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from neuroscale.repo.tool_pin import ToolPin, pin_files

EXAMPLE = FolderSnapshot(delivered.EXAMPLE)
_MODELS = ("gemma-3-1b", "gemma-4-26b", "qwen3-0.6b")
_POLICIES = ("allowed-registries", "allowed-storage", "probes-present")
Changes = Mapping[str, bytes | None]
"""Files of a version, by path; None: it does not deliver that one."""


@cache
def _files() -> tuple[dict[str, bytes], dict[str, bytes]]:
    folder, start = FolderSnapshot(delivered.FOLDER), FolderSnapshot(delivered.START)
    paths = [*delivered_paths(folder), "requirements/runtime.txt"]
    files = {path: data for path in paths if _is_kept(path) and (data := folder.read(path)) is not None}
    return files, {entry.path: start.read(entry.path) or b"" for entry in start.entries()}


def _is_kept(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    if folder == "platform/catalog/models":
        return name.lower().startswith(_MODELS)
    parts = path.split("/")
    return parts[0] != "policies" or len(parts) == 2 or parts[1] in (*_POLICIES, "exceptions")


def delivered_file(path: str) -> bytes:
    """A delivered file, as this checkout has it."""
    return _files()[0][path]


def tool_version(name: str, changes: Changes | None = None, start: Mapping[str, bytes] | None = None) -> ToolVersion:
    """This checkout's delivered files with these changes."""
    files, texts = _files()
    changed = {path: data for path, data in {**files, **(changes or {})}.items() if data is not None}
    return ToolVersion(name, MemorySnapshot(changed), MemorySnapshot({**texts, **(start or {})}))


def pin_of(version: ToolVersion) -> ToolPin:
    return ToolPin(version=version.version, sha256=f"{abs(hash(version.version)):064x}"[-64:])


def made_by(version: ToolVersion, answers: Mapping[str, Any], pin: ToolPin | None = None) -> dict[str, bytes]:
    """The repository that this version makes for the answers."""
    read = read_new_repository(dump(answers), "answers.yaml")
    paths = delivered_paths(version.delivered)
    files = new_files(read, version.delivered, EXAMPLE, version.start, paths)
    pinned = pin_files(pin or pin_of(version), version.locked)
    return files | {path: text.encode() for path, text in pinned.items()}


def write_package(folder: Path, version: ToolVersion) -> Path:
    """The package folder as an unpacked wheel of that version has it."""
    for below, snapshot in (("delivered", version.delivered), ("repo/start", version.start)):
        for entry in snapshot.entries():
            path = folder / below / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(snapshot.read(entry.path) or b"")
    return folder

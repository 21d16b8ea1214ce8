"""Reads the delivered files with an example organisation's settings, teams, budgets, answers and services among them.

Tests and lessons use it, so that they do not depend on what an organisation has entered in its repository; commands
outside every platform repository use it, too.
"""

from __future__ import annotations

from pathlib import Path

from neuroscale.core import delivered
from neuroscale.repo.layout import BUDGETS, EXAMPLES, EXCEPTIONS, MANIFESTS, SETTINGS, TEAMS, FileClass, file_class
from neuroscale.repo.snapshot import Entry, FolderSnapshot, Snapshot

OWN = (SETTINGS, TEAMS, BUDGETS, EXAMPLES, MANIFESTS, EXCEPTIONS)
"""The files and folders whose content an organisation decides for itself; the READMEs in them are delivered."""


class ExampleSnapshot:
    """A snapshot's files, with the example organisation's in place of all that an organisation decides for itself."""

    def __init__(self, delivered_files: Snapshot, example: Snapshot) -> None:
        self._delivered = delivered_files
        self.example = example

    @staticmethod
    def is_own(path: str) -> bool:
        """Whether an organisation decides the content of that file for itself."""
        below = any(path == own or path.startswith(f"{own}/") for own in OWN)
        return below and file_class(path) is FileClass.OWN

    def entries(self, *prefixes: str) -> list[Entry]:
        others = [entry for entry in self._delivered.entries(*prefixes) if not self.is_own(entry.path)]
        return sorted([*others, *self.example.entries(*prefixes)])

    def read(self, path: str) -> bytes | None:
        return (self.example if self.is_own(path) else self._delivered).read(path)


def example_snapshot(repository: Path = delivered.FOLDER) -> ExampleSnapshot:
    """The example organisation's repository, with `repository`'s files beside its own; no platform file is rendered."""
    return ExampleSnapshot(FolderSnapshot(repository), FolderSnapshot(delivered.EXAMPLE))

"""Plans how a fork that holds the tool's own code becomes a repository that pins the tool, and names what that loses.

Pure, as `repository_upgrade`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from neuroscale.core.errors import InputError
from neuroscale.core.printable import plainly_counted
from neuroscale.rendering.repository_upgrade import Merge, RepositoryUpgrade, ToolVersion, plan_upgrade
from neuroscale.repo.layout import OWN_CODE, FileClass, file_class, is_written
from neuroscale.repo.snapshot import Entry, Snapshot, read_all, read_text
from neuroscale.repo.tool_pin import ToolPin

Known = Callable[[str], bytes | None]
"""The tool's own file at a path of its checkout; None where it has none, or where that is not known."""

_VERSION_FILE = f"{OWN_CODE}/__init__.py"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_LARGE = ("docs", "scripts", "tests")
"""Folders that a wheel does not carry, of too many files to name each."""


def holds_tool(repository: Snapshot) -> bool:
    """Whether a repository holds the tool's own code, as a fork does."""
    return bool(repository.entries(OWN_CODE))


def plan_adoption(
    repository: Snapshot, version: ToolVersion, pin: ToolPin, known: Known, merge: Merge
) -> RepositoryUpgrade:
    """What a fork of a version becomes: without the tool's files, which go in an order that can be broken off, and with
    the pin. `lost`: files of the tool that are not as it has them, and files beside them.

    Raises InputError for a fork of another version, and as `plan_upgrade` does.
    """
    written = _VERSION.search(read_text(repository, _VERSION_FILE))
    if written is None or written[1] != version.version:
        message = f"is not that of neuroscale {version.version}, whose wheel would be pinned"
        fix = "Take the wheel of the fork's own version, and upgrade afterwards."
        raise InputError.at(_VERSION_FILE, "__version__", message, fix)
    plan = plan_upgrade(repository, version, version, pin, merge)
    entries = [entry for entry in repository.entries() if _is_of_tool(entry.path)]
    # The file that names the version goes last: until then, the command can be run again.
    entries.sort(key=lambda entry: (entry.path.startswith(f"{OWN_CODE}/"), entry.path == _VERSION_FILE, entry.path))
    removed = {entry.path: None for entry in entries}
    return replace(
        plan,
        files={**plan.files, **removed},
        how={**plan.how, **dict.fromkeys(removed, "removed")},
        lost=(*plan.lost, *_lost(repository, entries, known)),
    )


def _is_of_tool(path: str) -> bool:
    return file_class(path) is FileClass.TOOL and not any(map(is_written, path.split("/")))


def _lost(repository: Snapshot, entries: list[Entry], known: Known) -> Iterator[str]:
    contents = read_all(repository, [entry for entry in entries if entry.kind in ("file", "executable")])
    not_compared: Counter[str] = Counter()
    for entry in sorted(entries):
        theirs, folder = known(entry.path), entry.path.partition("/")[0]
        if theirs is None and folder in _LARGE:
            not_compared[folder] += 1
        elif theirs is None or theirs != contents.get(entry.path):
            yield entry.path
    for folder, count in not_compared.items():
        yield f"{folder}/: {plainly_counted(count, 'file')}, which the tool's wheel does not carry: not compared"

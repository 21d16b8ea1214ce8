"""Keeps one issue about locked Python packages that have newer versions; `.github/workflows/locks.yaml` runs it.

It compares `requirements/*.txt` with the files of a folder, which `scripts/lock.py --upgrade` wrote in another job. To
learn what a package needs, that job may run the package's own build, so anybody may have written these files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from neuroscale.actions.workflow_environment import repository_url
from neuroscale.core.errors import InputError, NeuroscaleError
from neuroscale.core.files import read_bounded
from neuroscale.core.printable import counted
from neuroscale.core.units import MIB
from neuroscale.forge.connect import connect
from neuroscale.forge.sticky_comment import keep_issue
from neuroscale.forge.token import find_token

REPOSITORY = Path(__file__).resolve().parents[1]
MARKER = "<!-- neuroscale-locks -->"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)", re.MULTILINE)
_MOST = 300  # rows; an issue holds some 65,000 characters
_LARGEST = 4 * MIB
_LONGEST = 100  # characters of a name or a version


@dataclass(frozen=True)
class Difference:
    """A package whose versions differ; empty: the lock does not have it. A lock may pin two, for different Pythons."""

    lock: str
    package: str
    locked: tuple[str, ...]
    newest: tuple[str, ...]


def differences(locked: Mapping[str, str], renewed: Mapping[str, str]) -> tuple[Difference, ...]:
    """The packages that differ between two states of the lock files, each given as texts by name."""
    found = []
    for lock in sorted({*locked, *renewed}):
        before, after = _versions(locked.get(lock, "")), _versions(renewed.get(lock, ""))
        for package in sorted({*before, *after}):
            old, new = before.get(package, ()), after.get(package, ())
            if old != new:
                found.append(Difference(lock, package, old, new))
    return tuple(found)


def read_renewed(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The texts of renewed lock files by name. Raises InputError unless each is a plain file that pins packages."""
    found = {}
    fix = "Run the workflow again; if it stays, run `make lock UPGRADE=--upgrade` by hand."
    for name in names:
        file = folder / name
        if file.is_symlink() or not file.is_file():
            raise InputError.at(str(file), "", "is not a plain file", fix)
        found[name] = read_bounded(file, _LARGEST, fix).decode("utf-8", "replace")
        pins = _PIN.findall(found[name])
        if not pins or max(len(part) for pin in pins for part in pin) > _LONGEST:
            raise InputError.at(str(file), "", "pins no package, or one whose name or version is too long", fix)
    return found


def _versions(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for package, version in _PIN.findall(text):
        found[package] = tuple(sorted({*found.get(package, ()), version}))
    return found


def issue_title(found: tuple[Difference, ...]) -> str:
    """The title: how many packages could be renewed."""
    return f"{counted(len({one.package for one in found}), 'locked Python package')} can be renewed"


def issue_text(found: tuple[Difference, ...]) -> str:
    """The text, in Markdown: what to run, and a row for each package of each lock."""
    rows = [
        f"| requirements/{one.lock} | {one.package} | {_told(one.locked)} | {_told(one.newest)} |"
        for one in found[:_MOST]
    ]
    parts = [
        "Run `make lock UPGRADE=--upgrade` on a branch, then `make test`, and open a pull request. The command would "
        "change these packages, within the ranges of `pyproject.toml`:",
        "\n".join(["| lock | package | locked | newest |", "|---|---|---|---|", *rows]),
    ]
    if len(found) > _MOST:
        parts.append(f"{len(found) - _MOST} more rows are left out.")
    return "\n\n".join(parts)


def _told(versions: tuple[str, ...]) -> str:
    return ", ".join(versions) or "none"


def main(arguments: list[str]) -> int:
    """Open, update or close the issue by the renewed files in a folder; returns the exit status."""
    (folder,) = arguments
    locked = {
        lock.name: lock.read_text(encoding="utf-8") for lock in sorted((REPOSITORY / "requirements").glob("*.txt"))
    }
    found = differences(locked, read_renewed(Path(folder), locked))
    forge = connect(repository_url(os.environ), find_token())
    kept = keep_issue(forge, MARKER, issue_title(found), issue_text(found) if found else None)
    print(f"Issue: {kept.outcome}{f': {kept.issue.url}' if kept.issue else ''}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except NeuroscaleError as error:
        print(f"locks_issue: {error}", file=sys.stderr)
        sys.exit(error.exit_status)

"""Sorts the paths that a change touches by what they are, the most dangerous first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuroscale.core.printable import plainly_counted
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import ChangedFile, ChangedFiles
from neuroscale.repo.layout import (
    ACCELERATORS,
    BUDGETS,
    CATALOG,
    CLUSTER_FILES,
    EXCEPTIONS,
    GATE_CODE,
    MANIFESTS,
    MODELS,
    POLICIES,
    PRICES,
    RUN_ELSEWHERE,
    SETTINGS,
    SMOKE_TESTS,
    TEAMS,
    is_protected,
)

_MOST_PATHS = 2_000  # of one kind that the verdict lists
_STATES: Mapping[str, str] = {"A": "added", "D": "removed"}


@dataclass(frozen=True)
class FileKind:
    """What a file is."""

    noun: str  # in the singular
    places: tuple[str, ...]  # the paths of such files; a folder ends in a slash
    review: bool = True  # whether a person must look at a change of it, since no check judges what it says
    entries: str = ""  # the rows in `catalog/directions.py` by which the verdict compares values of such files

    def holds(self, path: str) -> bool:
        """Whether a path is of this kind, if no kind before it has it."""
        return any(path.startswith(place) if place.endswith("/") else path == place for place in self.places)


OTHER = FileKind("other file", ())
_PROTECTED_FILE = FileKind("other protected file", ())
_DOCUMENT = FileKind("document", ("docs/", "LICENSE"), review=False)
_READ_BY_PEOPLE = (".md", ".png", ".svg", "LICENSE")
OWNERS = FileKind(
    "owners file", tuple(f"{folder}CODEOWNERS" for folder in ("", "docs/", ".github/", ".gitea/", ".forgejo/"))
)
WORKFLOWS = FileKind("workflow file", (".ci/", ".forgejo/", ".gitea/", ".github/"))
ELSEWHERE = FileKind("tool file", RUN_ELSEWHERE)
KINDS: tuple[FileKind, ...] = (
    OWNERS,
    WORKFLOWS,
    ELSEWHERE,
    FileKind("exception", (f"{EXCEPTIONS}/", f"{BUDGETS}/exceptions/"), entries="exceptions"),
    FileKind("policy file", (f"{POLICIES}/",), entries="policies"),
    FileKind("settings file", (SETTINGS,), entries="settings"),
    FileKind("cluster file", CLUSTER_FILES, entries="cluster"),
    FileKind("script", ("scripts/",)),
    FileKind("code file", GATE_CODE),
    FileKind("template file", ("templates/",)),
    FileKind("runtime", (f"{CATALOG}/runtimes/",), entries="runtimes"),
    FileKind("team", (f"{TEAMS}/",), entries="teams"),
    FileKind("budget", (f"{BUDGETS}/",), entries="budgets"),
    FileKind("price list", (f"{PRICES}/",), entries="prices"),
    FileKind("accelerator", (f"{ACCELERATORS}/",), entries="accelerators"),
    FileKind("model", (f"{MODELS}/",), entries="models"),
    FileKind("smoke test", (f"{SMOKE_TESTS}/",)),
    FileKind("test file", ("tests/",)),
    FileKind("git settings file", (".gitattributes", ".gitignore")),
    _PROTECTED_FILE,
    OTHER,
    FileKind("service file", (f"{MANIFESTS}/",), review=False),
    _DOCUMENT,
)
"""Every kind of file, the most dangerous first: of the kinds that hold a path, the first one counts."""


def kind_of(path: str) -> FileKind:
    """What the file at a path is."""
    if path.endswith(".md") and not is_protected(path):
        return _DOCUMENT
    known = next((kind for kind in KINDS if kind.holds(path)), OTHER)
    if known is _DOCUMENT and not path.endswith(_READ_BY_PEOPLE):
        known = OTHER
    is_vague = known is OTHER or not known.review
    return _PROTECTED_FILE if is_vague and is_protected(path) else known


def changed_files(change: Change) -> tuple[ChangedFiles, ...]:
    """Every path that the change touches, by its kind; of each kind at most a bounded number is listed."""
    files: dict[FileKind, list[str]] = {}
    for path in change.paths:
        files.setdefault(kind_of(path), []).append(path)
    return tuple(
        ChangedFiles(
            kind=kind.noun,
            review=kind.review,
            count=len(paths),
            protected=sum(map(is_protected, paths)),
            files=tuple(
                ChangedFile(path=path, change=_STATES.get(change.states[path], "changed"))  # type: ignore[arg-type]
                for path in paths[:_MOST_PATHS]
            ),
        )
        for kind in KINDS
        if (paths := files.get(kind))
    )


def in_words(files: Sequence[ChangedFiles], most: int = 4) -> str:
    """`2 policy files, 1 model`: the files that a person must look at, or ""."""
    named = [plainly_counted(group.count, group.kind) for group in files if group.review]
    more = f" and {len(named) - most} more kinds" if len(named) > most else ""
    return ", ".join(named[:most]) + more

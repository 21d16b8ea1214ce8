"""Finds the files that one run of the gate looks at: service folders of a repository, or plain folders of manifests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from neuroscale.core.errors import InputError
from neuroscale.core.units import MIB
from neuroscale.manifests.objects import MANIFEST_SUFFIXES
from neuroscale.repo.example_repository import example_snapshot
from neuroscale.repo.git import TooLargeError
from neuroscale.repo.layout import MANIFESTS, ServicePath
from neuroscale.repo.snapshot import Entry, FolderSnapshot, Snapshot

# Files below manifests/ that are for people; nothing deploys them.
_FOR_PEOPLE = ("README.md", ".gitkeep")

_CHART = "Chart.yaml"
_OF_CHARTS = ("templates", "charts", "crds", "ci", "files")
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
RENDERER_INPUT = re.compile(rf"(^|/)({'|'.join(map(re.escape, (_CHART, *_KUSTOMIZATIONS)))})$|\.(jsonnet|libsonnet)$")
"""Files by which Helm, Kustomize or Jsonnet renders a folder: what lies there is not yet what a cluster gets."""

LARGEST_TEXT = 4 * MIB
"""The size of the largest text that is searched for secrets, in bytes."""


@dataclass(frozen=True)
class Text:
    """Content to scan. `name` is the file; `place` gives the commit that brought it, "" for the work tree.

    `unread`: the size in bytes of a content that is too large to be read and therefore empty here, otherwise 0.
    """

    name: str
    content: bytes
    place: Callable[[], str] = str
    unread: int = 0


@dataclass(frozen=True)
class ServiceFolder:
    """A service folder with everything that lies in it. `change`: "checked" without a base, or if nothing differs.
    `plan_changed`: the lock differs from the base's."""

    path: ServicePath
    change: Literal["added", "changed", "removed", "checked"]
    entries: tuple[Entry, ...]
    plan_changed: bool = False


@dataclass(frozen=True)
class SourceFile:
    """A file outside every service folder. `name` is what findings call it."""

    name: str
    entry: Entry
    snapshot: Snapshot

    def read(self) -> bytes | None:
        return self.snapshot.read(self.entry.path)


@dataclass(frozen=True)
class GateInput:
    """All files that the gates look at.

    `snapshot` holds the service folders, and the catalog and template that they are compared with. `strays` are paths
    below `manifests/` that belong to no service; `plain` are files of folders that this platform did not render.
    """

    snapshot: Snapshot
    services: tuple[ServiceFolder, ...] = ()
    strays: tuple[Entry, ...] = ()
    plain: tuple[SourceFile, ...] = ()
    ignored: tuple[str, ...] = ()


def read_paths(paths: list[Path], root: Path | None) -> GateInput:
    """The files at `paths`; those below the manifests folder of the repository at `root` are its services.

    `root`: None outside every repository, where the delivered files and an example organisation's are the snapshot.

    Raises InputError for a path that does not exist or holds no manifest.
    """
    repository = example_snapshot() if root is None else FolderSnapshot(root)
    services: dict[ServicePath, ServiceFolder] = {}
    strays: list[Entry] = []
    plain: list[SourceFile] = []
    ignored: list[str] = []
    for path in paths:
        if not path.exists():
            raise _unusable(path, "does not exist", "Name a folder or file of manifests.")
        inside = None if root is None else _below_manifests(path.resolve(), root.resolve())
        if inside is not None:
            found, others = group_services(repository.entries(inside))
            # A single file stands for its service: its neighbours decide whether it is right.
            for service in found:
                entries = repository.entries(service.folder)
                services[service] = ServiceFolder(service, "checked", tuple(entries))
            strays.extend(others)
            if not found and not others:
                raise _unusable(path, "holds no manifests", "Name a folder that holds at least one service.")
        else:
            files, skipped = _plain_files(path)
            if not files:
                raise _unusable(path, "holds no manifests", "Name a folder with .yaml, .yml or .json files.")
            plain.extend((*files, *_renders(path)))
            ignored.extend(skipped)
    unique = {file.name: file for file in plain}
    return GateInput(
        repository,
        tuple(services[key] for key in sorted(services, key=lambda service: service.folder)),
        tuple(sorted(set(strays))),
        tuple(unique.values()),
        tuple(sorted(set(ignored))),
    )


def texts_of_files(given: GateInput) -> Iterator[Text]:
    """Every file of the input, to search for secrets."""
    files = [(entry.path, entry.path, given.snapshot) for service in given.services for entry in service.entries]
    files += [(file.name, file.entry.path, file.snapshot) for file in given.plain]
    for name, path, snapshot in files:
        try:
            data = snapshot.read(path)
        except TooLargeError as error:
            yield Text(name, b"", unread=error.size)
        else:
            if data is not None:
                yield Text(name, data)


def group_services(entries: list[Entry]) -> tuple[dict[ServicePath, list[Entry]], list[Entry]]:
    """Entries below `manifests/` by service, and those that lie in no service folder (files for people left out)."""
    services: dict[ServicePath, list[Entry]] = {}
    strays = []
    for entry in entries:
        service = ServicePath.of(entry.path)
        if service is not None:
            services.setdefault(service, []).append(entry)
        elif entry.kind != "file" or entry.path.rpartition("/")[2] not in _FOR_PEOPLE:
            strays.append(entry)
    return services, strays


def _below_manifests(path: Path, root: Path) -> str | None:
    """The repository path to look at when `path` is the repository or lies in its manifests folder; None elsewhere.

    Raises InputError for a folder around the repository: the gate would not see its other files.
    """
    manifests = root / MANIFESTS
    if path == root:
        return MANIFESTS
    if root.is_relative_to(path):
        raise _unusable(
            path, "holds a whole platform repository", f"Name {manifests} and the other folders one by one."
        )
    if path.is_relative_to(manifests):
        return path.relative_to(root).as_posix()
    return None


def _plain_files(path: Path) -> tuple[list[SourceFile], list[str]]:
    folder = path if path.is_dir() else path.parent
    snapshot = FolderSnapshot(folder)
    entries = snapshot.entries() if path.is_dir() else snapshot.entries(path.name)
    files, skipped = [], []
    for entry in entries:
        name = (folder / entry.path).as_posix()
        is_manifest = entry.path.endswith(MANIFEST_SUFFIXES) or not path.is_dir()
        if is_manifest or RENDERER_INPUT.search(entry.path) or entry.kind not in ("file", "executable"):
            files.append(SourceFile(name, entry, snapshot))
        else:
            skipped.append(name)
    if not any(file.entry.kind in ("file", "executable") for file in files):
        return [], skipped
    return files, skipped


def _renders(path: Path) -> Iterator[SourceFile]:
    """The chart around a path, and the kustomization beside it: a part that is named alone must not pass."""
    folder = path if path.is_dir() else path.parent
    charts = (
        parent / _CHART
        for parent in (folder, *folder.parents)
        if not (inside := folder.relative_to(parent).parts) or inside[0] in _OF_CHARTS
    )
    for file in (*charts, *(folder / name for name in _KUSTOMIZATIONS)):
        if file.is_file():
            snapshot = FolderSnapshot(file.parent)
            yield from (SourceFile(file.as_posix(), entry, snapshot) for entry in snapshot.entries(file.name))


def _unusable(path: Path, message: str, fix: str) -> InputError:
    return InputError.at(str(path), "", message, fix)

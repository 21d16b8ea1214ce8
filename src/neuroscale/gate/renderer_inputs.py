"""Finds the files of a plain folder that Helm, Kustomize or Jsonnet reads: they are not yet what a cluster gets.

Only `neuroscale gate PATH` leaves such files out. Below the manifests folder of this repository each of them is a
finding of the files check, since Argo CD would render the folder with it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Literal

import yaml
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from neuroscale.core.errors import InputError
from neuroscale.core.printable import plainly_counted, shortened
from neuroscale.core.units import MIB
from neuroscale.core.yaml_io import parts, read_documents
from neuroscale.gate.evaluation import file_finding
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import LARGEST_FILE
from neuroscale.repo.snapshot import Snapshot

Renderer = Literal["Helm", "Kustomize", "Jsonnet"]
CHART = "Chart.yaml"
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_OF_CHARTS = ("templates", "charts", "crds", "ci", "files")
"""Folders of a chart that Helm and its tools read, beside the values."""
_VALUES = ("values*.yaml", "values*.yml", "*values.yaml", "*values.yml", "values*.json")
_COMMANDS: Mapping[Renderer, str] = {
    "Helm": "helm template {}",
    "Kustomize": "kustomize build {}",
    "Jsonnet": "jsonnet FILE, for each file of {} that stands for objects",
}
_MOST_NAMED = 5
_MOST_PARSED = 4 * MIB  # bytes of kustomizations and templates


@dataclass(frozen=True)
class RendererInput:
    """Files that one renderer reads in one folder. `names` are what findings call the files."""

    renderer: Renderer
    folder: str
    names: tuple[str, ...]


def renderer_inputs(snapshot: Snapshot, paths: Sequence[str]) -> dict[str, tuple[Renderer, str]]:
    """Which of the files at `paths` a renderer reads: the renderer, and the folder that it renders ("" is the root)."""
    found: dict[str, tuple[Renderer, str]] = {}
    files = _Files(snapshot, paths)
    charts = {posixpath.dirname(path) for path in paths if posixpath.basename(path) == CHART}
    for path in paths:
        folder = posixpath.dirname(path)
        chart = next((each for each in _ancestors(folder) if each in charts), None)
        if chart is not None and _of_chart(path, chart):
            found[path] = ("Helm", chart)
        elif path.endswith((".jsonnet", ".libsonnet")):
            found[path] = ("Jsonnet", folder)
    for path in paths:
        folder, name = posixpath.split(path)
        if name in KUSTOMIZATIONS:
            for each in (path, *files.named_by(path)):
                found.setdefault(each, ("Kustomize", folder))
    for path in paths:
        if path not in found and path.endswith((".yaml", ".yml")) and files.is_template(path):
            found[path] = ("Helm", posixpath.dirname(path))
    return found


def not_judged(inputs: Sequence[RendererInput]) -> Iterator[str]:
    """One sentence for each renderer, for the verdict's list."""
    for renderer, command in _COMMANDS.items():
        own = [one for one in inputs if one.renderer == renderer]
        folders = [f"{one.folder} ({plainly_counted(len(one.names), 'file')})" for one in own]
        if own:
            named = shortened(folders, _MOST_NAMED, "folder")
            yield (
                f"Inputs of {renderer}, which are not judged as they stand: {named}. "
                f"Render each folder ({command.format('FOLDER')}), and run the gate on the output."
            )


def unrendered(gate: str, inputs: Sequence[RendererInput]) -> Iterator[Finding]:
    """A finding for each folder, for a run that may not leave anything unjudged."""
    for one in inputs:
        others = plainly_counted(len(one.names) - 1, "other file")
        with_them = f", with {others} of {one.folder}" if len(one.names) > 1 else ""
        told = f"is input of {one.renderer}{with_them}, and is not judged as it stands"
        fix = f"Render the folder first ({_COMMANDS[one.renderer].format(one.folder)}), and run the gate on the output."
        yield file_finding(gate, "not-rendered", one.names[0], told, fix)


def _ancestors(folder: str) -> Iterator[str]:
    """The folder and those around it, the innermost first; "" is the root."""
    yield folder
    while folder:
        folder = posixpath.dirname(folder)
        yield folder


def _of_chart(path: str, chart: str) -> bool:
    inside = path.removeprefix(f"{chart}/") if chart else path
    first, slash, _ = inside.partition("/")
    if slash:
        return first in _OF_CHARTS
    return inside in (CHART, "requirements.yaml") or any(fnmatch(inside, pattern) for pattern in _VALUES)


class _Files:
    """Reads files of one snapshot, and parses a bounded part of them: the rest is judged as it stands."""

    def __init__(self, snapshot: Snapshot, paths: Sequence[str]) -> None:
        self._snapshot = snapshot
        self._folders: dict[str, set[str]] = {}
        for path in paths:
            self._folders.setdefault(posixpath.dirname(path), set()).add(path)
        self._room = _MOST_PARSED

    def named_by(self, path: str) -> set[str]:
        """The files that a kustomization names; all files beside it if it cannot be read."""
        folder = posixpath.dirname(path)
        try:
            text = self._text(path)
            self._take(text)
            values = [each for document in read_documents(text, path) for _, each in parts(document.value)]
        except (InputError, ValueError):
            return self._folders[folder]
        words = {word for text in values if isinstance(text, str) for word in (text, text.partition("=")[2]) if word}
        places = [posixpath.normpath(posixpath.join(folder, word)) for word in words]
        return {place for place in places if place in self._folders.get(posixpath.dirname(place), ())}

    def is_template(self, path: str) -> bool:
        """Whether a file holds actions of Go's templates, and no parser could read it as objects as it stands."""
        try:
            text = self._text(path)
            if not any(map(_has_action, text.split("\n"))):
                return False
            self._take(text)
        except (InputError, ValueError):
            return False
        return not _is_yaml(text)

    def _text(self, path: str) -> str:
        """The text of a file. Raises ValueError for one that is not text, or that is larger than a manifest may be."""
        data = self._snapshot.read(path) or b""
        if len(data) > LARGEST_FILE:
            raise ValueError(path)
        return data.decode("utf-8")

    def _take(self, text: str) -> None:
        """Raises ValueError once more would be parsed than one run may."""
        self._room -= len(text)
        if self._room < 0:
            raise ValueError(text[:_MOST_NAMED])


def _has_action(line: str) -> bool:
    start = line.partition("#")[0].find("{{")
    return start >= 0 and line.find("}}", start) >= 0


def _is_yaml(text: str) -> bool:
    """Whether the text parses, and every key is a scalar, as Kubernetes' readers demand.

    It reads events, since PyYAML's composer recurses in C.
    """
    loader = yaml.CSafeLoader(text)
    keys: list[bool | None] = []  # for each open collection: whether the next value is a key; None in a sequence
    try:
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, MappingEndEvent | SequenceEndEvent):
                keys.pop()
            elif isinstance(event, MappingStartEvent | SequenceStartEvent | ScalarEvent | AliasEvent):
                opens = isinstance(event, MappingStartEvent | SequenceStartEvent)
                if keys and keys[-1] is not None:
                    if keys[-1] and opens:
                        return False
                    keys[-1] = not keys[-1]
                if opens:
                    keys.append(True if isinstance(event, MappingStartEvent) else None)
    except (yaml.YAMLError, ValueError):
        return False
    return True

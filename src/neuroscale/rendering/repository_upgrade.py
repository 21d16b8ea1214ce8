"""Plans how a platform repository takes a version of the tool: files written whole, merged, added, removed. Pure.

Nothing of the earlier version runs: the two versions are data, and this program renders. Each side of a merge gets its
generated lists from the same catalog and settings first, so that two lists that both grew are no conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import Settings, load_settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.rendering.new_repository import STARTS, delivered_paths, start_files
from neuroscale.rendering.platform.files import SOURCES, is_rendered, render_all
from neuroscale.rendering.platform.policy_lists import render_policy_lists
from neuroscale.rendering.scaffolder.form import as_configured
from neuroscale.rendering.scaffolder.template import DEFINITION, load_template
from neuroscale.repo.layout import CODE_OWNERS, PIN, PRICES, REQUIREMENTS, TEMPLATE, FileClass, file_class
from neuroscale.repo.snapshot import ChangedSnapshot, MemorySnapshot, Snapshot
from neuroscale.repo.three_way_merge import Merged
from neuroscale.repo.tool_pin import ToolPin, locked_requirements, pin_files

Merge = Callable[[bytes, bytes, bytes], Merged]
"""Merges the contents of a file: the earlier version's, the repository's, the new version's."""
How = Literal["replaced", "rendered", "merged", "added", "removed"]

_FORM = f"{TEMPLATE}/{DEFINITION}"
_RESOLVE = "Merge the two by hand: --write writes the files with git's markers."


@dataclass(frozen=True)
class ToolVersion:
    """A version of the tool as data: its `delivered` files, and the texts that a new repository starts with."""

    version: str
    delivered: Snapshot
    start: Snapshot

    def texts(self, organization: str) -> dict[str, bytes]:
        """The files that this version delivers to an organisation's repository, by path, as far as neither the
        organisation owns them nor anything renders them anew."""
        classes = (FileClass.MERGED, FileClass.RENDERED)
        paths = [
            path
            for path in delivered_paths(self.delivered)
            if file_class(path) in classes and path not in (CODE_OWNERS, *STARTS) and not is_rendered(path)
        ]
        texts = {path: data for path in paths if (data := self.delivered.read(path)) is not None}
        return texts | (start_files(organization, self.start) if self.start.entries() else {})

    @property
    def locked(self) -> str:
        """The tool's own requirements, each with its digests."""
        return locked_requirements(self.delivered)


@dataclass(frozen=True)
class RepositoryUpgrade:
    """What a repository becomes. `files`: those that change, by path (None: removed), and `how` each does.

    `kept`: files of the organisation's own that the new version delivers too, those that it removed and the new version
    changes, and price lists that both renewed: they stay as they are. `lost`: files that the tool owns and somebody
    edited: the edits go. `conflicts`: in files whose content holds git's markers, or stays as it was.
    """

    old: str
    new: str
    files: Mapping[str, bytes | None]
    how: Mapping[str, How]
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    conflicts: tuple[Problem, ...]

    def of(self, *ways: How) -> list[str]:
        """The paths of the files that change in one of these ways."""
        return sorted(path for path, how in self.how.items() if how in ways)


def plan_upgrade(
    repository: Snapshot, old: ToolVersion, new: ToolVersion, pin: ToolPin, merge: Merge
) -> RepositoryUpgrade:
    """What the repository becomes with the new version, whose pin it gets. The same version again finishes what a
    person resolved, and changes nothing where nothing is left to do.

    Raises InputError if the new version cannot read the settings, the catalog or the template as they will be.
    """
    settings = load_settings(repository)
    before, after = (version.texts(settings.organization) for version in (old, new))
    work = _Work(repository, before, after, merge)
    work.merge(path for path in sorted({*before, *after}) if file_class(path) is FileClass.MERGED and path != _FORM)
    work.merge_form()
    lost = work.replace(settings)
    work.render()
    for path, text in pin_files(pin, new.locked).items():
        work.put(path, text.encode(), "replaced")
    how: dict[str, How] = {path: work.way(path) for path in work.files}
    return RepositoryUpgrade(
        old.version, new.version, work.files, how, tuple(work.kept), tuple(lost), tuple(work.conflicts)
    )


def edited_files(repository: Snapshot, version: ToolVersion) -> list[str]:
    """The files of the class MERGED that differ from what the version delivered, or that the repository lacks."""
    settings = load_settings(repository)
    texts = version.texts(settings.organization)
    work = _Work(repository, texts, texts, lambda _, ours, __: Merged(ours))
    texts[_FORM] = work.configured(texts[_FORM], texts) if _FORM in texts else b""
    merged = (path for path in sorted(texts) if file_class(path) is FileClass.MERGED)
    return [path for path in merged if work.now(path) != texts[path]]


@dataclass
class _Work:
    """The repository with the changes so far. `ways` says how files change whose way their content does not show."""

    repository: Snapshot
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    merging: Merge
    files: dict[str, bytes | None] = field(default_factory=dict)
    ways: dict[str, How] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    conflicts: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        entries = self.repository.entries(*self.before, *self.after, *SOURCES, CODE_OWNERS, PIN, REQUIREMENTS)
        self._kinds = {entry.path: entry.kind for entry in entries}

    @property
    def result(self) -> Snapshot:
        return ChangedSnapshot(self.repository, self.files)

    def now(self, path: str) -> bytes | None:
        """The content of a plain file of the repository."""
        return self.repository.read(path) if self._kinds.get(path) in ("file", "executable") else None

    def way(self, path: str) -> How:
        if self.files[path] is None:
            return "removed"
        return self.ways[path] if path in self._kinds else "added"

    def put(self, path: str, content: bytes | None, how: How) -> None:
        """Let a path hold the content, whatever is there."""
        self.files.pop(path, None)
        is_plain = self._kinds.get(path, "file") in ("file", "executable")
        if content != self.now(path) or not is_plain:
            self.files[path], self.ways[path] = content, how

    def merge(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._merge(path, self.before.get(path), self.now(path), self.after.get(path))

    def _merge(self, path: str, old: bytes | None, ours: bytes | None, new: bytes | None) -> None:
        kind = self._kinds.get(path, "file")
        if kind not in ("file", "executable"):
            if old != new:
                self._conflict(path, f"is a {kind}, and the tool delivers a file there", "Replace it by a plain file.")
        elif old == new or ours == new:
            self.put(path, ours, "merged")
        elif ours == old:
            self.put(path, new, "replaced")
        elif ours is None or old is None:
            self.kept.append(path)
        elif new is None:
            self._conflict(path, "was edited here, and the new version no longer has it", "Remove it, or move it.")
        else:
            merged = self.merging(old, ours, new)
            if merged.lines and path.startswith(f"{PRICES}/"):
                self.kept.append(path)  # `prices update` renews a list, so the organisation's is the newer one
                return
            self.put(path, merged.content, "merged")
            if not merged.is_text:
                self._conflict(path, "is no text, and both sides changed it", "Choose one of the two by hand.")
            for line in merged.lines:
                self._conflict(path, "was edited here in lines that the new version changes", _RESOLVE, line)

    def merge_form(self) -> None:
        """Merge the form, on every side with the lists that catalog and settings will have."""
        sides = [self.before.get(_FORM), self.now(_FORM), self.after.get(_FORM)]
        versions: list[Mapping[str, bytes] | None] = [self.before, None, self.after]
        if not self.conflicts:
            sides = [side and self.configured(side, files) for side, files in zip(sides, versions, strict=True)]
        self._merge(_FORM, sides[0], sides[1], sides[2])

    def configured(self, form: bytes, version: Mapping[str, bytes] | None) -> bytes:
        """The form with its lists; as it is where this program cannot read it. `version`: whose other files of the
        template stand beside it (None: the repository's as they will be)."""
        beside = (
            self.result
            if version is None
            else MemorySnapshot({path: data for path, data in version.items() if path.startswith(f"{TEMPLATE}/")})
        )
        try:
            template = load_template(ChangedSnapshot(beside, {_FORM: form}))
            return as_configured(template, load_catalog(self.result), load_settings(self.result)).encode()
        except InputError:
            return form

    def replace(self, settings: Settings) -> list[str]:
        """Write the files that the tool owns whole; returns those in which somebody's edits go."""
        old, new = (
            {path: data for path, data in side.items() if file_class(path) is FileClass.RENDERED}
            for side in (self.before, self.after)
        )
        rendered = render_policy_lists(MemorySnapshot(old), settings)
        known = {path: {data, rendered.get(path, "").encode()} for path, data in old.items()}
        for path in sorted({*old, *new}):
            self.put(path, new.get(path), "replaced")
        lists = {path: text.encode() for path, text in render_policy_lists(MemorySnapshot(new), settings).items()}
        wanted = new | lists
        return [path for path in old if self.now(path) not in {*known[path], wanted.get(path)}]

    def render(self) -> None:
        """Render what the settings and the catalog decide. With conflicts, what cannot be read waits for a person."""
        snapshot = self.result
        try:
            rendered = render_all(snapshot, load_catalog(snapshot), load_settings(snapshot))
        except InputError:
            if self.conflicts:
                return
            raise
        for path, text in rendered.items():
            self.put(path, text.encode(), "rendered")
        for entry in snapshot.entries(*SOURCES):
            if is_rendered(entry.path) and entry.path not in rendered:
                self.put(entry.path, None, "removed")

    def _conflict(self, path: str, message: str, fix: str, line: int | None = None) -> None:
        self.conflicts.append(Problem(path, "", message, fix, line))

"""Reads the whole tree that a merge would bring, as Git stores it.

It refuses entries that break or abuse everybody's checkout, in any folder: files where set-up, tools or tests write,
submodules, links that leave the repository, names that a file system cannot hold beside each other. It reads only
folders whose tree differs from the base's, and judges only the entries in them that differ.

Each link is judged alone. From its folder, which cannot be a link itself, it may go up as far as the repository's
root, and then down by names. The same rule holds for each link that it passes on its way down, so that no chain of
links leads out of the repository; `..` behind a name is refused, because the name may be that of a link.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.checks.git_attributes import (
    ATTRIBUTES,
    answered_findings,
    attribute_findings,
    changed_attributes,
    hiding_findings,
)
from neuroscale.gate.evaluation import file_finding
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.repo.layout import TAKES_PLACE_OF, is_written

Read = Callable[[str, Literal["blob", "tree"]], bytes | None]
"""Gives the content of an object by its id, or None if git has no such object."""

MOST_FINDINGS = 100
_GATE = "files"
_MOST_NAME_BYTES = 255
_MOST_PATH_BYTES = 1000
_FOLDER, _LINK, _SUBMODULE = "40000", "120000", "160000"
_MODES = (_FOLDER, "100644", "100755", _LINK, _SUBMODULE)
_SUBMODULES = ".gitmodules"
_GIT_FOLDER = re.compile(r"(\.git|git~1)[ .]*(:.*)?", re.DOTALL)
_IGNORED_BY_HFS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_TAKES_PLACE = {name.casefold(): replaced for name, replaced in TAKES_PLACE_OF.items() if name != "makefile"}


@dataclass(frozen=True)
class _Entry:
    """One entry of a tree object. A byte of the name that is not UTF-8 is a lone surrogate."""

    mode: str
    name: str
    object_id: str


def evaluate_tree(change: Change) -> tuple[list[Finding], int]:
    """The faults of the tree of a change's merge result, and the number of known-bad trees that were recognised first.

    Raises UntrustedError if an object cannot be read, or if a known-bad tree has no finding.
    """
    tripwires = _tripwires()
    for rule, objects, tree in tripwires:
        if rule not in {finding.rule for finding in tree_findings(_reading(objects), "", tree)}:
            raise UntrustedError(f"the files check did not find its tripwire for the rule {rule!r}.")
    read, base = change.git.read_object, change.git.tree(change.base, "")
    findings = tree_findings(read, base, change.tree)
    return [*findings, *answered_findings(change), *changed_attributes(change)], len(tripwires)


def tree_findings(read: Read, base: str, tree: str) -> list[Finding]:
    """The faults of the entries that differ between the trees `base` ("" for an empty one) and `tree`, by their ids.

    At most `MOST_FINDINGS`, and then one more that says so. Raises UntrustedError if an object cannot be read.
    """
    findings = list(islice(_changed(read, base, tree), MOST_FINDINGS + 1))
    if len(findings) > MOST_FINDINGS:
        message = f"has more than {MOST_FINDINGS} paths that no checkout should get; the others are not listed"
        findings[-1] = file_finding(
            _GATE, "too-many", "the change", message, "Correct those that are listed, and run the gate again."
        )
    return findings


def _changed(read: Read, base: str, tree: str) -> Iterator[Finding]:
    todo = [("", base, tree)]
    while todo:
        folder, before, after = todo.pop()
        if before == after:
            continue
        entries = _entries(read, after)
        there = _entries(read, before) if before else []
        new = Counter(entries) - Counter(there)
        yield from _folder_findings(folder, entries, there, new)
        folders_before = {entry.name: entry.object_id for entry in there if entry.mode == _FOLDER}
        for entry in new:
            path = f"{folder}/{entry.name}" if folder else entry.name
            refused = list(_entry_findings(read, path, entry))
            yield from refused
            if entry.mode == _FOLDER and not refused:
                todo.append((path, folders_before.get(entry.name, ""), entry.object_id))


def _entries(read: Read, tree: str) -> list[_Entry]:
    """A tree object's entries, in its own order."""
    data = read(tree, "tree")
    if data is None:
        raise UntrustedError(f"git cannot read the tree {tree}.")
    entries, start, size = [], 0, len(tree) // 2
    while start < len(data):
        space = data.find(b" ", start)
        end = data.find(b"\0", space)
        stop = end + 1 + size
        if space < 0 or end < 0 or stop > len(data):
            raise UntrustedError(f"the tree {tree} is damaged.")
        name = data[space + 1 : end].decode("utf-8", "surrogateescape")
        entries.append(_Entry(data[start:space].decode("latin-1"), name, data[end + 1 : stop].hex()))
        start = stop
    return entries


def _folder_findings(
    folder: str, entries: Sequence[_Entry], there: Sequence[_Entry], new: Counter[_Entry]
) -> Iterator[Finding]:
    """The faults between the names of a folder that involve an entry which was not `there` before."""
    names_before = {entry.name for entry in there}
    if any(_sort_key(entry) > _sort_key(other) for entry, other in pairwise(entries)):
        message = "is a folder whose entries Git does not find, because they are not in Git's order"
        yield file_finding(_GATE, "broken-tree", folder or ".", message, "Make the commit again with git.")
    alike: dict[str, list[_Entry]] = {}
    for entry in entries:
        alike.setdefault(_folded(entry.name), []).append(entry)
    for group in alike.values():
        if len(group) < 2:
            continue
        names = sorted({entry.name for entry in group})
        path = f"{folder}/{names[-1]}" if folder else names[-1]
        if len(names) < len(group) and any(entry in new for entry in group):
            message = "is twice in its folder: Git reads one of the two, and a checkout writes the other"
            yield file_finding(_GATE, "repeated-name", path, message, "Make the commit again with git.")
        if len(names) > 1 and not names_before.issuperset(names):
            message = f"differs from {', '.join(map(ascii, names[:-1]))} only by case or by Unicode form"
            yield file_finding(
                _GATE, "similar-names", path, message, "Rename one: not every file system can hold both."
            )


def _entry_findings(read: Read, path: str, entry: _Entry) -> Iterator[Finding]:
    """The faults of a single entry."""
    folded = entry.name.casefold()
    if entry.mode not in _MODES or entry.name in ("", ".", "..") or "/" in entry.name or _is_git_folder(entry.name):
        message = f"is an entry that git does not make (mode {entry.mode!a}, name {entry.name!a})"
        yield file_finding(_GATE, "broken-tree", path, message, "Make the commit again with git.")
        return
    if _bytes(entry.name) > _MOST_NAME_BYTES:
        message = f"has a name of more than {_MOST_NAME_BYTES} bytes, which no file system can hold"
        yield file_finding(_GATE, "long-name", path, message, "Choose a shorter name.")
    elif _bytes(path) > _MOST_PATH_BYTES:
        message = f"is a path of more than {_MOST_PATH_BYTES} bytes, which not every checkout can hold"
        yield file_finding(_GATE, "long-name", path, message, "Choose shorter names, or fewer folders.")
    if is_written(entry.name):
        message = "is tracked, and lies where set-up, workflows, tools or tests write: they would use it as their own"
        yield file_finding(
            _GATE, "written-path", path, message, "Remove it (git rm -r --cached) and leave it to .gitignore."
        )
    if folded in _TAKES_PLACE and path == entry.name:
        message = f"is read by tools in place of {_TAKES_PLACE[folded]}, or beside it: main could be tested otherwise"
        fix = "Write its content into the protected file, or let an owner of that file review it."
        yield file_finding(_GATE, "takes-place", path, message, fix, severity=Severity.NOTICE)
    if entry.mode == _SUBMODULE or folded == _SUBMODULES:
        message = "brings a submodule: each checkout would fetch from another server, and could hand credentials to it"
        yield file_finding(
            _GATE, "submodule", path, message, "Remove the submodule, and commit the files that are needed."
        )
    elif entry.mode == _LINK:
        if (fault := _link_fault(_content(read, path, entry), path.count("/"))) is not None:
            fix = "Link to a path inside the repository, such as ../folder/file, or commit the file itself."
            yield file_finding(_GATE, "link", path, f"is a symbolic link {fault}", fix)
        elif folded == ATTRIBUTES:
            yield file_finding(
                _GATE, "link", path, "is a symbolic link, which Git reads no attributes from", "Commit a file."
            )
    elif folded == ATTRIBUTES and entry.mode != _FOLDER:
        content = _content(read, path, entry)
        yield from (*attribute_findings(path, content), *hiding_findings(path, content))


def _content(read: Read, path: str, entry: _Entry) -> bytes:
    data = read(entry.object_id, "blob")
    if data is None:
        raise UntrustedError(f"git cannot read {path!a} ({entry.object_id}).")
    return data


def _link_fault(target: bytes, depth: int) -> str | None:
    """The fault of the target of a link that lies `depth` folders below the root, or None."""
    text = target.decode("utf-8", "surrogateescape")
    if not text or "\0" in text or len(target) > _MOST_PATH_BYTES:
        return "that a checkout cannot make: its target is empty, too long or not a path"
    if text.startswith("/"):
        return f"to the absolute path {text!a}"
    parts = [part for part in text.split("/") if part not in ("", ".")]
    up = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    if up > depth:
        return f"that leaves the repository: {text!a}"
    if ".." in parts[up:]:
        return f"with '..' behind a name, which may be a link itself: {text!a}"
    if any(is_written(part) or _is_git_folder(part) for part in parts):
        return f"to what Git does not track: {text!a}"
    return None


def _is_git_folder(name: str) -> bool:
    """Whether some file system takes a name for Git's own folder, so that no clone could check it out.

    Source: `fsck_tree` of Git 2.39. NTFS has short names, ignores spaces and dots at the end, reads a stream behind a
    colon and a folder before a backslash; HFS+ ignores some characters.
    """
    return any(_GIT_FOLDER.fullmatch(part) for part in _IGNORED_BY_HFS.sub("", name).casefold().split("\\"))


def _sort_key(entry: _Entry) -> bytes:
    """Git sorts a folder as if its name ended in a slash."""
    return entry.name.encode("utf-8", "surrogateescape") + (b"/" if entry.mode == _FOLDER else b"")


def _folded(name: str) -> str:
    """A form that is the same for names which a file system may treat as one name."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _reading(objects: dict[str, bytes]) -> Read:
    return lambda object_id, _: objects.get(object_id)


def _tripwires() -> list[tuple[str, dict[str, bytes], str]]:
    """Known-bad trees: for each the rule that must find it, its objects by id, and the tree's id."""

    def made(rule: str, *entries: tuple[str, str], content: bytes = b"tripwire") -> tuple[str, dict[str, bytes], str]:
        blob = hashlib.sha1(content, usedforsecurity=False)
        tree = b"".join(f"{mode} {name}\0".encode() + blob.digest() for mode, name in entries)
        tree_id = hashlib.sha1(tree, usedforsecurity=False).hexdigest()
        return rule, {blob.hexdigest(): content, tree_id: tree}, tree_id

    file = "100644"
    return [
        made("written-path", (file, ".venv")),
        made("submodule", (_SUBMODULE, "tripwire")),
        made("submodule", (file, _SUBMODULES)),
        made("link", (_LINK, "absolute"), content=b"/etc/passwd"),
        made("link", (_LINK, "escaping"), content=b"../tripwire"),
        made("link", (_LINK, "chained"), content=b"folder/../../tripwire"),
        made("takes-place", (file, "pytest.ini")),
        made("long-name", (file, "x" * (_MOST_NAME_BYTES + 1))),
        made("similar-names", (file, "TRIPWIRE"), (file, "tripwire")),
        made("repeated-name", (file, "tripwire"), (file, "tripwire")),
        made("broken-tree", (file, "b"), (file, "a")),
        made("broken-tree", (file, "git~1")),
        made("attributes", (file, ATTRIBUTES), content=b"* filter=tripwire\n"),
        made("attribute-macro", (file, ATTRIBUTES), content=b"[attr]tripwire filter=tripwire\n"),
    ]

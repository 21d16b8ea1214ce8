"""Finds packages that set-up, workflows, tests or Backstage would take from elsewhere, or without a digest.

No lock of this repository names a host. Each tool takes packages from the registry that its machine is set to, and
compares them with the digests of the lock. So a host, an address or a path in such a file is a finding, and so are a
missing digest and another digest of the same version. Faults that the base has already are not the change's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.printable import one_line
from neuroscale.core.yaml_io import decode, read_documents
from neuroscale.gate.evaluation import file_finding
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import Finding
from neuroscale.repo.git import TooLargeError
from neuroscale.repo.layout import CATALOG_INFO
from neuroscale.repo.snapshot import Snapshot

_GATE = "files"
_MOST = 20  # faults of one file that are listed
_MOST_VALUES = 10_000  # of a YAML file
_FIXES: Mapping[str, str] = {
    "foreign-source": "Name packages by name and version alone, and entries of the catalog by paths of the repository. "
    "Set a registry on the machine and not in Git.",
    "no-digest": "Make the lock anew with the tool that writes it (`make lock`, npm, go mod tidy), which adds digests. "
    "Name a hook's repository at a commit.",
    "changed-digest": "A released version never changes: find out who changed the digest, and take the base's.",
    "unread-lock": "Make the file anew with the tool that writes it.",
}
Rule = Literal["foreign-source", "no-digest", "changed-digest", "unread-lock"]


@dataclass(frozen=True)
class Fault:
    """What is wrong in a file; `entry` names the package or the line."""

    rule: Rule
    entry: str
    message: str


Digests = dict[str, str]
"""The digests of a file by `NAME VERSION`."""
Reader = Callable[[str, Digests], Iterator[Fault]]
"""Finds the faults of a file's text, and enters its digests. Raises ValueError if the text cannot be read."""


def _npm_lock(text: str, digests: Digests) -> Iterator[Fault]:
    lock = json.loads(text)
    if "dependencies" in lock:  # older versions of npm read these, and not `packages`
        yield Fault("unread-lock", "dependencies", "holds a part of the older form: the gate reads version 3 alone")
    for place, entry in lock["packages"].items():
        outside = place.startswith(("/", "..")) or "/../" in f"/{place}/"
        # npm takes a package from git that an entry asks for there, also where its own entry has only a version.
        yield from _npm_manifest(entry, place)
        if "node_modules/" not in f"{place}/" and "resolved" not in entry and not outside:
            continue  # a folder of the repository
        if entry.get("link") is True and not outside:
            if not re.fullmatch(r"[\w-][\w./-]*", (target := str(entry.get("resolved")))) or ".." in target:
                yield Fault("foreign-source", place, f"is a link to {target}")
        elif outside or "resolved" in entry or not re.fullmatch(r"[\w.+-]+", str(entry.get("version"))):
            yield Fault("foreign-source", place, f"comes from {entry.get('resolved') or entry.get('version')}")
        else:
            digest = str(entry.get("integrity"))
            if not re.fullmatch(r"sha(256|384|512)-[A-Za-z0-9+/]+={0,2}", digest):
                yield Fault("no-digest", place, "has no SHA-2 digest (integrity)")
            digests[f"{entry.get('name') or place.rpartition('node_modules/')[2]} {entry['version']}"] = digest


_NPM_VERSION = r"[\w.^~<>=|*+ -]*"
_NPM_SPEC = re.compile(rf"{_NPM_VERSION}|workspace:{_NPM_VERSION}|npm:(@[\w.-]+/)?[\w.-]+@{_NPM_VERSION}|\$[@\w./-]+")
_NPM_PARTS = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "overrides", "resolutions")


def _npm_manifest(manifest: Mapping[str, Any], place: str = "") -> Iterator[Fault]:
    for part in _NPM_PARTS:
        for name, spec in _leaves(manifest.get(part) or {}):
            if not _NPM_SPEC.fullmatch(str(spec)):
                yield Fault("foreign-source", f"{place} {part} {name}".strip(), f"comes from {spec}")


_NPM_MANAGER = re.compile(r"[a-z]+@\d[\w.-]*(\+sha(224|256|384|512)\.[0-9a-f]+)?")


def _npm_package(text: str, _: Digests) -> Iterator[Fault]:
    manifest = json.loads(text)
    yield from _npm_manifest(manifest)
    manager = manifest.get("packageManager", "npm@1")
    if not _NPM_MANAGER.fullmatch(str(manager)):
        yield Fault("foreign-source", "packageManager", f"comes from {manager}")


_NPM_SETTINGS = re.compile(
    r"\s*([#;].*|(omit-lockfile-registry-resolved|legacy-peer-deps|save-exact|engine-strict|fund|audit|ignore-scripts)"
    r"\s*=\s*(true|false)\s*)?"
)


def _npm_settings(text: str, _: Digests) -> Iterator[Fault]:
    for line in text.splitlines():
        if not _NPM_SETTINGS.fullmatch(line):
            yield Fault("foreign-source", line, "may lead npm elsewhere, or give it a token")


_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+(\[[\w, .-]*\])?==[\w.!+-]+)\s*(;(?:(?!\s--)[^#])+)?"
    r"(?P<hashes>(\s+--hash=sha256:[0-9a-f]{64})*)"
)


def _requirements(text: str, digests: Digests) -> Iterator[Fault]:
    # pip and uv differ in other line ends, and in a comment behind an entry or before a continued line.
    rows = text.split("\n")
    if re.search(r"[^\n -~]", text) or any("#" in row and row.endswith("\\") for row in rows):
        yield Fault("unread-lock", "", "holds characters that tools read differently")
        return
    joined = "\n".join(row for row in rows if not row.lstrip().startswith("#")).replace("\\\n", " ")
    for entry in filter(None, map(str.strip, joined.split("\n"))):
        read = _REQUIREMENT.fullmatch(entry)
        if read is None:
            yield Fault("foreign-source", entry, "is an option, an address, a path or no exact version")
        elif not read["hashes"]:
            yield Fault("no-digest", read["name"], "has no digest (--hash=sha256:...)")
        else:
            digests[read["name"]] = " ".join(sorted(read["hashes"].split()))


def _go_sums(text: str, digests: Digests) -> Iterator[Fault]:
    for line in filter(str.strip, text.split("\n")):
        read = re.fullmatch(r"(\S+ v\S+) (h1:[A-Za-z0-9+/]{43}=)\r?", line)
        if read is None:
            yield Fault("no-digest", line, "is not a module, its version and its digest (h1:)")
        elif digests.setdefault(read[1], read[2]) != read[2]:
            yield Fault("changed-digest", read[1], "has two digests")


_GO_REPLACE = re.compile(r"(?:replace\s+)?(\S+)(?:\s+v\S+)?\s+=>\s+(\S+)(\s+v\S+)?")


def _go_module(text: str, _: Digests) -> Iterator[Fault]:
    """Only replacements hold an arrow; one by another version of the same module leads nowhere else."""
    for line in text.split("\n"):
        code = line.partition("//")[0].strip()
        if re.search('["`]', code):
            yield Fault("unread-lock", code, "is quoted, and the gate reads plain names alone")
        elif "=>" in code:
            read = _GO_REPLACE.fullmatch(code)
            if read is None or not read[3] or read[1] != read[2]:
                yield Fault("foreign-source", read[1] if read else code, f"is replaced by {read[2] if read else '?'}")


def _hooks(text: str, _: Digests) -> Iterator[Fault]:
    for document in read_documents(text, ".pre-commit-config.yaml", _MOST_VALUES):
        for repository in document.value["repos"]:
            place, revision = str(repository["repo"]), str(repository.get("rev"))
            if place not in ("local", "meta") and not re.fullmatch(r"[0-9a-f]{40}", revision):
                yield Fault("no-digest", place, f"is taken at {revision}, and not at a commit")
            for hook in repository.get("hooks") or ():
                for package in hook.get("additional_dependencies") or ():
                    yield Fault("no-digest", f"hook {hook.get('id')}", f"installs {package} without a digest")


def _catalog(text: str, _: Digests) -> Iterator[Fault]:
    for document in read_documents(text, CATALOG_INFO, _MOST_VALUES):
        for name, value in _leaves(dict(document.value)):
            if name.startswith(("target", "$")) and ("//" in str(value) or ".." in str(value)):
                yield Fault("foreign-source", name, f"is read with Backstage's credentials from {value}")


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of nested mappings and lists, with the name of the mapping's entry that holds it."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else ((name, inner) for inner in value):
            yield from _leaves(inner, str(key))
    else:
        yield name, value


_READERS: Mapping[str, Reader] = {
    "package-lock.json": _npm_lock,
    "npm-shrinkwrap.json": _npm_lock,
    "package.json": _npm_package,
    ".npmrc": _npm_settings,
    "go.sum": _go_sums,
    "go.mod": _go_module,
}
_AT_ROOT: Mapping[str, Reader] = {".pre-commit-config.yaml": _hooks, CATALOG_INFO: _catalog}


def reader_of(path: str) -> Reader | None:
    """The reader of a file that says where packages, hooks or entries of a catalog come from; None for any other."""
    folder, _, name = path.casefold().rpartition("/")
    if name.endswith(".txt") and (folder.startswith("requirements") or re.search(r"requirements|constraints", name)):
        return _requirements
    return _READERS.get(name) or _AT_ROOT.get(path)


def faults_of(path: str, data: bytes, digests: Digests) -> list[Fault]:
    """The faults of such a file; enters its digests."""
    reader = reader_of(path)
    assert reader is not None
    try:
        return list(dict.fromkeys(reader(decode(data, path), digests)))
    except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [Fault("unread-lock", "", "cannot be read, so nobody knows where it leads")]


def evaluate_locks(change: Change) -> tuple[list[Finding], int]:
    """The faults of the locks that a change touches, and the number of known-bad ones that were recognised first.

    Raises UntrustedError if a known-bad lock has no fault.
    """
    for path, text, rule in _TRIPWIRES:
        if [fault.rule for fault in faults_of(path, text.encode(), {})] != [rule]:
            raise UntrustedError(f"the files check did not find its tripwire in a {path}.")
    findings: list[Finding] = []
    for path in filter(reader_of, change.paths):
        before, after = _side(change.before, path), _side(change.after, path)
        known, digests = Digests(), Digests()
        old = set() if before is None else set(faults_of(path, before, known))
        old = {fault for fault in old if fault.rule != "unread-lock"}  # nobody knows what else stands in such a file
        faults = [] if after is None else [fault for fault in faults_of(path, after, digests) if fault not in old]
        faults += [
            Fault("changed-digest", name, "has another digest than on the base branch")
            for name in digests
            if name in known and not {*digests[name].split()} & {*known[name].split()}
        ]
        findings += [_finding(path, fault) for fault in islice(faults, _MOST)]
        if len(faults) > _MOST:
            findings.append(_finding(path, Fault("unread-lock", "", f"has {len(faults) - _MOST} more such faults")))
    return findings, len(_TRIPWIRES)


def _side(side: Snapshot, path: str) -> bytes | None:
    try:
        return side.read(path)
    except TooLargeError:
        return b"\xff"  # cannot be read


def _finding(path: str, fault: Fault) -> Finding:
    message = one_line(f"{fault.entry}: {fault.message}" if fault.entry else fault.message, 300)
    return file_finding(_GATE, fault.rule, path, message, _FIXES[fault.rule])


_TRIPWIRES: tuple[tuple[str, str, Rule], ...] = (
    ("package-lock.json", '{"packages": {"node_modules/a": {"version": "1", "resolved": "//b"}}}', "foreign-source"),
    ("package-lock.json", '{"packages": {"node_modules/a": {"version": "1"}}}', "no-digest"),
    ("package.json", '{"dependencies": {"a": "b/c"}}', "foreign-source"),
    (".npmrc", "registry=//b", "foreign-source"),
    ("requirements.txt", "--index-url=//b", "foreign-source"),
    ("requirements.txt", "a==1", "no-digest"),
    ("go.sum", "a v1.0.0", "no-digest"),
    ("go.mod", "replace a => b v1.0.0", "foreign-source"),
    (".pre-commit-config.yaml", "repos: [{repo: //b, rev: v1}]", "no-digest"),
    (CATALOG_INFO, "spec: {target: //b}", "foreign-source"),
)

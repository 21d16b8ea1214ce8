"""The files check: a service folder holds only the files that it may, and Argo CD reads them as the gate does.

Argo CD applies every YAML, JSON and Jsonnet file of a folder, and treats the folder as something else when it finds a
Kustomize, Helm or plugin file in it. So a service folder holds an allow-list of regular files, each with one plain
object of the service.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.gate.check import GateCheck, Run
from neuroscale.gate.checks.colliding_names import name_collisions, taken_names
from neuroscale.gate.checks.git_attributes import ATTRIBUTES, attribute_findings
from neuroscale.gate.checks.locked_sources import evaluate_locks
from neuroscale.gate.checks.whole_tree import evaluate_tree
from neuroscale.gate.evaluation import Evaluation, file_finding, problem_findings
from neuroscale.gate.judged_files import RENDERER_INPUT, GateInput, ServiceFolder, SourceFile
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import TRIPWIRE_PREFIX, Manifest, read_manifests
from neuroscale.repo.layout import (
    CATALOG_INFO,
    KEY_FILE,
    MANIFESTS,
    PLAN_FILE,
    POSSIBLE_KINDS,
    RENDERED_KINDS,
    REQUEST_FILE,
    ServicePath,
)
from neuroscale.repo.snapshot import Entry, Kind, MemorySnapshot, Snapshot
from neuroscale.request.service_request import SERVICE_NAME

GATE = "files"
_finding = partial(file_finding, GATE)
_NEEDED = {REQUEST_FILE, PLAN_FILE, *RENDERED_KINDS}
_ALLOWED = {*_NEEDED, KEY_FILE, CATALOG_INFO}
_KIND_WORDS: dict[Kind, str] = {
    "symlink": "a symbolic link",
    "submodule": "a git submodule",
    "executable": "executable",
}
_MOST_OBJECTS = 10_000
_MOST_VALUES = 500_000
_Seen = tuple[list[Finding], list[Manifest]]
_NO_TREE = (
    "The tree around these files: the run names no commits, so the check did not look at tracked paths, links, "
    "submodules and attributes below the repository's root."
)


class FilesCheck(GateCheck):
    """Reads every object, for all other checks. For a change it looks at the whole tree of the merge result, and at the
    locks that it touches."""

    name = GATE
    title = "Files"

    def evaluate(self, run: Run) -> Evaluation:
        seen, manifests = evaluate_files(run.given, _environments(run))
        self.value = tuple(manifests)
        if run.change is None:
            return seen
        found, of_tree = evaluate_tree(run.change)
        locked, of_locks = evaluate_locks(run.change)
        findings = tuple(dict.fromkeys((*seen.findings, *found, *locked)))
        tripwires = of_tree + of_locks
        return replace(seen, findings=findings, tripwires=seen.tripwires + tripwires, caught=seen.caught + tripwires)

    def not_checked(self, run: Run) -> Iterable[str]:
        return () if run.change is not None else (_NO_TREE,)


def _environments(run: Run) -> tuple[str, ...] | None:
    """The environments that the settings name, or None if they cannot be read (the catalog check says why)."""
    if not run.given.services:
        return None
    try:
        return tuple(run.after.settings().environments)
    except InputError:
        return None


def evaluate_files(given: GateInput, environments: Sequence[str] | None) -> tuple[Evaluation, list[Manifest]]:
    """Check every file, and read every object. `environments` is None if the settings cannot be read.

    Raises UntrustedError if the check has no finding for one of the gate's own known-bad folders.
    """
    findings, manifests, looked_at = _look(given, environments)
    tripwires = _tripwires()
    for rule, bad in tripwires:
        if rule not in {finding.rule for finding in _look(bad, ("tripwire",))[0]}:
            raise UntrustedError(f"the files check did not find its tripwire for the rule {rule!r}.")
    expected = sum(len(service.entries) for service in given.services) + len(given.strays) + len(given.plain)
    evaluation = Evaluation(tuple(findings), looked_at, expected, "files", len(tripwires), len(tripwires))
    return evaluation, manifests


def read_service(snapshot: Snapshot, service: ServicePath) -> tuple[list[Finding], list[Manifest]]:
    """The faults of the files of one service's folder, and its objects."""
    findings: list[Finding] = []
    objects: list[Manifest] = []
    for entry in snapshot.entries(service.folder):
        found, read = _service_file(snapshot, service, entry)
        findings.extend(found)
        objects.extend(read)
    return [*findings, *_one_service(service, objects)], objects


def _look(given: GateInput, environments: Sequence[str] | None) -> tuple[list[Finding], list[Manifest], int]:
    findings = attribute_findings(ATTRIBUTES, given.snapshot.read(ATTRIBUTES) or b"")
    manifests: list[Manifest] = []
    room = _Room()
    looked_at = 0
    for service in given.services:
        looked_at += len(service.entries)
        findings.extend(_folder_findings(service, environments))
        objects: list[Manifest] = []
        for entry in service.entries:
            faults, read = room.read(entry.path, partial(_service_file, given.snapshot, service.path, entry))
            findings.extend(faults)
            objects.extend(read)
        findings.extend(_one_service(service.path, objects))
        manifests.extend(objects)
    stray = "lies in manifests/ but in no service folder"
    move = "Move it out of manifests/: only services lie there, in manifests/<environment>/<service>/."
    for entry in given.strays:
        looked_at += 1
        findings.append(_finding("stray-file", entry.path, stray, move))
    for file in given.plain:
        looked_at += 1
        faults, read = room.read(file.name, partial(_plain_file, file))
        findings.extend(faults)
        manifests.extend(read)
    findings.extend((*_duplicates(manifests), *_collisions(given, manifests)))
    kept = []
    for manifest in manifests:
        if manifest.name.startswith(TRIPWIRE_PREFIX) or manifest.namespace.startswith(TRIPWIRE_PREFIX):
            message = f"{manifest.subject} uses the name of the gate's own tripwires"
            fix = f"Choose a name that does not start with {TRIPWIRE_PREFIX}."
            findings.append(_finding("reserved-name", manifest.file, message, fix, manifest.line("metadata")))
        if not manifest.name.startswith(TRIPWIRE_PREFIX):
            kept.append(manifest)
    return findings, kept, looked_at


class _Room:
    """How many objects and values one run may still read; the position of each value takes memory."""

    def __init__(self) -> None:
        self._objects = _MOST_OBJECTS
        self._values = _MOST_VALUES
        self._is_full = False

    def read(self, name: str, read: Callable[[], _Seen]) -> _Seen:
        """The content of a file. Once there is no room it reads nothing; the first file without room is a finding."""
        if self._is_full:
            return [], []
        if self._objects <= 0 or self._values <= 0:
            self._is_full = True
            bounds = f"up to {_MOST_OBJECTS} objects with {_MOST_VALUES} values"
            message = f"and the files after it are not read: one run reads {bounds}"
            return [_finding("too-much", name, message, "Check parts of it one by one, or bring smaller changes.")], []
        findings, manifests = read()
        self._objects -= len(manifests)
        self._values -= sum(len(one) for one in {id(one.document): one.document.lines for one in manifests}.values())
        return findings, manifests


def _folder_findings(service: ServiceFolder, environments: Sequence[str] | None) -> Iterator[Finding]:
    folder = service.path.folder
    removed = service.change == "removed"
    if environments is not None and service.path.environment not in environments and not removed:
        message = f"{service.path.environment!r} is not an environment of platform/settings.yaml"
        fix = f"Use one of {', '.join(environments)}, or add the environment to the settings."
        yield _finding("unknown-environment", folder, message, fix)
    if not re.fullmatch(SERVICE_NAME, service.path.service):
        fix = "Use lower-case letters, digits and '-', starting with a letter, at most 40 characters."
        yield _finding("service-name", folder, f"{service.path.service!r} is not a service name", fix)
    if removed:
        message = "the change removes this service: Argo CD deletes it, and its callers get errors"
        fix = "Merge it once nobody needs the service; otherwise restore the folder."
        yield _finding("removed-service", folder, message, fix, severity=Severity.NOTICE)
        return
    present = {entry.path for entry in service.entries}
    make = f"Run `neuroscale render {folder}/{REQUEST_FILE}`"
    if f"{folder}/{REQUEST_FILE}" not in present:
        make = f"Restore {REQUEST_FILE} first, from which `neuroscale render` makes the other files"
    for file in (f"{folder}/{name}" for name in sorted(_NEEDED)):
        if file not in present:
            message = "is missing from the service's folder"
            yield _finding("missing-file", file, message, f"{make}, or remove the whole folder.")


def _service_file(snapshot: Snapshot, service: ServicePath, entry: Entry) -> _Seen:
    name, file = entry.path.removeprefix(f"{service.folder}/"), entry.path
    if name not in _ALLOWED:
        fix = (
            f"Keep only {', '.join(sorted(_ALLOWED))}: Argo CD would apply this file too, or render the folder with it."
        )
        return [_finding("unlisted-file", file, "is not a file that a service folder may hold", fix)], []
    if entry.kind != "file":
        return [_not_plain(file, entry, "Commit a regular file with mode 644.")], []
    try:
        data = _content(snapshot.read(file), file)
        if name not in POSSIBLE_KINDS:
            return [], []  # the drift check reads the request, its plan and the file for the catalog
        manifests = read_manifests(data, file, service)
    except InputError as error:
        return problem_findings(GATE, "unreadable", error), []
    kind = POSSIBLE_KINDS[name]
    if len(manifests) != 1 or manifests[0].prefix:
        message = f"holds {len(manifests)} objects" if len(manifests) != 1 else "holds a List"
        return [_finding("one-object", file, message, f"Write exactly one {kind}.")], manifests
    if manifests[0].kind != kind:
        message = f"holds a {manifests[0].kind} where a {kind} belongs"
        fix = f"Write a {kind}: a service consists of {', '.join(POSSIBLE_KINDS.values())} only."
        return [_finding("wrong-kind", file, message, fix, manifests[0].line("kind"))], manifests
    return [], manifests


def _one_service(service: ServicePath, manifests: Sequence[Manifest]) -> Iterator[Finding]:
    """All objects of a folder belong to the one service and lie in one namespace."""
    namespaces = {manifest.namespace for manifest in manifests}
    for manifest in manifests:
        if manifest.name != service.service:
            message = f"metadata.name is {manifest.name!r}, but the folder is the service {service.service!r}"
            fix = f"Write metadata.name: {service.service}."
            yield _finding("wrong-name", manifest.file, message, fix, manifest.line("metadata", "name"))
        if not manifest.namespace or len(namespaces) != 1:
            message = f"metadata.namespace is {manifest.namespace!r}, but a service lies in one namespace"
            fix = "Write the team's namespace in every file of the service."
            yield _finding("wrong-namespace", manifest.file, message, fix, manifest.line("metadata", "namespace"))


def _plain_file(file: SourceFile) -> _Seen:
    if file.entry.kind not in ("file", "executable"):
        return [_not_plain(file.name, file.entry, "Replace it with the file itself.")], []
    if RENDERER_INPUT.search(file.name):
        message = "is input of Helm, Kustomize or Jsonnet, and not what a cluster gets"
        fix = "Run the gate on the output of `helm template`, `kustomize build` or `jsonnet` instead of this folder."
        return [_finding("not-rendered", file.name, message, fix)], []
    try:
        manifests = read_manifests(_content(file.read(), file.name), file.name)
    except InputError as error:
        return problem_findings(GATE, "unreadable", error), []
    if not manifests:
        return [_finding("empty", file.name, "holds no object", "Remove the file or write an object.")], []
    return [], manifests


def _not_plain(name: str, entry: Entry, fix: str) -> Finding:
    return _finding("not-a-plain-file", name, f"is {_KIND_WORDS.get(entry.kind, 'not a regular file')}", fix)


def _content(data: bytes | None, name: str) -> bytes:
    if data is None:
        raise UntrustedError(f"{name} is listed but cannot be read.")
    return data


def _duplicates(manifests: Sequence[Manifest]) -> Iterator[Finding]:
    """Objects that one cluster would take for the same object: in one environment, or in the plain folders."""
    first: dict[tuple[str, tuple[str, str, str, str]], Manifest] = {}
    for manifest in manifests:
        key = (manifest.service.environment if manifest.service else "", manifest.identity)
        if (other := first.setdefault(key, manifest)) is not manifest:
            message = f"{manifest.subject} is also in {other.file}"
            fix = "Keep one of the two: they would overwrite each other in the cluster."
            yield _finding("duplicate-object", manifest.file, message, fix, manifest.line("metadata", "name"))


def _collisions(given: GateInput, manifests: Sequence[Manifest]) -> Iterator[Finding]:
    """Services for which KServe makes objects of the same name, and services with the name of a platform object."""
    for manifest, other, name in name_collisions(given, manifests):
        makes = f"KServe makes {name} for {manifest.subject} and for {other.subject} in {other.file}"
        message, fix = f"{makes}: one of them would overwrite the other's", "Give one of the two services another name."
        yield _finding("name-collision", manifest.file, message, fix, manifest.line("metadata", "name"))
    for manifest, file in taken_names(given, manifests):
        has = f"{manifest.subject} has the name of the platform's object in {file}"
        message, fix = f"{has}: Argo CD would not deploy the service", "Give the service another name."
        yield _finding("name-collision", manifest.file, message, fix, manifest.line("metadata", "name"))


def _tripwires() -> list[tuple[str, GateInput]]:
    """Known-bad folders, each with the rule that must find it."""
    service = ServicePath("tripwire", "bad")
    file = f"{service.folder}/inferenceservice.yaml"
    good = b"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: bad, namespace: bad}\n"

    def folder(files: dict[str, bytes], kinds: dict[str, Kind] | None = None) -> GateInput:
        snapshot = MemorySnapshot(files, kinds)
        return GateInput(snapshot, (ServiceFolder(service, "checked", tuple(snapshot.entries())),))

    def beside(name: str) -> GateInput:
        """The service of the tripwires, and an unchanged service of that name."""
        bad, other = folder({file: good}), ServicePath("tripwire", name)
        files = {f"{other.folder}/inferenceservice.yaml": good.replace(b"name: bad,", f"name: {name},".encode())}
        return GateInput(MemorySnapshot({file: good, **files}), bad.services)

    stray = MemorySnapshot({f"{MANIFESTS}/tripwire/kustomization.yaml": b""})
    return [
        ("not-a-plain-file", folder({}, {file: "symlink"})),
        ("unlisted-file", folder({f"{service.folder}/.argocd-source.yaml": b""})),
        ("unreadable", folder({file: good + b"kind: Pod\n"})),
        ("one-object", folder({file: good + b"---\n" + good})),
        ("wrong-kind", folder({file: good.replace(b"InferenceService", b"Secret")})),
        ("wrong-name", folder({file: good.replace(b"name: bad,", b"name: other,")})),
        ("wrong-namespace", folder({file: good.replace(b", namespace: bad", b"")})),
        ("name-collision", beside("bad-predictor")),
        ("missing-file", folder({file: good})),
        ("attributes", GateInput(MemorySnapshot({ATTRIBUTES: b"* filter=tripwire\n"}))),
        ("stray-file", GateInput(stray, strays=tuple(stray.entries()))),
    ]

"""The files gate: a service folder holds only what it may, and nothing reads differently to Argo CD.

Argo CD applies every YAML, JSON and Jsonnet file of a folder, and treats the folder as something else when it finds a
Kustomize, Helm or plugin file in it. So a service folder holds an allow-list of regular files, each with one plain
object of the service.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from neuroscale.errors import InputError, UntrustedError
from neuroscale.gates.check import Evaluation, problem_findings
from neuroscale.gates.inputs import GateInput, ServiceFolder, SourceFile
from neuroscale.gates.manifests import TRIPWIRE_PREFIX, Manifest, read_manifests
from neuroscale.repository import MANIFESTS, PLAN_FILE, RENDERED_KINDS, REQUEST_FILE, ServicePath
from neuroscale.request import SERVICE_NAME
from neuroscale.snapshot import Entry, Kind, MemorySnapshot, Snapshot
from neuroscale.verdict import Finding

GATE = "files"
_ALLOWED = {REQUEST_FILE, PLAN_FILE, *RENDERED_KINDS}
_KIND_WORDS: dict[Kind, str] = {
    "symlink": "a symbolic link",
    "submodule": "a git submodule",
    "executable": "executable",
}
_ATTRIBUTES = ".gitattributes"
_CONVERTS = re.compile(r"\s(?:working-tree-encoding=|filter=|ident(?:\s|$))")
_OTHER_FILES = re.compile(r"\s*\*\.(?!ya?ml\s|json\s)[A-Za-z0-9]+\s")
_RENDERED_BY_OTHERS = {"kustomization.yaml", "kustomization.yml", "Kustomization", "Chart.yaml", "values.yaml"}


def evaluate_files(given: GateInput, environments: Sequence[str] | None) -> tuple[Evaluation, list[Manifest]]:
    """Check every file, and read every object. `environments` is None where the settings cannot be read.

    Raises UntrustedError when one of the gate's own known-bad folders comes back without its finding.
    """
    findings, manifests, looked_at = _look(given, environments)
    tripwires = _tripwires()
    for rule, bad in tripwires:
        if rule not in {finding.rule for finding in _look(bad, ("tripwire",))[0]}:
            raise UntrustedError(f"the files gate did not find its tripwire for the rule {rule!r}.")
    expected = sum(len(service.entries) for service in given.services) + len(given.strays) + len(given.plain)
    evaluation = Evaluation(tuple(findings), looked_at, expected, "files", len(tripwires), len(tripwires))
    return evaluation, manifests


def _look(given: GateInput, environments: Sequence[str] | None) -> tuple[list[Finding], list[Manifest], int]:
    findings = _attribute_findings(given.snapshot)
    manifests: list[Manifest] = []
    looked_at = 0
    for service in given.services:
        looked_at += len(service.entries)
        findings.extend(_folder_findings(service, environments))
        objects: list[Manifest] = []
        for entry in service.entries:
            found, read = _service_file(given.snapshot, service.path, entry)
            findings.extend(found)
            objects.extend(read)
        findings.extend(_one_service(service.path, objects))
        manifests.extend(objects)
    for entry in given.strays:
        looked_at += 1
        findings.append(
            _finding(
                "stray-file",
                entry.path,
                "lies in manifests/ but in no service folder",
                "Move it to manifests/<environment>/<service>/, or out of manifests/.",
            )
        )
    for file in given.plain:
        looked_at += 1
        found, read = _plain_file(file)
        findings.extend(found)
        manifests.extend(read)
    findings.extend(_duplicates(manifests))
    for manifest in manifests:
        if manifest.name.startswith(TRIPWIRE_PREFIX) or manifest.namespace.startswith(TRIPWIRE_PREFIX):
            findings.append(
                _finding(
                    "reserved-name",
                    manifest.file,
                    f"{manifest.subject} uses the name of the gate's own tripwires",
                    f"Choose a name that does not start with {TRIPWIRE_PREFIX}.",
                    manifest.line("metadata"),
                )
            )
    return findings, [m for m in manifests if not m.name.startswith(TRIPWIRE_PREFIX)], looked_at


def _attribute_findings(snapshot: Snapshot) -> list[Finding]:
    """Git attributes with which a checkout of the manifests is not what lies in Git.

    Those of folders below manifests/ are files that do not belong there.
    """
    lines = (snapshot.read(_ATTRIBUTES) or b"").decode("utf-8", "replace").split("\n")
    return [
        _finding(
            "attributes",
            _ATTRIBUTES,
            "lets a checkout change files that could be manifests, so that Argo CD would read others than the gate",
            "Name files that are no YAML or JSON (*.png), or remove working-tree-encoding, ident and filter.",
            number,
        )
        for number, line in enumerate(lines, 1)
        if _CONVERTS.search(line) and not line.lstrip().startswith("#") and not _OTHER_FILES.match(line)
    ]


def _folder_findings(service: ServiceFolder, environments: Sequence[str] | None) -> list[Finding]:
    findings = []
    folder = service.path.folder
    if environments is not None and service.path.environment not in environments:
        findings.append(
            _finding(
                "unknown-environment",
                folder,
                f"{service.path.environment!r} is not an environment of platform/settings.yaml",
                f"Use one of {', '.join(environments)}, or add the environment to the settings.",
            )
        )
    if not re.fullmatch(SERVICE_NAME, service.path.service):
        findings.append(
            _finding(
                "service-name",
                folder,
                f"{service.path.service!r} is not a service name",
                "Use lower-case letters, digits and '-', starting with a letter, at most 40 characters.",
            )
        )
    if service.change != "removed":
        present = {entry.path for entry in service.entries}
        for name in sorted(_ALLOWED):
            if f"{folder}/{name}" not in present:
                findings.append(
                    _finding(
                        "missing-file",
                        f"{folder}/{name}",
                        "is missing from the service's folder",
                        f"Run `neuroscale render {folder}/{REQUEST_FILE}`, or remove the whole folder.",
                    )
                )
    return findings


def _service_file(snapshot: Snapshot, service: ServicePath, entry: Entry) -> tuple[list[Finding], list[Manifest]]:
    name = entry.path.removeprefix(f"{service.folder}/")
    if name not in _ALLOWED:
        fix = (
            f"Keep only {', '.join(sorted(_ALLOWED))}: Argo CD would read this file too, or read the folder otherwise."
        )
        return [_finding("unlisted-file", entry.path, "is not a file that a service folder may hold", fix)], []
    if entry.kind != "file":
        word = _KIND_WORDS.get(entry.kind, "not a regular file")
        return [_finding("not-a-plain-file", entry.path, f"is {word}", "Commit a regular file with mode 644.")], []
    data = snapshot.read(entry.path)
    if data is None:
        raise UntrustedError(f"{entry.path} is listed but cannot be read.")
    if name not in RENDERED_KINDS:
        return [], []  # the drift gate reads the request and its plan
    try:
        manifests = read_manifests(data, entry.path, service)
    except InputError as error:
        return problem_findings(GATE, "unreadable", error), []
    if len(manifests) != 1 or manifests[0].prefix:
        message = f"holds {len(manifests)} objects" if len(manifests) != 1 else "holds a List"
        return [_finding("one-object", entry.path, message, f"Write exactly one {RENDERED_KINDS[name]}.")], manifests
    if manifests[0].kind != RENDERED_KINDS[name]:
        message = f"holds a {manifests[0].kind} where a {RENDERED_KINDS[name]} belongs"
        fix = f"Write a {RENDERED_KINDS[name]}: a service consists of {', '.join(RENDERED_KINDS.values())} only."
        return [_finding("wrong-kind", entry.path, message, fix, manifests[0].line("kind"))], manifests
    return [], manifests


def _one_service(service: ServicePath, manifests: Sequence[Manifest]) -> list[Finding]:
    """All objects of a folder belong to the one service and lie in one namespace."""
    findings = []
    namespaces = sorted({manifest.namespace for manifest in manifests})
    for manifest in manifests:
        if manifest.name != service.service:
            findings.append(
                _finding(
                    "wrong-name",
                    manifest.file,
                    f"metadata.name is {manifest.name!r}, but the folder is the service {service.service!r}",
                    f"Write metadata.name: {service.service}.",
                    manifest.line("metadata", "name"),
                )
            )
        if not manifest.namespace or len(namespaces) != 1:
            findings.append(
                _finding(
                    "wrong-namespace",
                    manifest.file,
                    f"metadata.namespace is {manifest.namespace!r}, but a service lies in one namespace",
                    "Write the team's namespace in every file of the service.",
                    manifest.line("metadata", "namespace"),
                )
            )
    return findings


def _plain_file(file: SourceFile) -> tuple[list[Finding], list[Manifest]]:
    base = file.entry.path.rpartition("/")[2]
    if file.entry.kind not in ("file", "executable"):
        word = _KIND_WORDS.get(file.entry.kind, "not a regular file")
        return [_finding("not-a-plain-file", file.name, f"is {word}", "Replace it by the file itself.")], []
    if base in _RENDERED_BY_OTHERS or base.endswith(".jsonnet"):
        return [
            _finding(
                "not-rendered",
                file.name,
                "is input of another tool: Argo CD would not apply this folder as it stands",
                "Render the folder first (kustomize build, helm template, jsonnet) and check the result.",
            )
        ], []
    data = file.read()
    if data is None:
        raise UntrustedError(f"{file.name} is listed but cannot be read.")
    try:
        manifests = read_manifests(data, file.name)
    except InputError as error:
        return problem_findings(GATE, "unreadable", error), []
    if not manifests:
        return [_finding("empty", file.name, "holds no object", "Remove the file or write an object.")], []
    return [], manifests


def _duplicates(manifests: Sequence[Manifest]) -> list[Finding]:
    """Objects that one cluster would take for the same: one environment of the repository, or the plain folders."""
    first: dict[tuple[str, tuple[str, str, str, str]], Manifest] = {}
    findings = []
    for manifest in manifests:
        key = (manifest.service.environment if manifest.service else "", manifest.identity)
        if (other := first.setdefault(key, manifest)) is not manifest:
            findings.append(
                _finding(
                    "duplicate-object",
                    manifest.file,
                    f"{manifest.subject} is also in {other.file}",
                    "Keep one of the two: they would overwrite each other in the cluster.",
                    manifest.line("metadata", "name"),
                )
            )
    return findings


def _finding(rule: str, file: str, message: str, fix: str, line: int | None = None) -> Finding:
    return Finding(gate=GATE, rule=rule, file=file, line=line, message=message, fix=fix)


def _tripwires() -> list[tuple[str, GateInput]]:
    """Known-bad folders, each with the rule that must find it."""
    service = ServicePath("tripwire", "bad")
    file = f"{service.folder}/inferenceservice.yaml"
    good = b"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: bad, namespace: bad}\n"

    def folder(files: dict[str, bytes], kinds: dict[str, Kind] | None = None) -> GateInput:
        snapshot = MemorySnapshot(files, kinds)
        return GateInput(snapshot, (ServiceFolder(service, "checked", tuple(snapshot.entries())),))

    stray = MemorySnapshot({f"{MANIFESTS}/tripwire/kustomization.yaml": b""})
    return [
        ("not-a-plain-file", folder({}, {file: "symlink"})),
        ("unlisted-file", folder({f"{service.folder}/.argocd-source.yaml": b""})),
        ("unreadable", folder({file: good + b"kind: Pod\n"})),
        ("one-object", folder({file: good + b"---\n" + good})),
        ("wrong-kind", folder({file: good.replace(b"InferenceService", b"Secret")})),
        ("wrong-name", folder({file: good.replace(b"name: bad,", b"name: other,")})),
        ("wrong-namespace", folder({file: good.replace(b", namespace: bad", b"")})),
        ("missing-file", folder({file: good})),
        ("attributes", GateInput(MemorySnapshot({_ATTRIBUTES: b"* filter=tripwire\n"}))),
        ("stray-file", GateInput(stray, strays=tuple(stray.entries()))),
    ]

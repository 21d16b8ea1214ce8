"""Reads Kubernetes objects from files, and refuses files that other readers would read differently."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.units import MIB
from neuroscale.core.yaml_io import LARGEST_INTEGER, Document, decode, flow, read_documents
from neuroscale.repo.layout import ServicePath

OWNER: Final = "app.kubernetes.io/owner"
COST_CENTER: Final = "cost-center"
SERVICE: Final = "serving.kserve.io/inferenceservice"
"""KServe writes it on the pods of an InferenceService."""
ARCHITECTURE: Final = "model-architecture"
RATIO: Final = "active-param-ratio"
TOTAL: Final = "total-params"
COST_LABELS: Final = (OWNER, COST_CENTER, ARCHITECTURE, RATIO, TOTAL)
"""The labels of a service by which costs are attributed."""


LARGEST_FILE = MIB  # bytes; etcd refuses larger objects by default (1.5 MiB a request)
_MOST_VALUES = 100_000  # of one file: the position of each value takes memory
TRIPWIRE_PREFIX = "neuroscale-tripwire"
MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
LEFT_OUT = b"+argocd:skip-file-rendering"
"""Argo CD leaves out a file that holds this text anywhere, even in a comment or a value."""

_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_COLON_NAMES = re.compile(r"[a-z0-9]([-a-z0-9.:]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Manifest:
    """One object: where it was read, and its value. `prefix` is the path inside `document` for items of a List."""

    file: str
    value: dict[str, Any]
    document: Document
    prefix: tuple[str | int, ...] = ()
    service: ServicePath | None = None

    @property
    def api_version(self) -> str:
        return str(self.value["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.value["kind"])

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def name(self) -> str:
        return str(self.value["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.value["metadata"].get("namespace") or "")

    @property
    def subject(self) -> str:
        """`Kind namespace/name`, as findings name the object."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Objects with the same group, kind, namespace and name are the same object in a cluster."""
        return (self.group, self.kind, self.namespace, self.name)

    def at(self, path: Sequence[str | int]) -> Any:
        """The value at a path inside the object; None where it has no such field."""
        value: Any = self.value
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def line(self, *path: str | int) -> int | None:
        """The line of a path inside the object, or of its nearest ancestor."""
        return self.document.line(*self.prefix, *path)


def read_manifests(data: bytes, file: str, service: ServicePath | None = None) -> list[Manifest]:
    """Every object in a file; a List is expanded. Raises InputError naming file, field and line."""
    if len(data) > LARGEST_FILE:
        raise InputError.at(file, "", f"has {len(data)} bytes", f"Keep a manifest file below {LARGEST_FILE} bytes.")
    if LEFT_OUT in data:
        what, fix = f"holds {LEFT_OUT.decode()!r}", "Remove it: Argo CD leaves out a file that holds it anywhere."
        raise InputError.at(file, "", what, fix, data.count(b"\n", 0, data.index(LEFT_OUT)) + 1)
    text = decode(data, file)
    if file.endswith(".json"):
        documents = [_json_document(text, file)]
    else:
        _check_lines(text, file)
        documents = read_documents(text, file, _MOST_VALUES)
    manifests: list[Manifest] = []
    for document in documents:
        manifests.extend(_expand(document.value, document, (), file, service))
    return manifests


# Kubernetes' readers cut a file into documents before they parse it: at every line feed with three dashes behind it,
# whatever else is in that line. Each of these lines gives them other documents than a YAML parser sees: a key
# `---#x:` would hide an object from the gate that Argo CD applies, and Argo CD leaves out a file that it cannot read.
_OTHER_DOCUMENTS = re.compile(r"^(?:---(?![ \t]*(?:[ \t]#.*)?\r?$)|\.\.\.|%)", re.MULTILINE)
_OTHER_LINE_ENDS = re.compile(r"\r(?!\n)|[\x85\u2028\u2029\ufeff]")


def _check_lines(text: str, file: str) -> None:
    """Refuse text that Kubernetes' readers split into other documents or lines than the gate does."""
    for pattern, message, fix in (
        (
            _OTHER_DOCUMENTS,
            "is a line that YAML parsers read differently",
            "Separate documents with a line of only three dashes; use no directives (%) and no document ends (...).",
        ),
        (
            _OTHER_LINE_ENDS,
            "is a line end or white space to some YAML parsers only",
            r"End lines with \n, and write other characters in quotes as their escapes (\r, \N, \L, \P, \uFEFF).",
        ),
    ):
        if found := pattern.search(text):
            line = text.count("\n", 0, found.start()) + 1
            raise InputError.at(file, "", f"{found[0]!r} {message}", fix, line)


def _expand(
    value: Any, document: Document, prefix: tuple[str | int, ...], file: str, service: ServicePath | None
) -> list[Manifest]:
    def problem(field: str, message: str, fix: str, *path: str | int) -> InputError:
        return InputError.at(file, field, message, fix, document.line(*prefix, *path))

    if not isinstance(value, dict):
        raise problem("", "is not a Kubernetes object", "Write a mapping with apiVersion and kind.")
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key), str) or not value[key]:
            fix = f"Write {key}, or leave the file out if it is not for a cluster."
            raise problem(key, "is missing or not text, so this is not a Kubernetes object", fix)
    if "items" in value:
        # Argo CD treats every object with this field as a list.
        if not value["kind"].endswith("List"):
            raise problem("items", f"makes a list of this {value['kind']}", "Remove it.", "items")
        items = value["items"]
        if not isinstance(items, list):
            raise problem("items", "is not a list", "Write a list of objects.")
        if extra := sorted(set(value) - {"apiVersion", "kind", "metadata", "items"}):
            raise problem(extra[0], "is not a field of a List", "Remove it.", extra[0])
        manifests: list[Manifest] = []
        for index, item in enumerate(items):
            manifests.extend(_expand(item, document, (*prefix, "items", index), file, service))
        return manifests
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise InputError(_without_name(file, metadata, lambda field: document.line(*prefix, "metadata", field)))
    if metadata.get("generateName") not in (None, ""):
        message = "is set beside metadata.name, and tools disagree on which of the two is the object's name"
        fix = "Remove metadata.generateName: the object has a fixed name."
        raise problem("metadata.generateName", message, fix, "metadata", "generateName")
    pattern = _COLON_NAMES if value["apiVersion"].startswith("rbac.authorization.k8s.io/") else _DNS_SUBDOMAIN
    for key in ("name", "namespace"):
        name = metadata.get(key)
        if key in metadata and not (isinstance(name, str) and pattern.fullmatch(name)):
            fix = _NAME_FIX if isinstance(name, str) else _quoted(name)
            raise problem(f"metadata.{key}", f"{name!r} is not a Kubernetes name", fix, "metadata", key)
    return [Manifest(file, value, document, prefix, service)]


_NAME_FIX = "Use lower-case letters, digits, '-' and '.', at most 253 characters."


def _without_name(file: str, metadata: Any, line: Callable[[str], int | None]) -> Problem:
    """Why an object whose metadata hold no name as text is not judged. `line`: the line of a field of the metadata."""
    fields = metadata if isinstance(metadata, dict) else {}
    fix = "Give the object a fixed name: without one it cannot be compared with the cluster."
    if "generateName" in fields and "name" not in fields:
        told = "stands in place of metadata.name: each time that somebody creates the object, it gets another name"
        return Problem(
            file, "metadata.generateName", told, f"Remove metadata.generateName. {fix}", line("generateName")
        )
    if fields.get("name") is not None:
        told = f"{fields['name']!r} is not text"
        return Problem(file, "metadata.name", told, _quoted(fields["name"]), line("name"))
    return Problem(file, "metadata.name", "is missing", fix, line("name"))


def _quoted(value: Any) -> str:
    return f'Quote it: "{value}".' if type(value) is int and value >= 0 else _NAME_FIX


def _json_document(text: str, file: str) -> Document:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, value in items:
            if key in mapping:
                raise InputError.at(file, key, f"the key {key!r} stands twice", "Keep one of the two.")
            mapping[key] = value
        return mapping

    def whole(digits: str) -> int:
        # Python refuses to convert thousands of digits.
        if len(digits) > 17 or abs(int(digits)) > LARGEST_INTEGER:
            raise InputError.at(file, "", f"{digits[:20]} is too large for JSON numbers", "Quote it if it is text.")
        return int(digits)

    def refuse(constant: str) -> None:
        raise InputError.at(file, "", f"{constant} is not a JSON number", "Write a finite number.")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=refuse, parse_int=whole)
        flow(value)  # refuses a lone surrogate, which JSON can spell and no cluster stores
        return Document(value, {(): 1})
    except json.JSONDecodeError as error:
        raise InputError.at(
            file, "", f"not valid JSON: {error.msg}", "Correct the syntax at that line.", error.lineno
        ) from error
    except (RecursionError, ValueError) as error:
        raise InputError.at(file, "", f"not usable JSON: {error}", "Write plain, flat JSON.") from error


def tripwire(api_version: str, kind: str, metadata: Mapping[str, Any] | None = None, **fields: Any) -> Manifest:
    """A known-bad object of the gate, which stands in no file."""
    named = {"name": TRIPWIRE_PREFIX, **(metadata or {})}
    value = {"apiVersion": api_version, "kind": kind, "metadata": named, **fields}
    return Manifest("tripwire.yaml", value, Document(value, {(): 1}))

"""Turns an API server's refusals of objects into findings at the fields that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from neuroscale.core.yaml_io import Path as FieldPath
from neuroscale.core.yaml_io import dotted, parts
from neuroscale.gate.evaluation import manifest_finding
from neuroscale.gate.verdict import Finding
from neuroscale.kube.client import Object, RefusedError
from neuroscale.manifests.objects import Manifest

GATE = "server"

_KIND_FIX = (
    "Correct apiVersion and kind, or add the module with its definition to the set-up. A definition in the change "
    "itself does not count: nothing of a change is installed."
)
_STRICT = re.compile(r'(unknown|duplicate) field "((?:[^"\\]|\\.)*)"')
_GO_FIELD = re.compile(r"(cannot unmarshal .*) into Go struct field \w+\.([\w.]+) of type (\S+)")
_QUANTITY_ERROR = "quantities must match the regular expression"
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+|[KMGTPE]i|[numkMGTPE])?")
_QUANTITIES = frozenset({"limits", "requests", "capacity", "hard", "overhead", "sizeLimit"})
_PART = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


def unknown_kind(manifest: Manifest, why: str) -> Finding:
    """A finding for an object that the server cannot judge."""
    return manifest_finding(GATE, "unknown-kind", manifest, ("kind",), why, _KIND_FIX)


def refused(manifest: Manifest, answer: RefusedError, version: str) -> list[Finding]:
    """One finding for each field that the server names, or one for the object."""
    fix = f"Write what {manifest.api_version} {manifest.kind} of Kubernetes {version} takes."
    fields = [(cause.field.replace("<nil>", ""), cause.message) for cause in answer.causes if cause.message]
    if not fields:
        fields = _fields_in(answer.message, manifest.value)
    return [
        manifest_finding(GATE, "refused", manifest, _field_path(field), f"{field or 'the object'}: {message}", fix)
        for field, message in dict.fromkeys(fields)
    ]


def _fields_in(message: str, value: Object) -> list[tuple[str, str]]:
    """The fields that a message without causes is about."""
    if named := _STRICT.findall(message):
        return [(field, f"{what} field") for what, field in named]
    if go := _GO_FIELD.search(message):
        return [(go[2], f"{go[1]}, {go[3]} is wanted")]
    if _QUANTITY_ERROR in message and (paths := list(_bad_quantities(value))):
        return [(dotted(path), f"{text!r} is not a quantity such as 500m or 1Gi") for path, text in paths]
    return [("", message)]


def _bad_quantities(value: Object) -> Iterable[tuple[FieldPath, str]]:
    """Texts in the place of a quantity that are not quantities. The server does not say which one it means."""
    for path, text in parts(value):
        if isinstance(text, str) and not _QUANTITIES.isdisjoint(path) and not _QUANTITY.fullmatch(text):
            yield path, text


def _field_path(field: str) -> FieldPath:
    """`spec.ports[0].port` as a path."""
    parts = [name or index for name, index in _PART.findall(field)]
    return tuple(int(part) if part.isdigit() else part for part in parts)

"""Builds the strict JSON schema of one kind, for custom resources and for native kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

# Keywords that hold a value for the validator, a schema, a mapping of schemas, or nothing that validates.
PLAIN = frozenset(
    {
        *("type", "format", "enum", "required", "pattern", "multipleOf", "uniqueItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
        *("minItems", "maxItems", "minProperties", "maxProperties"),
    }
)
COMBINED = frozenset({"allOf", "anyOf", "oneOf"})
IGNORED = frozenset({"description", "default", "example", "title", "externalDocs", "nullable"})


class BuildError(Exception):
    """The schemas cannot be built from what was given; the message says why."""


@dataclass(frozen=True)
class Found:
    """One kind with its schema, ready to be written."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    native: bool
    schema: Schema
    source: str


def whole_object(schema: Schema, api_version: str, kind: str) -> Schema:
    """The schema of a whole object, which says what it is and has metadata."""
    return {
        **schema,
        "type": "object",
        "properties": {
            **schema["properties"],
            "apiVersion": {"type": "string", "enum": [api_version]},
            "kind": {"type": "string", "enum": [kind]},
        },
        "required": sorted({*schema.get("required", []), "apiVersion", "kind", "metadata"}),
    }


def with_definitions(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The schema with every definition that it refers to, so that it stands alone."""
    needed: dict[str, Schema] = {}
    todo = _references(schema)
    while todo:
        name = todo.pop()
        if name not in needed:
            needed[name] = definitions[name]
            todo |= _references(definitions[name])
    return {**schema, "definitions": dict(sorted(needed.items()))} if needed else schema


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {name for item in value for name in _references(item)}
    if not isinstance(value, dict):
        return set()
    own = value.get("$ref")
    found = {own.removeprefix("#/definitions/")} if isinstance(own, str) else set()
    return found | {name for item in value.values() for name in _references(item)}

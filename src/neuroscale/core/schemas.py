"""Finds the JSON schema of each kind that the gate knows, in the folder that set-up writes.

Builds the strict JSON schema of one kind, for custom resources and for native kinds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError

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


INDEX = "kinds.json"
CRDS = "crds.json"
LAYOUT = "{{ .Group }}/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind at one API version.

    `plural` is the resource name in an API server's paths; `native` says that Kubernetes itself defines the kind, and
    no custom resource definition does; `source` is the module or package, with its version, that the schema is of.
    """

    plural: str
    namespaced: bool
    native: bool
    schema: Path
    source: str


@dataclass(frozen=True)
class SchemaSet:
    """Every known kind, by (apiVersion, kind). `location` is the value of kubeconform's `-schema-location`."""

    folder: Path
    location: str
    kinds: Mapping[tuple[str, str], Kind]

    def crds(self) -> list[dict[str, Any]]:
        """The CustomResourceDefinitions that the schemas were made of, for an API server. Raises UntrustedError."""
        try:
            found: list[dict[str, Any]] = json.loads((self.folder / CRDS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UntrustedError(
                f"{self.folder / CRDS} cannot be read. Delete its folder, run `make setup`."
            ) from error
        return found


def find() -> SchemaSet:
    """The schemas of the versions that this package's repository pins.

    Raises UntrustedError when set-up has not written them.
    """
    try:
        return load(tool_cache.schema_pins().folder)
    except tool_cache.PinError as error:
        raise UntrustedError(f"{error} Install the package with `make setup` in a complete clone.") from error


def load(folder: Path) -> SchemaSet:
    """The schemas in `folder`. Raises UntrustedError when it is not a folder that set-up finished."""
    try:
        rows = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        kinds = {
            (row["apiVersion"], row["kind"]): Kind(
                row["plural"], row["namespaced"], row["native"], folder / row["schema"], row["source"]
            )
            for row in rows
        }
    except OSError as error:
        raise UntrustedError("The schemas are not built. Run `make setup`.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UntrustedError(
            f"The index {folder / INDEX} cannot be read. Delete its folder and run `make setup`."
        ) from error
    if not kinds:
        raise UntrustedError(f"The index {folder / INDEX} is empty. Delete its folder and run `make setup`.")
    return SchemaSet(folder, f"{folder}/{LAYOUT}", kinds)


def schema_file(api_version: str, kind: str) -> str:
    """The path in the schema folder at which kubeconform looks for a kind (its `LAYOUT`)."""
    group = api_version.split("/")[0]
    return f"{group}/{kind.lower()}_{api_version.split('/')[-1]}.json"

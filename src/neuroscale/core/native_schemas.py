"""Takes the schemas of Kubernetes' own kinds out of kubernetes-validate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import metadata, resources
from typing import Any

from neuroscale.core.kind_schema import (
    COMBINED,
    IGNORED,
    OBJECT_META,
    PLAIN,
    BuildError,
    Found,
    Schema,
    whole_object,
    with_definitions,
)


def read_definitions(version: str) -> dict[str, Schema]:
    """kubernetes-validate's strict definitions of Kubernetes `version`, by their OpenAPI name.

    Raises BuildError when the installed package is not that version.
    """
    installed = metadata.version("kubernetes-validate")
    if installed != version:
        raise BuildError(f"kubernetes-validate {installed} is installed; the requirements pin {version}.")
    folder = resources.files("kubernetes_validate") / "kubernetes-json-schema"
    text = (folder / f"v{version}-local-strict" / "_definitions.json").read_text(encoding="utf-8")
    definitions: dict[str, Schema] = json.loads(text)["$defs"]
    return definitions


def native_kinds(raw: Mapping[str, Schema], table: Any, source: str) -> Iterator[Found]:
    """The native kinds that people write manifests of: those with metadata that Kyverno's table lists.

    The table holds what an API server serves by default, which leaves alpha and beta versions out.
    """
    scopes = {
        (f"{group['Group']['name']}/{version}".removeprefix("/"), resource["kind"]): resource
        for group in table
        for version, found in group["VersionedResources"].items()
        for resource in found
        if "/" not in resource["name"]
    }
    definitions = native_definitions(raw)
    for name, definition in raw.items():
        if definition.get("properties", {}).get("metadata", {}).get("$ref") != f"#/$defs/{OBJECT_META}":
            continue
        for identity in definition.get("x-kubernetes-group-version-kind", []):
            api_version, kind = f"{identity['group']}/{identity['version']}".removeprefix("/"), identity["kind"]
            if (known := scopes.get((api_version, kind))) is not None:
                schema = with_definitions(whole_object(definitions[name], api_version, kind), definitions)
                yield Found(api_version, kind, known["name"], known["namespaced"], True, schema, source)


def native_definitions(raw: Mapping[str, Schema]) -> dict[str, Schema]:
    """Every definition as draft 4 that refuses unknown fields."""
    return {name: _native(definition, name) for name, definition in raw.items()}


def _native(node: Schema, where: str) -> Schema:
    if "$ref" in node:
        return {"$ref": str(node["$ref"]).replace("#/$defs/", "#/definitions/")}
    schema: Schema = {}
    for keyword, value in node.items():
        if keyword in PLAIN or (keyword == "additionalProperties" and isinstance(value, bool)):
            schema[keyword] = value
        elif keyword == "properties":
            schema[keyword] = {name: _native(child, f"{where}.{name}") for name, child in value.items()}
        elif keyword in ("items", "additionalProperties"):
            schema[keyword] = _native(value, f"{where}[]")
        elif keyword in COMBINED:
            schema[keyword] = [_native(child, where) for child in value]
        elif keyword not in IGNORED and not keyword.startswith("x-kubernetes-"):
            raise BuildError(f"{where} uses the keyword {keyword!r}, which the schemas cannot express yet.")
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema

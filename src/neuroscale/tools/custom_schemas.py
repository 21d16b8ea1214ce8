"""Reads the schemas of custom resources from the CustomResourceDefinitions of pinned modules."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from neuroscale.core import tool_cache
from neuroscale.tools.kind_schema import (
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

KYVERNO = "github.com/kyverno/kyverno"
# Which files of a module are its custom resource definitions. KServe's `minimal` ones are stubs that allow anything.
_CRD_FILES = {
    "github.com/argoproj/argo-cd/v3": re.compile(r"manifests/crds/[^/]+\.yaml"),
    "github.com/kserve/kserve": re.compile(r"config/crd/full/.+\.yaml"),
    KYVERNO: re.compile(r"config/crds/.+\.yaml"),
}
_SHARED_SIZE = 200  # characters of JSON; a smaller part is no longer than the reference to it and its overhead


def custom_kinds(
    module: tool_cache.Module, archive: zipfile.ZipFile, definitions: Mapping[str, Schema]
) -> Iterator[Found]:
    """Every served version of every CustomResourceDefinition in a module. Raises BuildError where there is none."""
    for document in custom_resource_definitions(module, archive):
        yield from _crd_versions(document["spec"], str(module), definitions)


def custom_resource_definitions(module: tool_cache.Module, archive: zipfile.ZipFile) -> Iterator[dict[str, Any]]:
    """Every CustomResourceDefinition in a module, as its file says it. Raises BuildError where there is none."""
    wanted = _CRD_FILES.get(module.path)
    if wanted is None:
        raise BuildError(
            f"_CRD_FILES does not say where {module} keeps its custom resource definitions. Add a pattern."
        )
    count = 0
    for name in sorted(archive.namelist()):
        if not wanted.fullmatch(name.removeprefix(f"{module}/")):
            continue
        for document in yaml.load_all(archive.read(name), Loader=yaml.CSafeLoader):
            # Beside the definitions lie kustomize files and patches, which have no versions.
            if document and document["kind"] == "CustomResourceDefinition" and "versions" in document["spec"]:
                count += 1
                yield document
    if not count:
        raise BuildError(f"{module} holds no custom resource definition where they are expected.")


def _crd_versions(spec: Mapping[str, Any], source: str, definitions: Mapping[str, Schema]) -> Iterator[Found]:
    names = spec["names"]
    for version in spec["versions"]:
        if not version["served"]:
            continue
        api_version = f"{spec['group']}/{version['name']}"
        schema = custom_schema(version["schema"]["openAPIV3Schema"], api_version, names["kind"], definitions)
        yield Found(api_version, names["kind"], names["plural"], spec["scope"] == "Namespaced", False, schema, source)


def custom_schema(structural: Schema, api_version: str, kind: str, definitions: Mapping[str, Schema]) -> Schema:
    """The JSON schema of a custom resource from its structural schema.

    As strict as an API server with `fieldValidation=Strict`: an object allows the fields that it lists and no others,
    unless it is a map or preserves unknown fields. `metadata` is what Kubernetes says it is.
    """
    schema = _structural(structural, f"{api_version} {kind}")
    own = schema["properties"].pop("metadata", {})
    limits = {key: value for key, value in own.items() if key not in ("type", "additionalProperties")}
    shared, parts = _share(schema)
    # A definition may limit the name further; such limits hold beside ObjectMeta's fields.
    known = {"$ref": f"#/definitions/{OBJECT_META}"}
    shared["properties"]["metadata"] = {"allOf": [known, limits]} if limits else known
    return with_definitions(whole_object(shared, api_version, kind), {**definitions, **parts})


def _share(schema: Schema) -> tuple[Schema, dict[str, Schema]]:
    """The schema with the parts that it repeats moved to definitions, and those.

    A custom resource that holds pod templates repeats them in full; kubeconform then takes ten times as long.
    """
    counts: Counter[str] = Counter()

    def count(node: Schema) -> None:
        counts[_text(node)] += 1
        for child in _children(node):
            count(child)

    parts: dict[str, Schema] = {}

    def replace(node: Schema) -> Schema:
        text = _text(node)
        if counts[text] == 1 or len(text) < _SHARED_SIZE:
            return _map_children(node, replace)
        name = tool_cache.digest(text)
        if name not in parts:
            parts[name] = _map_children(node, replace)
        return {"$ref": f"#/definitions/{name}"}

    count(schema)
    return _map_children(schema, replace), parts


def _text(node: Schema) -> str:
    return json.dumps(node, sort_keys=True)


def _children(node: Schema) -> list[Schema]:
    found: list[Schema] = [*node.get("properties", {}).values()]
    return found + [node[name] for name in ("items", "additionalProperties") if isinstance(node.get(name), dict)]


def _map_children(node: Schema, change: Callable[[Schema], Schema]) -> Schema:
    changed = dict(node)
    if "properties" in node:
        changed["properties"] = {name: change(child) for name, child in node["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            changed[name] = change(node[name])
    return changed


def _structural(node: Schema, where: str) -> Schema:
    """One node of a structural schema, with unknown fields refused where an API server would drop them."""
    schema: Schema = {}
    for keyword, value in node.items():
        if keyword in PLAIN:
            schema[keyword] = value
        elif keyword == "properties":
            schema[keyword] = {name: _structural(child, f"{where}.{name}") for name, child in value.items()}
        elif keyword == "items" or (keyword == "additionalProperties" and isinstance(value, dict)):
            schema[keyword] = _structural(value, f"{where}[]")
        elif keyword in COMBINED or keyword in ("not", "additionalProperties"):
            # Inside these only values are judged: Kubernetes forbids them to name fields that stand nowhere else.
            schema[keyword] = _without_notes(value)
        elif keyword not in IGNORED and not keyword.startswith("x-kubernetes-"):
            raise BuildError(f"{where} uses the keyword {keyword!r}, which the schemas cannot express yet.")
    if node.get("x-kubernetes-int-or-string"):
        schema["type"] = ["integer", "string"]
    opened = node.get("x-kubernetes-preserve-unknown-fields") or node.get("x-kubernetes-embedded-resource")
    if ("properties" in schema or schema.get("type") == "object") and not opened:
        schema.setdefault("additionalProperties", False)
    if node.get("nullable") and "type" in schema:
        schema["type"] = [*([schema["type"]] if isinstance(schema["type"], str) else schema["type"]), "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return schema


def _without_notes(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_notes(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_notes(item) for key, item in value.items() if key != "description"}
    return value

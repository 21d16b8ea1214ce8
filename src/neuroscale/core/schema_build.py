"""Writes the schema folder: one strict JSON schema a kind, read out of pinned modules and packages.

Custom resources come out of their modules' CustomResourceDefinitions, native kinds out of kubernetes-validate, their
plural and scope out of the table that Kyverno's own command line resolves kinds by.

Every schema stands alone, so that kubeconform reads one small file a kind; it reads them as JSON Schema draft 4.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import yaml

from neuroscale.core import tool_cache
from neuroscale.core.module_zip import ModuleError, open_module
from neuroscale.core.schemas import CRDS, INDEX, load, schema_file

Schema = dict[str, Any]

_KYVERNO = "github.com/kyverno/kyverno"
# Which files of a module are its custom resource definitions. KServe's `minimal` ones are stubs that allow anything.
_CRD_FILES = {
    "github.com/argoproj/argo-cd/v3": re.compile(r"manifests/crds/[^/]+\.yaml"),
    "github.com/kserve/kserve": re.compile(r"config/crd/full/.+\.yaml"),
    _KYVERNO: re.compile(r"config/crds/.+\.yaml"),
}
_KINDS_TABLE = "cmd/cli/kubectl-kyverno/data/api-group-resources.json"
# What the platform renders, its policies judge, or Argo CD applies: a set without one of these is broken.
_NEEDED = frozenset(
    {
        ("serving.kserve.io/v1beta1", "InferenceService"),
        ("serving.kserve.io/v1alpha2", "LLMInferenceService"),
        ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"),
        ("serving.kserve.io/v1alpha1", "ServingRuntime"),
        ("argoproj.io/v1alpha1", "Application"),
        ("argoproj.io/v1alpha1", "ApplicationSet"),
        ("argoproj.io/v1alpha1", "AppProject"),
        ("policies.kyverno.io/v1", "ValidatingPolicy"),
        ("policies.kyverno.io/v1", "PolicyException"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("policy/v1", "PodDisruptionBudget"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
        ("v1", "Pod"),
        ("v1", "Secret"),
    }
)
_SHARED_SIZE = 200  # characters of JSON; a smaller part is no longer than the reference to it and its overhead
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

# Keywords that hold a value for the validator, a schema, a mapping of schemas, or nothing that validates.
_PLAIN = frozenset(
    {
        *("type", "format", "enum", "required", "pattern", "multipleOf", "uniqueItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
        *("minItems", "maxItems", "minProperties", "maxProperties"),
    }
)
_COMBINED = frozenset({"allOf", "anyOf", "oneOf"})
_IGNORED = frozenset({"description", "default", "example", "title", "externalDocs", "nullable"})


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


# ---------------------------------------------------------------- custom resources


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
        raise BuildError(f"Nobody said where {module} keeps its custom resource definitions.")
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
    known = {"$ref": f"#/definitions/{_OBJECT_META}"}
    shared["properties"]["metadata"] = {"allOf": [known, limits]} if limits else known
    return with_definitions(_root(shared, api_version, kind), {**definitions, **parts})


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
        if keyword in _PLAIN:
            schema[keyword] = value
        elif keyword == "properties":
            schema[keyword] = {name: _structural(child, f"{where}.{name}") for name, child in value.items()}
        elif keyword == "items" or (keyword == "additionalProperties" and isinstance(value, dict)):
            schema[keyword] = _structural(value, f"{where}[]")
        elif keyword in _COMBINED or keyword in ("not", "additionalProperties"):
            # Inside these only values are judged: Kubernetes forbids them to name fields that stand nowhere else.
            schema[keyword] = _without_notes(value)
        elif keyword not in _IGNORED and not keyword.startswith("x-kubernetes-"):
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


# ---------------------------------------------------------------- native kinds


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
        if definition.get("properties", {}).get("metadata", {}).get("$ref") != f"#/$defs/{_OBJECT_META}":
            continue
        for identity in definition.get("x-kubernetes-group-version-kind", []):
            api_version, kind = f"{identity['group']}/{identity['version']}".removeprefix("/"), identity["kind"]
            if (known := scopes.get((api_version, kind))) is not None:
                schema = with_definitions(_root(definitions[name], api_version, kind), definitions)
                yield Found(api_version, kind, known["name"], known["namespaced"], True, schema, source)


def native_definitions(raw: Mapping[str, Schema]) -> dict[str, Schema]:
    """Every definition as draft 4 that refuses unknown fields."""
    return {name: _native(definition, name) for name, definition in raw.items()}


def _native(node: Schema, where: str) -> Schema:
    if "$ref" in node:
        return {"$ref": str(node["$ref"]).replace("#/$defs/", "#/definitions/")}
    schema: Schema = {}
    for keyword, value in node.items():
        if keyword in _PLAIN or (keyword == "additionalProperties" and isinstance(value, bool)):
            schema[keyword] = value
        elif keyword == "properties":
            schema[keyword] = {name: _native(child, f"{where}.{name}") for name, child in value.items()}
        elif keyword in ("items", "additionalProperties"):
            schema[keyword] = _native(value, f"{where}[]")
        elif keyword in _COMBINED:
            schema[keyword] = [_native(child, where) for child in value]
        elif keyword not in _IGNORED and not keyword.startswith("x-kubernetes-"):
            raise BuildError(f"{where} uses the keyword {keyword!r}, which the schemas cannot express yet.")
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


# ---------------------------------------------------------------- both


def _root(schema: Schema, api_version: str, kind: str) -> Schema:
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


# ---------------------------------------------------------------- writing


def build(pins: tool_cache.SchemaPins, archives: Mapping[str, Path]) -> int:
    """Write the schema folder of `pins` and return how many kinds it holds.

    `archives` maps a module's path to its zip. The folder appears whole or not at all. Raises BuildError.
    """
    raw = read_definitions(pins.kubernetes_validate)
    definitions = native_definitions(raw)
    found: list[Found] = []
    crds: list[dict[str, Any]] = []
    for module in pins.modules:
        with open_module(module, archives[module.path]) as archive:
            found.extend(custom_kinds(module, archive, definitions))
            crds.extend(custom_resource_definitions(module, archive))
            if module.path == _KYVERNO:
                table = json.loads(archive.read(f"{module}/{_KINDS_TABLE}"))
                source = f"kubernetes-validate@{pins.kubernetes_validate}"
                found.extend(native_kinds(raw, table, source))
    return write(found, pins.folder, crds)


def write(found: list[Found], folder: Path, crds: Sequence[Mapping[str, Any]] = ()) -> int:
    """Write schemas, index and the definitions for API servers to `folder`, which appears whole or not at all.

    Raises BuildError for a bad set.
    """
    names = [(one.api_version, one.kind) for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BuildError(f"Two sources define the same kind: {twice}.")
    if missing := sorted(_NEEDED - set(names)):
        raise BuildError(f"The sources lack kinds that the platform needs: {missing}.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        rows = []
        for one in sorted(found, key=lambda one: (one.api_version, one.kind)):
            name = schema_file(one.api_version, one.kind)
            path = temporary / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(one.schema, separators=(",", ":")), encoding="utf-8")
            rows.append(
                {
                    "apiVersion": one.api_version,
                    "kind": one.kind,
                    "plural": one.plural,
                    "namespaced": one.namespaced,
                    "native": one.native,
                    "schema": name,
                    "source": one.source,
                }
            )
        (temporary / CRDS).write_text(json.dumps(crds, separators=(",", ":")), encoding="utf-8")
        (temporary / INDEX).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        load(temporary)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.chmod(0o755)  # mkdtemp keeps everybody else out
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return len(found)


def main() -> None:
    """Build the schemas; each argument is `MODULE=ZIP`. Ends with one sentence and status 1 where it cannot."""
    parser = argparse.ArgumentParser(prog="python -m neuroscale.core.schema_build", description=main.__doc__)
    parser.add_argument("archives", nargs="+", metavar="MODULE=ZIP")
    archives = dict(argument.split("=", 1) for argument in parser.parse_args().archives)
    try:
        count = build(tool_cache.schema_pins(), {module: Path(path) for module, path in archives.items()})
    except (BuildError, ModuleError, tool_cache.PinError) as error:
        sys.exit(str(error))
    sys.stdout.write(f"{count} kinds\n")


if __name__ == "__main__":
    main()

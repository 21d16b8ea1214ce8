"""From a custom resource definition, or Kubernetes' own definitions, to one strict schema a kind."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroscale.core.schemas import LAYOUT, load, schema_file
from neuroscale.core.tool_cache import Module
from neuroscale.tools import custom_schemas, module_zip, schema_build
from neuroscale.tools.kind_schema import BuildError, Found, Schema
from neuroscale.tools.module_zip import ModuleError

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
RAW: dict[str, Schema] = {
    OBJECT_META: {
        "description": "metadata",
        "type": ["object", "null"],
        "properties": {
            "name": {"type": ["string", "null"]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "creationTimestamp": {"$ref": f"#/$defs/{TIME}", "description": "when"},
        },
    },
    TIME: {"type": ["string", "null"], "format": "date-time"},
    "Thing": {
        "type": "object",
        "properties": {
            "metadata": {"$ref": f"#/$defs/{OBJECT_META}"},
            "spec": {"$ref": "#/$defs/Tree"},
        },
        "required": ["spec"],
        "x-kubernetes-group-version-kind": [{"group": "things.io", "version": "v1", "kind": "Thing"}],
    },
    "Tree": {
        "type": "object",
        "properties": {
            "leaves": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            "size": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "free": {"type": "object", "additionalProperties": True},
            # Names of fields, not keywords.
            "properties": {"type": "string"},
            "$ref": {"type": "string"},
        },
        "additionalProperties": False,
    },
}
DEFINITIONS = schema_build.native_definitions(RAW)


def custom(spec: Schema, **root: Any) -> Schema:
    structural = {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": spec}, **root}
    return custom_schemas.custom_schema(structural, "things.io/v1", "Thing", DEFINITIONS)


def thing(spec: Any = None, **fields: Any) -> dict[str, Any]:
    value = {"apiVersion": "things.io/v1", "kind": "Thing", "metadata": {"name": "a"}, **fields}
    return value if spec is None else {**value, "spec": spec}


def accepts(schema: Schema, value: object) -> bool:
    jsonschema.Draft4Validator.check_schema(schema)
    return bool(jsonschema.Draft4Validator(schema).is_valid(value))


# ---------------------------------------------------------------- custom resources


def test_a_field_that_the_definition_lacks_is_refused_at_every_level() -> None:
    inner = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = custom(
        {
            "type": "object",
            "properties": {
                "one": inner,
                "many": {"type": "array", "items": inner},
                "map": {"type": "object", "additionalProperties": inner},
            },
        }
    )
    assert accepts(schema, thing({"one": {"size": 1}, "many": [{"size": 1}], "map": {"any": {"size": 1}}}))
    assert not accepts(schema, thing({}, typo=1))
    assert not accepts(schema, thing({"typo": 1}))
    assert not accepts(schema, thing({"one": {"typo": 1}}))
    assert not accepts(schema, thing({"many": [{"typo": 1}]}))
    assert not accepts(schema, thing({"map": {"any": {"typo": 1}}}))


def test_an_object_without_fields_takes_none_as_an_api_server_would_drop_them() -> None:
    schema = custom({"type": "object"})
    assert accepts(schema, thing({}))
    assert not accepts(schema, thing({"anything": 1}))


def test_unknown_fields_stay_where_the_definition_preserves_them() -> None:
    schema = custom(
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"size": {"type": "integer"}}}
    )
    assert accepts(schema, thing({"anything": {"at": ["all"]}}))
    assert not accepts(schema, thing({"size": "wrong"}))


def test_metadata_is_typed_although_the_definition_leaves_it_open() -> None:
    schema = custom({"type": "object"})
    assert accepts(schema, thing(metadata={"name": "a", "labels": {"team": "b"}, "creationTimestamp": None}))
    assert not accepts(schema, thing(metadata={"name": "a", "labels": 7}))
    assert not accepts(schema, thing(metadata={"name": "a", "labels": {"team": 7}}))
    assert not accepts(schema, thing(metadata={"name": "a", "lables": {}}))
    assert not accepts(schema, {key: value for key, value in thing().items() if key != "metadata"})


def test_what_the_definition_asks_of_the_name_holds_too() -> None:
    metadata = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}
    schema = custom({}, properties={"metadata": metadata})
    assert accepts(schema, thing(metadata={"name": "abc", "labels": {}}))
    assert not accepts(schema, thing(metadata={"name": "abcd"}))
    assert not accepts(schema, thing(metadata={"name": "abc", "lables": {}}))


def test_a_schema_is_only_of_its_own_kind_and_version() -> None:
    schema = custom({"type": "object"})
    assert not accepts(schema, {**thing(), "kind": "thing"})
    assert not accepts(schema, {**thing(), "apiVersion": "things.io/v2"})
    assert not accepts(schema, {"metadata": {"name": "a"}})


def test_numbers_or_text_are_both_taken_where_the_definition_says_so() -> None:
    schema = custom({"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": True}}})
    assert accepts(schema, thing({"port": 80}))
    assert accepts(schema, thing({"port": "http"}))
    assert not accepts(schema, thing({"port": True}))
    assert not accepts(schema, thing({"port": None}))


def test_null_is_taken_only_where_the_definition_says_so() -> None:
    fields: Schema = {"yes": {"type": "string", "enum": ["a"], "nullable": True}, "no": {"type": "string"}}
    schema = custom({"type": "object", "properties": fields})
    assert accepts(schema, thing({"yes": None}))
    assert not accepts(schema, thing({"no": None}))


def test_alternatives_judge_values_and_close_nothing() -> None:
    spec = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"properties": {"a": {"enum": ["x"]}}, "required": ["a"]}, {"required": ["b"]}],
    }
    schema = custom(spec)
    assert accepts(schema, thing({"a": "x"}))
    assert not accepts(schema, thing({"a": "y"}))
    assert not accepts(schema, thing({"a": "x", "b": "y"}))


def test_a_keyword_that_nobody_knows_stops_the_build() -> None:
    with pytest.raises(BuildError, match=r"things\.io/v1 Thing\.spec uses the keyword 'if'"):
        custom({"type": "object", "if": {}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b" * 300]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
structural_schemas: st.SearchStrategy[Schema] = st.recursive(
    st.sampled_from([{"type": "string", "enum": ["a", "b" * 300]}, {"type": "integer"}, {"type": "string"}]),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda item: {"type": "object", "additionalProperties": item}, inner)
        | st.builds(
            lambda names, item: {"type": "object", "properties": dict.fromkeys(names, item)},
            st.sets(st.sampled_from("abc")),
            inner,
        )
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(structural_schemas, json_values)
def test_sharing_what_a_definition_repeats_changes_no_judgement(node: Schema, value: object) -> None:
    closed = custom_schemas._structural({"type": "object", "properties": {"x": node, "y": node}}, "")
    shared, parts = custom_schemas._share(closed)
    for side in ("x", "y"):
        judged = {side: value}
        assert accepts({**shared, "definitions": parts}, judged) == accepts(closed, judged)


# ---------------------------------------------------------------- native kinds


TABLE = [
    {
        "Group": {"name": "things.io"},
        "VersionedResources": {
            "v1": [
                {"name": "things", "kind": "Thing", "namespaced": False},
                {"name": "things/status", "kind": "Thing", "namespaced": True},
                {"name": "gones", "kind": "Gone", "namespaced": True},  # Kubernetes has it no longer
            ]
        },
    }
]


def test_a_native_kind_has_its_plural_and_scope_from_the_table() -> None:
    (found,) = schema_build.native_kinds(RAW, TABLE, "kubernetes@1")
    assert (found.api_version, found.kind, found.plural, found.namespaced, found.native, found.source) == (
        *("things.io/v1", "Thing", "things", False, True, "kubernetes@1"),
    )


def test_a_version_that_is_newer_than_the_table_is_known() -> None:
    (table,) = TABLE
    older = json.loads(json.dumps([table]).replace('"v1"', '"v1beta1"'))
    (found,) = schema_build.native_kinds(RAW, older, "")
    assert (found.api_version, found.plural, found.namespaced) == ("things.io/v1", "things", False)


def test_a_kind_whose_plural_nothing_says_stops_the_build() -> None:
    with pytest.raises(BuildError, match=r"kubernetes@1 has the kind things\.io/v1 Thing, and nothing says its plural"):
        list(schema_build.native_kinds(RAW, [], "kubernetes@1"))


def test_a_native_schema_stands_alone_and_is_strict() -> None:
    (found,) = schema_build.native_kinds(RAW, TABLE, "")
    schema = json.loads(json.dumps(found.schema))
    assert accepts(schema, thing({"leaves": [{"size": 1}, {"size": "1Gi", "properties": "x", "$ref": "y"}]}))
    assert accepts(schema, thing({"free": {"any": 1}}))
    assert not accepts(schema, thing())
    assert not accepts(schema, thing({"leaves": [{"leaves": [{"typo": 1}]}]}))
    assert not accepts(schema, thing({}, typo=1))
    assert not accepts(schema, thing({}, metadata={"lables": {}}))
    assert not accepts(schema, {**thing({}), "apiVersion": "v1"})


def test_another_version_of_the_package_than_the_pinned_one_is_refused() -> None:
    with pytest.raises(BuildError, match=r"is installed; the requirements pin 0\.0\.1\."):
        schema_build.read_definitions("0.0.1")


# ---------------------------------------------------------------- modules


def archive(files: dict[str, str]) -> zipfile.ZipFile:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as writer:
        for name, text in files.items():
            writer.writestr(name, text)
    return zipfile.ZipFile(data)


def test_the_checksum_of_a_module_is_the_one_that_go_computes() -> None:
    # What HashZip of golang.org/x/mod/sumdb/dirhash says of these two files.
    content = archive({"example.com/m@v1.0.0/go.mod": "module example.com/m\n", "example.com/m@v1.0.0/a/b.txt": "b\n"})
    assert module_zip.module_checksum(content) == "h1:FZp2jBaO7snuPfKa4NyuWkyQgzPQsAb4wD9BUX6xT2I="


def test_a_module_whose_content_differs_from_its_pin_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as writer:
        writer.writestr("m@v1/a", "good")
    with zipfile.ZipFile(path) as content:
        module = Module("m", "v1", module_zip.module_checksum(content))
    module_zip.open_module(module, path).close()
    with zipfile.ZipFile(path, "w") as writer:
        writer.writestr("m@v1/a", "evil")
    with pytest.raises(ModuleError, match=r"The content of m@v1 is h1:.*; go\.sum pins h1:.*\. Nothing was used\."):
        module_zip.open_module(module, path)


@pytest.mark.parametrize("data", [b"", b"not a zip"])
def test_a_broken_module_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.zip").write_bytes(data)
    with pytest.raises(ModuleError, match="The module m@v1 cannot be read"):
        module_zip.open_module(Module("m", "v1", "h1:"), tmp_path / "m.zip")


def test_a_folder_of_a_module_is_unpacked_without_the_modules_name(tmp_path: Path) -> None:
    module = Module("example.com/m", "v1", "h1:")
    content = archive({"example.com/m@v1/templates/a/b.tmpl": "b", "example.com/m@v1/templates2/c": "c"})
    module_zip.extract(content, module, ("templates",), tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [
        "templates/a/b.tmpl"
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [("example.com/m@v1/templates/../../x", "leaves its folder"), ("example.com/m@v1/other/x", "holds no folder")],
)
def test_a_module_with_unusable_folders_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ModuleError, match=message):
        module_zip.extract(archive({name: "x"}), Module("example.com/m", "v1", "h1:"), ("templates",), tmp_path / "in")
    assert not (tmp_path / "x").exists()


CRD = """\
kind: CustomResourceDefinition
spec:
  group: argoproj.io
  scope: Cluster
  names: {kind: Thing, plural: things}
  versions:
  - {name: v1, served: true, schema: {openAPIV3Schema: {type: object, properties: {}}}}
  - {name: v2, served: false, schema: {openAPIV3Schema: {type: object, properties: {}}}}
---
kind: Kustomization
---
kind: CustomResourceDefinition
spec: {conversion: {}}
"""


def test_only_served_versions_are_known() -> None:
    module = Module("github.com/argoproj/argo-cd/v3", "v3.0.0", "")
    content = archive({f"{module}/manifests/crds/a.yaml": CRD, f"{module}/examples/crds/b.yaml": CRD})
    found = list(custom_schemas.custom_kinds(module, content, DEFINITIONS))
    assert [(one.api_version, one.kind, one.plural, one.namespaced, one.native) for one in found] == [
        ("argoproj.io/v1", "Thing", "things", False, False)
    ]


def test_kserves_stub_definitions_are_never_read() -> None:
    module = Module("github.com/kserve/kserve", "v0.20.0", "")
    content = archive({f"{module}/config/crd/minimal/a.yaml": CRD})
    with pytest.raises(BuildError, match="holds no custom resource definition where they are expected"):
        list(custom_schemas.custom_kinds(module, content, DEFINITIONS))


# ---------------------------------------------------------------- writing


def found(api_version: str, kind: str) -> Found:
    return Found(api_version, kind, f"{kind.lower()}s", True, False, {"type": "object"}, "m@v1")


NEEDED = [found(*name) for name in sorted(schema_build._NEEDED)]


def test_what_is_written_can_be_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "schemas" / "key"
    assert schema_build.write(NEEDED, folder) == len(NEEDED)
    schemas = load(folder)
    kind = schemas.kinds["v1", "Pod"]
    assert (kind.plural, kind.namespaced, kind.source) == ("pods", True, "m@v1")
    assert json.loads(kind.schema.read_text()) == {"type": "object"}
    assert schemas.location == f"{folder}/{LAYOUT}"
    assert [path.name for path in folder.parent.iterdir()] == ["key"]


def test_a_set_without_a_kind_that_the_platform_needs_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="lack kinds that the platform needs"):
        schema_build.write(NEEDED[1:], tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


def test_two_definitions_of_one_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="Two sources define the same kind"):
        schema_build.write([*NEEDED, NEEDED[0]], tmp_path / "key")


def test_a_failure_while_writing_leaves_nothing(tmp_path: Path) -> None:
    bad = Found("v1", "Bad", "bads", True, False, {"type": object()}, "")
    with pytest.raises(TypeError):
        schema_build.write([*NEEDED, bad], tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


def test_kinds_of_different_groups_have_different_files() -> None:
    assert schema_file("v1", "Pod") == "v1/pod_v1.json"
    assert schema_file("kyverno.io/v2", "PolicyException") != schema_file("policies.kyverno.io/v2", "PolicyException")

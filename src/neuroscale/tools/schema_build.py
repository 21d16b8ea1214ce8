"""Writes the schema folder: one strict JSON schema a kind, read out of pinned modules and packages.

Custom resources come out of their modules' CustomResourceDefinitions, native kinds out of kubernetes-validate, with
their plural and scope out of the table by which Kyverno's own command line resolves kinds.

Every schema stands alone, so that kubeconform reads one small file a kind; it reads them as JSON Schema draft 4.

Takes the schemas of Kubernetes' own kinds out of kubernetes-validate.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from neuroscale.core import tool_cache
from neuroscale.core.schemas import CRDS, INDEX, load, schema_file
from neuroscale.tools.custom_schemas import KYVERNO, custom_kinds, custom_resource_definitions
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
from neuroscale.tools.module_zip import ModuleError, open_module


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


_NAMESPACED, _CLUSTER = True, False
_NOT_IN_THE_TABLE = {
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): ("mutatingadmissionpolicies", _CLUSTER),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): ("mutatingadmissionpolicybindings", _CLUSTER),
    ("authentication.k8s.io", "TokenRequest"): ("serviceaccounts/token", _NAMESPACED),
    ("autoscaling", "Scale"): ("deployments/scale", _NAMESPACED),
    ("certificates.k8s.io", "ClusterTrustBundle"): ("clustertrustbundles", _CLUSTER),
    ("certificates.k8s.io", "PodCertificateRequest"): ("podcertificaterequests", _NAMESPACED),
    ("coordination.k8s.io", "LeaseCandidate"): ("leasecandidates", _NAMESPACED),
    ("internal.apiserver.k8s.io", "StorageVersion"): ("storageversions", _CLUSTER),
    ("lifecycle.k8s.io", "Eviction"): ("evictions", _NAMESPACED),
    ("lifecycle.k8s.io", "EvictionRequest"): ("evictionrequests", _NAMESPACED),
    ("policy", "Eviction"): ("pods/eviction", _NAMESPACED),
    ("resource.k8s.io", "DeviceTaintRule"): ("devicetaintrules", _CLUSTER),
    ("resource.k8s.io", "ResourcePoolStatusRequest"): ("resourcepoolstatusrequests", _CLUSTER),
    ("scheduling.k8s.io", "CompositePodGroup"): ("compositepodgroups", _NAMESPACED),
    ("scheduling.k8s.io", "PodGroup"): ("podgroups", _NAMESPACED),
    ("scheduling.k8s.io", "Workload"): ("workloads", _NAMESPACED),
    ("storagemigration.k8s.io", "StorageVersionMigration"): ("storageversionmigrations", _CLUSTER),
}
"""The plural and the scope of kinds that Kyverno's table lacks, from Kubernetes 1.37's `api/openapi-spec/swagger.json`.

A TokenRequest, a Scale and an Eviction of `policy` ask for something about another object: no manifest deploys them.
"""


def native_kinds(raw: Mapping[str, Schema], table: Any, source: str) -> Iterator[Found]:
    """Every native kind whose objects have metadata, in every version, with its plural and its scope.

    These come from Kyverno's table, which holds what an older API server serves by default, in whatever version, and
    otherwise from this module. Raises BuildError for a kind of which neither says them: no kind is left out silently.
    """
    known = _NOT_IN_THE_TABLE | {
        (group["Group"]["name"], resource["kind"]): (resource["name"], resource["namespaced"])
        for group in table
        for resources in group["VersionedResources"].values()
        for resource in resources
        if "/" not in resource["name"]
    }
    definitions = native_definitions(raw)
    for name, definition in raw.items():
        if definition.get("properties", {}).get("metadata", {}).get("$ref") != f"#/$defs/{OBJECT_META}":
            continue
        for identity in definition.get("x-kubernetes-group-version-kind", []):
            group, kind = identity["group"], identity["kind"]
            api_version = f"{group}/{identity['version']}".removeprefix("/")
            if (group, kind) not in known:
                raise BuildError(
                    f"{source} has the kind {api_version} {kind}, and nothing says its plural and its scope. Add it to "
                    "_NOT_IN_THE_TABLE of src/neuroscale/tools/schema_build.py."
                )
            plural, namespaced = known[group, kind]
            schema = with_definitions(whole_object(definitions[name], api_version, kind), definitions)
            yield Found(api_version, kind, plural, namespaced, True, schema, source)


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
            if module.path == KYVERNO:
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
    parser = argparse.ArgumentParser(prog="schema_build", description=main.__doc__)
    parser.add_argument("archives", nargs="+", metavar="MODULE=ZIP")
    archives = dict(argument.split("=", 1) for argument in parser.parse_args().archives)
    try:
        count = build(tool_cache.schema_pins(), {module: Path(path) for module, path in archives.items()})
    except (BuildError, ModuleError, tool_cache.PinError) as error:
        sys.exit(str(error))
    sys.stdout.write(f"{count} kinds\n")


if __name__ == "__main__":
    main()

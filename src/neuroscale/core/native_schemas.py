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
                    "_NOT_IN_THE_TABLE of neuroscale/core/native_schemas.py."
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

"""The schemas that set-up wrote, under kubeconform: each compiles, takes good objects and refuses bad ones."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core import schemas, tool_cache
from neuroscale.core.schemas import SchemaSet
from neuroscale.tools.schema_build import read_definitions

pytestmark = pytest.mark.tools

Object = dict[str, Any]

_POD: Object = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
_TEMPLATE: Object = {"metadata": {"labels": {"app": "a"}}, "spec": _POD}
_SELECTOR: Object = {"matchLabels": {"app": "a"}}
_RUNTIME: Object = {"containers": [{"name": "kserve-container", "image": "registry.example/vllm:1"}]}
_DESTINATION: Object = {"server": "https://kubernetes.default.svc", "namespace": "team-alpha"}
_APPLICATION: Object = {
    "project": "serving",
    "source": {"repoURL": "https://git.example/platform.git", "path": "manifests/dev", "targetRevision": "main"},
    "destination": _DESTINATION,
}
_JOB: Object = {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}

# A small good object of each kind that people write here: the fields beside apiVersion, kind and metadata.
GOOD: dict[tuple[str, str], Object] = {
    ("serving.kserve.io/v1beta1", "InferenceService"): {
        "spec": {"predictor": {"minReplicas": 1, "containers": [{"name": "kserve-container", "image": "a:1"}]}}
    },
    ("serving.kserve.io/v1alpha2", "LLMInferenceService"): {"spec": {"model": {"uri": "hf://a/b"}, "replicas": 1}},
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): {"spec": _RUNTIME},
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): {"spec": _RUNTIME},
    ("argoproj.io/v1alpha1", "Application"): {"spec": _APPLICATION},
    ("argoproj.io/v1alpha1", "ApplicationSet"): {
        "spec": {
            "generators": [{"git": {"repoURL": "https://git.example/p.git", "revision": "main"}}],
            "template": {"metadata": {"name": "{{.path}}"}, "spec": _APPLICATION},
        }
    },
    ("argoproj.io/v1alpha1", "AppProject"): {"spec": {"destinations": [_DESTINATION]}},
    ("policies.kyverno.io/v1", "ValidatingPolicy"): {
        "spec": {
            "validationActions": ["Deny"],
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "validations": [{"expression": "true", "message": "never"}],
        }
    },
    ("apps/v1", "Deployment"): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE, "replicas": 1}},
    ("apps/v1", "StatefulSet"): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE, "serviceName": "a"}},
    ("apps/v1", "DaemonSet"): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ("batch/v1", "Job"): {"spec": _JOB},
    ("batch/v1", "CronJob"): {"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": _JOB}}},
    ("v1", "Pod"): {"spec": _POD},
    ("v1", "Service"): {"spec": {"selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": "http"}]}},
    ("v1", "ServiceAccount"): {"automountServiceAccountToken": False},
    ("v1", "Secret"): {"stringData": {"token": "placeholder"}, "type": "Opaque"},
    ("v1", "ConfigMap"): {"data": {"a": "b"}},
    ("v1", "Namespace"): {"spec": {"finalizers": ["kubernetes"]}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "spec": {"podSelector": _SELECTOR, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 8080}]}]}
    },
    ("policy/v1", "PodDisruptionBudget"): {"spec": {"maxUnavailable": 1, "selector": _SELECTOR}},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}
    },
}


@pytest.fixture(scope="module")
def known() -> SchemaSet:
    return schemas.find()


def good(name: tuple[str, str]) -> Object:
    return {"apiVersion": name[0], "kind": name[1], "metadata": {"name": "a", "labels": {"a": "b"}}, **GOOD[name]}


def judge(objects: Mapping[str, Object], known: SchemaSet, folder: Path) -> dict[str, tuple[str, str]]:
    """kubeconform's status and message for each object, by its name here."""
    names = list(objects)
    for index, name in enumerate(names):
        (folder / f"{index}.json").write_text(json.dumps(objects[name]))
    command: list[str | Path] = [
        tool_cache.find("kubeconform"),
        "-strict",
        "-output",
        "json",
        "-verbose",
        "-schema-location",
        known.location,
    ]
    done = subprocess.run([*command, folder], capture_output=True, text=True, timeout=120)
    answers = {int(Path(row["filename"]).stem): row for row in json.loads(done.stdout)["resources"]}
    assert len(answers) == len(names), done.stderr
    return {name: (answers[index]["status"], answers[index].get("msg", "")) for index, name in enumerate(names)}


def test_every_kinds_schema_compiles_and_refuses_an_unknown_field_at_the_root(known: SchemaSet, tmp_path: Path) -> None:
    objects = {
        f"{version} {kind}": {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "unknownField": 1}
        for version, kind in known.kinds
    }
    answers = judge(objects, known, tmp_path)
    assert {name for name, (status, _) in answers.items() if status != "statusInvalid"} == set()
    assert {name for name, (_, message) in answers.items() if "'unknownField' not allowed" not in message} == set()


def test_good_objects_pass(known: SchemaSet, tmp_path: Path) -> None:
    answers = judge({" ".join(name): good(name) for name in GOOD}, known, tmp_path)
    assert {name: answer for name, answer in answers.items() if answer[0] != "statusValid"} == {}


def test_bad_objects_are_refused_for_what_is_bad_in_them(known: SchemaSet, tmp_path: Path) -> None:
    expected: dict[str, str] = {}
    objects: dict[str, Object] = {}
    for name in GOOD:
        for what, (bad, message) in mutations(name).items():
            label = f"{' '.join(name)}: {what}"
            objects[label], expected[label] = bad, message
    answers = judge(objects, known, tmp_path)
    wrong = {
        label: answer
        for label, answer in answers.items()
        if answer[0] != "statusInvalid" or expected[label] not in answer[1]
    }
    assert wrong == {}
    assert len(answers) > 5 * len(GOOD)


def mutations(name: tuple[str, str]) -> dict[str, tuple[Object, str]]:
    """Ways to spoil the good object of a kind, with what kubeconform must say of each."""
    (part, content), *_ = GOOD[name].items()
    found: dict[str, tuple[Object, str]] = {
        "unknown metadata field": (changed(name, "metadata", lables={}), "'lables' not allowed"),
        "labels of the wrong type": (changed(name, "metadata", labels=7), "/metadata/labels'"),
        "a label of the wrong type": (changed(name, "metadata", labels={"a": 7}), "/metadata/labels/a'"),
        f"{part} of the wrong type": ({**good(name), part: 7.5}, f"at '/{part}'"),
        "no metadata": ({key: value for key, value in good(name).items() if key != "metadata"}, "'metadata'"),
        "the kind in another case": ({**good(name), "kind": name[1].lower()}, "at '/kind'"),
    }
    if part == "spec":
        found["unknown spec field"] = (changed(name, "spec", unknownField=1), "'unknownField' not allowed")
        for field in content:
            # Text stands where a list, a mapping or a number belongs, and a list where text belongs.
            bad: object = [1] if isinstance(content[field], str) else "text"
            if name == ("policy/v1", "PodDisruptionBudget") and field == "maxUnavailable":
                bad = True  # a number, or text such as 10%
            found[f"spec.{field} of the wrong type"] = (changed(name, "spec", **{field: bad}), f"at '/spec/{field}'")
    return found


def changed(name: tuple[str, str], part: str, **fields: object) -> Object:
    value = copy.deepcopy(good(name))
    value[part] |= fields
    return value


def test_deep_typing_errors_of_a_model_server_are_found(known: SchemaSet, tmp_path: Path) -> None:
    name = ("serving.kserve.io/v1beta1", "InferenceService")
    container = {"name": "kserve-container", "image": "a:1"}

    def service(**fields: object) -> Object:
        return changed(name, "spec", predictor={"containers": [{**container, **fields}]})

    answers = judge(
        {
            "imag": service(imag="a:2"),
            "nam": service(env=[{"nam": "A"}]),
            "containerPort": service(ports=[{"containerPort": "8080"}]),
            "limits": service(resources={"limits": ["nvidia.com/gpu"]}),
            "periodSeconds": service(startupProbe={"periodSeconds": "10"}),
            "runAsNonRoot": service(securityContext={"runAsNonRoot": "true"}),
            # An API server drops these labels: the field has no properties in the definition.
            "labels": changed(
                name,
                "spec",
                predictor={
                    "volumes": [
                        {"name": "a", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {}}, "spec": {}}}}
                    ]
                },
            ),
            "minReplica": changed(name, "spec", predictor={"minReplica": 1}),
        },
        known,
        tmp_path,
    )
    assert {
        field: answer for field, answer in answers.items() if answer[0] != "statusInvalid" or field not in answer[1]
    } == {}


def test_a_kind_or_version_that_nobody_defines_is_an_error(known: SchemaSet, tmp_path: Path) -> None:
    metadata = {"name": "a"}
    answers = judge(
        {
            "kind": {"apiVersion": "v1", "kind": "Podd", "metadata": metadata},
            "version": {"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": metadata},
            "group": {"apiVersion": "serving.kserve.example/v1beta1", "kind": "InferenceService", "metadata": metadata},
        },
        known,
        tmp_path,
    )
    assert {answer[0] for answer in answers.values()} == {"statusError"}
    assert all("could not find schema" in message for _, message in answers.values())


def test_the_index_holds_plural_scope_and_source(known: SchemaSet) -> None:
    service = known.kinds["serving.kserve.io/v1beta1", "InferenceService"]
    assert (service.plural, service.namespaced, service.native) == ("inferenceservices", True, False)
    assert service.source.startswith("github.com/kserve/kserve@v")
    runtime = known.kinds["serving.kserve.io/v1alpha1", "ClusterServingRuntime"]
    assert (runtime.plural, runtime.namespaced) == ("clusterservingruntimes", False)
    policy = known.kinds["networking.k8s.io/v1", "NetworkPolicy"]
    assert (policy.plural, policy.namespaced, policy.native) == ("networkpolicies", True, True)
    assert policy.source.startswith("kubernetes-validate@")
    assert not known.kinds["v1", "Namespace"].namespaced


def test_every_kind_of_the_pinned_kubernetes_has_a_schema(known: SchemaSet) -> None:
    definitions = read_definitions(tool_cache.schema_pins().kubernetes_validate)
    kinds = {
        (f"{name['group']}/{name['version']}".removeprefix("/"), name["kind"])
        for definition in definitions.values()
        if definition.get("properties", {}).get("metadata", {}).get("$ref", "").endswith(".ObjectMeta")
        for name in definition.get("x-kubernetes-group-version-kind", [])
    }
    assert len(kinds) >= 100
    assert kinds - set(known.kinds) == set()
    binding = known.kinds["admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"]
    assert (binding.plural, binding.namespaced) == ("mutatingadmissionpolicybindings", False)


def test_every_schema_of_the_index_is_there(known: SchemaSet) -> None:
    assert len(known.kinds) >= 100
    assert [kind.schema for kind in known.kinds.values() if not kind.schema.is_file()] == []


def test_every_tool_runs() -> None:
    for name, argument in (("kubeconform", "-v"), ("gitleaks", "version"), ("kyverno", "version")):
        wanted = tool_cache.tool(name)
        assert tool_cache.problem(wanted) is None
        done = subprocess.run([wanted.binary, argument], capture_output=True, timeout=120)
        assert done.returncode == 0

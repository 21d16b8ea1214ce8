"""The live cluster refuses what the gate refuses, in the same words, and lets pass what it lets pass."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from admission_lab import (
    UNJUDGED,
    AdmissionLab,
    Judgement,
    admission_lab,
    apply_policies,
    judgement_of,
    namespace,
    wait_until,
)
from comparisons import ALL
from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import flow, read_documents
from neuroscale.gate.checks.policy import evaluate_policies
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Identity, Object, RefusedError
from neuroscale.local import kserve, kyverno
from neuroscale.local.charts import GROUP_VERSION
from neuroscale.local.kserve import GROUP, MODE
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.policies.bad_objects import EXPECTED_MESSAGE
from neuroscale.policies.policy_set import Policy, PolicySet, ResourceRule, load_policy_set
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.rendering.service_folder import render
from neuroscale.repo.snapshot import FolderSnapshot
from plan_factory import make_plan, make_request
from policies_support import NAMES, documents, fixture_manifests
from policy_mutation.judge_live import Live, judge_live, measure_live
from policy_mutation.policy_mutants import policy_mutants
from policy_mutation.resource_mutants import resource_mutants
from policy_mutation.statement import read_statement
from policy_mutation.strength import excuse, sampled
from roots import CHECKOUT, ROOT

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.slow]

Key = tuple[str, str]
"""A policy, and the name of one of its resources."""


@pytest.fixture(scope="module")
def lab() -> Iterator[AdmissionLab]:
    with admission_lab() as found:
        apply_all(found.cluster, [namespace(name) for name in NAMES])
        yield found


@pytest.fixture(scope="module")
def policy_set() -> PolicySet:
    return load_policy_set(FolderSnapshot(ROOT))


@dataclass(frozen=True)
class Case:
    """A good or bad resource of a policy."""

    policy: str
    manifest: Manifest
    good: bool

    @property
    def key(self) -> Key:
        return self.policy, self.manifest.name

    @property
    def expected(self) -> str:
        """What the resource announces that its policy says; empty for a good one."""
        return "" if self.good else str(self.manifest.value["metadata"]["annotations"][EXPECTED_MESSAGE])

    @property
    def words(self) -> str:
        """The same without the places."""
        return self.expected.partition(": ")[2]


CASES = [
    Case(name, manifest, which == "good")
    for name in NAMES
    for which in ("good", "bad")
    for manifest in fixture_manifests(name, which)
    if not manifest.api_version.startswith("keda.sh/")  # no cluster here has KEDA's kinds
]


ANNOUNCED: Mapping[Key, str] = {case.key: case.expected for case in CASES}
"""What the gate says of each resource by its own policy, as `tests/policies/test_policies.py` shows; empty where it
passes.
"""


@pytest.fixture(scope="module")
def judged(lab: AdmissionLab) -> dict[Key, Judgement]:
    """What the policies say of each resource as its file stands, without KServe."""
    with lab.without_kserve():
        return dict(zip((c.key for c in CASES), lab.judge_all([c.manifest.value for c in CASES]), strict=True))


KSERVE_JUDGES = ("InferenceService", "ServingRuntime", "ClusterServingRuntime")
"""The kinds of the resources that KServe's webhooks are asked about too."""


@pytest.fixture(scope="module")
def live(lab: AdmissionLab, judged: dict[Key, Judgement]) -> dict[Key, Judgement]:
    """What the whole platform says of each resource."""
    cases = [case for case in CASES if case.manifest.kind in KSERVE_JUDGES]
    found = lab.judge_all([case.manifest.value for case in cases])
    return judged | dict(zip((case.key for case in cases), found, strict=True))


@pytest.fixture(scope="module")
def bare(lab: AdmissionLab) -> dict[Key, Judgement]:
    """What KServe says where no policy judges; objects without a namespace cannot be asked about so."""
    cases = [case for case in CASES if case.manifest.kind in KSERVE_JUDGES and case.manifest.namespace]
    found = lab.judge_all([case.manifest.value for case in cases], UNJUDGED)
    return dict(zip((case.key for case in cases), found, strict=True))


# What else than a policy has a say ------------------------------------------------------------------------------------

WORKLOADS = (
    *("cronjob", "daemonset", "deployment", "job"),
    *("pod", "replicaset", "replicationcontroller", "statefulset"),
)
WITH_EPHEMERAL = (
    *("allowed-registries", "endpoint-key", "moe-data-parallelism", "no-mutable-image-tags"),
    *("no-plaintext-secrets", "no-privilege-escalation", "no-remote-code", "non-root", "pinned-models"),
)

# What the API server refuses of itself, in which words: no policy is asked about these, live.
BY_THE_API_SERVER: Mapping[str, frozenset[Key]] = {
    "must be an integer": frozenset(
        ("accelerator-limits", f"bad-{kind}-{what}") for kind in WORKLOADS for what in ("fraction", "init")
    ),
    "image: Required value": frozenset(("no-mutable-image-tags", f"bad-{kind}-no-image") for kind in WORKLOADS),
    "cannot set `allowPrivilegeEscalation` to false and `privileged` to true": frozenset(
        ("no-privilege-escalation", f"bad-{kind}-privileged") for kind in ("deployment", "pod", "replicaset")
    ),
    # They come by a subresource of their own.
    "spec.ephemeralContainers: Forbidden: cannot be set on create": frozenset(
        (policy, f"{which}-pod-ephemeral") for policy in WITH_EPHEMERAL for which in ("good", "bad")
    )
    | {("probes-present", "good-pod-ephemeral")},
    "a valid label must be": frozenset(
        ("model-labels", name) for name in ("bad-ratio-no-leading-zero", "bad-ratio-negative")
    ),
    "Duplicate value": frozenset(
        {("endpoint-key", "bad-model-second-entry"), ("no-plaintext-secrets", "bad-second-variable")}
    ),
    "spec.model.uri: Required value": frozenset({("allowed-storage", "bad-llm-no-model")}),
    # KServe's chart has brought it, before the policies and past them.
    "already exists": frozenset({("refused-kinds", "default")}),
}

# What KServe's webhooks refuse. The API server asks them and Kyverno at the same time, and tells what the first said.
BY_KSERVE: Mapping[str, Mapping[str, str]] = {
    # Several nodes, without a model's address.
    "StorageURI must be set for multinode enabled": {
        "accelerator-limits": (
            "good-multi-node good-inference-service-everywhere bad-multi-node bad-multi-node-worker "
            "bad-in-predictor-workerspec-containers bad-in-predictor-workerspec-initcontainers"
        ),
        "allowed-registries": (
            "good-inference-service-everywhere bad-in-predictor-workerspec-containers "
            "bad-in-predictor-workerspec-initcontainers bad-in-predictor-workerspec-ephemeralcontainers"
        ),
        "endpoint-key": "good-worker",
        "inference-resources": (
            "good-every-component bad-missing-in-predictor-containers "
            "bad-missing-in-predictor-initcontainers bad-missing-in-predictor-workerspec-containers "
            "bad-missing-in-transformer-containers bad-missing-in-explainer-containers "
            "bad-missing-in-canary-predictor-model bad-empty-worker"
        ),
        "moe-data-parallelism": (
            "good-inference-service-everywhere bad-in-predictor-workerspec-containers "
            "bad-in-predictor-workerspec-initcontainers bad-in-predictor-workerspec-ephemeralcontainers"
        ),
        "no-host-access": (
            "good-inference-service-everywhere bad-hostpid-in-predictor-workerspec "
            "bad-hostpath-in-predictor-workerspec bad-hostport-in-predictor-workerspec-containers "
            "bad-hostport-in-predictor-workerspec-initcontainers "
            "bad-hostport-in-predictor-workerspec-ephemeralcontainers"
        ),
        "no-mutable-image-tags": (
            "good-inference-service-everywhere bad-in-predictor-workerspec-containers "
            "bad-in-predictor-workerspec-initcontainers bad-in-predictor-workerspec-ephemeralcontainers"
        ),
        "no-plaintext-secrets": (
            "good-inference-service-everywhere bad-in-predictor-workerspec-containers "
            "bad-in-predictor-workerspec-initcontainers bad-in-predictor-workerspec-ephemeralcontainers"
        ),
        "no-privilege-escalation": (
            "good-inference-service-everywhere bad-in-predictor-workerspec-containers "
            "bad-in-predictor-workerspec-initcontainers bad-in-predictor-workerspec-ephemeralcontainers"
        ),
        "non-root": (
            "good-inference-service-everywhere bad-in-predictor-workerspec-containers "
            "bad-in-predictor-workerspec-initcontainers bad-in-predictor-workerspec-ephemeralcontainers"
        ),
        "no-remote-code": "bad-worker",
        "pinned-models": "bad-worker",
        "readable-model-arguments": "bad-worker",
    },
    "must not set workerSpec": {
        "accelerator-limits": "bad-in-canary-predictor-workerspec-containers",
        "allowed-registries": "bad-in-canary-predictor-workerspec-containers",
        "moe-data-parallelism": "bad-in-canary-predictor-workerspec-containers",
        "no-host-access": (
            "bad-hostipc-in-canary-predictor-workerspec bad-hostpath-in-canary-predictor-workerspec "
            "bad-hostport-in-canary-predictor-workerspec-containers"
        ),
        "no-mutable-image-tags": "bad-in-canary-predictor-workerspec-containers",
        "no-plaintext-secrets": "bad-in-canary-predictor-workerspec-containers",
        "no-privilege-escalation": "bad-in-canary-predictor-workerspec-containers",
        "non-root": "bad-in-canary-predictor-workerspec-containers",
    },
    # A component that serves nothing.
    "predictor: exactly one of [": {
        "model-labels": "bad-canary-overrides",
        "ownership-labels": "bad-canary-empty-owner",
        "single-autoscaler": "bad-canary-zero bad-canary-autoscaling",
    },
    "must be specified in ExplainerSpec": {
        "model-labels": "bad-explainer-overrides",
        "ownership-labels": "bad-explainer-empty-owner bad-explainer-empty-cost-center",
        "single-autoscaler": (
            "bad-explainer-class bad-explainer-autoscaling bad-explainer-scale-metric "
            "bad-explainer-scale-target bad-explainer-zero"
        ),
    },
    "must be specified in TransformerSpec": {
        "model-labels": "bad-transformer-overrides",
        "ownership-labels": "bad-transformer-empty-owner bad-transformer-empty-cost-center",
        "single-autoscaler": (
            "bad-transformer-class bad-transformer-autoscaling bad-transformer-scale-metric "
            "bad-transformer-scale-target bad-transformer-zero"
        ),
    },
    "Setting both StorageURI and StorageURIs is not supported": {
        "allowed-storage": (
            "good-several bad-several-predictor bad-several-transformer bad-several-explainer "
            "bad-several-environment bad-several-environment-hidden bad-several-art bad-several-canary"
        ),
    },
    "is not a supported autoscaler class type": {
        "single-autoscaler": "bad-class-kpa bad-class-none-upper bad-class-empty",
    },
    "quantities must match the regular expression": {
        "accelerator-limits": "bad-limit-word",
        "inference-resources": "bad-unreadable",
    },
    # KServe's webhook panics, which counts as a refusal: a custom predictor without a container, and ART.
    "index out of range [0] with length 0": {
        "allowed-registries": "bad-in-art",
        "inference-resources": "bad-no-container bad-only-init-container bad-no-predictor",
        "no-mutable-image-tags": "bad-in-art",
        "no-privilege-escalation": "bad-in-art",
        "non-root": "bad-in-art",
    },
}

# Of these, what the API server would refuse if KServe did not: their definition says so.
BY_THE_DEFINITION: Mapping[Key, str] = {
    ("accelerator-limits", "bad-limit-word"): 'Invalid value: "one"',
    ("inference-resources", "bad-unreadable"): "Invalid value",
    ("inference-resources", "bad-no-predictor"): "spec.predictor: Required value",
}

# What KServe fills in before a policy sees it, so that the live object is in order. The gate refuses the file all the
# same: Argo CD would show the difference for ever, or another cluster's configuration would fill in something else.
MENDED: Mapping[Key, str] = {
    ("no-legacy-deployment-mode", "bad-absent"): "the deployment mode that its configuration names",
    ("no-legacy-deployment-mode", "bad-rawdeployment"): "the mode's name of today",
    ("no-legacy-deployment-mode", "bad-serverless"): "the mode's name of today",
    ("inference-resources", "bad-art-explainer"): "the resources that its configuration names",
}

# What the API server fills in before a policy sees it: three failures in place of none.
DEFAULTED: frozenset[Key] = frozenset({("probes-present", "bad-statefulset-server-no-time")})

# KServe moves a framework's own field to the model field, so the live policy names that place.
_FRAMEWORK = re.compile(
    r"spec\.predictor\.(huggingface|lightgbm|onnx|paddle|pmml|pytorch|sklearn|tensorflow|triton|xgboost)\b"
)


def _by_kserve() -> dict[Key, str]:
    return {
        (policy, name): words
        for words, found in BY_KSERVE.items()
        for policy, names in found.items()
        for name in names.split()
    }


def _by_the_api_server() -> dict[Key, str]:
    return {key: words for words, keys in BY_THE_API_SERVER.items() for key in keys}


def test_every_table_names_resources_that_exist_once() -> None:
    named = [*_by_kserve(), *_by_the_api_server(), *MENDED, *DEFAULTED]
    assert len(named) == len(set(named))
    assert set(named) <= {case.key for case in CASES}


@pytest.mark.parametrize("name", NAMES)
def test_more_than_half_of_what_a_policy_must_refuse_it_refuses_itself(name: str) -> None:
    bad = {case.key for case in CASES if case.policy == name and not case.good}
    assert len(bad - {*_by_kserve(), *_by_the_api_server(), *MENDED, *DEFAULTED}) > len(bad) / 2


def test_kyverno_says_of_a_file_what_the_gate_says(judged: Mapping[Key, Judgement]) -> None:
    """Whatever the API server lets through to it, in the same words.

    It fails if Kyverno does not judge ReplicaSets, as its chart presets.
    """
    refused = {**_by_the_api_server(), **BY_THE_DEFINITION}
    others = {key: one.other for key, one in judged.items() if one.other}
    assert {key: words for key, words in others.items() if key not in refused} == {}
    assert {key: words for key, words in refused.items() if words not in others.get(key, "")} == {}
    said = {key: one.policies.get(key[0], "") for key, one in judged.items() if key not in refused}
    announced = {key: "" if key in DEFAULTED else ANNOUNCED[key] for key in judged}
    assert said == {key: message for key, message in announced.items() if key not in refused}


def test_without_policies_the_cluster_refuses_only_what_is_listed(bare: Mapping[Key, Judgement]) -> None:
    listed = {key: words for key, words in {**_by_kserve(), **_by_the_api_server()}.items() if key in bare}
    assert {key: one.policies for key, one in bare.items() if one.policies} == {}
    assert {key: one.other for key, one in bare.items() if one.other and key not in listed} == {}
    assert {key: words for key, words in listed.items() if words not in bare[key].other} == {}


def test_what_kserve_mends_is_mended_for_real(bare: Mapping[Key, Judgement]) -> None:
    for policy, name in MENDED:
        found = bare[policy, name].admitted
        assert found is not None
        if policy == "no-legacy-deployment-mode":
            assert found["metadata"]["annotations"][MODE] in ("Standard", "Knative")
        else:
            assert found["spec"]["explainer"]["art"]["resources"]["requests"]["cpu"] == "1"


@pytest.mark.parametrize("name", NAMES)
def test_the_platform_refuses_what_the_gate_refuses_in_its_words(name: str, live: Mapping[Key, Judgement]) -> None:
    by_kserve, by_the_api_server = _by_kserve(), _by_the_api_server()
    shown = 0
    for case in (case for case in CASES if case.policy == name):
        found = live[case.key]
        own = found.policies.get(name, "")
        expected = _FRAMEWORK.sub("spec.predictor.model", ANNOUNCED[case.key])
        if case.key in by_the_api_server:
            assert by_the_api_server[case.key] in found.other, case.key
        elif case.key in (*MENDED, *DEFAULTED):
            assert (own, found.other) == ("", ""), case.key
        elif case.key in by_kserve:
            # Either of the two spoke first, and KServe may have mended what this policy is about.
            assert found.policies or by_kserve[case.key] in found.other, case.key
            assert own in ("", expected), case.key
        else:
            assert (own, found.other) == (expected, ""), case.key
            shown += bool(expected)
        if not case.good and case.key not in (*MENDED, *DEFAULTED):
            assert found.admitted is None, case.key
    assert shown


# What KServe makes of the good ones -----------------------------------------------------------------------------------

DERIVED = (
    *(("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("v1", "Pod")),
    *(("v1", "Service"), ("autoscaling/v2", "HorizontalPodAutoscaler")),
)
OF_SERVICE = f"{GROUP}/inferenceservice"
UNJUDGED_BY_ANY = "monitoring"
"""Left alone by Kyverno too: a good resource of one policy need not please the others."""

# Good resources of which KServe makes no Deployment, and its or the API server's reason.
DERIVES_NOTHING: Mapping[Key, str] = {
    ("no-legacy-deployment-mode", "good-knative"): "Knative",
    # They have probes or containers in forms that only the definition of InferenceServices allows.
    ("probes-present", "good-model"): "fails to reconcile predictor",
    ("probes-present", "good-custom"): "fails to reconcile predictor",
    ("probes-present", "good-custom-first"): "",
    # KServe takes the first container for its own, and gives it the name that the second one has.
    ("endpoint-key", "good-sidecar"): "",
    ("readable-model-arguments", "good-custom"): "fails to reconcile predictor",
    ("readable-model-arguments", "good-custom-second"): "",
}
# Good resources whose Pod is missing something, so that KServe's webhook refuses it.
DERIVES_NO_POD: Mapping[Key, str] = {
    ("allowed-storage", f"good-parameters{end}"): "can't read storage secret" for end in ("", "-gs", "-hf")
}


def of_service(found: Object) -> str:
    return str((found["metadata"].get("labels") or {}).get(OF_SERVICE, ""))


def runtime(name: str, image: str, formats: Iterable[str]) -> Object:
    """A serving runtime that KServe chooses by itself."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": name, "namespace": UNJUDGED_BY_ANY},
        "spec": {
            "supportedModelFormats": [{"name": one, "version": "1", "autoSelect": True} for one in formats],
            "protocolVersions": ["v1", "v2"],
            "containers": [{"name": "kserve-container", "image": image}],
        },
    }


def as_applied(found: Object, place: str) -> Object:
    """The object as if somebody applied it in a namespace: without what the cluster added."""
    kept = ("labels", "annotations")
    metadata = {key: found["metadata"][key] for key in kept if key in found["metadata"]}
    spec = {key: value for key, value in found["spec"].items() if key not in ("clusterIP", "clusterIPs", "nodeName")}
    metadata |= {"name": f"{found['metadata']['name']}-again", "namespace": place}
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def derived(lab: AdmissionLab) -> list[tuple[Case, Object]]:
    """Every object that KServe and the controller manager make of the good InferenceServices."""
    others = ("huggingface", "lightgbm", "onnx", "paddle", "pmml", "pytorch", "sklearn", "tensorflow", "xgboost")
    runtimes = (
        runtime("vllm", "docker.io/vllm/vllm-openai:v0.32.0", ("vLLM",)),
        runtime("others", "docker.io/kserve/server:v0.20.0", ("triton", *others)),
    )
    apply_all(lab.cluster, [namespace(UNJUDGED_BY_ANY)])
    apply_all(lab.cluster, runtimes)
    refused = _by_kserve()
    made: dict[str, Case] = {}
    for case in CASES:
        if case.good and case.manifest.kind == "InferenceService" and case.key not in refused:
            name = f"service-{len(made)}"
            metadata = {**case.manifest.value["metadata"], "name": name, "namespace": UNJUDGED_BY_ANY}
            lab.cluster.create({**case.manifest.value, "metadata": metadata})
            made[name] = case
    without = {*DERIVES_NOTHING, *DERIVES_NO_POD}
    awaited = {name for name, case in made.items() if case.key not in without}

    def missing() -> set[str]:
        found = (of_service(pod) for pod in lab.cluster.list("v1", "Pod", UNJUDGED_BY_ANY))
        return awaited - set(found)

    try:
        wait_until(lambda: not missing(), "not every good service has a Pod", 900)
    except AssertionError as error:
        raise AssertionError(f"{error}: {[made[name].key for name in sorted(missing())]}") from error
    telling = [(name, case.key) for name, case in made.items() if case.key in without]
    wait_until(lambda: all(_tells(lab, *one) for one in telling), "not every service tells why it has no Pod")
    return [
        (made[of_service(found)], found)
        for group_version, kind in DERIVED
        for found in lab.cluster.list(group_version, kind, UNJUDGED_BY_ANY)
        if of_service(found) in made
    ]


def _tells(lab: AdmissionLab, name: str, key: Key) -> bool:
    """Whether the cluster says why it makes no Deployment, or no Pod, of the service."""
    service = lab.cluster.get(f"{GROUP}/v1beta1", "InferenceService", name, UNJUDGED_BY_ANY) or {}
    deployments = lab.cluster.list("apps/v1", "Deployment", UNJUDGED_BY_ANY, f"{OF_SERVICE}={name}")
    if key in DERIVES_NOTHING:
        return DERIVES_NOTHING[key] in json.dumps(service) and not deployments
    return any(DERIVES_NO_POD[key] in json.dumps(one.get("status", {})) for one in deployments)


def test_every_kind_of_derived_object_was_made(derived: Sequence[tuple[Case, Object]]) -> None:
    counted = Counter(found["kind"] for _, found in derived)
    assert set(counted) == {kind for _, kind in DERIVED}
    without = {*_by_kserve(), *DERIVES_NOTHING, *DERIVES_NO_POD}
    good = {case.key for case in CASES if case.good and case.manifest.kind == "InferenceService"}
    assert len(good - without) >= len(NAMES) / 2
    for kind in ("Deployment", "Pod"):
        assert {case.key for case, found in derived if found["kind"] == kind} >= good - without


def test_what_kserve_derives_of_a_good_service_is_good_live(
    lab: AdmissionLab, derived: Sequence[tuple[Case, Object]]
) -> None:
    values = [as_applied(found, case.policy) for case, found in derived]
    for (case, _), value, found in zip(derived, values, lab.judge_all(values), strict=True):
        assert found.other == "", (case.key, value["kind"])
        assert found.policies.get(case.policy, "") == "", (case.key, value["kind"])


def test_what_kserve_derives_of_a_good_service_passes_the_gate(
    derived: Sequence[tuple[Case, Object]], policy_set: PolicySet, tmp_path: Path
) -> None:
    for policy in policy_set.policies:
        values = [as_applied(found, case.policy) for case, found in derived if case.policy == policy.name]
        assert findings(values, PolicySet((policy,), policy_set.tripwires), tmp_path / policy.name) == []


def findings(values: Sequence[Object], policy_set: PolicySet, folder: Path) -> list[str]:
    """What the gate says of objects."""
    manifests = read_manifests("".join(f"---\n{flow(value)}\n" for value in values).encode(), "derived.yaml")
    found = evaluate_policies(
        policy_set, manifests, schemas.find(), tool_cache.find("kyverno"), folder, today=date(2026, 11, 21)
    ).findings
    return [f"{finding.rule} on {finding.subject}: {finding.message}" for finding in found]


# Services as the template renders them --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def services(lab: AdmissionLab) -> list[Object]:
    """Services that please every policy, made for real in their teams' namespaces, with all that these hold."""
    tenancy = ROOT / "platform" / "tenancy"
    for team in ("team-alpha", "team-beta"):
        for file in ("namespace", "quota", "network", "access"):
            apply_all(lab.cluster, documents(tenancy / team / f"{file}.yaml"))
    request = make_request()
    text = render(request, make_plan(request), load_template(FolderSnapshot(ROOT)))["inferenceservice.yaml"]
    found = [read_documents(text, "inferenceservice.yaml")[0].value]
    found += documents(CHECKOUT / "tests" / "data" / "policies" / "services.yaml")
    made = [value for value in found if value["kind"] == "InferenceService"]
    for value in made:
        lab.cluster.create(value)
    wait_until(lambda: all(_pods(lab, one) for one in made), "not every service has a Pod")
    return made


def _pods(lab: AdmissionLab, service: Object) -> list[Object]:
    metadata = service["metadata"]
    return lab.cluster.list("v1", "Pod", metadata["namespace"], f"{OF_SERVICE}={metadata['name']}")


def test_what_is_made_of_rendered_services_in_their_teams_namespaces_passes_every_policy(
    lab: AdmissionLab, services: Sequence[Object], policy_set: PolicySet, tmp_path: Path
) -> None:
    made = [
        as_applied(found, service["metadata"]["namespace"])
        for service in services
        for group_version, kind in DERIVED
        for found in lab.cluster.list(
            group_version, kind, service["metadata"]["namespace"], f"{OF_SERVICE}={service['metadata']['name']}"
        )
    ]
    assert {"Deployment", "ReplicaSet", "Pod", "Service"} <= {value["kind"] for value in made}
    assert findings(made, PolicySet(policy_set.policies, policy_set.tripwires), tmp_path / "run") == []
    refused = [
        event["message"]
        for event in lab.cluster.list("v1", "Event")
        if event["reason"] == "FailedCreate" and event["metadata"]["namespace"].startswith("team-")
    ]
    assert refused == []


def test_a_good_service_cannot_be_changed_into_a_bad_one(lab: AdmissionLab, services: Sequence[Object]) -> None:
    """It fails if Kyverno leaves out a team's namespace."""
    change = {"spec": {"predictor": {"hostNetwork": True}}}
    with pytest.raises(RefusedError) as caught:
        lab.cluster.merge(Identity.of(services[0]), change)
    assert judgement_of(caught.value.message).policies == {"no-host-access": "spec.predictor: hostNetwork is true"}


def test_a_container_cannot_be_added_to_a_running_pod(lab: AdmissionLab, services: Sequence[Object]) -> None:
    (pod, *_) = _pods(lab, services[0])
    added = {"name": "shell", "image": "docker.io/evil/shell:v1.0.0"}
    with pytest.raises(RefusedError) as caught:
        lab.cluster.merge(Identity.of(pod), {"spec": {"ephemeralContainers": [added]}}, "ephemeralcontainers")
    # The API server's own restriction of the namespace speaks first.
    assert "PodSecurity" in caught.value.message or "allowed-registries" in judgement_of(caught.value.message).policies


# When Kyverno or KServe is gone ---------------------------------------------------------------------------------------

CALLING_FAILED = 'failed calling webhook "vpol.validate.kyverno.svc-fail"'
SYSTEM = ("argocd", "kserve", "kube-system", "kyverno")


def workload(place: str) -> Object:
    (value,) = (case.manifest.value for case in CASES if case.key == ("no-host-access", "good-deployment"))
    return {**value, "metadata": {"name": "deployed", "namespace": place}}


@pytest.mark.parametrize("place", SYSTEM)
def test_system_namespaces_are_left_alone(lab: AdmissionLab, place: str) -> None:
    """It fails if Kyverno judges KServe's own namespace."""
    apply_all(lab.cluster, [namespace(place)])
    assert lab.judge(workload(place)).admitted is not None


def test_while_kyverno_is_dead_teams_are_closed_and_system_namespaces_open_and_afterwards_nothing_slips_in(
    lab: AdmissionLab, services: Sequence[Object]
) -> None:
    bad = workload(services[0]["metadata"]["namespace"])
    before = lab.judge(bad)
    assert len(before.policies) > 1
    lab.running.kill(kyverno.NAME)
    for value in (bad, workload("default"), {**services[0], "metadata": {**services[0]["metadata"], "name": "other"}}):
        assert CALLING_FAILED in lab.judge(value).other
    for place in SYSTEM:
        apply_all(lab.cluster, [namespace(place)])
        assert lab.judge(workload(place)).admitted is not None
    # From the first answer on, it judges by every policy.
    stop = threading.Event()
    seen: list[Judgement] = []

    def ask() -> None:
        while not stop.is_set():
            seen.append(lab.judge(bad))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        lab.running.start(lab.kyverno.process())
        answered = len(seen)
        wait_until(lambda: len(seen) > answered + 5, "nothing more is answered")
    finally:
        stop.set()
        asking.join()
    assert {CALLING_FAILED in one.other or one == before for one in seen} == {True}
    assert seen[-1] == before


def test_while_kserve_is_dead_no_service_is_taken_and_it_is_not_ready(lab: AdmissionLab) -> None:
    (good,) = (case.manifest.value for case in CASES if case.key == ("no-legacy-deployment-mode", "good-standard"))
    assert lab.kserve.process().ready() is None
    lab.running.kill(kserve.NAME)
    assert "failed calling webhook" in lab.judge(good, UNJUDGED).other
    assert lab.kserve.process().ready() is not None
    lab.running.start(lab.kserve.process())
    assert lab.judge(good, UNJUDGED).admitted is not None


def test_preparing_again_changes_nothing(lab: AdmissionLab) -> None:
    def versions() -> dict[str, str]:
        kinds = (
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ("v1", "ConfigMap"),
            (GROUP_VERSION, "MutatingWebhookConfiguration"),
        )
        return {
            str(Identity.of(found)): found["metadata"]["resourceVersion"]
            for group_version, kind in kinds
            for found in lab.cluster.list(group_version, kind)
            if found["metadata"].get("labels", {}).get("webhook.kyverno.io/managed-by") != "kyverno"
        }

    before = versions()
    lab.kserve.process().prepare()
    assert versions() == before


# Mutants of the policies' test objects -------------------------------------------------------------------------------


def test_the_live_cluster_refuses_the_mutants_that_the_gate_refuses(lab: AdmissionLab, policy_set: PolicySet) -> None:
    """By night all of them. Without KServe, which fills in and refuses some fields before policies see them."""
    snapshot = FolderSnapshot(ROOT)
    statements = {name: read_statement(snapshot, name) for name in NAMES}
    every = 1 if os.environ.get(ALL) else 60
    mutants = [
        mutant
        for name in NAMES
        for mutant in sampled(resource_mutants(snapshot, name, statements[name], schemas.find()), every)
    ]
    bases = {(case.policy, case.manifest.kind, case.manifest.name): case.manifest.value for case in CASES}
    with lab.without_kserve():
        found = judge_live(
            mutants,
            bases,
            lab.cluster,
            NAMES[0],
            excused=lambda mutant: excuse(mutant, statements[mutant.policy], "admission"),
            told=print,
        )
    assert len(found) > 100
    print(Counter(one.answer for one in found))
    others = [
        f"{one.mutant.id}: {one.answer} {one.said}" for one in found if one.answer in (Live.ADMITTED, Live.UNPROVEN)
    ]
    print(*others, sep="\n")
    assert others == []


def test_the_whole_platform_admits_no_mutant_that_the_gate_refuses(
    lab: AdmissionLab, policy_set: PolicySet, tmp_path: Path
) -> None:
    """As `scripts/policy_mutation --live` sends them: with KServe, which mends some."""
    found = measure_live(
        FolderSnapshot(ROOT),
        policy_set,
        NAMES,
        schemas.find(),
        lab.cluster,
        tmp_path,
        judged_in="default",
        unjudged_in=UNJUDGED,
        told=print,
        every=1 if os.environ.get(ALL) else 90,
        workers=2,
    )
    print(*found.rows, found.not_sent, sep="\n")
    assert [f"{one.mutant.id}: {one.said}" for one in found.of(Live.ADMITTED)] == []
    assert sum(row.by_policy for row in found.rows) > sum(row.sent for row in found.rows) / 4


# Changed policies -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangedPolicy:
    """A policy with a change, under a name of its own, and what it must say of two bad objects of the policy.

    `freed`: what the change lets pass; `refused`: what it still refuses.
    """

    value: Object
    freed: Case
    refused: Case

    @property
    def name(self) -> str:
        return str(self.value["metadata"]["name"])


def changed_policies(policies: Iterable[Policy], judged: Mapping[Key, Judgement]) -> list[ChangedPolicy]:
    """For each policy its last rule, on which no other relies, without effect, and its scope without the last kinds."""
    found = []
    for policy in policies:
        bad = [one for one in CASES if one.policy == policy.name and judged[one.key].policies.get(policy.name)]
        validations = policy.value["spec"]["validations"]
        words = validations[-1].get("message") or validations[-1]["messageExpression"]
        frees = {
            ("rule without effect", f"spec.validations[{len(validations) - 1}]"): [
                one for one in bad if one.words in words
            ],
            ("scope:rule dropped", f"spec.matchConstraints.resourceRules[{len(policy.rules) - 1}]"): [
                one for one in bad if _rules_of(policy, one.manifest) == [policy.rules[-1]]
            ],
        }
        for mutant in policy_mutants(policy):
            freed = frees.get((mutant.operator, mutant.place), [])
            refused = [one for one in bad if one not in freed]
            if freed and refused:
                name = f"{policy.name}-{mutant.operator.partition(':')[0].replace(' ', '-')}"
                value = {**mutant.value, "metadata": {**mutant.value["metadata"], "name": name}}
                found.append(ChangedPolicy(value, freed[0], refused[0]))
    return found


def _rules_of(policy: Policy, manifest: Manifest) -> list[ResourceRule]:
    plural = schemas.find().kinds[manifest.api_version, manifest.kind].plural
    return [rule for rule in policy.rules if rule.matches(manifest.group, manifest.version, plural)]


def test_a_policy_without_a_rule_or_a_kind_admits_what_the_policy_refuses(
    lab: AdmissionLab, policy_set: PolicySet, judged: Mapping[Key, Judgement]
) -> None:
    """The changed policies judge beside the whole ones, so that one request shows the answers of all."""
    changed = changed_policies(policy_set.policies, judged)
    assert len(changed) > len(NAMES)

    def said(case: Case) -> Mapping[str, str]:
        return lab.judge(case.manifest.value).policies

    with lab.without_kserve():
        apply_all(lab.cluster, [one.value for one in changed])
        try:
            wait_until(
                lambda: all(said(one.refused).get(one.name) == one.refused.expected for one in changed),
                "not every changed policy judges",
            )
            for one in changed:
                found = said(one.freed)
                assert found[one.freed.policy] == one.freed.expected
                assert one.name not in found
        finally:
            for one in changed:
                lab.cluster.delete(Identity.of(one.value))


def test_a_cluster_without_one_of_the_policies_proves_nothing(
    lab: AdmissionLab, policy_set: PolicySet, tmp_path: Path
) -> None:
    (policy,) = (one for one in policy_set.policies if one.name == "non-root")
    lab.cluster.delete(Identity.of(policy.value))
    try:
        wait_until(lambda: "non-root" not in str(lab.judge(workload("default")).policies), "the policy still judges")
        with pytest.raises(UntrustedError, match="does not refuse the tripwires of non-root"):
            measure_live(
                FolderSnapshot(ROOT),
                policy_set,
                ["non-root"],
                schemas.find(),
                lab.cluster,
                tmp_path,
                judged_in="default",
                unjudged_in=UNJUDGED,
                told=print,
            )
    finally:
        apply_policies(lab.cluster)

"""The API server gate: what only an API server refuses is found, and a server that does not say is not believed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparisons import KINDS
from examples import examples
from neuroscale.cli.gate import run_gate
from neuroscale.cli.new import new_service
from neuroscale.cli.options import Reports
from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.gate.checks.api_server_dry_run import evaluate_by_server
from neuroscale.gate.evaluation import Evaluation
from neuroscale.gate.verdict import Finding
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Cluster, KubernetesError, Object, RefusedError
from neuroscale.kube.control_plane import Ports
from neuroscale.kube.ephemeral import EphemeralServer
from neuroscale.manifests.objects import Manifest, read_manifests
from repositories import Repository, copy_of_the_example_repository
from roots import CHECKOUT, ROOT

pytestmark = pytest.mark.tools

EXAMPLE = ROOT / "templates/examples/gemma-4-26b-a4b-qat.yaml"
SERVICE = "manifests/dev/support-chat"


class KeptServer(EphemeralServer):
    """A server that answers several runs: it gets the definitions that later ones need while it runs. `front` puts
    something in front of it."""

    running: Cluster | None = None
    front: Callable[[Cluster], Cluster] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.has: set[str] = set()

    def __enter__(self) -> KeptServer:
        return self

    def start(self, definitions: Sequence[Object] = ()) -> Cluster:
        if self.running is None:
            self.running = super().start(definitions)
        else:
            apply_all(self.running, [one for one in definitions if one["metadata"]["name"] not in self.has])
        self.has |= {one["metadata"]["name"] for one in definitions}
        return self.running if self.front is None else self.front(self.running)


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptServer]:
    with KeptServer() as server:
        yield server


@pytest.fixture
def server(kept: KeptServer) -> Iterator[KeptServer]:
    yield kept
    kept.front = None


def read(*values: Mapping[str, Any]) -> list[Manifest]:
    text = "\n---\n".join(json.dumps(value, indent=1) for value in values)
    return read_manifests(text.encode(), "a.yaml") if values else []


def judge(server: EphemeralServer, *values: Mapping[str, Any]) -> Evaluation:
    return evaluate_by_server(read(*values), schemas.find(), server, "v1")


def thing(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "good", "namespace": "team"}, **fields}


def changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """A copy with something else at a path; `...` takes it away."""
    if not path:
        return new
    copy = list(value) if isinstance(value, list) else dict(value)
    key: Any = path[0]
    if len(path) == 1 and new is ...:
        del copy[key]
    else:
        copy[key] = changed(copy[key] if isinstance(copy, list) else copy.get(key, {}), path[1:], new)
    return copy


CONTAINER = {
    "name": "main",
    "image": "example.org/a:1",
    "ports": [{"containerPort": 8080}],
    "resources": {"limits": {"memory": "1Gi", "cpu": "500m"}},
}
DEPLOYMENT = thing(
    "apps/v1",
    "Deployment",
    spec={
        "replicas": 1,
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}},
    },
)
SERVICE_OBJECT = thing("v1", "Service", spec={"ports": [{"port": 80, "protocol": "TCP"}], "selector": {"app": "a"}})
BUDGET = thing(
    "policy/v1", "PodDisruptionBudget", spec={"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}
)
NETWORK = thing(
    "networking.k8s.io/v1",
    "NetworkPolicy",
    spec={
        "podSelector": {"matchLabels": {"app": "a"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": 8080, "protocol": "TCP"}]}],
    },
)
MODEL = thing(
    "serving.kserve.io/v1beta1",
    "InferenceService",
    spec={
        "predictor": {
            "minReplicas": 1,
            "model": {"modelFormat": {"name": "vllm"}, "resources": {"limits": {"memory": "1Gi"}}},
        }
    },
)
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "system:good"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
GOOD = (DEPLOYMENT, SERVICE_OBJECT, BUDGET, NETWORK, MODEL, ROLE, NAMESPACE)
TEMPLATE = ("spec", "template", "spec", "containers", 0)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a bad quantity": (
        changed(DEPLOYMENT, (*TEMPLATE, "resources", "limits", "memory"), "1Gigs"),
        "spec.template.spec.containers[0].resources.limits.memory: '1Gigs' is not a quantity",
    ),
    "a bad quantity of a model": (
        changed(MODEL, ("spec", "predictor", "model", "resources", "limits", "memory"), "1Gigs"),
        "spec.predictor.model.resources.limits.memory",
    ),
    "a container's port": (
        changed(DEPLOYMENT, (*TEMPLATE, "ports", 0, "containerPort"), 70000),
        "spec.template.spec.containers[0].ports[0].containerPort: Invalid value: 70000",
    ),
    "a service's port": (changed(SERVICE_OBJECT, ("spec", "ports", 0, "port"), 0), "spec.ports[0].port: Invalid value"),
    "a port's protocol": (
        changed(NETWORK, ("spec", "ingress", 0, "ports", 0, "protocol"), "HTTP"),
        "spec.ingress[0].ports[0].protocol: Unsupported value",
    ),
    "a selector of other pods": (
        changed(DEPLOYMENT, ("spec", "selector", "matchLabels", "app"), "b"),
        "`selector` does not match template `labels`",
    ),
    "an unknown field at the root": (changed(MODEL, ("sepc",), {}), "sepc: unknown field"),
    "an unknown field": (changed(DEPLOYMENT, ("spec", "replcas"), 1), "spec.replcas: unknown field"),
    "an unknown field of the metadata": (changed(BUDGET, ("metadata", "lables"), {}), "metadata.lables: unknown field"),
    "no field that is needed": (changed(DEPLOYMENT, ("spec", "selector"), ...), "spec.selector: Required value"),
    "a text for a number": (changed(DEPLOYMENT, ("spec", "replicas"), "one"), "spec.replicas: cannot unmarshal string"),
    "a negative number": (changed(DEPLOYMENT, ("spec", "replicas"), -1), "spec.replicas: Invalid value: -1"),
    "no containers": (changed(DEPLOYMENT, TEMPLATE[:-1], []), "spec.template.spec.containers: Required value"),
    "two that exclude each other": (
        changed(BUDGET, ("spec", "minAvailable"), 1),
        "minAvailable and maxUnavailable cannot be both set",
    ),
    "a bad label": (changed(SERVICE_OBJECT, ("metadata", "labels"), {"a": "b c"}), "metadata.labels: Invalid value"),
    "a bad name of a service": (changed(SERVICE_OBJECT, ("metadata", "name"), "1.a"), "metadata.name: Invalid value"),
    "a bad name of a namespace": (
        changed(DEPLOYMENT, ("metadata", "namespace"), "a.b"),
        "metadata.namespace: Invalid value",
    ),
    "an unknown field of what every server has": (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}, "sepc": {}},
        "sepc: unknown field",
    ),
    "a rule in CEL": (
        thing("policies.kyverno.io/v1", "GeneratingPolicy", spec={"generate": [{"expression": "a"}, {}]}),
        "spec.generate[1]: Invalid value: exactly one of expression or template must be set",
    ),
    "an unknown kind": (thing("apps/v1", "Deploymnet"), "knows no kind Deploymnet in apps/v1"),
    "an unknown version": (thing("apps/v2", "Deployment"), "knows no kind Deployment in apps/v2"),
    "an unserved version": (thing("serving.kserve.io/v1", "InferenceService"), "knows no kind InferenceService"),
    "a version that leads elsewhere": (thing("../../version?x=", "Thing"), "knows no kind Thing"),
    "a kind of nobody": (thing("example.org/v1", "Thing"), "knows no kind Thing"),
    "a part of another kind": (thing("apps/v1", "Scale"), "knows no kind Scale"),
    "a question": (thing("authentication.k8s.io/v1", "TokenReview", spec={"token": "a"}), "is a request"),
}


@pytest.fixture(scope="module")
def bad_findings(kept: KeptServer) -> dict[str, list[Finding]]:
    """The findings on each of BAD, and on a good object between any two of them."""
    manifests = [
        manifest
        for name, (value, _) in BAD.items()
        for file, one in ((f"{name}.yaml", value), ("good.yaml", DEPLOYMENT))
        for manifest in read_manifests(json.dumps(one, indent=1).encode(), file)
    ]
    seen = evaluate_by_server(manifests, schemas.find(), kept, "v1")
    assert seen.evaluated == seen.expected == 2 * len(BAD)
    found: dict[str, list[Finding]] = {name: [] for name in ["good", *BAD]}
    for finding in seen.findings:
        found[finding.file.removesuffix(".yaml")].append(finding)
    return found


def test_good_objects_pass_in_namespaces_that_nobody_made(server: KeptServer) -> None:
    seen = judge(server, *GOOD)
    assert (seen.findings, seen.evaluated, seen.expected) == ((), len(GOOD), len(GOOD))
    # Four of every run, and one for each kind.
    assert seen.tripwires == seen.caught == 4 + len(GOOD)


def test_a_run_without_objects_proves_all_the_same_that_it_can_fail(server: KeptServer) -> None:
    seen = judge(server)
    assert (seen.findings, seen.evaluated, seen.expected, seen.caught) == ((), 0, 0, 4)


@pytest.mark.parametrize("name", BAD)
def test_what_only_an_api_server_refuses_is_a_finding_that_names_the_field(
    bad_findings: dict[str, list[Finding]], name: str
) -> None:
    words = BAD[name][1]
    assert any(words in finding.message for finding in bad_findings[name]), bad_findings[name]
    for finding in bad_findings[name]:
        assert finding.rule in ("refused", "unknown-kind")
        assert finding.line is not None
        assert finding.subject
        assert finding.fix
    assert bad_findings["good"] == []


def test_a_finding_stands_at_the_line_of_its_field(bad_findings: dict[str, list[Finding]]) -> None:
    value = BAD["a bad quantity"][0]
    rows = json.dumps(value, indent=1).split("\n")
    (wanted,) = [number for number, row in enumerate(rows, 1) if "1Gigs" in row]
    assert [finding.line for finding in bad_findings["a bad quantity"]] == [wanted]


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a mapping stands that takes no field of any name."""
    if isinstance(value, dict):
        if path and path[-1] in ("matchLabels", "labels", "limits", "selector", "podSelector"):
            return
        yield path
        for key, item in value.items():
            yield from paths_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths_of(item, (*path, index))


PLACES = [(number, path) for number, value in enumerate(GOOD) for path in paths_of(value)]
FIELDS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ", min_size=1, max_size=12).map(lambda text: f"zz{text}")


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(PLACES), FIELDS), min_size=1, max_size=8))
def test_an_unknown_field_anywhere_in_a_good_object_is_found(
    server: KeptServer, drawn: list[tuple[tuple[int, tuple[str | int, ...]], str]]
) -> None:
    values = [changed(GOOD[number], (*path, name), 1) for (number, path), name in drawn]
    seen = judge(server, *values)
    for (_, path), name in drawn:
        assert any(name in finding.message for finding in seen.findings), (path, name)
    assert seen.evaluated == len(drawn)


# ------------------------------------------------------------ what a change brings has no effect

HOOK = {
    "name": "a.example.org",
    "clientConfig": {"url": "https://127.0.0.1:9/"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}],
}
VERSION = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
EFFECTS: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"},
        "spec": {
            "group": "example.org",
            "names": {"kind": "Thing", "plural": "things"},
            "scope": "Namespaced",
            "versions": [VERSION],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {"url": "https://127.0.0.1:9/"},
                    "conversionReviewVersions": ["v1"],
                },
            },
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "a"},
        "webhooks": [HOOK],
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "a"},
        "webhooks": [HOOK],
    },
    {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.example.org"},
        "spec": {
            "group": "example.org",
            "version": "v1",
            "service": {"name": "a", "namespace": "b"},
            "groupPriorityMinimum": 10,
            "versionPriority": 10,
        },
    },
)


def stored(cluster: Cluster) -> set[str]:
    kinds = [(one["apiVersion"], one["kind"]) for one in (*EFFECTS, *GOOD)]
    return {f"{kind} {one['metadata']['name']}" for name, kind in kinds for one in cluster.list(name, kind)}


def test_nothing_of_a_change_is_stored_and_its_own_kinds_are_findings(server: KeptServer) -> None:
    judge(server, *GOOD)
    before = stored(server.start())
    seen = judge(server, *EFFECTS, *GOOD, thing("example.org/v1", "Thing"))
    assert [(finding.rule, finding.subject) for finding in seen.findings] == [("unknown-kind", "Thing team/good")]
    assert stored(server.start()) == before
    # With a webhook that nobody answers, this would be refused.
    assert judge(server, *GOOD).findings == ()


@pytest.mark.slow
def test_the_rules_of_llm_inference_services_are_asked_and_have_a_tripwire(server: KeptServer) -> None:
    good = thing("serving.kserve.io/v1alpha2", "LLMInferenceService", spec={"model": {"uri": "hf://a/b", "name": "b"}})
    seen = judge(server, good, changed(good, ("spec", "scaling"), {"minReplicas": 1, "maxReplicas": 1}))
    assert seen.caught == 4 + 1 + 1
    both = changed(good, ("spec", "replicas"), 1)
    seen = judge(server, good, changed(both, ("spec", "scaling"), {"minReplicas": 1, "maxReplicas": 2}))
    assert any("replicas and scaling are mutually exclusive" in finding.message for finding in seen.findings)
    assert all(finding.line is not None and finding.line > 10 for finding in seen.findings)


@pytest.mark.slow
def test_every_kind_that_has_a_schema_is_judged_strictly_or_unknown() -> None:
    """A kind whose root takes any field would let its tripwire through, and make each run with it untrusted.

    It fails if one of these defects is planted alone: unknown fields are only warned of; status 400 is not a refusal;
    the server's tripwire lies below `spec`; only the first version of a definition is installed; each version keeps
    upstream's `storage`; every kind of Kyverno takes any field; kinds that are requests to the server count as
    objects. The sample does not notice that one kind alone takes any field: the gate's tripwire of each kind that a
    change holds does. Definitions that lose their annotations, or keep their conversion, change no answer.
    """
    ours = {"InferenceService", "LLMInferenceService", "Application", "ValidatingPolicy", "Deployment"}
    # A binding is a request to the server: no dry-run takes one.
    wanted = ours | {"Binding"}
    known = sorted(schemas.find().kinds)
    asked = KINDS.sample(known, [name for index, name in enumerate(known) if index % 12 == 0 or name[1] in wanted])
    with EphemeralServer() as server:
        seen = judge(server, *(thing(*name) for name in asked))
    unknown = {finding.subject.split()[0] for finding in seen.findings if finding.rule == "unknown-kind"}
    assert seen.evaluated == len(asked)
    assert wanted <= {kind for _, kind in asked}
    assert "Binding" in unknown
    assert not unknown & ours


# ------------------------------------------------------------ a server that lies


class Front(Cluster):
    """Hands questions on, and changes answers: `lie` gets the question's object and a way to the true answer."""

    def __init__(self, behind: Cluster, lie: Callable[[Object, Callable[[], Object]], Object]) -> None:
        self._behind, self._lie = behind, lie
        super().__init__(behind.url, behind._client, behind.name)

    def request(
        self,
        method: str,
        address: str,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Object:
        def ask() -> Object:
            return self._behind.request(method, address, parameters, body, content_type)

        return self._lie(body, ask) if isinstance(body, dict) and parameters and "dryRun" in parameters else ask()


def is_tripwire(value: Object, name: str) -> bool:
    return str(value["metadata"]["name"]) == f"neuroscale-tripwire-{name}"


def taken(value: Object) -> Object:
    return {**value, "metadata": {**value["metadata"], "uid": "a"}}


def takes(name: str) -> Callable[[Object, Callable[[], Object]], Object]:
    return lambda value, ask: taken(value) if is_tripwire(value, name) else ask()


def refuses(code: int, words: str, name: str = "good") -> Callable[[Object, Callable[[], Object]], Object]:
    def lie(value: Object, ask: Callable[[], Object]) -> Object:
        if is_tripwire(value, name) or value["metadata"]["name"] == name:
            raise RefusedError(words, code, "")
        return ask()

    return lie


def breaks_off(value: Object, ask: Callable[[], Object]) -> Object:
    if value["metadata"]["name"] == "good":
        raise KubernetesError("the server does not answer")
    return ask()


LIES: dict[str, tuple[Callable[[Object, Callable[[], Object]], Object], str]] = {
    **{f"takes the tripwire {name}": (takes(name), name) for name in ("quantity", "selector", "port", "rule")},
    "takes a kind's tripwire": (takes("poddisruptionbudget"), "neuroscale-tripwire-poddisruptionbudget"),
    "refuses a tripwire for another reason": (refuses(422, "no", "port"), "did not refuse the tripwire"),
    "refuses what is good": (refuses(422, "no"), "known to be good"),
    "takes everything": (lambda value, ask: taken(value), "did not refuse the tripwire"),
    "answers about another object": (lambda value, ask: taken(DEPLOYMENT), "answered"),
    "answers nothing": (lambda value, ask: {}, "answered"),
    "has no such kind": (refuses(404, "the server could not find it"), "could not find"),
    "is overloaded": (refuses(429, "too many requests"), "too many requests"),
    "fails": (refuses(500, "internal error"), "internal error"),
    "is not ready": (refuses(503, "not ready"), "not ready"),
    "does not know its user": (refuses(401, "unauthorized"), "unauthorized"),
    "breaks off": (breaks_off, "does not answer"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_server_that_lies_or_fails_is_not_believed(server: KeptServer, name: str) -> None:
    lie, words = LIES[name]
    assert judge(server, BUDGET).findings == ()
    server.front = lambda cluster: Front(cluster, lie)
    with pytest.raises(UntrustedError, match=words):
        judge(server, BUDGET, changed(BUDGET, ("metadata", "name"), "other"))


def test_a_server_that_fails_once_is_asked_again(server: KeptServer) -> None:
    failed: list[str] = []

    def lie(value: Object, ask: Callable[[], Object]) -> Object:
        name = value["metadata"]["name"]
        if name in failed:
            return ask()
        failed.append(name)
        raise RefusedError("too many requests", 429, "TooManyRequests")

    server.front = lambda cluster: Front(cluster, lie)
    assert judge(server, BUDGET).findings == ()
    assert "good" in failed


@pytest.mark.parametrize("victim", ["kube-apiserver", "etcd"])
def test_a_server_that_dies_while_it_is_asked_is_not_believed(started: Started, victim: str) -> None:
    asked: list[str] = []

    def lie(value: Object, ask: Callable[[], Object]) -> Object:
        asked.append(value["metadata"]["name"])
        if len(asked) == 40:
            (process,) = started.now(victim)
            process.kill()
        return ask()

    values = [changed(BUDGET, ("metadata", "name"), f"budget-{number}") for number in range(400)]
    with KeptServer() as server:
        server.front = lambda cluster: Front(cluster, lie)
        with pytest.raises(UntrustedError, match="kube-apiserver said"):
            judge(server, *values)
        # The one that is left is of no use.
        assert not psutil.wait_procs([*started.now("etcd"), *started.now("kube-apiserver")], timeout=10)[1]


# ------------------------------------------------------------ its life


def processes(of: int, name: str = "") -> list[psutil.Process]:
    """What a process has started, directly or not."""
    found = []
    for child in psutil.Process(of).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            if child.name() == name or not name:
                found.append(child)
    return found


@dataclass
class Started:
    """Processes that this test started; those of the kept server are older."""

    before: frozenset[int] = field(default_factory=lambda: frozenset(one.pid for one in processes(os.getpid())))

    def now(self, name: str = "") -> list[psutil.Process]:
        return [one for one in processes(os.getpid(), name) if one.pid not in self.before]


@pytest.fixture
def started() -> Started:
    return Started()


def folders(base: Path) -> list[Path]:
    return list(base.glob("neuroscale-api-server-*"))


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come true"
        time.sleep(0.05)


def test_leaving_ends_everything_and_removes_the_folder(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def failing() -> None:
        with EphemeralServer() as server:
            server.start()
            (folder,) = folders(tmp_path)
            assert folder.stat().st_mode & 0o777 == 0o700
            assert {"etcd", "kube-apiserver"} <= {process.name() for process in started.now()}
            raise LookupError

    with pytest.raises(LookupError):
        failing()
    assert started.now() == []
    assert folders(tmp_path) == []


def test_leaving_ends_a_start_under_way(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the end of the run would not be noticed while the server starts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ThreadPoolExecutor() as pool:
        with EphemeralServer() as server:
            starting = pool.submit(server.start)
            wait_for(lambda: started.now("etcd"))
        with pytest.raises(KubernetesError, match="The run ended"):
            starting.result(30)
    assert folders(tmp_path) == []


def test_the_processes_end_with_their_keeper(started: Started) -> None:
    """Else the API server would outlive its keeper."""
    with EphemeralServer() as server:
        server.start()
        running = [*started.now("etcd"), *started.now("kube-apiserver")]
        assert len(running) == 2
        keeper = running[0].parent()
        assert keeper is not None
        assert keeper.pid != os.getpid()
        keeper.kill()
        assert not psutil.wait_procs(running, timeout=10)[1]


def answers(cluster: Cluster) -> bool:
    return "gitVersion" in cluster.request("GET", "/version")


def test_two_run_at_once() -> None:
    with EphemeralServer() as one, EphemeralServer() as other, ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda server: server.start(), (one, other))
        assert first.url != second.url
        assert answers(first)
        assert answers(second)


@pytest.mark.parametrize("place", ["etcd", "api"])
def test_a_port_that_is_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Else a port that another program took would be no reason to start the API server again."""
    free = Ports.free
    with socket.create_server(("127.0.0.1", 0)) as taken_by_another:
        draws: list[Ports] = []

        def draw() -> Ports:
            ports = free()
            if not draws:
                ports = replace(ports, **{place: taken_by_another.getsockname()[1]})
            draws.append(ports)
            return ports

        monkeypatch.setattr(Ports, "free", draw)
        with EphemeralServer() as server:
            assert answers(server.start())
    assert len(draws) == 2


def test_settings_of_the_caller_do_not_reach_the_processes_which_listen_here_only(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_LISTEN_CLIENT_URLS", "http://0.0.0.0:2379")
    monkeypatch.setenv("NEUROSCALE_FORGE_TOKEN", "secret")
    with EphemeralServer() as server:
        server.start()
        for process in (*started.now("etcd"), *started.now("kube-apiserver")):
            assert set(process.environ()) == {"HOME", "TMPDIR", "PATH", "GOGC", "GOMEMLIMIT"}
            addresses = {one.laddr.ip for one in process.net_connections() if one.status == psutil.CONN_LISTEN}
            assert addresses == {"127.0.0.1"}


# ------------------------------------------------------------ the whole command


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, kyverno_once: None) -> Path:
    """This repository's files with a service, in no commit."""
    root = copy_of_the_example_repository(tmp_path_factory.mktemp("platform") / "repository").root
    new_service(EXAMPLE, root, interactive=False)
    return root


def gate(repository: Path, folder: Path, *, server: bool) -> tuple[dict[str, Any], str]:
    reports = Reports(folder / "verdict.json", None, folder / "verdict.md")
    status = run_gate([repository / SERVICE], "", "", repository, reports, server=server)
    verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    assert verdict["exit_status"] == status
    return verdict, (folder / "verdict.md").read_text()


def by_server(verdict: dict[str, Any]) -> dict[str, Any]:
    (found,) = [check for check in verdict["checks"] if check["name"] == "server"]
    return dict(found)


def not_asked(verdict: dict[str, Any]) -> bool:
    return any("only an API server knows" in line for line in verdict["not_checked"])


def test_with_the_option_a_service_as_the_platform_makes_it_passes(repository: Path, tmp_path: Path) -> None:
    verdict, comment = gate(repository, tmp_path, server=True)
    assert verdict["exit_status"] == 0
    check = by_server(verdict)
    assert (check["outcome"], check["evaluated"], check["expected"]) == ("passed", 3, 3)
    assert check["tripwires"] == check["tripwires_caught"] == 4 + 3
    assert check["detail"] == f"Kubernetes {tool_cache.find_tool('kube-apiserver').module.version}"
    assert not not_asked(verdict)
    assert "API server" in comment


def test_with_the_option_what_an_api_server_refuses_refuses_the_change(repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "repository"
    shutil.copytree(repository, copy)
    file = copy / SERVICE / "networkpolicy.yaml"
    text = file.read_text()
    assert "port: 8080" in text
    file.write_text(text.replace("port: 8080", "port: 80800"))
    verdict, comment = gate(copy, tmp_path, server=True)
    assert verdict["exit_status"] == 1
    (finding,) = [one for one in verdict["findings"] if one["gate"] == "server"]
    assert finding["file"] == f"{SERVICE}/networkpolicy.yaml"
    assert finding["line"] == 1 + file.read_text().splitlines().index(
        next(row for row in file.read_text().splitlines() if "80800" in row)
    )
    assert "must be between 1 and 65535" in finding["message"]
    assert "must be between 1 and 65535" in comment


def test_without_the_option_the_verdict_says_what_nobody_asked(repository: Path, tmp_path: Path) -> None:
    verdict, comment = gate(repository, tmp_path, server=False)
    assert verdict["exit_status"] == 0
    assert by_server(verdict)["outcome"] == "not_run"
    assert not_asked(verdict)
    assert "only an API server knows" in comment


@pytest.mark.parametrize("missing", tool_cache.SERVER_TOOLS)
def test_with_the_option_and_without_the_programs_the_gate_is_not_green(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    cache = tmp_path / "cache"
    source = tool_cache.cache_folder()
    for name in (*tool_cache.GATE_TOOLS, "schemas"):
        folder = tool_cache.schema_pins().folder if name == "schemas" else tool_cache.tool(name).folder
        place = cache / folder.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if name != missing:
            place.symlink_to(folder)
    monkeypatch.setenv("NEUROSCALE_CACHE", str(cache))
    verdict, comment = gate(repository, tmp_path, server=True)
    assert verdict["exit_status"] == 3
    check = by_server(verdict)
    assert check["outcome"] == "untrusted"
    assert f"not run: {missing}" in check["detail"]
    assert "make setup" in check["detail"]
    assert not_asked(verdict)
    assert "not run" in comment


def test_the_base_gate_of_a_change_to_the_gate_asks_the_server_too(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Repository(tmp_path / "repository")
    shutil.copytree(repository, made.root, dirs_exist_ok=True)
    shutil.rmtree(made.root / SERVICE)
    base = made.commit({}, "platform")
    shutil.copytree(repository / SERVICE, made.root / SERVICE)
    head = made.commit({"src/neuroscale/gate/checks/api_server.py": "raise SystemExit(0)\n"}, "no server")
    monkeypatch.chdir(made.root)
    report = tmp_path / "verdict.json"
    status = run_gate([], base, head, made.root, Reports(report), only_read_head=True, server=True)
    made.git.close()
    verdict = json.loads(report.read_text())
    assert status == verdict["exit_status"] == 0
    assert by_server(verdict)["outcome"] == "passed"


def command(repository: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "neuroscale", "gate", "--server", str(repository / SERVICE)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_gate_that_is_broken_off_leaves_nothing(repository: Path, tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(CHECKOUT / "src")}
    with (tmp_path / "output").open("wb") as output:
        run = subprocess.Popen(
            command(repository), cwd=repository, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    children: list[psutil.Process] = []
    try:
        wait_for(lambda: run.poll() is not None or processes(run.pid, "kube-apiserver"))
        assert run.poll() is None, (tmp_path / "output").read_text()
        children = processes(run.pid)
        assert folders(tmp_path)
        run.send_signal(number)
        assert run.wait(60) != 0
    finally:
        run.kill()
        run.wait()
    assert not psutil.wait_procs(children, timeout=20)[1]
    wait_for(lambda: not folders(tmp_path), 10)

"""A cluster that judges objects: control plane, KServe and Kyverno with this repository's policies, and its answers."""

from __future__ import annotations

import contextlib
import copy
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_processes import Running, local_state, running
from neuroscale.core.yaml_io import read_documents
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.local import control_plane, kserve, kyverno
from neuroscale.local.charts import GROUP_VERSION, WEBHOOK_KINDS
from neuroscale.local.cluster_parts import definitions
from neuroscale.local.kserve import Kserve, defaulting_problem
from neuroscale.local.kyverno import Kyverno, await_policies
from neuroscale.policies.policy_set import PolicySet, load_policy_set
from neuroscale.repo.snapshot import FolderSnapshot
from roots import ROOT

UNJUDGED = kserve.NAMESPACE
"""A namespace that Kyverno ignores: the cluster refuses an object here without any policy."""

_SERVING = ROOT / "platform" / "serving"
_AT_ONCE = 8
_DENIED = re.compile(r'admission webhook "(?P<webhook>[^"]+)" denied the request: (?P<said>.*)', re.DOTALL)
_POLICY = re.compile(r"(?:^|; )Policy (?P<policy>[a-z0-9-]+) (?P<result>failed|error): ")


@dataclass(frozen=True)
class Judgement:
    """The API server's answer. `policies`: the message of each policy that refuses; `other`: any other refusal."""

    admitted: Object | None
    policies: Mapping[str, str]
    other: str = ""


@dataclass
class AdmissionLab:
    """The running cluster. `kserve` and `kyverno` are the processes as the supervisor would run them."""

    running: Running
    cluster: Cluster

    @property
    def kserve(self) -> Kserve:
        return Kserve(self.running.state)

    @property
    def kyverno(self) -> Kyverno:
        return Kyverno(self.running.state)

    @contextlib.contextmanager
    def without_kserve(self) -> Iterator[None]:
        """Run without KServe's webhooks, which change objects before policies see them, and refuse some."""
        webhooks = [
            Identity.of(found)
            for kind in WEBHOOK_KINDS
            for found in self.cluster.list(GROUP_VERSION, kind)
            if found["metadata"]["name"].endswith(kserve.GROUP)
        ]
        for identity in webhooks:
            self.cluster.delete(identity)
        try:
            wait_until(lambda: "did not fill in" in (defaulting_problem(self.cluster) or ""), "KServe is still asked")
            yield
        finally:
            self.kserve.process().prepare()
            wait_until(lambda: defaulting_problem(self.cluster) is None, "KServe is not asked again")

    def judge(self, value: Object, namespace: str | None = None) -> Judgement:
        """Try to create the object, as strictly as can be and without storing it; `namespace` instead of its own."""
        wanted = copy.deepcopy(value)
        if namespace is not None and wanted["metadata"].get("namespace"):
            wanted["metadata"]["namespace"] = namespace
        identity = Identity.of(wanted)
        address = self.cluster.path(identity.group_version, identity.kind, identity.namespace)
        try:
            found = self.cluster.request("POST", address, {"dryRun": "All", "fieldValidation": "Strict"}, wanted)
        except RefusedError as error:
            return judgement_of(error.message)
        return Judgement(found, {})

    def judge_all(self, values: Sequence[Object], namespace: str | None = None) -> list[Judgement]:
        """The same for many, several at once."""
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return list(pool.map(lambda value: self.judge(value, namespace), values))


def judgement_of(message: str) -> Judgement:
    """The messages of a refusal by the API server, sorted by their sources."""
    denied = _DENIED.fullmatch(message)
    if denied is None or not denied["webhook"].startswith("vpol."):
        return Judgement(None, {}, message)
    parts = list(_POLICY.finditer(denied["said"]))
    assert parts, message
    assert parts[0].start() == 0, message
    policies = {}
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        assert part["result"] == "failed", message
        policies[part["policy"]] = denied["said"][part.end() : following.start() if following else None]
    return Judgement(None, policies)


def wait_until(condition: Callable[[], bool], told: str, seconds: float = 300.0) -> None:
    """Wait for the condition; fail with the message `told` after some seconds."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"{told} after {seconds:g} s"
        time.sleep(0.5)


def namespace(name: str) -> Object:
    """A namespace in which policies judge, and nothing else does."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def values_of(*names: str) -> list[Path]:
    """Files of charts' values, as every cluster of the platform gets them."""
    return [_SERVING / f"{name}.yaml" for name in names]


def runtimes() -> list[dict[str, Any]]:
    """The platform's serving runtimes."""
    return [
        document.value
        for path in sorted((_SERVING / "runtimes").glob("*.yaml"))
        for document in read_documents(path.read_text(encoding="utf-8"), path.name)
    ]


@contextlib.contextmanager
def kserve_lab() -> Iterator[Cluster]:
    """A cluster with KServe and without Kyverno, where only KServe judges its objects."""
    with _cluster(()) as (_, found):
        yield found


@contextlib.contextmanager
def admission_lab() -> Iterator[AdmissionLab]:
    """Start the cluster, and bring runtimes and policies to it."""
    with _cluster(kyverno.PORTS) as (processes, found):
        # Policies judge these kinds too, which the platform itself does not install.
        llm = definitions((kserve.GROUP,), ("LLMInferenceService", "LLMInferenceServiceConfig"))
        apply_all(found, [*llm, *runtimes()])
        apply_policies(found)
        yield AdmissionLab(processes, found)


def apply_policies(found: Cluster) -> PolicySet:
    """Apply this repository's policies to the cluster, and wait until each refuses its tripwire."""
    policy_set = load_policy_set(FolderSnapshot(ROOT))
    apply_all(found, [policy.value for policy in policy_set.policies])
    await_policies(found, policy_set)
    return policy_set


@contextlib.contextmanager
def _cluster(of_kyverno: Sequence[str]) -> Iterator[tuple[Running, Cluster]]:
    """Control plane and KServe, and Kyverno if it gets ports."""
    ports = (*control_plane.PORTS, *kserve.PORTS, *of_kyverno)
    with local_state(ports) as state, running(state) as processes:
        control_plane.prepare(state)
        Kserve(state).prepare(values_of("kserve", "kserve-no-ingress"))
        groups = (kserve.GROUP, *(kyverno.GROUPS if of_kyverno else ()))
        started = [*control_plane.processes(state, lambda: definitions(groups)), Kserve(state).process()]
        if of_kyverno:
            Kyverno(state).prepare(values_of("kyverno"))
            started.append(Kyverno(state).process())
        for process in started:
            processes.start(process)
        with control_plane.cluster(state) as found:
            yield processes, found

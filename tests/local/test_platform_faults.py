"""Each process of the platform is killed once, right after a merge: nothing that was merged is lost or done twice.

The platform is one of its own, so that no other test is disturbed. Every merge adds a service and changes another, and
every second one removes one. The next process is killed as soon as the last one is back, not when all is well again.
What the forge tells a process that is dead is lost, until Argo CD looks for itself: here every 20 s, elsewhere every
few minutes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops_lab import APPLICATIONS, ENVIRONMENT, NAMESPACE, GitOps, Merge, objects_of, service_files
from neuroscale.forge.http import AnswerError, Client, segments
from neuroscale.kube.client import Identity, KubernetesError, Object, RefusedError
from neuroscale.local import (
    argocd,
    control_plane,
    gateway,
    gitea,
    kserve,
    kwok,
    kyverno,
    processes,
    prometheus,
    redis,
    workflow_runner,
)
from neuroscale.local.forge_accounts import ADMIN
from neuroscale.local.forge_repository import MAIN
from neuroscale.local.kwok import SIMULATED
from neuroscale.local.node import service as node
from neuroscale.local.process import Record, read_report
from neuroscale.local.start_and_stop import Options, last_lines, look, up
from neuroscale.local.supervisor import NAME as SUPERVISOR
from neuroscale.rendering.platform.argocd import VALUES
from platform_lab import Platform, running_platform
from platform_repository import edit
from repositories import Repository
from roots import ROOT
from waiting import wait_for

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.slow]

FOLDER = f"manifests/{ENVIRONMENT}"
TEAMS = ("platform-services", "team-alpha", "team-beta", "team-gamma")
CHANGED = "changed"
"""The service that every merge changes."""
RESTART_WITHIN = 90.0
ARRIVES_WITHIN = 120.0
CONVERGES_WITHIN = 240.0

# What must have become of the merge when a process is killed: nothing yet, an Application, or an InferenceService.
MERGED, APPLIED, SERVED = "merged", "Application", "InferenceService"
FAULTS = {
    gitea.NAME: MERGED,
    argocd.RELAY: MERGED,
    argocd.APPLICATION_SETS: MERGED,
    argocd.SERVER: MERGED,
    workflow_runner.NAME: MERGED,
    redis.NAME: APPLIED,
    argocd.REPO_SERVER: MERGED,
    argocd.CONTROLLER: APPLIED,
    control_plane.ETCD: APPLIED,
    control_plane.API_SERVER: APPLIED,
    SUPERVISOR: APPLIED,
    kserve.NAME: APPLIED,
    control_plane.CONTROLLER_MANAGER: SERVED,
    control_plane.SCHEDULER: SERVED,
    kwok.NAME: SERVED,
    kyverno.NAME: APPLIED,
    node.NAME: SERVED,
    gateway.ROUTES: SERVED,
    gateway.NAME: SERVED,
    prometheus.NAME: SERVED,
}


@dataclass
class Faults:
    """A platform, what was merged into its repository, and what was killed."""

    checkout: Path
    platform: Platform
    gitops: GitOps
    merged: dict[str, tuple[Merge, dict[str, str]]] = field(default_factory=dict)
    removed: dict[str, dict[str, str]] = field(default_factory=dict)
    last: Merge = field(default_factory=lambda: Merge("", 0.0))
    began: float = field(default_factory=time.monotonic)

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    # ------------------------------------------------------------ merges

    def merge(self, number: int) -> str:
        """Add a service, change another and, from time to time, remove one; returns the new one's name."""
        name = f"fault-{number}"
        added = dict(service_files(name))
        changed = with_grace(dict(service_files(CHANGED)), 60 + number)
        there = self.merged[CHANGED][1] if self.merged else {}
        changes: dict[str, str | None] = {**added}
        changes |= {path: text for path, text in changed.items() if text != there.get(path)}
        gone = self._settled() if number % 2 else None
        if gone:
            changes |= dict.fromkeys(self.merged[gone][1])
        done = self.gitops.merge(changes, f"Merge {number}")
        self.last = done
        self.merged |= {name: (done, added), CHANGED: (done, changed)}
        if gone:
            self.removed[gone] = self.merged.pop(gone)[1]
        return name

    def _settled(self) -> str | None:
        """The oldest service that has been deployed; one that is still being tried stays for a quarter of an hour."""
        with contextlib.suppress(KubernetesError):
            for name in [name for name in self.merged if name != CHANGED]:
                found = self.gitops.application_of(name) or {}
                if found.get("status", {}).get("sync", {}).get("status") == "Synced" and "operation" not in found:
                    return name
        return None

    def await_stage(self, stage: str, service: str) -> None:
        """Wait until a merge has got that far."""

        def reached() -> bool:
            with contextlib.suppress(KubernetesError):
                if stage == APPLIED:
                    return self.gitops.application_of(service) is not None
                return self.gitops.live(of_kind(self.merged[service][1], SERVED)) is not None
            return False

        if stage != MERGED:
            self.wait(reached, ARRIVES_WITHIN, f"{service} has become an {stage}")

    # ------------------------------------------------------------ faults

    def record(self, name: str) -> Record:
        report = read_report(self.gitops.local.state)
        return report.processes[name] if report else Record(health="stopped")

    def kill(self, name: str) -> int:
        """Kill a process as the system would; returns how often it had been started again before."""
        before = self.record(name)
        assert before.pid is not None, self.told(f"{name} runs")
        os.kill(before.pid, signal.SIGKILL)
        return before.restarts

    def await_restart(self, name: str, before: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until a process was started again and is healthy, and do something all the time."""

        def again() -> bool:
            meanwhile()
            found = self.record(name)
            return found.restarts > before and found.health == "healthy"

        self.wait(again, RESTART_WITHIN, f"{name} runs again")

    def kill_supervisor(self) -> None:
        """Kill the supervisor, and start the platform again as its user would."""
        report = read_report(self.gitops.local.state)
        assert report is not None
        os.kill(report.pid, signal.SIGKILL)
        self.wait(lambda: read_report(self.gitops.local.state) is None, 10.0, "nothing holds the supervisor's lock")
        self.gitops.close()
        self.platform = Platform(up(self.platform.folder, self.checkout, Options(), lambda _: None))
        self.gitops = GitOps(self.platform.local)

    # ------------------------------------------------------------ what should be

    def problems(self) -> list[str]:
        """All that is not as it was merged, in the repository, in Argo CD and in the cluster."""
        return [*self._repository_problems(), *self._application_problems(), *self._object_problems()]

    def _repository_problems(self) -> Iterator[str]:
        local = self.gitops.local
        client = Client(f"{local.url}/api/v1", local.account(ADMIN).token())
        path = f"/repos/{segments(self.gitops.repository.owner, self.gitops.repository.name)}"
        tip = client.get(f"{path}/branches/{MAIN}").data["commit"]["id"]
        if tip != self.last.commit:
            yield f"{MAIN} is at {tip}, and not at the last merge {self.last.commit}"
        rows = client.get(f"{path}/contents/{segments(*FOLDER.split('/'))}", {"ref": MAIN}).data
        yield from different("services in the repository", self.merged, [row["name"] for row in rows])

    def _application_problems(self) -> Iterator[str]:
        applications = self.gitops.cluster.list(APPLICATIONS, "Application", NAMESPACE)
        names = [one["metadata"]["name"] for one in applications]
        wanted = [f"{name}.{ENVIRONMENT}" for name in self.merged]
        services = [name for name in names if not name.startswith("platform-")]
        yield from different("Applications", wanted, services)
        for one in applications:
            name, status = one["metadata"]["name"], one.get("status", {})
            sync, health = status.get("sync", {}), status.get("health", {}).get("status")
            revision = sync.get("revision", "")
            if (sync.get("status"), health) != ("Synced", "Healthy"):
                said = [condition.get("message", "")[:300] for condition in status.get("conditions", [])]
                said.append(status.get("operationState", {}).get("message", "")[:300])
                yield f"Application {name} is {sync.get('status')}, {health}: {'; '.join(filter(None, said))}"
            elif name in wanted and not self.gitops.holds(revision, self.merged[name.partition(".")[0]][0].commit):
                yield f"Application {name} is at {revision}, which is older than its merge"

    def _object_problems(self) -> Iterator[str]:
        wanted = {Identity.of(one): one for _, files in self.merged.values() for one in objects_of(files)}
        live = {Identity.of(one): one for kind in KINDS for one in self._of_teams(*kind)}
        # A team's namespace has objects of its own as well.
        suffix = f".{ENVIRONMENT}:"
        of_services = {
            identity: one for identity, one in live.items() if suffix in annotations_of(one).get(TRACKING, "")
        }
        yield from different("objects of services", wanted, of_services)
        for identity, one in of_services.items():
            if identity in wanted and (missing := not_in(wanted[identity]["spec"], one["spec"])):
                yield f"{identity} is not as merged: {missing}"
            conditions = {row["type"]: row["status"] for row in one.get("status", {}).get("conditions", [])}
            if identity.kind == SERVED and conditions.get("Ready") != "True":
                yield f"{identity} is not ready: {conditions}"
        for group_version, kind in DERIVED:
            there = [one for one in self._of_teams(group_version, kind) if SERVICE_LABEL in labels_of(one)]
            # A replica set that was replaced stays, empty, for a way back.
            found = [labels_of(one)[SERVICE_LABEL] for one in there if kind != "ReplicaSet" or one["spec"]["replicas"]]
            yield from different(f"{kind}s of services", self.merged, found)

    def _of_teams(self, group_version: str, kind: str) -> list[Object]:
        return [one for team in TEAMS for one in self.gitops.cluster.list(group_version, kind, team)]

    # ------------------------------------------------------------ waiting

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        ends = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends, self.told(f"after {seconds:g} s this is not so: {what}")
            time.sleep(0.3)

    def converge(self) -> None:
        """Wait until all is as it was merged, and every process healthy."""
        ends = time.monotonic() + CONVERGES_WITHIN
        while True:
            try:
                found = self.problems()
            except (KubernetesError, AnswerError) as error:
                found = [str(error)]
            if not found:
                found = [f"{row.name} is {row.health}: {row.detail}" for row in self._ill()]
            if not found:
                return
            told = "\n".join([f"after {CONVERGES_WITHIN:g} s the platform has not converged:", *found])
            assert time.monotonic() < ends, self.told(told)
            time.sleep(1.0)

    def _ill(self) -> list[Any]:
        return [row for row in look(self.gitops.local.state).processes if row.health != "healthy"]

    def told(self, what: str) -> str:
        """A failure's message: with the logs of what is ill, and of what was the last to be killed."""
        state = self.gitops.local.state
        lines = [what]
        for row in self._ill():
            lines += [f"--- {row.name} is {row.health}: {row.detail}", *last_lines(state.log(row.name), 25)]
        for name in (SUPERVISOR, argocd.CONTROLLER, argocd.APPLICATION_SETS, kserve.NAME):
            lines += [f"--- {name}", *(line[:400] for line in last_lines(state.log(name), 15))]
        return "\n".join(lines)


KINDS = (
    ("serving.kserve.io/v1beta1", SERVED),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
)
DERIVED = (("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("v1", "Pod"))
"""What becomes of an InferenceService: one of each, for these have one replica."""
TRACKING = "argocd.argoproj.io/tracking-id"
SERVICE_LABEL = "serving.kserve.io/inferenceservice"


def annotations_of(one: Object) -> Mapping[str, str]:
    return one["metadata"].get("annotations") or {}


def labels_of(one: Object) -> Mapping[str, str]:
    return one["metadata"].get("labels") or {}


def different(what: str, wanted: Any, found: Any) -> Iterator[str]:
    """What is missing, what should not be there, and what is there more than once."""
    there, expected = Counter(map(str, found)), Counter(map(str, wanted))
    if missing := expected - there:
        yield f"missing {what}: {', '.join(sorted(missing))}"
    if added := there - expected:
        yield f"{what} that should not be, or not twice: {', '.join(sorted(added.elements()))}"


def not_in(wanted: Any, found: Any, where: str = "spec") -> str:
    """The first field of a manifest that a live object does not have so; defaults may lie beside it."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        parts = (not_in(value, found.get(key), f"{where}.{key}") for key, value in wanted.items())
        return next(filter(None, parts), "")
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return next(filter(None, (not_in(*pair, f"{where}[{index}]") for index, pair in pairs)), "")
    return "" if wanted == found else f"{where} is {found!r} and not {wanted!r}"


def of_kind(files: Mapping[str, str], kind: str) -> Object:
    (found,) = (one for one in objects_of(files) if one["kind"] == kind)
    return found


def with_grace(files: dict[str, str], seconds: int) -> dict[str, str]:
    """A service with another time to end in."""
    path = next(path for path in files if path.endswith("/inferenceservice.yaml"))
    old = of_kind(files, SERVED)["spec"]["predictor"]["terminationGracePeriodSeconds"]
    line = "terminationGracePeriodSeconds: "
    assert files[path].count(f"{line}{old}\n") == 1
    return {**files, path: files[path].replace(f"{line}{old}\n", f"{line}{seconds}\n")}


def forbidden() -> Object:
    """A Deployment that only the policies refuse: the Pod Security level of the namespace looks at pods alone."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"forbidden-{secrets.token_hex(4)}", "namespace": "team-alpha"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "forbidden"}},
            "template": {
                "metadata": {"labels": {"app": "forbidden"}},
                "spec": {"hostNetwork": True, "containers": [{"name": "main", "image": "example.invalid/none:latest"}]},
            },
        },
    }


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[Faults]:
    """A platform of its own, of a copy of this repository without its services."""
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
    copy = Repository(checkout)
    copy.run("switch", "--quiet", "--force-create", MAIN)
    for folder in (checkout / "manifests").glob("*/*"):
        shutil.rmtree(folder)
    edit(checkout, VALUES, "timeout.reconciliation: 180s\n", "timeout.reconciliation: 20s\n")
    edit(checkout, VALUES, "timeout.reconciliation.jitter: 30s\n", "timeout.reconciliation.jitter: 0s\n")
    edit(checkout, VALUES, "  params:\n", "  params:\n    applicationsetcontroller.requeue.after: 20s\n")
    copy.commit({}, "Look more often")
    with running_platform(tmp_path, checkout) as platform:
        found = Faults(checkout, platform, GitOps(platform.local))
        try:
            yield found
        finally:
            found.gitops.close()


def test_every_process_can_be_killed_during_a_sync_and_nothing_merged_is_lost(
    faults: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    """It notices that the node simulator starts only once, and that Redis gets a new password with each start. That a
    readiness probe always passes it does not notice: `test_local_supervisor.py` shows the supervisor.
    """
    assert {*FAULTS} == {SUPERVISOR, *(one.name for one in processes.processes(faults.gitops.local.state))}
    first = faults.merge(1)
    faults.await_stage(SERVED, first)
    said: list[str] = []

    def try_forbidden() -> None:
        said.append(refusal(faults.gitops, forbidden()))

    with capsys.disabled():
        print()
        for number, (name, stage) in enumerate(FAULTS.items(), start=2):
            service = faults.merge(number)
            faults.await_stage(stage, service)
            if name == SUPERVISOR:
                faults.kill_supervisor()
            else:
                restarts = faults.kill(name)
                faults.await_restart(name, restarts, try_forbidden if name == kyverno.NAME else lambda: None)
            faults.tell(f"{name} killed ({service}: {stage}), running again")
        assert len(faults.removed) >= len(FAULTS) // 4
        faults.converge()
        faults.tell("all is as it was merged")
    # While Kyverno was dead nobody could be asked, and afterwards it refused by itself; never did anything pass.
    assert said
    assert all(said), f"{said.index('')} refusals, then a forbidden object was admitted"
    assert any("failed calling webhook" in one for one in said), said


def refusal(gitops: GitOps, one: Object) -> str:
    """What the API server says against an object; empty where it takes it."""
    try:
        gitops.cluster.create(one)
    except RefusedError as error:
        return error.message
    return ""


def test_the_pods_of_a_node_that_was_silent_become_ready_again(platform: Platform) -> None:
    """As after a night's sleep of the machine: the node controller marks them as not ready."""
    name = f"silent-{secrets.token_hex(4)}"
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        # A namespace of the system, in which the policies do not judge.
        "metadata": {"name": name, "namespace": "kube-public"},
        "spec": {
            "nodeSelector": {SIMULATED: "true"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "example.invalid/none"}],
        },
    }
    identity = Identity.of(pod)
    with platform.cluster() as found:

        def readiness(there: Object | None) -> str:
            rows = (there or {}).get("status", {}).get("conditions", [])
            return next((row["status"] for row in rows if row["type"] == "Ready"), "Unknown")

        def ready() -> bool:
            return readiness(found.get("v1", "Pod", name, identity.namespace)) == "True"

        found.create(pod)
        try:
            wait_for(ready, 30.0, "the pod is ready")
            there = found.get("v1", "Pod", name, identity.namespace)
            assert there is not None
            rows = there["status"]["conditions"]
            silent = [{**row, "status": "False"} if row["type"] == "Ready" else row for row in rows]
            assert readiness(found.merge(identity, {"status": {"conditions": silent}}, "status")) == "False"
            wait_for(ready, 30.0, "the pod is ready again")
        finally:
            found.delete(identity)

"""One service that really answers, for tests: merged into the platform's repository, with its key, Ready on vLLM."""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gitops_lab import ARRIVES_WITHIN, GitOps
from neuroscale.cluster.endpoint import key
from neuroscale.kube.client import Cluster, Object
from neuroscale.local.forge_repository import MAIN
from neuroscale.local.start_and_stop import last_lines
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.tools.model_server import ModelServer
from plan_factory import pull_request_for
from platform_lab import Platform
from roots import ROOT

ENVIRONMENT = "local"
SERVICE = "tiny-chat"
MODEL = "tiny-qwen3-moe"
NAMESPACE = "team-alpha"
CONTAINER = "kserve-container"
EXAMPLE = ROOT / "templates/examples/tiny-moe-on-this-machine.yaml"

READY_WITHIN = 600.0
"""Seconds that vLLM may take to answer: fifty on an idle machine, several times that where tests share two cores."""
_LOOK_EVERY = 0.5
_MERGE = "live-service-merged"
"""The file with the commit that merged the service that tests share."""


@dataclass(frozen=True)
class Live:
    """A service that answers. Tests share it: a test that changes or breaks a service needs its own."""

    platform: Platform
    checkout: Path
    revision: str
    service: str = SERVICE
    namespace: str = NAMESPACE
    model: str = MODEL
    environment: str = ENVIRONMENT

    @property
    def folder(self) -> Path:
        """The state folder, for `neuroscale local --state`."""
        return self.platform.folder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.platform.kubeconfig

    def cluster(self) -> Cluster:
        """A client as administrator; the caller closes it."""
        return self.platform.cluster()

    def pods(self) -> list[Object]:
        """The service's pods."""
        with self.cluster() as cluster:
            return pods_of(cluster, self.namespace, self.service)

    def logs(self) -> str:
        """The last log lines of the service's servers and the platform's processes, for a failure's message."""
        return f"{server_logs(self.platform)}\n{self.platform.logs()}"


def service_files(name: str, **answers: Any) -> dict[str, str]:
    """The folder of a service of this environment as the template renders it: text by path in the repository."""
    told: Any = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    platform = read_planning_inputs(FolderSnapshot(ROOT))
    answers = {**told, "service": name, **answers}
    return dict(pull_request_for(answers, platform).files)


def pods_of(cluster: Cluster, namespace: str, service: str) -> list[Object]:
    """The pods of a service."""
    return cluster.list("v1", "Pod", namespace, f"serving.kserve.io/inferenceservice={service}")


def is_ready(pod: Object) -> bool:
    """Whether the cluster reports the pod as ready."""
    conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def server_logs(platform: Platform, lines: int = 60) -> str:
    """The last lines of every model server of this platform."""
    parts = []
    for path in sorted((platform.local.state.run / "node" / "pods").glob("*/logs/*/*.log")):
        parts += [f"--- {path.parent.name} of pod {path.parents[2].name}, {path.stem}", *last_lines(path, lines)]
    return "\n".join(parts)


def serve(gitops: GitOps, name: str, namespace: str, **answers: Any) -> str:
    """Merge a service, make its key and wait until it answers; returns the commit."""
    problem = ModelServer.find().problem()
    assert problem is None, f"nothing can be served here, so nothing was tested. {problem}"
    merged = gitops.merge(service_files(name, **answers), f"Serve {name}")
    application = f"{name}.{ENVIRONMENT}"
    gitops.wait(
        lambda: _is_synced(gitops, application, merged.commit), ARRIVES_WITHIN, f"{name} is synced", application
    )
    key.ensure(gitops.cluster, namespace, name)
    await_ready(gitops, name, namespace)
    return merged.commit


def await_ready(gitops: GitOps, name: str, namespace: str, seconds: float = READY_WITHIN) -> None:
    """Wait until KServe and a pod report it as ready; a failure shows the pods' state and their servers' logs."""
    ends = time.monotonic() + seconds
    while not (gitops.is_ready(name) and any(is_ready(pod) for pod in pods_of(gitops.cluster, namespace, name))):
        if time.monotonic() > ends:
            status = [pod.get("status") for pod in pods_of(gitops.cluster, namespace, name)]
            told = json.dumps(status, indent=1)[:6000]
            raise AssertionError(
                f"{name} is not ready after {seconds:g} s.\n{told}\n{server_logs(Platform(gitops.local))}"
            )
        time.sleep(_LOOK_EVERY)


def _is_synced(gitops: GitOps, application: str, commit: str) -> bool:
    sync = ((gitops.application(application) or {}).get("status") or {}).get("sync") or {}
    return sync.get("status") == "Synced" and gitops.holds(sync.get("revision", ""), commit)


def share(folder: Path, service: str, commit: str) -> None:
    """Let the tests of the platform in that folder ask a service that answers. `commit`: its merge."""
    assert service == SERVICE
    (folder / _MERGE).write_text(commit, encoding="utf-8")


@contextlib.contextmanager
def live_service(shared: Path, platform: Platform, gitops: GitOps, scratch: Path) -> Iterator[Live]:
    """The service that all workers of a test run share; the first worker that asks makes it.

    `shared`: a folder that they all name; `scratch`: one of this worker, for a clone of the main branch.
    """
    with (shared / "live-lock").open("w") as lock:
        # The others wait for as long as the first one needs.
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Of this very platform: the last worker to leave ends one, and another may have started the next.
        merge = platform.folder.parent / _MERGE
        if not merge.exists():
            share(platform.folder.parent, SERVICE, serve(gitops, SERVICE, NAMESPACE))
        revision = merge.read_text(encoding="utf-8")
    checkout = scratch / "main"
    url = gitops.repository.clone_url
    subprocess.run(["git", "clone", "--quiet", "--branch", MAIN, url, str(checkout)], check=True, timeout=120)
    yield Live(platform, checkout, revision)

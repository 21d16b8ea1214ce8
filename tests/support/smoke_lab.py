"""The live service whose smoke tests are run: a proxy before its vLLM, and a checkout that can be changed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gitops_lab import GitOps
from model_faults import Certificate, Fault, ModelProxy
from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.smoke_now import Question
from neuroscale.cli.options import Reports
from neuroscale.cli.smoke import run_smoke_tests
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.forward import find_kubectl
from neuroscale.cluster.service_status_reader import Question as ServicesAsked
from neuroscale.cluster.service_status_reader import Reader
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.validation import part
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.local import supervisor
from neuroscale.local.argocd import CONTROLLER
from neuroscale.local.process import belonging
from neuroscale.policies.policy_set import PolicySet, load_policy_set
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.smoke.expected_services import load_target
from roots import ROOT
from smoke_breakages import Asked
from waiting import wait_for

_SETTLES = 120.0  # seconds


class Lab:
    """The live service, and the proxy through which the smoke tests reach its real vLLM."""

    environment = "local"

    def __init__(self, gitops: GitOps, cluster: Cluster, kubeconfig: Path, endpoint: Endpoint, folder: Path) -> None:
        assert endpoint.key is not None
        self._gitops = gitops
        self.cluster = cluster
        self.folder: Path = folder
        self.kubeconfig = kubeconfig
        self.service, self.namespace = endpoint.service, endpoint.namespace
        self.key = endpoint.key.secret
        self.checkout = folder / "checkout"
        self._upstream = endpoint.url
        self._proxy = ModelProxy(endpoint.url, self.key)
        subprocess.run(
            ["git", "clone", "--quiet", gitops.repository.clone_url, str(self.checkout)], check=True, timeout=120
        )
        # The tests run this repository's own checks.
        shutil.rmtree(self.checkout / "smoke-tests", ignore_errors=True)
        shutil.copytree(ROOT / "smoke-tests", self.checkout / "smoke-tests")
        self.revision = self._git("rev-parse", "HEAD")
        (found,) = load_target(self.checkout, self.environment, self.revision, self.service).services
        self.path = found.path.folder
        self.longest_prompt, self.longest_answer = (
            found.request.longest_prompt_tokens,
            found.request.longest_answer_tokens,
        )
        self.max_model_len = found.plan.max_model_len
        self.p95_ttft = found.request.p95_ttft_seconds
        self.users = found.request.concurrent_users

    # ------------------------------------------------------------ proxies

    @contextlib.contextmanager
    def proxied(self) -> Iterator[None]:
        """Within it, a port-forward leads to the proxy: the smoke tests get a kubectl that says so."""
        with self._proxy as proxy:
            program = self.folder / "bin" / "kubectl"
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\necho 'Forwarding from 127.0.0.1:{proxy.port} -> 8080'\nexec sleep 3600\n")
            program.chmod(0o755)
            yield

    @contextlib.contextmanager
    def broken(self, fault: Fault) -> Iterator[None]:
        """Within it, the server has a fault."""
        self._proxy.fault = fault
        try:
            yield
        finally:
            self._proxy.fault = Fault()

    @contextlib.contextmanager
    def gateway(
        self, certificate: Certificate, opens: tuple[str, ...] | None, fault: Fault | None = None
    ) -> Iterator[str]:
        """A gateway in front of it, and its address."""
        with ModelProxy(self._upstream, self.key, certificate, opens, fault or Fault()) as proxy:
            yield proxy.url

    # ------------------------------------------------------------ cluster and repository

    def live(self, identity: Identity) -> Object:
        found = self.cluster.get(identity.group_version, identity.kind, identity.name, identity.namespace)
        assert found is not None, f"{identity} is gone"
        return found

    def pods(self) -> list[Object]:
        found = self.cluster.list("v1", "Pod", self.namespace, f"serving.kserve.io/inferenceservice={self.service}")
        return [pod for pod in found if not part(pod, "metadata").get("deletionTimestamp")]

    @property
    def policies(self) -> PolicySet:
        return load_policy_set(FolderSnapshot(self.checkout))

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_for(condition, _SETTLES, what)

    @contextlib.contextmanager
    def argocd_stopped(self, application: str) -> Iterator[None]:
        """Within it, Argo CD's controller stands still, after it has ended its work on an application.

        Its own way to leave an application alone is no help here: a synchronisation that waits for its turn comes yet.
        """
        self.wait(lambda: not _synchronises(self._gitops.application(application) or {}), "Argo CD ends its work")
        state = self._gitops.local.state
        # The supervisor starts a process again that does not answer.
        stopped = [one for name in (supervisor.NAME, CONTROLLER) for one in belonging(state.instance.id, name)]
        assert len(stopped) >= 2, stopped
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in reversed(stopped):
                process.resume()

    def await_running(self) -> None:
        """Wait until the newest generation runs, whatever Git holds."""
        clone = Clone(self.checkout, "main")
        try:
            reader = Reader(self.cluster, clone)
            asked = ServicesAsked((self.namespace,), self.environment, self.service)
            self.wait(lambda: reader.ask(asked).services[0].running == "ready", "it runs")
        finally:
            clone.close()

    def commit(self, path: str, old: str, new: str) -> str:
        """A commit on top of the deployed one, which is not deployed."""
        file = self.checkout / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new, 1), encoding="utf-8")
        return self._committed()

    def commit_copy(self, name: str) -> str:
        """A commit that adds the service once more, under another name."""
        there, new = self.checkout / self.path, self.checkout / Path(self.path).with_name(name)
        shutil.copytree(there, new)
        for file in new.iterdir():
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(self.service, name), encoding="utf-8")
        return self._committed()

    def _committed(self) -> str:
        self._git("add", "manifests")
        self._git("-c", "user.name=Test", "-c", "user.email=test@example.com", "commit", "--quiet", "-m", "Change")
        made = self._git("rev-parse", "HEAD")
        self._git("reset", "--quiet", "--hard", self.revision)
        shutil.rmtree(self.checkout / "smoke-tests", ignore_errors=True)
        shutil.copytree(ROOT / "smoke-tests", self.checkout / "smoke-tests")
        return made

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.checkout), *arguments], check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip()

    # ------------------------------------------------------------ the smoke tests

    def smoke(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        """Exit status and result, as the command writes it."""
        report = self.folder / "smoke.json"
        question = Question(
            self.environment,
            asked.service or self.service,
            asked.base_url,
            asked.revision or self.revision,
            asked.patience,
            pause=1.0,
        )
        program = find_kubectl().parent if asked.real_kubectl else self.folder / "bin"
        variables = {"PATH": f"{program}:{os.environ['PATH']}"}
        variables |= {"SSL_CERT_FILE": str(asked.trusts)} if asked.trusts else {}
        with _environment(variables):
            where = Where(None, asked.kubeconfig or self.kubeconfig, None)
            status = run_smoke_tests(question, where, self.checkout, Reports(report, report.with_suffix(".xml"), None))
        return status, json.loads(report.read_text(encoding="utf-8"))


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NEUROSCALE_API_KEY", "NEUROSCALE_API_KEY_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def _synchronises(application: Object) -> bool:
    state = part(application, "status", "operationState")
    return "operation" in application or state.get("phase") in ("Running", "Terminating")

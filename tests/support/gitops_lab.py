"""The running platform as its users see it: merges into its repository, and their deployment by Argo CD."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import httpx
import yaml

from neuroscale.forge.http import Client, segments
from neuroscale.forge.interface import RepositoryRef
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.kube.control_plane import ADMINISTRATOR
from neuroscale.local.argocd import APPLICATION_SETS, CONTROLLER, RELAY, REPO_SERVER, SERVER, ArgoCD
from neuroscale.local.control_plane import cluster, control_plane
from neuroscale.local.forge_accounts import ADMIN
from neuroscale.local.forge_repository import MAIN
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.gitea import NAME as FORGE
from neuroscale.local.start_and_stop import last_lines
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.repo.layout import RENDERED_KINDS
from neuroscale.repo.snapshot import FolderSnapshot
from plan_factory import pull_request_for
from roots import ROOT

ENVIRONMENT = "dev"
"""Its services run on simulated nodes with GPUs."""
APPLICATIONS = "argoproj.io/v1alpha1"
NAMESPACE = "argocd"
ARRIVES_WITHIN = 300
"""Seconds until Argo CD has done what was merged, at the latest: where a busy machine loses the forge's event, Argo CD
looks by itself, every 180 s and 30 s of jitter. One test alone, in test_gitops.py, shows that events arrive."""
# Each look asks the API server and sometimes the forge, and takes the processors from what is awaited.
_LOOK_EVERY = 0.5
_MERGE_WITHIN = 60.0  # seconds that the forge may take to see that a pull request can be merged


@functools.cache
def service_files(name: str, example: str = "gemma-4-26b-a4b-qat") -> dict[str, str]:
    """The folder of a service as the template renders it: text by path in the repository."""
    answers: Any = yaml.safe_load((ROOT / f"templates/examples/{example}.yaml").read_text(encoding="utf-8"))
    platform = read_planning_inputs(FolderSnapshot(ROOT))
    return dict(pull_request_for({**answers, "service": name, "environment": ENVIRONMENT}, platform).files)


def objects_of(files: Mapping[str, str]) -> list[Object]:
    """The Kubernetes objects among a service's files."""
    return [yaml.safe_load(text) for path, text in files.items() if PurePosixPath(path).name in RENDERED_KINDS]


@dataclass(frozen=True)
class Merge:
    """A merged change: its commit on the main branch, and when the forge was asked for it, by `time.monotonic`."""

    commit: str
    asked: float

    @property
    def age(self) -> float:
        """The seconds since the forge was asked for it."""
        return time.monotonic() - self.asked


class GitOps:
    """A running platform. `repository` is what its Argo CD deploys."""

    def __init__(self, local: LocalForge) -> None:
        self.local = local
        self.argocd = ArgoCD(local.state)
        self.cluster: Cluster = cluster(local.state)

    def close(self) -> None:
        """End its connections."""
        self.cluster.close()

    @property
    def repository(self) -> RepositoryRef:
        return self.local.platform

    # ------------------------------------------------------------ the repository

    def merge(self, changes: Mapping[str, str | None], title: str = "Change") -> Merge:
        """Merge a pull request of files by path (None removes one), past the gate, as an administrator can."""
        client = self._forge()
        path = f"/repos/{segments(self.repository.owner, self.repository.name)}"
        branch = f"test-{secrets.token_hex(4)}"
        files = [self._change(client, path, name, text) for name, text in changes.items()]
        # Its workflows are not under test here, and would take the processors from the tests.
        told = f"{title} [skip ci]"
        fields = {"branch": MAIN, "new_branch": branch, "message": told, "files": files}
        client.send("POST", f"{path}/contents", idempotent=False, body=fields)
        request = {"base": MAIN, "head": branch, "title": told}
        number = client.send("POST", f"{path}/pulls", idempotent=False, body=request).data["number"]
        merging = {"do": "squash", "force_merge": True, "merge_title_field": told, "delete_branch_after_merge": True}
        ends = time.monotonic() + _MERGE_WITHIN
        while True:
            asked = time.monotonic()
            answer = client.send(
                "POST", f"{path}/pulls/{number}/merge", idempotent=False, body=merging, accept=(404, 405, 409)
            )
            if answer.status < 300:
                break
            assert time.monotonic() < ends, f"the forge does not merge #{number}: {answer.status} {answer.data}"
            time.sleep(0.2)
        return Merge(client.get(f"{path}/pulls/{number}").data["merge_commit_sha"], asked)

    def read(self, name: str) -> str:
        """A file of the main branch."""
        path = f"/repos/{segments(self.repository.owner, self.repository.name)}/contents/{segments(*name.split('/'))}"
        return base64.b64decode(self._forge().get(path, {"ref": MAIN}).data["content"]).decode()

    def exists(self, name: str) -> bool:
        """Whether the main branch has a file."""
        path = f"/repos/{segments(self.repository.owner, self.repository.name)}/contents/{segments(*name.split('/'))}"
        return self._forge().get(path, {"ref": MAIN}, accept=(404,)).status != 404

    def _change(self, client: Client, path: str, name: str, text: str | None) -> dict[str, str]:
        there = client.get(f"{path}/contents/{segments(*name.split('/'))}", {"ref": MAIN}, accept=(404,))
        old = {} if there.status == 404 else {"sha": there.data["sha"]}
        if text is None:
            return {"operation": "delete", "path": name, **old}
        content = base64.b64encode(text.encode()).decode()
        return {"operation": "update" if old else "create", "path": name, "content": content, **old}

    def _forge(self) -> Client:
        return Client(f"{self.local.url}/api/v1", self.local.account(ADMIN).token())

    # ------------------------------------------------------------ Argo CD

    def application(self, name: str) -> Object | None:
        """An Application; a service's is called SERVICE.ENVIRONMENT."""
        return self.cluster.get(APPLICATIONS, "Application", name, NAMESPACE)

    def application_of(self, service: str) -> Object | None:
        return self.application(f"{service}.{ENVIRONMENT}")

    def is_deployed(self, service: str, commit: str) -> bool:
        """Whether a service matches that commit, and is healthy."""
        found = self.application_of(service) or {}
        status = found.get("status", {})
        sync = status.get("sync", {})
        return (
            sync.get("status") == "Synced"
            and self.holds(sync.get("revision", ""), commit)
            and status.get("health", {}).get("status") == "Healthy"
            and self.is_ready(service)
        )

    def holds(self, revision: str, commit: str) -> bool:
        """Whether a revision of the main branch is a commit, or a later one: others merge meanwhile."""
        if not revision or revision == commit:
            return revision == commit
        path = f"/repos/{segments(self.repository.owner, self.repository.name)}/commits"
        found = self._forge().get(path, {"sha": MAIN, "limit": "50", "stat": "false", "files": "false"}).data
        order = [one["sha"] for one in found]
        return revision in order and commit in order and order.index(revision) < order.index(commit)

    def is_ready(self, service: str) -> bool:
        """Whether KServe reports the InferenceService as ready."""
        for found in self.cluster.list("serving.kserve.io/v1beta1", "InferenceService"):
            if found["metadata"]["name"] == service:
                conditions = found.get("status", {}).get("conditions", [])
                return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        return False

    def wait(self, condition: Callable[[], bool], seconds: float, what: str, application: str = "") -> float:
        """Wait until the condition holds; returns the seconds it took. A failure shows Argo CD's status."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < seconds, self._told(what, seconds, application)
            time.sleep(_LOOK_EVERY)
        return time.monotonic() - began

    def await_deployed(self, service: str, merged: Merge, seconds: float = ARRIVES_WITHIN) -> float:
        """Wait until a service matches a merge, and is ready; returns the seconds since the merge."""
        what = f"{service} is as {merged.commit[:8]} says, and ready"
        self.wait(lambda: self.is_deployed(service, merged.commit), seconds, what, f"{service}.{ENVIRONMENT}")
        return merged.age

    def live(self, wanted: Object) -> Object | None:
        """The live object of a manifest."""
        identity = Identity.of(wanted)
        return self.cluster.get(identity.group_version, identity.kind, identity.name, identity.namespace)

    def _told(self, what: str, seconds: float, application: str) -> str:
        found = self.application(application) if application else None
        status = {key: value for key, value in (found or {}).get("status", {}).items() if key != "history"}
        lines = [
            f"after {seconds:g} s this is not so: {what}",
            f"{application}: {json.dumps(status or found, indent=1)[:6000]}",
        ]
        for name in (CONTROLLER, APPLICATION_SETS, REPO_SERVER, SERVER, RELAY):
            lines += [f"--- {name}", *(line[:600] for line in last_lines(self.local.state.log(name), 8))]
        # An event that was lost is an error in the forge's log, among many lines about requests.
        said = self.local.state.log(FORGE).read_text(encoding="utf-8", errors="replace").splitlines()
        lines += [f"--- {FORGE}: errors and warnings", *[one for one in said if " [E] " in one or " [W] " in one][-20:]]
        return "\n".join(lines)

    # ------------------------------------------------------------ the repo server

    def asker(self, repository: RepositoryRef, source: Mapping[str, Any]) -> ManifestAsker:
        """Asks Argo CD which objects it would apply from a source at a commit, and applies nothing."""
        project, application = self._project(repository), f"asked-{secrets.token_hex(4)}"
        self.cluster.apply(
            {
                "apiVersion": APPLICATIONS,
                "kind": "Application",
                "metadata": {
                    "name": application,
                    "namespace": NAMESPACE,
                    "annotations": {"argocd.argoproj.io/skip-reconcile": "true"},
                },
                "spec": {
                    "project": project,
                    "source": {**source, "repoURL": repository.clone_url, "targetRevision": MAIN},
                    "destination": {"server": "https://kubernetes.default.svc"},
                },
            }
        )
        return ManifestAsker(self, project, application, self._token(project))

    def _project(self, repository: RepositoryRef) -> str:
        name = f"asked-{secrets.token_hex(4)}"
        role = {"name": "reader", "policies": [f"p, proj:{name}:reader, applications, get, {name}/*, allow"]}
        issued = int(time.time()) - 5
        self.cluster.apply(
            {
                "apiVersion": APPLICATIONS,
                "kind": "AppProject",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "sourceRepos": [repository.clone_url],
                    "destinations": [{"server": "*", "namespace": "*"}],
                    "roles": [role],
                },
                "status": {"jwtTokensByRole": {"reader": {"items": [{"iat": issued, "id": name}]}}},
            }
        )
        return name

    def _token(self, project: str) -> str:
        """A token of the project's one role, signed as Argo CD itself would."""
        secret = self.cluster.get("v1", "Secret", "argocd-secret", NAMESPACE)
        found = self.cluster.get(APPLICATIONS, "AppProject", project, NAMESPACE)
        assert secret is not None
        assert found is not None
        issued = found["status"]["jwtTokensByRole"]["reader"]["items"][0]["iat"]
        claims = {"iss": "argocd", "sub": f"proj:{project}:reader", "iat": issued, "nbf": issued, "jti": project}
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
        key = base64.b64decode(secret["data"]["server.secretkey"])
        return f"{signed}.{_encoded(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


class ManifestAsker:
    """Asks for the manifests of one Application at any commit."""

    def __init__(self, gitops: GitOps, project: str, application: str, token: str) -> None:
        self._gitops = gitops
        self._project = project
        self._application = application
        plane = control_plane(gitops.local.state)
        self._client = httpx.Client(
            base_url=gitops.argocd.url,
            verify=plane.client_context(ADMINISTRATOR),
            headers={"Authorization": f"Bearer {token}"},
            timeout=60.0,
            trust_env=False,
        )

    def objects(self, commit: str) -> list[Object] | str:
        """The objects that Argo CD would apply at a commit, without its tracking annotation; or why it would refuse."""
        address = f"/api/v1/applications/{self._application}/manifests"
        ends = time.monotonic() + 30.0
        while True:
            answer = self._client.get(address, params={"revision": commit, "project": self._project})
            # The server hears of a new Application or project a moment later.
            if answer.status_code not in (401, 403, 404) or time.monotonic() > ends:
                break
            time.sleep(_LOOK_EVERY)
        if answer.status_code != 200:
            error = answer.json()
            message = str(error.get("message", ""))
            # A timeout, a limit or a missing server: then the fault does not lie in the folder.
            assert error.get("code") not in (4, 8, 14), message
            assert "revision" not in message, message
            return message
        return [_untracked(json.loads(text)) for text in answer.json().get("manifests") or []]

    def close(self) -> None:
        """Remove the objects that were made for the questions."""
        self._client.close()
        for kind, name in (("Application", self._application), ("AppProject", self._project)):
            self._gitops.cluster.delete(Identity(APPLICATIONS, kind, NAMESPACE, name))


def _untracked(found: Object) -> Object:
    annotations = found["metadata"].get("annotations") or {}
    annotations.pop("argocd.argoproj.io/tracking-id", None)
    if not annotations:
        found["metadata"].pop("annotations", None)
    return found


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

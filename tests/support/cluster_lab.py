"""A platform repository, and its services on a real API server as controllers would leave them, for tests."""

from __future__ import annotations

import copy
import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from api_server import ApiServer
from command_line import Said
from neuroscale.cli.app import app
from neuroscale.core import schemas
from neuroscale.core.errors import NeuroscaleError
from neuroscale.kube.apply import await_served
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.kube.stored_definitions import store_definitions
from plan_factory import ANSWERS
from roots import ROOT

SERVICE = str(ANSWERS["service"])
APPLICATION = f"{SERVICE}.dev"
_GROUPS = ("argoproj.io", "serving.kserve.io")
_PLATFORM_KINDS = ("Application", "ApplicationSet", "ClusterServingRuntime", "InferenceService", "ServingRuntime")
_SERVED_WITHIN = 180.0  # seconds
_NO_FIELDS_OF_A_CONTAINER = ("modelFormat", "runtime", "storageUri")
_STORAGE_URI = "internal.serving.kserve.io/storage-initializer-sourceuri"
_numbers = itertools.count()


def run(*arguments: object) -> Said:
    """Run a command as a user would."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, NeuroscaleError):
        return Said(done.exception.exit_status, done.stdout, str(done.exception))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return Said(done.exit_code, done.stdout, done.stderr)


def install_kinds(server: ApiServer) -> None:
    """Give a server the kinds of Argo CD and KServe that services need, and Argo CD's namespace."""
    found = [
        one
        for one in schemas.find().crds()
        if one["spec"]["group"] in _GROUPS and one["spec"]["names"]["kind"] in _PLATFORM_KINDS
    ]
    store_definitions(server.plane, found)
    await_served(server.cluster, found, _SERVED_WITHIN)
    server.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})


class Failing(Cluster):
    """A cluster that answers request number `at` with an error."""

    def __init__(self, inner: Cluster, at: int, error: Exception) -> None:
        self.__dict__.update(inner.__dict__)
        self.count = 0
        self._at, self._error = at, error
        self._kinds: dict[str, Any] = {}

    def request(
        self,
        method: str,
        address: str,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Object:
        self.count += 1
        if self.count == self._at:
            raise self._error
        return super().request(method, address, parameters, body, content_type)


@dataclass
class Lab:
    """A repository with two teams, whose namespaces exist in the API server for this test alone."""

    server: ApiServer
    root: Path
    namespace: str
    other: str
    made: list[Identity] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        return self.server.cluster

    # ------------------------------------------------------------ the repository

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), "-c", "user.name=Test", "-c", "user.email=test@example.com", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def answers(self, **changes: Any) -> Path:
        path = self.root / "answers.yaml"
        path.write_text(json.dumps({**ANSWERS, **changes}))
        return path

    def new_service(self, **changes: Any) -> str:
        """Render a service and commit it; returns the commit."""
        said = run("new", "--answers", self.answers(**changes), "--repository", self.root)
        assert said.status == 0, said.err
        return self.commit("Ask for a service")

    def rendered(self, service: str = SERVICE) -> Object:
        path = self.root / "manifests/dev" / service / "inferenceservice.yaml"
        found: Object = yaml.safe_load(path.read_text())
        return found

    # ------------------------------------------------------------ the cluster

    def put(self, wanted: Object, status: Object | None = None) -> Object:
        """Make an object, with its status, and remember to remove it."""
        found = self.cluster.apply(wanted)
        identity = Identity.of(wanted)
        if identity not in self.made:
            self.made.append(identity)
        return found if status is None else self.cluster.merge(identity, {"status": status}, "status")

    def application(self, revision: str, sync: str = "Synced", **changes: Any) -> None:
        """Make the service's Application as Argo CD would. An Application has no subresource for its status."""
        self.put(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Application",
                "metadata": {
                    "name": APPLICATION,
                    "namespace": "argocd",
                    "labels": {"neuroscale.dev/environment": "dev", "neuroscale.dev/service": SERVICE},
                },
                "spec": {
                    "project": "services",
                    "source": {"repoURL": "https://forge.example.com/platform", "path": f"manifests/dev/{SERVICE}"},
                    "destination": {"server": "https://kubernetes.default.svc"},
                },
                "status": {
                    "sync": {"status": sync, "revision": revision},
                    "health": {"status": "Healthy"},
                    "resources": [
                        {
                            "group": "serving.kserve.io",
                            "kind": "InferenceService",
                            "namespace": self.namespace,
                            "name": SERVICE,
                            "status": sync,
                        }
                    ],
                    **changes,
                },
            }
        )

    def serve(self, *, ready: bool = True) -> None:
        """Make the objects that KServe and Kubernetes make for the rendered service, once it answers or while it
        loads.
        """
        service = self.put(self.rendered())
        predictor = service["spec"]["predictor"]
        container = {key: value for key, value in predictor["model"].items() if key not in _NO_FIELDS_OF_A_CONTAINER}
        not_of_pods = ("model", "minReplicas", "maxReplicas", "deploymentStrategy")
        pod = {key: value for key, value in predictor.items() if key not in not_of_pods}
        labels = {"app": f"isvc.{SERVICE}-predictor", "serving.kserve.io/inferenceservice": SERVICE}
        template = {
            "metadata": {"labels": labels, "annotations": {_STORAGE_URI: predictor["model"]["storageUri"]}},
            "spec": {**pod, "containers": [{**container, "name": "kserve-container"}]},
        }
        spec = {"replicas": predictor["minReplicas"], "selector": {"matchLabels": labels}, "template": template}
        name = f"{SERVICE}-predictor"
        revision = {"deployment.kubernetes.io/revision": "1"}
        deployment = self._owned("Deployment", name, labels, service, spec, revision)
        generation = deployment["metadata"]["generation"]
        replica_set = self._owned("ReplicaSet", f"{name}-1", labels, deployment, spec, revision)
        state = "True" if ready else "False"
        conditions = [{"type": kind, "status": state} for kind in ("Ready", "PredictorReady")]
        self.cluster.merge(
            Identity.of(service),
            {
                "status": {
                    "observedGeneration": generation,
                    "deploymentMode": "Standard",
                    "conditions": [*conditions, {"type": "IngressReady", "status": "True"}],
                    "modelStatus": {
                        "transitionStatus": "UpToDate" if ready else "InProgress",
                        "states": {"activeModelState": "Loaded", "targetModelState": "Loaded" if ready else "Pending"},
                    },
                    "url": f"https://{SERVICE}-{self.namespace}.models.example.com",
                    "address": {"url": f"http://{SERVICE}-predictor.{self.namespace}.svc.cluster.local"},
                }
            },
            "status",
        )
        self.cluster.merge(Identity.of(deployment), {"status": {"observedGeneration": generation}}, "status")
        self._pod(f"{name}-1-a", template, replica_set, ready=ready)

    def _owned(self, kind: str, name: str, labels: Object, owner: Object, spec: Object, annotations: Object) -> Object:
        return self.put(
            {
                "apiVersion": "apps/v1",
                "kind": kind,
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": labels,
                    "annotations": annotations,
                    "ownerReferences": [_reference(owner)],
                },
                "spec": spec,
            }
        )

    def _pod(self, name: str, template: Object, owner: Object, *, ready: bool) -> None:
        started = (datetime.now(UTC) - timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": template["metadata"]["labels"],
                    "ownerReferences": [_reference(owner)],
                },
                "spec": {**copy.deepcopy(template["spec"]), "nodeName": "node-1"},
            },
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                "containerStatuses": [
                    {
                        "name": "kserve-container",
                        "ready": ready,
                        "started": ready,
                        "restartCount": 0,
                        "image": "vllm",
                        "imageID": "",
                        "state": {"running": {"startedAt": started}},
                    }
                ],
            },
        )

    def user(self, name: str, rules: list[Object], namespace: str = "") -> Path:
        """The kubeconfig of a user with the rights of the rules: in a namespace, or everywhere."""
        unique = f"{self.namespace}-{name}"
        kind = "Role" if namespace else "ClusterRole"
        place = {"namespace": namespace} if namespace else {}
        version = "rbac.authorization.k8s.io/v1"
        self.put({"apiVersion": version, "kind": kind, "metadata": {"name": unique, **place}, "rules": rules})
        self.put(
            {
                "apiVersion": version,
                "kind": f"{kind}Binding",
                "metadata": {"name": unique, **place},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": unique},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": unique}],
            }
        )
        return self.server.kubeconfig_of(unique)

    def remove(self) -> None:
        """Remove all objects of this test; other tests would see its nodes and applications."""
        for identity in reversed(self.made):
            self.cluster.delete(identity)


def allow(group: str, *resources: str) -> Object:
    """A rule that lets its holder read."""
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["get", "list", "watch"]}


@contextmanager
def lab(server: ApiServer, folder: Path) -> Iterator[Lab]:
    """A laboratory in a folder, emptied at the end."""
    unique = f"lab-{next(_numbers)}"
    root = folder / "repository"
    for part in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / part, root / part)
    shutil.copyfile(ROOT / "platform/settings.yaml", root / "platform/settings.yaml")
    teams = root / "platform/catalog/teams"
    for path in teams.iterdir():
        team = path.stem
        if team not in ("team-alpha", "team-beta"):
            path.unlink()
            continue
        text = path.read_text()
        path.write_text(text.replace(f"namespace: {team}", f"namespace: {unique}-{team}"))
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(root)], check=True)
    found = Lab(server, root, f"{unique}-team-alpha", f"{unique}-team-beta")
    found.commit("A platform")
    for namespace in (found.namespace, found.other):
        found.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    try:
        yield found
    finally:
        found.remove()


def _reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }

"""Reads from Git the services that an environment should have, and asks the cluster what it has deployed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.object_fields import served_model_name, uid_of
from neuroscale.cluster.pod_state import SERVER, is_ending
from neuroscale.cluster.service_status_reader import Question, Reader, ServiceStatuses
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.errors import InputError, NeuroscaleError, Problem
from neuroscale.core.validation import items, part, suggest
from neuroscale.core.waiting import attempts
from neuroscale.core.yaml_io import read_mapping
from neuroscale.kube.client import Cluster, KubernetesError, Object, RefusedError
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.policies.policy_set import PolicySet, load_policy_set
from neuroscale.repo.git import Git, fetch_origin
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE, REQUEST_FILE, SERVICE_FILE, ServicePath
from neuroscale.repo.services import has_stored_key
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot, read_text
from neuroscale.request.service_request import Request, load_request
from neuroscale.smoke.results import Version


@dataclass(frozen=True)
class Service:
    """A service as Git holds it. `wanted`: its InferenceService; `has_stored_key`: External Secrets writes its key."""

    path: ServicePath
    request: Request
    plan: Plan
    wanted: Object
    has_stored_key: bool = False

    @property
    def name(self) -> str:
        return self.path.service

    @property
    def namespace(self) -> str:
        return str(part(self.wanted, "metadata").get("namespace") or "")

    @property
    def labels(self) -> dict[str, Any]:
        return part(self.wanted, "metadata", "labels")

    @property
    def server(self) -> dict[str, Any]:
        """The model server of the manifest: image, arguments, ports."""
        return part(self.wanted, "spec", "predictor", "model")

    @property
    def arguments(self) -> list[str]:
        return [str(one) for one in self.server.get("args") or []]

    @property
    def model(self) -> str:
        """The name that requests use."""
        return served_model_name(self.arguments) or self.plan.model


@dataclass(frozen=True)
class Target:
    """An environment at a commit."""

    root: Path
    environment: str
    revision: str
    services: tuple[Service, ...]
    namespaces: tuple[str, ...]
    policies: PolicySet

    def service(self, name: str) -> Service:
        """The service of this name. Raises KeyError if there is none."""
        return {service.name: service for service in self.services}[name]


def load_target(root: Path, environment: str, revision: str, service: str = "", fetch: str = "git fetch") -> Target:
    """The services of an environment, or the named one, at a commit of a clone. `fetch`: the command that brings newer
    commits to the clone. Raises InputError if the environment or the service does not exist or cannot be read,
    UntrustedError for policies that cannot be used."""
    git = Git(root)
    try:
        snapshot = GitSnapshot(git, revision)
        settings = load_settings(snapshot)
        if environment not in settings.environments:
            fix = suggest(environment, settings.environments)
            message = f"{environment!r} is not an environment of the settings"
            raise InputError(Problem("the command line", "--environment", message, fix))
        catalog = load_catalog(snapshot)
        found = {ServicePath.of(entry.path) for entry in snapshot.entries(f"{MANIFESTS}/{environment}")}
        paths = sorted((path for path in found if path is not None), key=lambda path: path.service)
        if service:
            names = [path.service for path in paths]
            if service not in names:
                where = f"{MANIFESTS}/{environment} at {revision[:10]}"
                fix = f"{suggest(service, names)} Is its change merged? Then run: {fetch}"
                raise InputError(Problem(where, "", f"does not hold the service {service!r}", fix))
            paths = [path for path in paths if path.service == service]
        return Target(
            root,
            environment,
            revision,
            tuple(_service(snapshot, path) for path in paths),
            tuple(sorted({team.namespace for team in catalog.teams.values()})),
            load_policy_set(snapshot),
        )
    finally:
        git.close()


def _service(snapshot: GitSnapshot, path: ServicePath) -> Service:
    texts = {
        name: (file := f"{path.folder}/{name}", read_text(snapshot, file))
        for name in (REQUEST_FILE, PLAN_FILE, SERVICE_FILE)
    }
    file, text = texts[SERVICE_FILE]
    wanted = read_mapping(text, file).value
    metadata = wanted.get("metadata")
    if not isinstance(metadata, dict) or (wanted.get("kind"), metadata.get("name")) != (
        "InferenceService",
        path.service,
    ):
        raise InputError(Problem(file, "", f"is not the InferenceService {path.service}", "Render the service again."))
    if not isinstance(metadata.get("namespace"), str):
        raise InputError(Problem(file, "metadata.namespace", "is missing", "Render the service again."))
    (request_file, request), (plan_file, plan) = texts[REQUEST_FILE], texts[PLAN_FILE]
    return Service(
        path,
        load_request(request, request_file),
        load_plan(plan, plan_file),
        dict(wanted),
        has_stored_key(snapshot, path),
    )


_FORGE_ANSWERS_WITHIN = 2.0  # seconds

Standing = Literal["the same", "equal", "behind", "ahead", "unknown"]


def standing(root: Path, folder: str, merged: str, deployed: str, sources: tuple[str, ...] = ("origin",)) -> Standing:
    """Compare two commits of a clone: `same` commit, or `equal` folder; else the deployed one is `behind` or `ahead`.
    `ahead`: the deployed commit comes after the merged one, and the folder was changed again. `unknown`: neither the
    clone nor one of the `sources` (remotes, addresses) has the deployed commit. They are asked because others may merge
    while tests run."""
    if deployed == merged:
        return "the same"
    git = Git(root)
    try:
        if not deployed or not _fetched(git, deployed, sources):
            return "unknown"
        there, wanted = (git.tree(commit, folder) for commit in (deployed, merged))
        if there == wanted:
            return "equal"
        later = git.run("merge-base", "--is-ancestor", merged, deployed, check=False).returncode == 0
        return "ahead" if later else "behind"
    finally:
        git.close()


def _fetched(git: Git, commit: str, sources: tuple[str, ...]) -> bool:
    """Whether the clone has a commit, after it was looked for in the sources. A busy forge is asked a second time."""
    if git.knows(commit):
        return True
    for _ in attempts(within=_FORGE_ANSWERS_WITHIN, pause=_FORGE_ANSWERS_WITHIN):
        for source in sources:
            fetch_origin(git, source)
            if git.knows(commit):
                return True
    return False


@dataclass(frozen=True)
class Api:
    """The API server, its version and the user that it recognizes in the caller; or why it does not answer."""

    cluster: Cluster | None
    version: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    problem: str = ""
    unknown: str = ""  # why it does not recognize the caller, "" if it does


def who_am_i(cluster: Cluster) -> Api:
    """Ask the API server. Never raises KubernetesError."""
    try:
        version = str(cluster.request("GET", "/version").get("gitVersion") or "unknown version")
    except RefusedError as error:
        return Api(cluster, unknown=f"the API server refuses the caller: {error.message}")
    except KubernetesError as error:
        return Api(None, problem=str(error))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = cluster.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    except RefusedError as error:
        return Api(cluster, version, unknown=f"the API server does not name the caller's user: {error.message}")
    except KubernetesError as error:
        return Api(None, problem=str(error))
    user = part(found, "status", "userInfo")
    name, groups = str(user.get("username") or ""), user.get("groups")
    nobody = name in ("", "system:anonymous")
    return Api(
        cluster,
        version,
        name,
        tuple(str(one) for one in groups) if isinstance(groups, list) else (),
        unknown=f"the API server recognizes the caller only as {name or 'a user without a name'}" if nobody else "",
    )


def https_url(cluster: Cluster, service: Service) -> str:
    """The service's address for its clients, as KServe reports it; "" if that has no TLS, or there is none."""
    found = cluster.get("serving.kserve.io/v1beta1", "InferenceService", service.name, service.namespace) or {}
    url = str(part(found, "status").get("url") or "")
    return url if url.startswith("https://") else ""


def status_in_cluster(cluster: Cluster, target: Target, service: Service) -> ServiceStatuses:
    """The verdict on a service, judged as `neuroscale status` does. Raises KubernetesError."""
    settings = load_settings(FolderSnapshot(target.root))
    with contextlib.closing(Clone(target.root, settings.repository.default_branch)) as clone:
        question = Question((service.namespace,), target.environment, service.name)
        return Reader(cluster, clone, settings).ask(question)


def ends_of(pods: Iterable[Object]) -> dict[str, int]:
    """How often the server of each pod has ended, by its uid; without pods that somebody has deleted (a roll-out)."""
    return {uid_of(pod): _end(pod)[0] for pod in pods if not is_ending(pod)}


def _end(pod: Object) -> tuple[int, str]:
    """How often the server of a pod has ended, and how the last time."""
    status = next((one for one in items(pod, "status", "containerStatuses") if one.get("name") == SERVER), {})
    last = part(status, "state", "terminated") or part(status, "lastState", "terminated")
    ended = bool(last) and "running" not in part(status, "state")
    if part(pod, "status").get("phase") == "Failed":  # as after an eviction, which may leave no status of a container
        ended, last = True, last or part(pod, "status")
    at = f" at {last['finishedAt']}" if last.get("finishedAt") else ""
    code = f", exit code {last['exitCode']}" if "exitCode" in last else ""
    count = status.get("restartCount")
    return (count if isinstance(count, int) else 0) + ended, f"{at} ({last.get('reason') or 'no reason given'}{code})"


def ended_since(pods: Iterable[Object], before: Mapping[str, int]) -> str:
    """Which server of the pods ended more often than `before` (see `ends_of`), and how; "" if none did."""
    pods = list(pods)
    for uid, times in ends_of(pods).items():
        if times > before.get(uid, 0):
            pod = next(one for one in pods if uid_of(one) == uid)
            return f"the server of {part(pod, 'metadata').get('name')} ended{_end(pod)[1]}"
    return ""


def version_that_answers(cluster: Cluster, target: Target, service: Service, pod: str) -> Version:
    """Which version answers: that of the named pod, or of any ready pod (""). "" if the pods cannot be told apart."""
    try:
        found = status_in_cluster(cluster, target, service).services
    except KubernetesError:
        return ""
    ready = [one for status in found for one in status.pods if one.state == "ready" and pod in ("", one.name)]
    versions: set[Version] = {"old" if one.old else "new" for one in ready}
    return "either" if len(versions) > 1 else next(iter(versions), "")


@dataclass(frozen=True)
class Opened:
    """A service's endpoint as clients reach it, and one of its pods; or why one of them cannot be opened. `version`: of
    the pods that answer there."""

    endpoint: Endpoint | None
    inside: Endpoint | None
    problem: NeuroscaleError | None
    version: Version = ""

    @property
    def of_the_service(self) -> bool:
        """Whether the service causes the problem, and not this machine or the user's rights."""
        if isinstance(self.problem, InputError):
            return all(one.where != "kubectl" for one in self.problem.problems)
        return isinstance(self.problem, EndpointError)

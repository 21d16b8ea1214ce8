"""Reads from a cluster the objects that the verdict on its services needs, and nothing more."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from neuroscale.catalog.settings import NODE_WAIT_MINUTES, Settings
from neuroscale.cluster.command_lines import command_lines
from neuroscale.cluster.object_fields import uid_of
from neuroscale.cluster.pod_state import is_ending
from neuroscale.cluster.server_logs import seen_cause
from neuroscale.cluster.service_status import Observed, ServiceStatus
from neuroscale.cluster.service_verdict import judge_service
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.validation import items, part, suggest
from neuroscale.kube.client import Cluster, KubernetesError, Object, RefusedError
from neuroscale.manifests.objects import SERVICE
from neuroscale.rendering.object_names import application_name
from neuroscale.rendering.platform.argocd import ENVIRONMENT_LABEL, NAMESPACE, SERVICE_LABEL
from neuroscale.repo.layout import ServicePath

MANAGED = "app.kubernetes.io/managed-by=neuroscale"
_TRACKING = "argocd.argoproj.io/tracking-id"
_ARGOCD = "argoproj.io/v1alpha1"
_KSERVE = "serving.kserve.io/v1beta1"
_RUNTIMES = "serving.kserve.io/v1alpha1"
_WORKLOADS = (("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("v1", "Pod"))
_DENIED = (401, 403)
_CAUSE_SECONDS = 30.0  # in which the logs of services that fail are looked into


class NoKServeError(KubernetesError):
    """The cluster has no InferenceServices."""


@dataclass(frozen=True)
class Question:
    """The services that are asked about: all of the namespaces, those of an environment ("": each), or one by its
    name."""

    namespaces: tuple[str, ...]
    environment: str = ""
    name: str = ""


@dataclass(frozen=True)
class ServiceStatuses:
    """The verdicts, by environment and name. `unreadable`: why a namespace cannot be read, by namespace."""

    services: tuple[ServiceStatus, ...]
    unreadable: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether there are services, all that stay are ready, and every namespace could be read."""
        staying = [one for one in self.services if one.verdict != "removing"]
        return bool(staying) and not self.unreadable and all(one.verdict == "ready" for one in staying)


@dataclass(frozen=True)
class _Read:
    """The objects that were read; `denied`: why they may not be read."""

    objects: list[Object]
    denied: str = ""


class Reader:
    """Asks a cluster about the services of a repository, as often as wanted."""

    def __init__(self, cluster: Cluster, clone: Clone, settings: Settings | None = None) -> None:
        self._cluster = cluster
        self._clone = clone
        self._settings = settings

    def ask(self, question: Question) -> ServiceStatuses:
        """The verdicts as of now. Raises KubernetesError if the cluster cannot be asked, or has no KServe."""
        services, denied = self._services(question.namespaces)
        applications = self._optional(_ARGOCD, "Application", NAMESPACE, SERVICE_LABEL)
        if applications.objects:
            self._clone.follow(str(part(applications.objects[0], "spec", "source").get("repoURL") or ""))
        rows = [self._joined(row, applications) for row in self._rows(question, services, denied, applications)]
        if question.environment:
            rows = [row for row in rows if row.environment in (question.environment, "")]
        if any(row.application is None for row in rows) and not applications.denied:
            deployed = deployed_environments(self._cluster)
            rows = [replace(row, deployed=deployed) for row in rows]
        if question.name and rows:
            denied = {}
        elif question.name and not denied:
            rows = [Observed(question.name, "", question.environment, removed=self._was_removed(question))]
        lines, fetch = command_lines(self._cluster), self._clone.fetch_line
        rows = [
            replace(row, lines=lines, fetch=fetch, node_wait=self._node_wait(row.environment))
            for row in self._with_workloads(rows)
        ]
        now = datetime.now(UTC)
        answers = self._with_events(rows, [judge_service(row, now) for row in rows], now)
        answers = [
            answer if answer.namespace or row.removed else self._suggesting(answer, services)
            for row, answer in zip(rows, answers, strict=True)
        ]
        return ServiceStatuses(
            tuple(sorted(answers, key=lambda one: (one.environment, one.namespace, one.name))),
            tuple(f"{namespace}: {why}" for namespace, why in sorted(denied.items())),
        )

    # ------------------------------------------------------------ services

    def _services(self, namespaces: tuple[str, ...]) -> tuple[list[Object], dict[str, str]]:
        """The live services, and why each other namespace may not be read."""
        try:
            self._cluster.kind(_KSERVE, "InferenceService")
        except RefusedError as error:
            if error.code != 404:
                raise
            raise NoKServeError(f"{self._cluster.name} has no InferenceServices: KServe is not installed.") from error
        found: list[Object] = []
        denied: dict[str, RefusedError] = {}
        for namespace in namespaces:
            try:
                found += self._cluster.list(_KSERVE, "InferenceService", namespace, MANAGED)
            except RefusedError as error:
                if error.code not in _DENIED:
                    raise
                denied[namespace] = error
        if denied and len(denied) == len(namespaces):
            raise denied[namespaces[0]]
        return found, {namespace: error.message for namespace, error in denied.items()}

    def _rows(
        self, question: Question, services: list[Object], denied: dict[str, str], applications: _Read
    ) -> list[Observed]:
        """Every service in the cluster, and every one that should be there."""
        deployed = self._environments(question, services, applications)
        known = [path for path in self._clone.services if question.name in ("", path.service)]
        rows: list[Observed] = []
        for one in services:
            namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
            if question.name not in ("", name):
                continue
            candidates = [path.environment for path in known if path.service == name]
            environment = _environment(one, applications.objects) or (candidates[0] if len(candidates) == 1 else "")
            rows.append(Observed(name, namespace, environment, service=one))
        there = {(row.environment, row.name) for row in rows}
        unplaced = {(row.namespace, row.name) for row in rows if not row.environment}
        for path in known:
            if path.environment in deployed and (path.environment, path.service) not in there:
                wanted = self._clone.wanted(path)
                namespace = str(part(wanted, "metadata").get("namespace") or "")
                if namespace in question.namespaces and (namespace, path.service) not in unplaced:
                    hidden = {"InferenceService": denied[namespace]} if namespace in denied else {}
                    rows.append(Observed(path.service, namespace, path.environment, wanted=wanted, unreadable=hidden))
        return rows

    def _environments(self, question: Question, services: list[Object], applications: _Read) -> set[str]:
        """The environments that Argo CD deploys to this cluster; if they are unknown, all that have services."""
        if question.environment:
            return {question.environment}
        found = {*(deployed_environments(self._cluster) or ())}
        found |= {str(part(one, "metadata", "labels").get(ENVIRONMENT_LABEL) or "") for one in applications.objects}
        found |= {_environment(one, applications.objects) for one in services}
        if found <= {""} and question.name:
            return {path.environment for path in self._clone.services}
        return found - {""}

    def _joined(self, row: Observed, applications: _Read) -> Observed:
        """The service with its application and its object in the repository."""
        name = application_name(row.environment, row.name)
        application = next((one for one in applications.objects if part(one, "metadata").get("name") == name), None)
        path = ServicePath(row.environment, row.name)
        revision = str(part(application, "status", "sync").get("revision") or "")
        contains = None if application is None else self._clone.contains(revision, path)
        wanted = row.wanted
        if wanted is None and path in self._clone.services:
            wanted = self._clone.wanted(path, "" if contains is None else revision)
        hidden = {"Application": applications.denied} if applications.denied else {}
        return replace(
            row,
            application=application,
            contains=contains,
            wanted=wanted,
            removed=bool(row.environment) and self._clone.removed(path),
            unreadable={**row.unreadable, **hidden},
        )

    def _was_removed(self, question: Question) -> bool:
        """Whether the default branch once held the service that is asked about, and does no more."""
        known = self._settings.environments if self._settings is not None else ()
        places = [question.environment] if question.environment else list(known)
        return any(self._clone.removed(ServicePath(environment, question.name)) for environment in places)

    def _node_wait(self, environment: str) -> int:
        """Seconds that a pod of the environment may wait for a node."""
        known = self._settings.environments if self._settings is not None else {}
        return 60 * (known[environment].node_wait_minutes if environment in known else NODE_WAIT_MINUTES)

    def _suggesting(self, answer: ServiceStatus, services: list[Object]) -> ServiceStatus:
        """A suggestion for a name that no service has."""
        known = {path.service for path in self._clone.services} | {one["metadata"]["name"] for one in services}
        return replace(answer, next=suggest(answer.name, known)) if known else answer

    # ------------------------------------------------------------ what runs

    def _with_workloads(self, rows: list[Observed]) -> list[Observed]:
        namespaces = sorted({row.namespace for row in rows if row.service is not None})
        read = {
            (kind, namespace): self._optional(group_version, kind, namespace, SERVICE)
            for namespace in namespaces
            for group_version, kind in _WORKLOADS
        }
        by_service: dict[tuple[str, str, str], list[Object]] = {}
        for (kind, namespace), found in read.items():
            for one in found.objects:
                name = str(part(one, "metadata", "labels").get(SERVICE) or "")
                by_service.setdefault((kind, namespace, name), []).append(one)
        runtimes = self._runtimes(namespaces)
        done = []
        for row in rows:
            if row.service is None:
                done.append(row)
                continue
            deployments, sets, pods = (by_service.get((kind, row.namespace, row.name), []) for _, kind in _WORKLOADS)
            denied = {kind: why for _, kind in _WORKLOADS if (why := read[kind, row.namespace].denied)}
            runtime = str(part(row.service, "spec", "predictor", "model").get("runtime") or "")
            done.append(
                replace(
                    row,
                    deployment=_deployment(row.service, deployments),
                    replica_sets=tuple(sets),
                    pods=tuple(pods),
                    runtime=runtimes.get((row.namespace, runtime)) or runtimes.get(("", runtime)),
                    unreadable={**row.unreadable, **denied},
                )
            )
        return done

    def _runtimes(self, namespaces: list[str]) -> dict[tuple[str, str], Object]:
        """The serving runtimes that may be read, by namespace and name: they add to a service's arguments."""
        if not namespaces:
            return {}
        found = self._optional(_RUNTIMES, "ClusterServingRuntime").objects
        for namespace in namespaces:
            found = [*found, *self._optional(_RUNTIMES, "ServingRuntime", namespace).objects]
        return {(one["metadata"].get("namespace") or "", one["metadata"]["name"]): one for one in found}

    def _with_events(self, rows: list[Observed], answers: list[ServiceStatus], now: datetime) -> list[ServiceStatus]:
        """Add the events of a service that does not run well; they are many, so they are read only then."""
        pairs = list(zip(rows, answers, strict=True))
        ill = {row.namespace for row, answer in pairs if row.service is not None and answer.running != "ready"}
        events = {namespace: self._optional("v1", "Event", namespace).objects for namespace in ill}
        told = []
        until = time.monotonic() + _CAUSE_SECONDS
        for row, answer in pairs:
            if row.service is None or answer.running == "ready":
                told.append(answer)
                continue
            # By the uid: an object that was there earlier may have had the same name. Pods that end tell nothing new.
            pods = [pod for pod in row.pods if not is_ending(pod)]
            uids = {uid_of(one) for one in (row.service, row.deployment or {}, *row.replica_sets, *pods)} - {""}
            own = tuple(one for one in events[row.namespace] if part(one, "involvedObject").get("uid") in uids)
            verdict = judge_service(replace(row, events=own), now)
            told.append(self._with_cause(row, verdict, own) if time.monotonic() < until else verdict)
        return told

    def _with_cause(self, row: Observed, answer: ServiceStatus, events: tuple[Object, ...]) -> ServiceStatus:
        """The verdict on a service whose server fails, with the cause that its log names."""
        if answer.running != "failed" or not any(pod.node and pod.state == "failed" for pod in answer.pods):
            return answer
        cause = seen_cause(self._cluster, row.namespace, row.pods, events)
        if not cause:
            return answer
        told = f"{answer.running_reason}. {cause}"
        if answer.reason != answer.running_reason:
            return replace(answer, running_reason=told)
        where = f" --environment {answer.environment}" if answer.environment else ""
        following = row.lines.own(f"explain {answer.name}{where}")
        return replace(answer, reason=told, running_reason=told, next=f"Read the next configuration: {following}")

    def _optional(self, group_version: str, kind: str, namespace: str = "", labels: str = "") -> _Read:
        """Objects, or the message with which the cluster denies them. No objects for a kind that the cluster does not
        have."""
        try:
            return _Read(self._cluster.list(group_version, kind, namespace, labels))
        except RefusedError as error:
            if error.code in _DENIED:
                return _Read([], error.message)
            if error.code == 404:
                return _Read([])
            raise


def deployed_environments(cluster: Cluster) -> frozenset[str] | None:
    """The environments whose services Argo CD deploys to a cluster, by its ApplicationSets; None where it has none, or
    does not show them. Raises KubernetesError if the cluster cannot be asked."""
    try:
        sets = cluster.list(_ARGOCD, "ApplicationSet", NAMESPACE, ENVIRONMENT_LABEL)
    except RefusedError as error:
        if error.code in (*_DENIED, 404):
            return None
        raise
    # The local platform's own label is on the sets of all its environments; their applications have each one's.
    labels = [part(one, "spec", "template", "metadata", "labels").get(ENVIRONMENT_LABEL) for one in sets]
    return frozenset(str(label) for label in labels if label) or None


def _environment(service: Object, applications: list[Object]) -> str:
    """The environment that Argo CD deployed a service for: that of the application which the service names."""
    metadata = part(service, "metadata")
    name = str(metadata.get("name"))
    tracked = str(part(service, "metadata", "annotations").get(_TRACKING) or "").partition(":")[0]
    own = ("InferenceService", metadata.get("namespace"), name)
    for one in applications:
        listed = ((row.get("kind"), row.get("namespace"), row.get("name")) for row in items(one, "status", "resources"))
        if part(one, "metadata").get("name") == tracked or (not tracked and own in listed):
            return str(part(one, "metadata", "labels").get(ENVIRONMENT_LABEL) or "")
    return tracked.removeprefix(f"{name}.") if tracked.startswith(f"{name}.") else ""


def _deployment(service: Object, deployments: list[Object]) -> Object | None:
    """KServe's Deployment of the predictor."""
    variant = part(service, "spec", "predictor").get("name")
    name = str(part(service, "metadata").get("name"))
    wanted = f"{name}-{variant}-predictor" if variant else f"{name}-predictor"
    return next((one for one in deployments if part(one, "metadata").get("name") == wanted), None)

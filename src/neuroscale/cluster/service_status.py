"""Holds what `neuroscale status` read about a deployed service, and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from neuroscale.catalog.settings import NODE_WAIT_MINUTES
from neuroscale.cluster.command_lines import ANY_CLUSTER, CommandLines
from neuroscale.cluster.pod_state import PodState
from neuroscale.kube.client import Object

Verdict = Literal[
    "ready", "starting", "out of date", "not synced", "failed", "stopped", "removing", "missing", "unknown"
]


@dataclass(frozen=True)
class Observed:
    """The objects of one service; None or empty if they do not exist.

    `wanted`: the InferenceService in the repository, at the commit that Argo CD has applied if this clone has it.
    `application`: Argo CD's. `contains`: whether that commit has the service's last change (None: this clone does not
    have the commit). `runtime`: the serving runtime, of the namespace or of the cluster. `unreadable`: why a kind could
    not be read, by kind. `removed`: whether the default branch held the service's folder, and does no more.
    `lines`: the beginnings of commands for this cluster. `fetch`: the command that brings what Argo CD reads to this
    clone. `node_wait`: seconds that a pod may wait for a node, by the settings. `deployed`: the environments that
    Argo CD deploys to the cluster (None: not known).
    """

    name: str
    namespace: str
    environment: str = ""
    wanted: Object | None = None
    application: Object | None = None
    contains: bool | None = None
    service: Object | None = None
    runtime: Object | None = None
    deployment: Object | None = None
    replica_sets: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    events: tuple[Object, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    removed: bool = False
    lines: CommandLines = ANY_CLUSTER
    fetch: str = "git fetch"
    node_wait: int = NODE_WAIT_MINUTES * 60
    deployed: frozenset[str] | None = None


@dataclass(frozen=True)
class Application:
    """Argo CD's application. `contains_last_change`: None if this clone does not have the commit."""

    name: str
    sync: str
    health: str
    revision: str
    contains_last_change: bool | None
    told: str


@dataclass(frozen=True)
class Condition:
    """A condition of KServe that does not have the value it should have."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class ServiceStatus:
    """The verdict on one service: `reason` says why, `next` what to do (empty if nothing is to do).

    `replicas_ready` of `replicas_needed` are pods of the newest generation; `replicas_old` pods of earlier ones still
    serve. `url` is for clients outside of the cluster, if it has an ingress; `address` for clients within. `running`
    judges only the objects in the cluster, without Git, and `running_reason` says why. `waits_for`: what a pod of the
    newest generation cannot start without, such as "an accelerator" ("": it waits for nothing of the cluster's).
    """

    name: str
    namespace: str
    environment: str
    verdict: Verdict
    reason: str
    next: str
    url: str = ""
    address: str = ""
    model: str = ""
    curl: str = ""
    application: Application | None = None
    generation: int | None = None
    replicas_needed: int = 0
    replicas_ready: int = 0
    replicas_old: int = 0
    conditions: tuple[Condition, ...] = ()
    transition: str = ""
    model_state: str = ""
    last_failure: str = ""
    pods: tuple[PodState, ...] = ()
    events: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    running: Verdict = "unknown"
    running_reason: str = ""
    waits_for: str = ""

    @property
    def unfinished(self) -> bool | None:
        """Whether pods of an earlier version serve, since the newest version does not run yet; None where Git's newest
        version is not known to be the one of the cluster."""
        if self.verdict in ("not synced", "removing", "missing", "unknown"):
            return None
        return self.replicas_old > 0 and self.replicas_ready < self.replicas_needed


@dataclass(frozen=True)
class Judged:
    """A verdict, its reason, and what to do (empty if nothing is to do). `waits_for`: as in ServiceStatus."""

    verdict: Verdict
    reason: str
    next: str = ""
    waits_for: str = ""

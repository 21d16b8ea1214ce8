"""Judges whether a planned service fits into a cluster as it is now: nodes, free resources, quota. A pure function.

It counts as the scheduler and the quota controller do. It does not count on nodes that an autoscaler would add, or on
pods of lower priority that the scheduler would evict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from neuroscale.cluster.node_room import (
    Node,
    is_finished,
    is_meant,
    look,
    places_for,
    quantities,
    reserved,
    reserved_by_node,
    tolerated,
)
from neuroscale.cluster.object_fields import condition
from neuroscale.cluster.quotas import Share, judge_limits, judge_quotas, told
from neuroscale.core.printable import counted, first_of
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Object
from neuroscale.manifests.accelerators import GKE_SLICES
from neuroscale.manifests.objects import SERVICE
from neuroscale.manifests.pod_resources import requests

Verdict = Literal["fits", "fits the fewest", "does not fit", "no node now", "unknown"]

# Labels by which clouds and autoscalers name a group of equal nodes.
_POOLS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
)


@dataclass(frozen=True)
class Demand:
    """The demand of a planned service. `pod`: the spec of its pod. `replicas`: the fewest and the most. `surge`: pods
    that a change starts beside those that run; 0: it ends an old pod first."""

    service: str
    namespace: str
    pod: Object
    replicas: tuple[int, int]
    surge: int = 0

    @property
    def requests(self) -> dict[str, Decimal]:
        """The requests of one pod, by resource."""
        return requests(self.pod)


@dataclass(frozen=True)
class Other:
    """Another accelerator that the environment may use."""

    name: str
    resource: str
    node_selector: Mapping[str, str]


@dataclass(frozen=True)
class Read:
    """The cluster's objects. `unreadable`: why a kind cannot be read; nothing that depends on it is judged."""

    nodes: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    namespace: Object | None = None
    quotas: tuple[Object, ...] = ()
    limit_ranges: tuple[Object, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """Something that is missing, and its remedy."""

    message: str
    remedy: str


@dataclass(frozen=True)
class Pool:
    """A group of equal nodes. `usable`: nodes that could take a pod if they were empty. `allocatable` and `free`: sums
    of the `resource` over the nodes; `free` is None where it cannot be counted."""

    name: str
    nodes: int
    usable: int
    resource: str
    allocatable: int
    free: int | None


@dataclass(frozen=True)
class Capacity:
    """The answer. `places`: pods that find room now, counted up to the most replicas.

    `own`: pods of this service that hold room already; None if they could not be counted.
    """

    verdict: Verdict
    summary: str
    selector: dict[str, str]
    asks: dict[str, str]
    replicas: tuple[int, int]
    pools: tuple[Pool, ...] = ()
    places: int | None = None
    own: int | None = None
    quota_replicas: int | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def judge_capacity(demand: Demand, read: Read, others: Iterable[Other] = ()) -> Capacity:
    """Judge whether it fits. Anything that cannot be read or counted makes the verdict `unknown`, never `fits`."""
    return _Judge(demand, read, tuple(others)).capacity()


class _Judge:
    def __init__(self, demand: Demand, read: Read, others: tuple[Other, ...]) -> None:
        self.demand, self.read, self.others = demand, read, others
        self.fewest, self.most = demand.replicas
        self.asked = {**demand.requests, "pods": Decimal(1)}  # a node also limits the number of its pods
        self.selector = {str(key): str(value) for key, value in part(demand.pod, "nodeSelector").items()}
        self.device = next((name for name in demand.requests if "/" in name), "")
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.blind: list[str] = [read.unreadable[kind] for kind in sorted(read.unreadable)]
        self.surge = demand.surge if self._own() else 0
        self.used, problems = reserved_by_node(read.pods)
        self.blind += problems

    def capacity(self) -> Capacity:
        share = self._share()
        verdict, nodes, places, own = self._nodes()
        quota = share.replicas
        if self.blind:
            verdict = "unknown"
        elif share.refused or (quota is not None and quota < self.fewest + self.surge):
            verdict = "does not fit"
        elif verdict == "fits" and quota is not None and quota < self.most + self.surge:
            verdict = "fits the fewest"
        return Capacity(
            verdict=verdict,
            summary=self._summary(verdict, places, own, quota),
            selector=self.selector,
            asks={name: told(name, amount) for name, amount in self.demand.requests.items() if amount},
            replicas=self.demand.replicas,
            pools=self._pools(nodes),
            places=places,
            own=own,
            quota_replicas=quota,
            findings=(*self.findings, *(Finding(*one) for one in share.findings)),
            notes=tuple(self.notes),
        )

    # ------------------------------------------------------------ nodes

    def _nodes(self) -> tuple[Verdict, list[Node], int | None, int | None]:
        if "Node" in self.read.unreadable:
            return "unknown", [], None, None
        nodes = [self._node(one) for one in self.read.nodes if is_meant(one, self.selector, self.device)]
        if not nodes:
            self._no_node()
            return "no node now", [], 0, 0
        if "Pod" in self.read.unreadable:
            # Without the pods, free room is unknown; the reasons that keep a pod off every node are still known.
            if all(node.problems for node in nodes):
                self._tell_problems(nodes)
            return "unknown", nodes, None, None
        names = {node.name for node in nodes}
        there = [pod for pod in self._own() if part(pod, "spec").get("nodeName") in names]
        # A pod that asks for less than the new one does not leave enough room for it.
        own = [pod for pod in there if self._is_enough(pod)]
        if len(own) < len(there):
            count = counted(len(there) - len(own), "pod")
            self.notes.append(f"{count} of this service ask for less than the plan does: their room is not counted.")
        extra = self.surge if own else 0
        places = places_for(self.demand.pod, nodes, self.asked, self.most + extra)
        room = places + len(own) - extra
        if room < self.most:
            self._tell_problems(nodes)
            self._tell_full(nodes, places)
        if own:
            free = places + max(0, len(own) - self.most)  # a smaller number of replicas gives room back first
            there_is = "there is room for it" if free >= extra else "there is no room for it now"
            way = f"starts a new pod before it ends an old one: {there_is}"
            way = way if extra else "ends an old pod before it starts a new one: it needs no more room"
            self.notes.append(f"Of this service {counted(len(own), 'pod')} found room before. A change {way}.")
        waiting = [pod for pod in self.read.pods if not part(pod, "spec").get("nodeName") and self._competes(pod)]
        if waiting:
            self.notes.append(f"Other pods wait for such an accelerator already: {counted(len(waiting), 'pod')}.")
        verdict: Verdict = "fits" if room >= self.most else "fits the fewest" if room >= self.fewest else "does not fit"
        return verdict, nodes, places, len(own)

    def _node(self, found: Object) -> Node:
        used = self.used.get(str(part(found, "metadata").get("name")), {})
        return look(found, self.demand.pod, self.asked, used)

    def _own(self) -> list[Object]:
        return [
            pod
            for pod in self.read.pods
            if part(pod, "metadata").get("namespace") == self.demand.namespace
            and part(pod, "metadata", "labels").get(SERVICE) == self.demand.service
            and not is_finished(pod)
            and not part(pod, "metadata").get("deletionTimestamp")
        ]

    def _is_enough(self, pod: Object) -> bool:
        """Whether a pod holds at least as much as a new one asks for."""
        try:
            held = reserved(pod)
        except ValueError:
            return False
        return all(held.get(name, Decimal(0)) >= amount for name, amount in self.demand.requests.items())

    def _competes(self, pod: Object) -> bool:
        if is_finished(pod):
            return False
        try:
            asked = reserved(pod)
        except ValueError:
            return True
        mine = part(pod, "metadata", "labels").get(SERVICE) == self.demand.service
        same = part(pod, "metadata").get("namespace") == self.demand.namespace
        return bool(self.device and asked.get(self.device)) and not (mine and same)

    # ------------------------------------------------------------ messages

    def _no_node(self) -> None:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(self.selector.items())) or "(any)"
        holders = [
            node
            for node in self.read.nodes
            if self.device and quantities(part(node, "status", "allocatable")).get(self.device)
        ]
        if holders:
            labels = [part(node, "metadata", "labels") for node in holders]
            keys = sorted({*self.selector, *(GKE_SLICES for one in labels if GKE_SLICES in one)})
            values = sorted({f"{key}={one.get(key, '(none)')}" for one in labels for key in keys})[:6]
            wanted += " and whole cards" if GKE_SLICES in set(keys) - self.selector.keys() else ""
            there = f" Labelled otherwise: {counted(len(holders), 'node')} with {self.device} ({', '.join(values)})."
        else:
            there = f" No node has {self.device}." if self.device else ""
        self.findings.append(
            Finding(
                f"No node has the labels {wanted} now.{there}",
                "A cluster that makes nodes on demand adds one when the pod waits for it, if it has such a pool. "
                f"Otherwise add nodes, or label them.{self._elsewhere()}",
            )
        )

    def _tell_problems(self, nodes: list[Node]) -> None:
        by_problem: dict[str, list[str]] = {}
        for node in nodes:
            for problem in node.problems:
                by_problem.setdefault(problem, []).append(node.name)
        for problem, names in sorted(by_problem.items(), key=lambda row: -len(row[1])):
            remedy = "Repair or uncordon it, or add nodes."
            if "taint" in problem:
                remedy = (
                    "Have the taint removed, or use other nodes: rendered pods tolerate only their accelerator's taint."
                )
            elif "asks for" in problem:
                remedy = "Use larger nodes, or another accelerator or count by an override in the request."
            self.findings.append(Finding(f"{_names(names)} {problem}.", remedy))

    def _tell_full(self, nodes: list[Node], places: int) -> None:
        usable = [node for node in nodes if not node.problems]
        short = sorted(
            name
            for name, amount in self.asked.items()
            if any(node.free.get(name, Decimal(0)) < amount for node in usable)
        )
        if not short:
            if usable and any(node.places(self.asked) for node in usable):
                told_spread = f"{counted(places, 'pod')} of {self.most} find room: they must spread over nodes."
                self.findings.append(Finding(told_spread, "Add nodes, or lower replicas.max by an override."))
            return
        lacking = "; ".join(
            f"{name}: {told(name, _total(node.free.get(name) for node in usable))} of "
            f"{told(name, _total(node.allocatable.get(name) for node in usable))} free, "
            f"{told(name, self.asked[name])} for a pod"
            for name in short
        )
        instead = " Or override `rollout` with replace: a change then ends an old pod first." if self.surge else ""
        self.findings.append(
            Finding(
                f"{counted(places, 'pod')} of {self.fewest} to {self.most} find room on {counted(len(usable), 'node')} "
                f"({lacking}).{self._holders(usable)}",
                f"Wait for one to end, add nodes, or let the cluster make them.{instead}{self._elsewhere()}",
            )
        )

    def _holders(self, nodes: list[Node]) -> str:
        """A sentence that names the namespaces that hold the accelerators."""
        if not self.device:
            return ""
        names = {node.name for node in nodes}
        held: dict[str, Decimal] = {}
        for pod in self.read.pods:
            if part(pod, "spec").get("nodeName") in names and not is_finished(pod):
                namespace = str(part(pod, "metadata").get("namespace"))
                held[namespace] = held.get(namespace, Decimal(0)) + reserved(pod).get(self.device, Decimal(0))
        rows = sorted(((amount, name) for name, amount in held.items() if amount), reverse=True)
        return f" Held by {', '.join(f'{name} ({amount})' for amount, name in rows[:5])}." if rows else ""

    def _elsewhere(self) -> str:
        """A sentence that names other accelerators of the environment that are free now."""
        if "Pod" in self.read.unreadable:
            return ""
        free = []
        for other in self.others:
            count = Decimal(0)
            for node in self.read.nodes:
                tolerations = [{"key": other.resource, "operator": "Exists"}]
                closed = part(node, "spec").get("unschedulable") or condition(node, "Ready").get("status") != "True"
                tainted = any(not tolerated(taint, tolerations) for taint in items(node, "spec", "taints"))
                meant = is_meant(node, other.node_selector, other.resource)
                if other.resource and meant and not closed and not tainted:
                    has = quantities(part(node, "status", "allocatable")).get(other.resource, Decimal(0))
                    used = self.used.get(str(part(node, "metadata").get("name")), {}).get(other.resource, Decimal(0))
                    count += max(Decimal(0), has - used)
            if count:
                free.append(f"{other.name} ({count})")
        return f" Free now: {', '.join(free)}; name one by an override of `accelerator` in the request." if free else ""

    def _pools(self, nodes: list[Node]) -> tuple[Pool, ...]:
        pools: dict[str, list[Node]] = {}
        for node in nodes:
            labels = part(node.found, "metadata", "labels")
            pools.setdefault(next((str(labels[key]) for key in _POOLS if key in labels), ""), []).append(node)
        resource = self.device or "cpu"
        found = []
        for name, members in sorted(pools.items()):
            usable = [node for node in members if not node.problems]
            free = None if "Pod" in self.read.unreadable else int(_total(node.free.get(resource) for node in usable))
            allocatable = int(_total(node.allocatable.get(resource) for node in members))
            found.append(Pool(name or "without a name", len(members), len(usable), resource, allocatable, free))
        return tuple(found)

    def _summary(self, verdict: Verdict, places: int | None, own: int | None, quota: int | None) -> str:
        if verdict == "unknown":
            return f"it cannot be judged: {' '.join(self.blind)}".strip()
        extra = self.surge if own else 0
        room = (places or 0) + (own or 0) - extra
        beside = f" and {counted(extra, 'pod')} more during a change" if extra else ""
        if verdict == "fits":
            return f"room for {self.most} of {counted(self.most, 'replica')}{beside}"
        if verdict == "fits the fewest":
            most = min(room, quota - self.surge if quota is not None else room)
            return f"room for {most} of {counted(self.most, 'replica')}{beside}; {self.fewest} are needed at first"
        if verdict == "no node now":
            return "the cluster has no such node now"
        reasons = []
        if places is not None and room < self.fewest:
            reasons.append(f"room for {places + (own or 0)} of {self._wanted(extra)}")
        if quota is not None and quota < self.fewest + self.surge:
            reasons.append(f"quota for {quota} of {self._wanted(self.surge)}")
        return " and ".join(reasons) or "the cluster would refuse it"

    def _wanted(self, extra: int) -> str:
        replicas = counted(self.fewest, "replica")
        return f"{self.fewest + extra} pods (a change starts {extra} beside {replicas})" if extra else replicas

    # ------------------------------------------------------------ the namespace

    def _share(self) -> Share:
        read, namespace = self.read, self.demand.namespace
        refused: list[tuple[str, str]] = []
        if read.namespace is None and "Namespace" not in read.unreadable:
            missing = f"The namespace {namespace} does not exist in this cluster."
            refused.append((missing, "Install the platform there: neuroscale platform install"))
        refused += judge_limits(self.demand.pod, read.limit_ranges)
        own = self._own()
        share = judge_quotas(self.demand.pod, self.most + self.surge, read.quotas, read.limit_ranges, own)
        self.blind += share.blind
        return Share(share.replicas, (*refused, *share.findings), bool(refused) or share.refused)


def _total(amounts: Iterable[Decimal | None]) -> Decimal:
    """The sum of the amounts above zero."""
    return sum((amount for amount in amounts if amount is not None and amount > 0), Decimal(0))


def _names(names: list[str]) -> str:
    """`Node a`, or `Each of a, b and 3 more`: the subject of a sentence whose verb is in the singular."""
    return f"Node {names[0]}" if len(names) == 1 else f"Each of {first_of(names, 3)}"

"""Counts the room on a cluster's nodes as the scheduler does: free resources, taints, and how pods spread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from neuroscale.cluster.object_fields import condition
from neuroscale.cluster.quotas import told
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Object
from neuroscale.manifests.accelerators import GKE_SLICES
from neuroscale.manifests.pod_resources import quantity, requests

Amounts = Mapping[str, Decimal]

_FINISHED = ("Succeeded", "Failed")


@dataclass
class Node:
    """A node that the pod's selector allows: why it cannot take the pod, and its free resources."""

    found: Object
    problems: list[str]
    taints: list[str]
    allocatable: dict[str, Decimal]
    free: dict[str, Decimal]

    @property
    def name(self) -> str:
        return str(part(self.found, "metadata").get("name"))

    def places(self, asked: Amounts) -> int:
        """How many more such pods it can take."""
        if self.problems:
            return 0
        return min(
            (
                int(max(Decimal(0), self.free.get(name, Decimal(0))) // amount)
                for name, amount in asked.items()
                if amount
            ),
            default=0,
        )


def look(found: Object, pod: Object, asked: Amounts, used: Amounts) -> Node:
    """A node as the pod would find it. `used`: resources that are reserved on it already."""
    allocatable = quantities(part(found, "status", "allocatable"))
    free = {name: amount - used.get(name, Decimal(0)) for name, amount in allocatable.items()}
    problems = []
    if part(found, "spec").get("unschedulable"):
        problems.append("is cordoned")
    if condition(found, "Ready").get("status") != "True":
        problems.append("is not ready")
    tolerations = items(pod, "tolerations")
    taints = [taint for taint in items(found, "spec", "taints") if not tolerated(taint, tolerations)]
    # The lines above name the taints that Kubernetes sets by itself.
    told_taints = [_taint(one) for one in taints if not str(one.get("key")).startswith("node.kubernetes.io/")]
    if told_taints:
        problems.append(f"has a taint that the pod does not tolerate ({', '.join(told_taints)})")
    elif taints and not problems:
        problems.append(f"is tainted by Kubernetes ({', '.join(map(_taint, taints))})")
    for name, amount in asked.items():
        has = allocatable.get(name, Decimal(0))
        if amount > has:
            problems.append(f"has {told(name, has)} of {name}, and a pod asks for {told(name, amount)}")
    return Node(found, problems, [_taint(one) for one in taints], allocatable, free)


def places_for(pod: Object, nodes: Sequence[Node], asked: Amounts, most: int) -> int:
    """How many pods find room, one after the other, spread as they ask to be; counted up to `most`."""
    left = {node.name: node.places(asked) for node in nodes}
    spreads = [_Spread(rule, nodes) for rule in items(pod, "topologySpreadConstraints")]
    spreads = [spread for spread in spreads if spread.strict]
    placed = 0
    while placed < most:
        open_nodes = [node for node in nodes if left[node.name] and all(spread.allows(node) for spread in spreads)]
        if not open_nodes:
            return placed
        best = min(open_nodes, key=lambda node: [spread.count(node) for spread in spreads])
        left[best.name] -= 1
        placed += 1
        for spread in spreads:
            spread.add(best)
    return placed


class _Spread:
    """A topology spread constraint, as the scheduler reads it."""

    def __init__(self, rule: Mapping[str, Any], nodes: Sequence[Node]) -> None:
        self.key = str(rule.get("topologyKey"))
        self.skew = int(rule.get("maxSkew") or 1)
        self.strict = rule.get("whenUnsatisfiable") == "DoNotSchedule"
        honor = rule.get("nodeTaintsPolicy") == "Honor"
        counted = [
            node for node in nodes if not honor or not (node.taints or part(node.found, "spec").get("unschedulable"))
        ]
        self.counts = {domain: 0 for node in counted if (domain := self._domain(node)) is not None}

    def allows(self, node: Node) -> bool:
        domain = self._domain(node)
        if domain is None or domain not in self.counts:
            return False
        return self.counts[domain] + 1 - min(self.counts.values()) <= self.skew

    def count(self, node: Node) -> int:
        return self.counts[str(self._domain(node))]

    def add(self, node: Node) -> None:
        self.counts[str(self._domain(node))] += 1

    def _domain(self, node: Node) -> str | None:
        found = part(node.found, "metadata", "labels").get(self.key)
        return None if found is None else str(found)


def reserved_by_node(pods: Iterable[Object]) -> tuple[dict[str, dict[str, Decimal]], list[str]]:
    """The resources that unfinished pods reserve on each node, and the pods that cannot be counted."""
    used: dict[str, dict[str, Decimal]] = {}
    problems = []
    for pod in pods:
        node = part(pod, "spec").get("nodeName")
        if not node or is_finished(pod):
            continue
        try:
            asked = reserved(pod)
        except ValueError as error:
            metadata = part(pod, "metadata")
            problems.append(f"The requests of {metadata.get('namespace')}/{metadata.get('name')}: {error}.")
            continue
        on_node = used.setdefault(str(node), {})
        for name, amount in {**asked, "pods": Decimal(1)}.items():
            on_node[name] = on_node.get(name, Decimal(0)) + amount
    return used, problems


def is_finished(pod: Object) -> bool:
    """Whether its containers have ended for good, so that it holds no room."""
    return part(pod, "status").get("phase") in _FINISHED


def reserved(pod: Object) -> dict[str, Decimal]:
    """The resources that the scheduler counts for a pod: its requests, or more if a resized pod still holds more.

    Raises ValueError for an amount that cannot be read.
    """
    spec = part(pod, "spec")
    total = requests(spec)
    for path in (("allocatedResources",), ("resources", "requests")):
        held = dict(spec)
        for kind in ("container", "initContainer"):
            statuses = {one.get("name"): part(one, *path) for one in items(pod, "status", f"{kind}Statuses")}
            held[f"{kind}s"] = [
                {**one, "resources": {"requests": statuses[one["name"]]}} if statuses.get(one.get("name")) else one
                for one in items(spec, f"{kind}s")
            ]
        whole = part(pod, "status", *path)
        if whole:
            held = {"containers": [{"resources": {"requests": whole}}], "overhead": spec.get("overhead")}
        for name, amount in requests(held).items():
            total[name] = max(total.get(name, Decimal(0)), amount)
    return total


def tolerated(taint: Mapping[str, Any], tolerations: list[dict[str, Any]]) -> bool:
    """Whether a pod with these tolerations may run on a node with this taint."""
    if taint.get("effect") == "PreferNoSchedule":
        return True
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    operator = toleration.get("operator") or "Equal"
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if not toleration.get("key"):
        return bool(operator == "Exists")
    if toleration.get("key") != taint.get("key"):
        return False
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(operator == "Exists" or (operator == "Equal" and same))


def _taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def is_meant(node: Object, selector: Mapping[str, str], device: str) -> bool:
    """Whether a node selector means the node: it has all its labels.

    A selector of whole cards also fits nodes on which GKE offers slices as whole cards, and does not mean them.
    `device`: the resource of the accelerator, "" for none.
    """
    labels = part(node, "metadata", "labels")
    in_slices = bool(device) and GKE_SLICES in labels and GKE_SLICES not in selector
    return not in_slices and all(labels.get(key) == value for key, value in selector.items())


def quantities(found: Mapping[str, Any]) -> dict[str, Decimal]:
    """Amounts by resource; an amount that cannot be read counts as zero."""
    amounts = {}
    for name, value in found.items():
        try:
            amounts[str(name)] = quantity(value)
        except ValueError:
            amounts[str(name)] = Decimal(0)
    return amounts

"""Finds the accelerator of the catalog that a pod asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import prod

from neuroscale.catalog import Accelerator, Catalog
from neuroscale.core.errors import Problem
from neuroscale.manifests.pod_resources import Labels, Pod
from neuroscale.repo.layout import ACCELERATORS

GKE_SLICES = "cloud.google.com/gke-gpu-partition-size"
"""The label of nodes whose cards GKE cuts into slices, each of which a pod asks for as a whole card."""
_MOST_NODES = 1000


def find_accelerator(pod: Pod, catalog: Catalog, usual: Sequence[str]) -> tuple[str, int]:
    """The accelerator's name and how many of it one pod asks for; ("", 0) for a pod without one.

    `usual`: the accelerators of the environment; a pod that selects no nodes means one of them. Raises ValueError with
    the reason if the catalog cannot decide which accelerator it is.
    """
    if pod.claims:
        raise ValueError("it asks for devices by resource claims")
    if not pod.devices:
        return "", 0
    if len(pod.devices) > 1:
        raise ValueError(f"it asks for several kinds of devices: {', '.join(sorted(pod.devices))}")
    ((resource, amount),) = pod.devices.items()
    known = [way for one in catalog.accelerators.values() for way in one.ways if way.resource == resource]
    if not known:
        raise ValueError(f"no accelerator of the catalog has the resource {resource}")
    if amount != int(amount):
        raise ValueError(f"{amount} is not a whole number of {resource}")
    count = int(amount)
    chosen = _only(pod, known, usual, count)
    for labels in pod.nodes:
        if GKE_SLICES in labels and GKE_SLICES not in chosen.node_selector:
            sizes = ", ".join(sorted(labels[GKE_SLICES]))
            raise ValueError(f"the catalog has no accelerator for slices of {chosen.name} of the size {sizes}")
    if count not in chosen.counts:
        counts = ", ".join(map(str, chosen.counts))
        raise ValueError(f"a pod cannot hold {count:,} x {chosen.name}, only {counts}")
    return chosen.name, count


def doubles(catalog: Catalog) -> Iterator[Problem]:
    """A problem for each two accelerators for which the same pods ask: then none of these has a price, or is judged."""
    for one, other in combinations(catalog.accelerators.values(), 2):
        if set(one.counts).isdisjoint(other.counts):
            continue
        for way, theirs in product(one.ways, other.ways):
            if way.resource and (way.resource, way.node_selector) == (theirs.resource, theirs.node_selector):
                labels = ", ".join(f"{key}={value}" for key, value in sorted(way.node_selector.items())) or "no label"
                yield Problem(
                    ACCELERATORS,
                    "node_selector",
                    f"a pod that asks for {one.name!r} also asks for {other.name!r} ({way.resource}, {labels}): "
                    "neither its price nor its memory is known",
                    "Remove one of the two, or give their nodes different labels.",
                )
                break


def _only(pod: Pod, known: Sequence[Accelerator], usual: Sequence[str], count: int) -> Accelerator:
    """The one accelerator that every node that the pod may run on has."""
    keys = sorted({key for one in known for key in one.node_selector})
    found: dict[str, Accelerator] = {}
    for labels in pod.nodes:
        if any(key in labels for key in keys):
            for node in _nodes(labels, keys):
                found |= {one.name: one for one in _fitting(node, known)}
        else:
            found |= {one.name: one for one in known if one.name in usual}
    if len(found) > 1:
        found = {name: one for name, one in found.items() if count in one.counts} or found
    if len(found) == 1:
        return next(iter(found.values()))
    names = ", ".join(sorted(found or {one.name: one for one in known}))
    hint = f"; a node selector with {' and '.join(keys)} would decide" if keys else ""
    raise ValueError(f"the nodes it selects may have any of {names}{hint}")


def _nodes(labels: Labels, keys: Sequence[str]) -> list[dict[str, str]]:
    """The kinds of nodes that `labels` allow, as far as the labels with `keys` distinguish them."""
    pinned = [key for key in keys if key in labels]
    if prod(len(labels[key]) for key in pinned) > _MOST_NODES:
        raise ValueError("it selects too many kinds of nodes")
    return [dict(zip(pinned, values, strict=True)) for values in product(*(sorted(labels[key]) for key in pinned))]


def _fitting(node: dict[str, str], known: Sequence[Accelerator]) -> list[Accelerator]:
    """The accelerators whose labels the node has; if it has no accelerator's labels in full, the possible ones."""
    whole = [one for one in known if one.node_selector.items() <= node.items()]
    if whole:
        most = max(len(one.node_selector) for one in whole)
        return [one for one in whole if len(one.node_selector) == most]
    possible = [
        one
        for one in known
        if one.node_selector.keys() & node.keys()
        and all(node.get(key, value) == value for key, value in one.node_selector.items())
    ]
    if not possible:
        selected = ", ".join(f"{key}={value}" for key, value in node.items())
        raise ValueError(f"the catalog has no accelerator for nodes with {selected}")
    return possible

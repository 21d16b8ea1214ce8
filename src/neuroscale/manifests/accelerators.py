"""Finds the accelerator of the catalog that a pod asks for, and refuses labels that ask for a part of a card."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from neuroscale.catalog import Accelerator, Catalog
from neuroscale.core.errors import Problem
from neuroscale.core.validation import mapping
from neuroscale.manifests.pod_resources import Labels, Pod, Rule, affinity_rules
from neuroscale.repo.layout import ACCELERATORS

GKE_SLICES = "cloud.google.com/gke-gpu-partition-size"
"""The label of nodes whose cards GKE cuts into slices, each of which a pod asks for as a whole card."""
_MOST_NODES = 1000


def find_accelerator(pod: Pod, catalog: Catalog, usual: Sequence[str]) -> tuple[str, int]:
    """The accelerator's name and how many of it one pod asks for; ("", 0) for a pod without one. `usual`: the
    accelerators of the environment; a pod that selects no nodes means one of them. Raises ValueError with the reason if
    the catalog cannot decide which accelerator it is."""
    if pod.claims:
        raise ValueError("it asks for devices by resource claims")
    if not pod.devices:
        return "", 0
    if len(pod.devices) > 1:
        raise ValueError(f"it asks for several kinds of devices: {', '.join(sorted(pod.devices))}")
    ((resource, amount),) = pod.devices.items()
    known = [way for card in catalog.accelerators.values() for way in card.ways if way.resource == resource]
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
    for one, other in itertools.combinations(catalog.accelerators.values(), 2):
        if set(one.counts).isdisjoint(other.counts):
            continue
        for way, theirs in itertools.product(one.ways, other.ways):
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
    keys = sorted({key for card in known for key in card.node_selector})
    found: dict[str, Accelerator] = {}
    for labels in pod.nodes:
        if any(key in labels for key in keys):
            for node in _nodes(labels, keys):
                found |= {card.name: card for card in _fitting(node, known)}
        else:
            found |= {card.name: card for card in known if card.name in usual}
    if len(found) > 1:
        found = {name: card for name, card in found.items() if count in card.counts} or found
    if len(found) == 1:
        return next(iter(found.values()))
    names = ", ".join(sorted(found or {card.name: card for card in known}))
    hint = f"; a node selector with {' and '.join(keys)} would decide" if keys else ""
    raise ValueError(f"the nodes it selects may have any of {names}{hint}")


def _nodes(labels: Labels, keys: Sequence[str]) -> list[dict[str, str]]:
    """The kinds of nodes that `labels` allow, as far as the labels with `keys` distinguish them."""
    pinned = [key for key in keys if key in labels]
    if prod(len(labels[key]) for key in pinned) > _MOST_NODES:
        raise ValueError("it selects too many kinds of nodes")
    return [
        dict(zip(pinned, values, strict=True)) for values in itertools.product(*(sorted(labels[key]) for key in pinned))
    ]


def _fitting(node: dict[str, str], known: Sequence[Accelerator]) -> list[Accelerator]:
    """The accelerators whose labels the node has; if it has no accelerator's labels in full, the possible ones."""
    whole = [card for card in known if card.node_selector.items() <= node.items()]
    if whole:
        most = max(len(card.node_selector) for card in whole)
        return [card for card in whole if len(card.node_selector) == most]
    possible = [
        card
        for card in known
        if card.node_selector.keys() & node.keys()
        and all(node.get(key, value) == value for key, value in card.node_selector.items())
    ]
    if not possible:
        selected = ", ".join(f"{key}={value}" for key, value in node.items())
        raise ValueError(f"the catalog has no accelerator for nodes with {selected}")
    return possible


PRODUCT = "nvidia.com/gpu.product"
_MEMORY = "nvidia.com/gpu.memory"
_SHARES = (
    GKE_SLICES,
    "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-max-shared-clients-per-gpu",
    "nvidia.com/device-plugin.config",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/mig.config",
    "nvidia.com/mig.strategy",
    "nvidia.com/vgpu.present",
)
_SLICE = re.compile(r"nvidia\.com/mig-.+")
_WHOLE = frozenset({"", "0", "1", "false", "none", "all-disabled"})
"""Values of the labels in `_SHARES` that mean an undivided card."""
_OTHER_NAMES = re.compile(
    r"(^|[./-])(gpu[.-](family|machine|memory|name|compute)|instance-(family|type)|machine-family)"
)
"""Labels that distinguish cards and that the catalog does not use."""
_DESCRIBING = re.compile(r"sxm\d*|pcie|hbm\d+e?|blackwell|server|edition")
"""Parts of a product's name that do not make it another card."""
_NEAR = 0.08  # how far the memory in NVIDIA's label may be from the usable memory in the catalog, as a share


def named_cards(pod: Pod, spec: Mapping[str, Any] | None, accelerators: Iterable[Accelerator]) -> Pod:
    """A pod that names its card by NVIDIA's label, rewritten to the catalog's labels. `spec`: the pod's spec, if it is
    at hand. Raises ValueError if the labels ask for a part of a card, contradict each other, or name a card in a way
    that the catalog does not know."""
    cards = list(accelerators)
    rules = [*(_rules(spec) if spec is not None else ()), *_plain(pod.nodes)]
    _refuse_parts(rules, pod.nodes, cards)
    nodes = tuple(node for labels in pod.nodes for node in _with_card(labels, cards))
    if not nodes:
        raise ValueError(f"no node has all the labels that it selects: {PRODUCT} names another card than the rest")
    known = {key for card in cards for way in card.ways for key in way.node_selector}
    if pod.devices and not all(known & set(labels) for labels in nodes):
        for key, _, _ in rules:
            if _OTHER_NAMES.search(key) and key not in known:
                raise ValueError(f"the catalog does not know which card the label {key} of its nodes means")
    return replace(pod, nodes=nodes)


def check_memory_label(spec: Mapping[str, Any], name: str, memory_gib: float) -> None:
    """Raises ValueError if the pod selects nodes whose cards have another memory than the card that it names."""
    size = memory_gib * 1024
    for key, operator, values in _rules(spec):
        if key != _MEMORY or operator not in ("In", "Lt", "Gt"):
            continue
        numbers = [float(value) for value in values if re.fullmatch(r"\d{1,12}", value)]
        held = {
            "In": any(abs(number - size) <= _NEAR * size for number in numbers),
            "Lt": all(number > size for number in numbers),
            "Gt": all(number < size * (1 + _NEAR) for number in numbers),
        }[operator]
        if not held:
            told = f"{key} {operator} {', '.join(values)}"
            raise ValueError(f"it selects nodes by {told}, which is not the memory of a whole {name}")


def _refuse_parts(rules: Iterable[Rule], nodes: Iterable[Labels], cards: Iterable[Accelerator]) -> None:
    """Raises ValueError for a label of parts, unless the labels are all those by which the catalog selects a slice."""
    selectors = [way.node_selector for card in cards for way in card.ways]
    slices = [
        {
            key
            for selector in selectors
            if not selector.keys().isdisjoint(_SHARES) and _selects(labels, selector)
            for key in selector
        }
        for labels in nodes
    ]
    for key, operator, values in rules:
        excluded = operator in ("NotIn", "DoesNotExist") or (slices and all(key in known for known in slices))
        if not excluded and (_SLICE.fullmatch(key) or (key in _SHARES and not (values and set(values) <= _WHOLE))):
            raise ValueError(f"its nodes share their cards or cut them into parts, by the label {key}")


def _selects(labels: Labels, selector: Mapping[str, str]) -> bool:
    return all(labels.get(key) == frozenset({value}) for key, value in selector.items())


def _with_card(labels: Labels, cards: list[Accelerator]) -> Iterator[Labels]:
    """`labels`, once for each product among them, with the labels by which the catalog selects that card."""
    products = labels.get(PRODUCT)
    if products is None:
        yield labels
        return
    for product in sorted(products):
        named = [card for card in cards if is_card(card.name, product)]
        if len(named) != 1:
            raise ValueError(f"the catalog does not know the product {product}")
        told = named[0].node_selector
        if all(value in labels.get(key, {value}) for key, value in told.items()):
            yield {**labels, PRODUCT: frozenset({product}), **{key: frozenset({value}) for key, value in told.items()}}


def is_card(name: str, product: str) -> bool:
    """Whether a product of NVIDIA's label (NVIDIA-A100-SXM4-80GB) is an accelerator (nvidia-a100-80gb). An unknown part
    (SHARED, MIG, 12Q) makes it another one."""
    theirs, ours = (set(one.lower().split("-")) for one in (product, name))
    sizes = [{part for part in parts if re.fullmatch(r"\d+gb", part)} for parts in (theirs, ours)]
    if all(sizes) and sizes[0] != sizes[1]:
        return False
    return ours - sizes[1] <= theirs and all(_DESCRIBING.fullmatch(part) for part in theirs - ours - sizes[0])


def _rules(spec: Mapping[str, Any]) -> Iterator[Rule]:
    """Every condition on labels in the node selector and the required node affinity."""
    for key, value in mapping(spec.get("nodeSelector"), "nodeSelector").items():
        yield str(key), "In", (str(value),)
    for rules in affinity_rules(spec):
        yield from rules


def _plain(nodes: Iterable[Labels]) -> Iterator[Rule]:
    for labels in nodes:
        for key, values in labels.items():
            yield key, "In", tuple(values)

"""Finds the card that the node labels of a pod name, and refuses labels that ask for a part of a card."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from neuroscale.catalog import Accelerator
from neuroscale.manifests.accelerators import GKE_SLICES
from neuroscale.manifests.pod_resources import Labels, Pod, mapping, sequence

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
_NEAR = 0.08
"""How far the memory in NVIDIA's label may be from the usable memory in the catalog, as a share."""

_Rule = tuple[str, str, tuple[str, ...]]
"""A label, an operator as in node affinity, and the values."""


def named_cards(pod: Pod, spec: Mapping[str, Any] | None, accelerators: Iterable[Accelerator]) -> Pod:
    """A pod that names its card by NVIDIA's label, rewritten to the catalog's labels.

    `spec`: the pod's spec, if it is at hand. Raises ValueError if the labels ask for a part of a card, contradict each
    other, or name a card in a way that the catalog does not know.
    """
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


def _refuse_parts(rules: Iterable[_Rule], nodes: Iterable[Labels], cards: Iterable[Accelerator]) -> None:
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
    """Whether a product of NVIDIA's label (NVIDIA-A100-SXM4-80GB) is an accelerator (nvidia-a100-80gb).

    An unknown part (SHARED, MIG, 12Q) makes it another one.
    """
    theirs, ours = (set(one.lower().split("-")) for one in (product, name))
    sizes = [{part for part in parts if re.fullmatch(r"\d+gb", part)} for parts in (theirs, ours)]
    if all(sizes) and sizes[0] != sizes[1]:
        return False
    return ours - sizes[1] <= theirs and all(_DESCRIBING.fullmatch(part) for part in theirs - ours - sizes[0])


def _rules(spec: Mapping[str, Any]) -> Iterator[_Rule]:
    """Every condition on labels in the node selector and the required node affinity."""
    for key, value in mapping(spec.get("nodeSelector"), "nodeSelector").items():
        yield str(key), "In", (str(value),)
    affinity = mapping(mapping(spec.get("affinity"), "affinity").get("nodeAffinity"), "nodeAffinity")
    required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"), "required node affinity")
    for term in sequence(required.get("nodeSelectorTerms"), "nodeSelectorTerms"):
        for item in sequence(mapping(term, "a node selector term").get("matchExpressions"), "matchExpressions"):
            rule = mapping(item, "a match expression")
            values = tuple(str(value) for value in sequence(rule.get("values"), "values"))
            yield str(rule.get("key")), str(rule.get("operator")), values


def _plain(nodes: Iterable[Labels]) -> Iterator[_Rule]:
    for labels in nodes:
        for key, values in labels.items():
            yield key, "In", tuple(values)

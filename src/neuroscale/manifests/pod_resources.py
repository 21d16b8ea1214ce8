"""Reads the resources that one pod asks for, by the rules of the scheduler, as exact decimals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from typing import Any

from neuroscale.core.units import GIB
from neuroscale.core.validation import mapping, sequence

_QUANTITY = re.compile(
    r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST = Decimal(2**63 - 1)
_SMALLEST = Decimal("1e-9")
_EXACT = Context(prec=120, Emax=5000, Emin=-5000)


def quantity(value: Any) -> Decimal:
    """The amount in base units: cores, bytes, pieces. As in Kubernetes, a fraction finer than a billionth is rounded
    up, and an amount above 2^63-1 becomes 2^63-1. Raises ValueError for a value that is not a quantity, and for a
    negative one, which no pod can ask for."""
    # A number of YAML or JSON is read by its shortest spelling, as the file has it.
    text = repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{value!r:.60} is not a quantity")
    sign, number, suffix = match[1], match[2], match[3] or ""
    with localcontext(_EXACT):
        amount = Decimal(number.strip(".") if number.endswith(".") else number)
        if suffix in _BINARY:
            amount *= 2 ** _BINARY[suffix]
        else:
            amount = amount.scaleb(
                int(suffix[1:]) if suffix[:1] in ("e", "E") and len(suffix) > 1 else _DECIMAL[suffix]
            )
        if sign == "-" and amount:
            raise ValueError(f"{value!r:.60} is negative")
        if amount >= _LARGEST:
            return _LARGEST
        exponent = amount.as_tuple().exponent
        if isinstance(exponent, int) and exponent < -9:
            amount = amount.quantize(_SMALLEST, ROUND_CEILING)
        return amount


def whole(value: Any) -> int:
    """A count. Raises ValueError if it is not a whole number from 0 to 2^31-1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"{value!r:.60} is not a count")
    return value


Labels = Mapping[str, frozenset[str]]
"""Allowed values by the name of a node's label."""

_NO_DEVICE = ("cpu", "memory", "ephemeral-storage")
_MEMORY_PREFIX = "hugepages-"


@dataclass(frozen=True)
class Pod:
    """The requests of one pod: `cpu` in cores, `memory` in bytes, `devices` by the name of their resource. It runs on a
    node that fits one of `nodes`. `missing` names cpu or memory, if some container does not ask for it."""

    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)
    devices: Mapping[str, Decimal] = field(default_factory=dict)
    nodes: tuple[Labels, ...] = ({},)
    missing: tuple[str, ...] = ()
    claims: bool = False  # it asks for devices by resource claims, whose objects describe the devices

    @property
    def memory_gib(self) -> Decimal:
        """Memory in GiB (2^30 bytes)."""
        return self.memory / GIB


def read_pod(spec: Any) -> Pod:
    """The requests of a pod's `spec`. Raises ValueError for a spec that the API server would refuse."""
    spec = mapping(spec, "the pod's spec")
    containers = [mapping(one, "a container") for one in sequence(spec.get("containers"), "containers")]
    if not containers:
        raise ValueError("the pod has no containers")
    own = [_requests(container) for container in containers]
    total = requests(spec)
    whole_pod = _requests(spec)
    missing = tuple(
        name for name in ("cpu", "memory") if name not in whole_pod and any(name not in asked for asked in own)
    )
    memory = sum((amount for name, amount in total.items() if name == "memory" or _is_memory(name)), Decimal(0))
    devices = {
        name: amount for name, amount in total.items() if amount and name not in _NO_DEVICE and not _is_memory(name)
    }
    return Pod(
        cpu=total.get("cpu", Decimal(0)),
        memory=memory,
        devices=devices,
        nodes=_nodes(spec),
        missing=missing,
        claims=bool(spec.get("resourceClaims")),
    )


def requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """The amounts that the scheduler reserves for a pod, by resource: cores, bytes, pieces. Raises ValueError."""
    own = [_requests(mapping(one, "a container")) for one in sequence(spec.get("containers"), "containers")]
    total = _effective(own, [mapping(one, "a container") for one in sequence(spec.get("initContainers"), "containers")])
    # Requests of the pod as a whole replace the sum over its containers.
    whole_pod = _requests(spec)
    total |= {name: amount for name, amount in whole_pod.items() if name in ("cpu", "memory") or _is_memory(name)}
    for name, amount in _amounts(spec.get("overhead"), "overhead").items():
        total[name] = total.get(name, Decimal(0)) + amount
    return total


def _is_memory(name: str) -> bool:
    return name.startswith(_MEMORY_PREFIX)


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    """Requests by resource; a resource without a request counts with its limit."""
    resources = mapping(container.get("resources"), "resources")
    limits, requests = (_amounts(resources.get(name), name) for name in ("limits", "requests"))
    return limits | requests


def _amounts(value: Any, name: str) -> dict[str, Decimal]:
    amounts = {}
    for resource, amount in mapping(value, name).items():
        try:
            amounts[str(resource)] = quantity(amount)
        except ValueError as error:
            raise ValueError(f"{resource}: {error}") from error
    return amounts


def _effective(own: Sequence[dict[str, Decimal]], init: Sequence[dict[str, Any]]) -> dict[str, Decimal]:
    """The amounts that the scheduler reserves: the containers together, or the start if that takes more. An init
    container runs alone, beside those before it that keep running (restartPolicy Always)."""
    running = _sum(own)
    sidecars: dict[str, Decimal] = {}
    starting: dict[str, Decimal] = {}
    for container in init:
        requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            running, sidecars = _sum([running, requests]), _sum([sidecars, requests])
            needed = sidecars
        else:
            needed = _sum([sidecars, requests])
        starting = _largest(starting, needed)
    return _largest(running, starting)


def _sum(parts: Sequence[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def _largest(one: Mapping[str, Decimal], other: Mapping[str, Decimal]) -> dict[str, Decimal]:
    zero = Decimal(0)
    return {name: max(one.get(name, zero), other.get(name, zero)) for name in (*one, *other)}


def _nodes(spec: Mapping[str, Any]) -> tuple[Labels, ...]:
    """The labels that the node selector and the required node affinity demand, one mapping for each alternative."""
    selector = {
        str(key): frozenset({str(value)}) for key, value in mapping(spec.get("nodeSelector"), "nodeSelector").items()
    }
    return tuple(_narrowed(selector, rules) for rules in affinity_rules(spec)) or (selector,)


Rule = tuple[str, str, tuple[str, ...]]
"""A label, an operator as in node affinity, and the values."""


def affinity_rules(spec: Mapping[str, Any]) -> list[list[Rule]]:
    """The rules of each alternative of the required node affinity. Raises ValueError."""
    affinity = mapping(mapping(spec.get("affinity"), "affinity").get("nodeAffinity"), "nodeAffinity")
    required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"), "required node affinity")
    terms = []
    for term in sequence(required.get("nodeSelectorTerms"), "nodeSelectorTerms"):
        found = sequence(mapping(term, "a node selector term").get("matchExpressions"), "matchExpressions")
        rules = [mapping(expression, "a match expression") for expression in found]
        terms.append([(str(rule.get("key")), str(rule.get("operator")), _values(rule)) for rule in rules])
    return terms


def _values(rule: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(value) for value in sequence(rule.get("values"), "values"))


def _narrowed(selector: Labels, rules: Sequence[Rule]) -> Labels:
    labels = dict(selector)
    for key, operator, values in rules:
        if operator == "In":  # the other operators do not name the allowed values
            labels[key] = labels[key] & set(values) if key in labels else frozenset(values)
    return labels


def memory_limit(spec: Mapping[str, Any]) -> Decimal | None:
    """Bytes that the pod's one container may use at most; None if nothing limits it. Raises ValueError."""
    limits = [
        mapping(mapping(one.get("resources"), "resources").get("limits"), "limits").get("memory")
        for one in (spec, mapping(spec["containers"][0], "a container"))
    ]
    return min((quantity(limit) for limit in limits if limit is not None), default=None)


def usable_memory(spec: Mapping[str, Any]) -> float:
    """GiB that the pod's one container can count on: the smaller of its limit and its request. 0 if the pod has
    neither. Raises ValueError."""
    pod = read_pod({**spec, "overhead": None})  # the overhead belongs to the sandbox, not to the container
    reserved, limit = None if "memory" in pod.missing else pod.memory, memory_limit(spec)
    return float(min((size for size in (reserved, limit) if size is not None), default=Decimal(0)) / GIB)

"""Judges whether a namespace's ResourceQuotas and LimitRanges admit a pod, as the API server does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from neuroscale.core.units import GIB
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Object
from neuroscale.manifests.pod_resources import quantity, requests

# Resources that a container must name if a quota counts them.
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
# A new service brings one object of each of these kinds.
_NEW_OBJECTS = (
    "count/deployments.apps",
    "count/inferenceservices.serving.kserve.io",
    "count/replicasets.apps",
    "count/services",
    "services",
)

_ASK = "Have the team's quota raised in platform/catalog/teams, or remove what is not needed."

Told = tuple[str, str]
"""The fault, and its remedy."""


@dataclass(frozen=True)
class Share:
    """How many replicas the quotas allow (None: any number). `blind`: quotas that could not be judged, and why."""

    replicas: int | None
    findings: tuple[Told, ...] = ()
    refused: bool = False
    blind: tuple[str, ...] = ()


def judge_quotas(
    pod: Object, most: int, quotas: Sequence[Object], limits: Sequence[Object], own: Sequence[Object]
) -> Share:
    """How many of `most` pods of this spec the quotas admit. `own`: pods of the service, which count already."""
    replicas: int | None = None
    findings: list[Told] = []
    blind: list[str] = []
    refused = False
    filled = with_defaults(pod, limits)
    for quota in quotas:
        name = str(part(quota, "metadata").get("name"))
        covered = _covers(quota, pod)
        if covered is None:
            blind.append(f"The scopes of ResourceQuota {name} are not understood.")
            continue
        if not covered:
            continue
        hard, used = part(quota, "status", "hard"), part(quota, "status", "used")
        if part(quota, "spec", "hard").keys() - hard.keys():
            blind.append(f"Kubernetes has not counted yet how much of ResourceQuota {name} is used.")
            continue
        for resource, limit in hard.items():
            need = _need(filled, resource)
            if need is None:
                findings.append(
                    (
                        f"ResourceQuota {name} counts {resource}, and a container of the pod does not name it.",
                        "Give the namespace a LimitRange with a default for it.",
                    )
                )
                refused = True
                continue
            try:
                left = quantity(limit) - quantity(used.get(resource, "0"))
                held = sum((_need(part(one, "spec"), resource) or Decimal(0) for one in own), Decimal(0))
            except ValueError as error:
                blind.append(f"ResourceQuota {name}: {resource}: {error}.")
                continue
            if resource in _NEW_OBJECTS:
                if not own and left < 1:
                    findings.append((f"ResourceQuota {name} allows no more {resource}.", _ASK))
                    refused = True
            elif need:
                allowed = int(max(Decimal(0), left + held) // need)
                if replicas is None or allowed < replicas:
                    replicas = allowed
                if allowed < most:
                    name_of = resource.removeprefix("requests.").removeprefix("limits.")
                    counted = f"{told(name_of, need)} for each of {most} pods"
                    leaves = f"{told(name_of, max(Decimal(0), left))} of {told(name_of, quantity(limit))}"
                    findings.append((f"ResourceQuota {name} leaves {leaves} {resource}; it takes {counted}.", _ASK))
    return Share(replicas, tuple(findings), refused, tuple(blind))


def judge_limits(pod: Object, limits: Sequence[Object]) -> list[Told]:
    """Why LimitRanges would refuse the pod; empty if they admit it."""
    found: list[Told] = []
    filled = with_defaults(pod, limits)
    containers = [*items(filled, "containers"), *items(filled, "initContainers")]
    for one in limits:
        name = str(part(one, "metadata").get("name"))
        for rule in items(one, "spec", "limits"):
            kind = rule.get("type")
            if kind == "Container":
                for container in containers:
                    found += _breaks(name, f"container {container.get('name', '')}", rule, *_asked(container))
            elif kind == "Pod":
                found += _breaks(name, "the pod", rule, requests(filled), _limits(filled))
    return found


def with_defaults(pod: Object, limits: Sequence[Object]) -> Object:
    """The pod as the LimitRanges fill it in."""
    rules = [rule for one in limits for rule in items(one, "spec", "limits") if rule.get("type") == "Container"]
    filled = dict(pod)
    for key in ("containers", "initContainers"):
        done = []
        for container in items(pod, key):
            asked, most = part(container, "resources", "requests"), part(container, "resources", "limits")
            # A limit that the container sets also becomes its request, before any default applies.
            asked = {**most, **asked}
            for rule in rules:
                default, first = part(rule, "default"), part(rule, "defaultRequest")
                most = {**default, **most}
                asked = {**first, **asked}
            done.append({**container, "resources": {"requests": {**most, **asked}, "limits": most}})
        if done:
            filled[key] = done
    return filled


def told(name: str, amount: Decimal) -> str:
    """An amount of a resource in words: `4`, `500m`, `31.5 GiB`."""
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        return f"{float(amount / GIB):,.1f} GiB"
    if amount != amount.to_integral_value():
        return f"{int(amount * 1000):,}m"
    return f"{int(amount):,}"


def _breaks(
    name: str, what: str, rule: Mapping[str, Any], asked: Mapping[str, Decimal], most: Mapping[str, Decimal]
) -> list[Told]:
    found: list[str] = []
    zero = Decimal(0)
    for resource, value in part(rule, "max").items():
        largest = max(asked.get(resource, zero), most.get(resource, zero))
        if resource not in most:
            found.append(f"wants {what} to have a limit of {resource}")
        elif largest > quantity(value):
            found.append(f"allows {what} at most {value} of {resource}, and it asks for {told(resource, largest)}")
    for resource, value in part(rule, "min").items():
        if (least := asked.get(resource, zero)) < quantity(value):
            found.append(f"wants {what} to ask for at least {value} of {resource}, and it is {told(resource, least)}")
    for resource, value in part(rule, "maxLimitRequestRatio").items():
        request, limit = asked.get(resource, zero), most.get(resource, zero)
        if not request or not limit or limit / request > quantity(value):
            found.append(f"allows {what} a limit of {resource} that is at most {value} times the request")
    fix = "Have the LimitRange changed, or ask for another amount by an override in the request."
    return [(f"LimitRange {name} {one}.", fix) for one in found]


def _asked(container: Mapping[str, Any]) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    asked, most = part(container, "resources", "requests"), part(container, "resources", "limits")
    return (
        {name: quantity(value) for name, value in {**most, **asked}.items()},
        {name: quantity(value) for name, value in most.items()},
    )


def _limits(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    """The sum of a pod's limits, counted as its requests are."""
    swapped = dict(pod)
    for key in ("containers", "initContainers"):
        swapped[key] = [{**one, "resources": {"requests": part(one, "resources", "limits")}} for one in items(pod, key)]
    return requests(swapped)


def _need(pod: Mapping[str, Any], resource: str) -> Decimal | None:
    """The amount that one pod counts in a quota: 0 for a resource of other objects, None if the pod must name it but
    does not."""
    if resource in ("pods", "count/pods"):
        return Decimal(1)
    kind, name = resource.split(".", 1) if resource.startswith(("requests.", "limits.")) else ("", resource)
    if not kind and name not in _COMPUTE and not name.startswith("hugepages-"):
        return Decimal(0)
    if name in _COMPUTE:
        field = "limits" if kind == "limits" else "requests"
        containers = [*items(pod, "containers"), *items(pod, "initContainers")]
        whole = part(pod, "resources", field)
        if name not in whole and any(
            name not in {**part(one, "resources", "limits"), **part(one, "resources", field)} for one in containers
        ):
            return None
    return (_limits(pod) if kind == "limits" else requests(pod)).get(name, Decimal(0))


def _covers(quota: Object, pod: Object) -> bool | None:
    """Whether a quota counts such a pod, which has no deadline and has requests; None if that cannot be decided."""
    spec = part(quota, "spec")
    rules: list[Mapping[str, Any]] = [{"scopeName": one, "operator": "Exists"} for one in spec.get("scopes") or []]
    rules += items(spec, "scopeSelector", "matchExpressions")
    priority = pod.get("priorityClassName")
    for rule in rules:
        scope, operator = rule.get("scopeName"), rule.get("operator")
        if scope in ("NotTerminating", "NotBestEffort"):
            continue
        if scope in ("Terminating", "BestEffort", "CrossNamespacePodAffinity", "VolumeAttributesClass"):
            return False
        if scope != "PriorityClass":
            return None
        values = rule.get("values") or []
        holds = {
            "Exists": bool(priority),
            "DoesNotExist": not priority,
            "In": priority in values,
            "NotIn": priority not in values,
        }.get(str(operator))
        if not holds:
            return holds
    return True

"""Describes policies for people: the demand of each, its reason, the kinds that it judges, the fields that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import Kind
from neuroscale.policies.bad_objects import CASES, GOOD, bad_objects, good_objects
from neuroscale.policies.policy_set import Policy, PolicySet, load_policy_set
from neuroscale.repo.layout import POLICIES
from neuroscale.repo.snapshot import Snapshot

_TITLE, _DESCRIPTION = "policies.kyverno.io/title", "policies.kyverno.io/description"
_WHY, _LESSON = "neuroscale.dev/why", "neuroscale.dev/lesson"

# An optional selection, as policies/README.md asks for: `.?name`, several of them as a path. A call is not a field.
_FIELD = r"\.\?[A-Za-z_]\w*(?!\w*\()"
_PATH = re.compile(rf"(?:{_FIELD})(?:(?:\[[^\]]*\])?(?:{_FIELD}))*")


@dataclass(frozen=True)
class PolicyDescription:
    """The description of one policy.

    `kinds`: `GROUP/VERSION RESOURCE (operations)` of each rule. `fields`: the paths that its expressions read, from the
    object or from a part of it such as a container. `lesson`: the folder of `milestones/` that shows the failure behind
    it; "" if none does. `messages`: its messages for refused objects, without the places.
    `good`, `bad`: the number of such objects in its tests.
    """

    name: str
    title: str
    description: str
    why: str
    lesson: str
    fix: str
    kinds: tuple[str, ...]
    fields: tuple[str, ...]
    messages: tuple[str, ...]
    good: int
    bad: int
    exceptions: tuple[str, ...]


def describe(snapshot: Snapshot, policies: PolicySet, policy: Policy) -> PolicyDescription:
    """The description of one policy of a repository."""
    annotations: Mapping[str, Any] = policy.value["metadata"].get("annotations") or {}
    return PolicyDescription(
        name=policy.name,
        title=_line(annotations.get(_TITLE)),
        description=_line(annotations.get(_DESCRIPTION)),
        why=_line(annotations.get(_WHY)),
        lesson=_line(annotations.get(_LESSON)),
        fix=policy.fix,
        kinds=tuple(_kinds(policy.value["spec"]["matchConstraints"]["resourceRules"])),
        fields=fields_read(policy),
        messages=tuple(map(_message, policy.value["spec"]["validations"])),
        good=_count(snapshot, policy.name, GOOD, good_objects),
        bad=_count(snapshot, policy.name, CASES, bad_objects),
        exceptions=tuple(
            f"{one.kind} {one.namespace}/{one.name} until {one.expires}: {one.reason}"
            for one in policies.exceptions
            if one.policy == policy.name
        ),
    )


def refused_arguments(snapshot: Snapshot) -> dict[str, str]:
    """The arguments of vLLM that a repository's policies refuse whatever their value, by vLLM's own names, each with
    its policy: those that a policy's message names in parentheses. None of policies that cannot be used."""
    try:
        policies = load_policy_set(snapshot).policies
    except UntrustedError:
        return {}
    return {
        argument.strip().removeprefix("--").replace("-", "_"): policy.name
        for policy in policies
        for validation in policy.value["spec"]["validations"]
        for listed in re.findall(r"\((--[a-z][a-z-]*(?:, --[a-z][a-z-]*)*)\)", _message(validation))
        for argument in listed.split(",")
    }


def fields_read(policy: Policy) -> tuple[str, ...]:
    """The paths of fields that a policy's expressions read by optional selection (`object.?spec.?replicas`)."""
    spec = policy.value["spec"]
    texts = [str(one.get("expression", "")) for part in ("variables", "validations") for one in spec.get(part) or ()]
    found = {re.sub(r"\[[^\]]*\]|\?", "", match[0]).strip(".") for text in texts for match in _PATH.finditer(text)}
    return tuple(sorted(found))


def policies_of_kinds(
    policies: Sequence[Policy], kinds: Mapping[tuple[str, str], Kind]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """The names of the policies that judge each kind, by (apiVersion, kind); () for a kind that no policy judges."""
    found = {}
    for (api_version, kind), known in sorted(kinds.items()):
        group, _, version = api_version.rpartition("/")
        found[(api_version, kind)] = tuple(
            policy.name
            for policy in policies
            if any(rule.matches(group, version, known.plural) for rule in policy.rules)
        )
    return found


def _kinds(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{f'{group}/' if group else ''}{version} {resource} ({', '.join(rule['operations']).lower()})"
        for rule in rules
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for resource in rule["resources"]
    ]


def _message(validation: Mapping[str, Any]) -> str:
    if "message" in validation:
        return _line(validation["message"]).partition(": ")[2] or _line(validation["message"])
    computed = str(validation.get("messageExpression", ""))
    texts = re.findall(r"'((?:[^'\\]|\\.)*)'", computed)
    return _line(texts[-1]).removeprefix(": ") if texts else _line(computed)


def _count(snapshot: Snapshot, name: str, file: str, objects: Callable[[Snapshot, str], Sequence[object]]) -> int:
    path = f"{POLICIES}/{name}/{file}"
    is_there = any(entry.path == path for entry in snapshot.entries(f"{POLICIES}/{name}"))
    return len(objects(snapshot, name)) if is_there else 0


def _line(text: object) -> str:
    return " ".join(str(text or "").split())

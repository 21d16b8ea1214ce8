"""Makes all mutants of a policy: a rule dropped, a condition negated, an operator loosened, a scope narrowed.

The blocks of shared text are the same in every policy, so their mutants change all of them at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.mutation.cel_operators import expression_changes
from neuroscale.gate.mutation.mutant import Object, changed
from neuroscale.policies.policy_set import Policy

SHARED = ("pods", "containers", "commands", "model_servers", "language_model")
"""The variables that policies share; see policies/README.md."""

_LOOSER = {
    "validationActions": ["Audit"],
    "failurePolicy": "Ignore",
    "autogen": {},
    "matchConditions": [{"name": "mutant", "expression": "object.metadata.name != 'mutant'"}],
    "evaluation": {"mode": "Kubernetes", "admission": {"enabled": False}},
}
_NARROWER: dict[str, Any] = {
    "namespaceSelector": {"matchLabels": {"mutant": "true"}},
    "objectSelector": {"matchLabels": {"mutant": "true"}},
    "excludeResourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
}
_COUNTS = re.compile(r"size\(variables\.\w+\) == 0")


@dataclass(frozen=True)
class PolicyMutant:
    """One changed policy. `variable`: the shared variable that it changes, which then changes in every policy."""

    policy: str
    operator: str
    place: str
    value: Object
    variable: str = ""

    @property
    def id(self) -> str:
        """A name that stays the same while the policy's text around the change stays the same."""
        return f"{self.policy}/{self.place}/{self.operator}"


def policy_mutants(policy: Policy) -> Iterator[PolicyMutant]:
    """The mutants of a policy but for those of its shared text."""
    for index in range(len(policy.value["spec"]["validations"])):
        yield from _of_validation(policy, index)
    for index, variable in enumerate(policy.value["spec"].get("variables") or ()):
        if variable["name"] not in SHARED:
            # Named by the variable, as a position changes with every variable before it.
            place = f"spec.variables.{variable['name']}"
            for operator, text in expression_changes(variable["expression"]):
                yield _with(policy, operator, place, ("variables", index, "expression"), text)
    yield from _of_scope(policy)


def shared_mutants(policies: list[Policy]) -> Iterator[tuple[str, str, dict[str, PolicyMutant]]]:
    """The mutants of the shared text: the variable, the operator, and the changed policies by their names."""
    for name in SHARED:
        holders = [policy for policy in policies if variable_of(policy, name) is not None]
        texts = {str(variable_of(policy, name)) for policy in holders}
        for text in sorted(texts):
            for operator, other in expression_changes(text):
                yield name, operator, {one.name: _replaced(one, name, text, operator, other) for one in holders}


def variable_of(policy: Policy, name: str) -> str | None:
    """The expression of a policy's variable."""
    found = [one["expression"] for one in policy.value["spec"].get("variables") or () if one["name"] == name]
    return found[0] if found else None


def _replaced(policy: Policy, name: str, text: str, operator: str, other: str) -> PolicyMutant:
    names = [one["name"] for one in policy.value["spec"]["variables"]]
    path = ("variables", names.index(name), "expression")
    text_now = other if variable_of(policy, name) == text else variable_of(policy, name)
    return _with(policy, operator, f"spec.variables.{name}", path, text_now, variable=name)


def _of_validation(policy: Policy, index: int) -> Iterator[PolicyMutant]:
    path: Path = ("validations", index)
    place = f"spec.validations[{index}]"
    validations = policy.value["spec"]["validations"]
    one = validations[index]
    expression = one["expression"]
    if len(validations) > 1:
        yield _without(policy, "rule dropped", place, path)
    yield _with(policy, "rule without effect", place, (*path, "expression"), "true")
    yield _with(policy, "condition negated", place, (*path, "expression"), f"!({expression})")
    # Where a variable holds the faults and the rule counts them, nothing is left to change in the rule.
    for operator, text in () if _COUNTS.fullmatch(expression.strip()) else expression_changes(expression):
        yield _with(policy, operator, place, (*path, "expression"), text)
    if "message" in one:
        message = one["message"].strip()
        yield _with(policy, "message broken:place", place, (*path, "message"), re.sub(r"^[^:]*", "spec", message))
        yield _with(policy, "message broken:words", place, (*path, "message"), f"{message} or not")
        return
    words = one["messageExpression"].strip()
    yield _with(policy, "message broken:words", place, (*path, "messageExpression"), f"{words} + ' or not'")
    elsewhere = re.sub(r"variables\.\w+\.join\(', '\)", "'spec'", words)
    yield _with(policy, "message broken:place", place, (*path, "messageExpression"), elsewhere)
    yield _without(policy, "message dropped", place, (*path, "messageExpression"))


def _of_scope(policy: Policy) -> Iterator[PolicyMutant]:
    rules = policy.value["spec"]["matchConstraints"]["resourceRules"]
    for index, rule in enumerate(rules):
        path: Path = ("matchConstraints", "resourceRules", index)
        place = f"spec.matchConstraints.resourceRules[{index}]"
        if len(rules) > 1:
            yield _without(policy, "scope:rule dropped", place, path)
        for field in ("resources", "apiVersions", "operations"):
            for item, name in enumerate(rule[field]) if len(rule[field]) > 1 else ():
                yield _without(policy, f"scope:{name} dropped", place, (*path, field, item))
        yield _with(policy, "scope:UPDATE alone", place, (*path, "operations"), ["UPDATE"])
        yield _with(policy, "scope:names", place, (*path, "resourceNames"), ["mutant"])
        yield _with(policy, "scope:cluster's objects alone", place, (*path, "scope"), "Cluster")
    for field, value in _NARROWER.items():
        yield _with(policy, f"scope:{field}", "spec.matchConstraints", ("matchConstraints", field), value)
    for field, value in _LOOSER.items():
        yield _with(policy, f"loosened:{field}", f"spec.{field}", (field,), value)


def _with(policy: Policy, operator: str, place: str, path: Path, value: Any, variable: str = "") -> PolicyMutant:
    copied, holder, last = changed(policy.value, ("spec", *path))
    holder[last] = value
    return PolicyMutant(policy.name, operator, place, copied, variable)


def _without(policy: Policy, operator: str, place: str, path: Path) -> PolicyMutant:
    copied, holder, last = changed(policy.value, ("spec", *path))
    del holder[last]
    return PolicyMutant(policy.name, operator, place, copied)

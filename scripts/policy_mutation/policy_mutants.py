"""Makes all mutants of a policy: a rule dropped, a condition negated, an operator loosened, a scope narrowed.

Each changed expression is again an expression. The blocks of shared text are the same in every policy, so their mutants
change all of them at once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.policies.policy_set import Policy
from policy_mutation.mutant import Object, changed

# A text of CEL, with or without escapes (r'...'); what lies between two of them is code.
_TEXT = re.compile(r"r?'(?:[^'\\]|\\.)*'")
_SWAPS = {
    "==": "!=",
    "!=": "==",
    "<=": "<",
    ">=": ">",
    "&&": "||",
    "||": "&&",
    ".exists(": ".all(",
    ".all(": ".exists(",
    " * ": " + ",
    ".isGreaterThan(": ".isLessThan(",
    ".startsWith(": ".endsWith(",
    ".endsWith(": ".startsWith(",
}
_SWAP = re.compile("|".join(map(re.escape, sorted(_SWAPS, key=len, reverse=True))) + r"|(?<=\s)[<>](?=\s)")
_NEGATION = re.compile(r"!(?=[\[(a-z])")
_CALL = re.compile(r"\.(?:lowerAscii|upperAscii)\(\)|\.replace\([^()]*\)")
_DEFAULT = re.compile(r"orValue\((?:dyn\()?(true|false|[0-9]+)\)?\)")
_NUMBER = re.compile(r"(?<![\w.'])[0-9]+(?:\.0)?(?![\w'])")
_LIST = re.compile(r"\[(?:\s*(?:dyn\()?r?'(?:[^'\\]|\\.)*'\)?\s*,?)+\]")
_ITEM = re.compile(r"(?:dyn\()?r?'(?:[^'\\]|\\.)*'\)?")
_MAP_LINE = re.compile(r"^[ \t]*\{'at'.*\},?[ \t]*$", re.MULTILINE)


def expression_changes(expression: str) -> Iterator[tuple[str, str]]:
    """Every change of an expression: the operator's name, and the changed expression."""
    texts = [match.span() for match in _TEXT.finditer(expression)]

    def in_code(match: re.Match[str]) -> bool:
        return not any(start < match.end() and match.start() < end for start, end in texts)

    def number(match: re.Match[str]) -> int:
        return expression.count("\n", 0, match.start()) + 1

    def swapped(match: re.Match[str], other: str) -> str:
        return expression[: match.start()] + other + expression[match.end() :]

    for match in filter(in_code, _SWAP.finditer(expression)):
        other = _SWAPS.get(match[0]) or {"<": "<=", ">": ">="}[match[0]]
        yield f"operator:{match[0].strip()} {_around(expression, match)}", swapped(match, other)
    for match in filter(in_code, _NEGATION.finditer(expression)):
        yield f"negation dropped:{_around(expression, match)}", swapped(match, "")
    for match in _CALL.finditer(expression):
        yield f"call dropped:{match[0]} line {number(match)} {match.start()}", swapped(match, "")
    for match in filter(in_code, _DEFAULT.finditer(expression)):
        other = {"true": "false", "false": "true"}.get(match[1]) or str(int(match[1]) + 1)
        yield f"default:{_around(expression, match)}", swapped(match, match[0].replace(match[1], other))
    for match in filter(in_code, _NUMBER.finditer(expression)):
        other = "2.0" if match[0].endswith(".0") else str(int(match[0]) + 1)
        yield f"number:{_around(expression, match)}", swapped(match, other)
    for match in _LIST.finditer(expression):
        items = _ITEM.findall(match[0])
        for index, item in enumerate(items) if len(items) > 1 else ():
            rest = ", ".join(items[:index] + items[index + 1 :])
            yield f"list item dropped:{item} {match.start()}", swapped(match, f"[{rest}]")
    lines = list(_MAP_LINE.finditer(expression))
    for match in lines if len(lines) > 1 else ():
        if match[0].count("{") == match[0].count("}"):
            shorter = swapped(match, "")
            yield f"place dropped:{match[0].strip()[:60]}", re.sub(r",(\s*\])", r"\1", shorter)
    for start, end in texts:
        before, text = expression[:start], expression[start:end]
        for name, other in _pattern_changes(before, text):
            yield f"{name} {start}", before + other + expression[end:]


def _pattern_changes(before: str, text: str) -> Iterator[tuple[str, str]]:
    """Changes of a regular expression or of an allowed prefix."""
    body = text[text.index("'") + 1 : -1]
    opening = text[: text.index("'") + 1]
    if text.startswith("r'") or before.endswith(("matches(", "find(")):
        for index, (start, end) in enumerate(_alternatives(body)):
            rest = (
                body[: start - 1] + body[end:] if start and body[start - 1] == "|" else body[:start] + body[end + 1 :]
            )
            yield f"alternative dropped:{index} {body[start:end]}", f"{opening}{rest}'"
        if body.startswith("^"):
            yield "start not anchored:" + body[:30], f"{opening}{body[1:]}'"
        if body.endswith("$") and not body.endswith("\\$"):
            yield "end not anchored:" + body[-30:], f"{opening}{body[:-1]}'"
    elif body.endswith("/") and len(body) > 3:
        yield f"prefix loosened:{body}", f"{opening}{body[:-1]}'"


def _alternatives(body: str) -> Iterator[tuple[int, int]]:
    """The spans of the alternatives of a regular expression, in the deepest parentheses that hold `|`."""
    starts, parts = [0], [[]]  # type: list[int], list[list[int]]
    index = 0
    while index < len(body):
        char = body[index]
        if char == "\\":
            index += 2
            continue
        if char == "[":
            index = body.index("]", index + 2)
        elif char == "(":
            starts.append(index + 1)
            parts.append([])
        elif char == "|":
            parts[-1].append(index)
        elif char == ")" and len(starts) > 1:
            yield from _between(starts.pop(), parts.pop(), index)
        index += 1
    yield from _between(starts[0], parts[0], len(body))


def _between(start: int, bars: list[int], end: int) -> Iterator[tuple[int, int]]:
    if bars:
        edges = [start - 1, *bars, end]
        yield from ((one + 1, other) for one, other in itertools.pairwise(edges))


def _around(expression: str, match: re.Match[str]) -> str:
    """The text around a change, for its name, and its position, as the same text may stand twice."""
    found = " ".join(expression[max(0, match.start() - 18) : match.end() + 18].split())
    return f"{match.start()} in {found}"


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

"""Makes all mutants of a policy's test objects.

Some wrap a bad object in another way: a List, a second document, an anchor, another namespace or version. What is wrong
with it stays, so all of them must still be refused.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import Path, dotted, flow
from neuroscale.policies.bad_objects import EXPECTED_MESSAGE, GOOD, bad_objects, good_objects
from neuroscale.repo.snapshot import Snapshot
from policy_mutation.command_spellings import respelled
from policy_mutation.field_operators import field_changes, in_other_notations, spellings
from policy_mutation.harms import harms_of, in_other_kinds, transplanted
from policy_mutation.mutant import Mutant, Object, changed, of_text, of_value, paths
from policy_mutation.statement import Demand, Statement, demanded

_NAMESPACES = ("default", "team-beta", "kube-system", "kserve", "argocd")
_FOREIGN_VERSIONS = ("v1beta2", "V1", "v1 ", "")


def wrapped(policy: str, bad: Sequence[Object], good: Sequence[Object], schemas: SchemaSet) -> Iterator[Mutant]:
    """One bad object of each kind in every wrapping, with a good one beside it where a file holds two."""
    shown: dict[str, Object] = {}
    for one in bad:
        shown.setdefault(one["kind"], one)
    for kind, one in shown.items():
        beside = next((other for other in good if other["kind"] == kind), one)
        yield from _in_a_file(policy, one, beside)
        yield from _namespaces(policy, one)
        yield from _versions(policy, one, schemas)


def _in_a_file(policy: str, one: Object, beside: Object) -> Iterator[Mutant]:
    named = _named(one)
    bad, good = flow(named), flow(_without_words(beside, "mutant-beside"))
    kind, version = one["kind"], one["apiVersion"]
    yield of_text(policy, "second document", one, f"{good}\n---\n{bad}\n")
    yield of_text(policy, "second document:comment", one, f"{good}\n--- # next\n{bad}\n")
    yield of_text(policy, "second document:after an end", one, f"{good}\n...\n---\n{bad}\n")
    yield of_text(policy, "second document:directive", one, f"{good}\n...\n%YAML 1.1\n---\n{bad}\n")
    yield of_text(policy, "second document:in a key", one, f"{good}\n---#x\n{bad}\n")
    for name, of in (("List", "List"), ("List of its kind", f"{kind}List")):
        group = "v1" if of == "List" else version
        yield of_text(policy, name, one, flow({"apiVersion": group, "kind": of, "items": [named]}))
        yield of_text(
            policy, f"{name}:last", one, f'{{"apiVersion": "{group}", "kind": "{of}", "items": [{good}, {bad}]}}'
        )
    inner = {"apiVersion": "v1", "kind": "List", "items": [named]}
    yield of_text(policy, "List:in a List", one, flow({"apiVersion": "v1", "kind": "List", "items": [inner]}))
    yield of_text(policy, "List:its own items", one, flow({**named, "items": []}))
    rest = {key: value for key, value in named.items() if key != "spec"}
    spec, opening = flow(named.get("spec")), flow(rest)[:-1]
    yield of_text(policy, "anchor", one, f'{opening}, "spec": &mutant {spec}}}\n')
    yield of_text(policy, "anchor:alias", one, f'{{"x": &mutant {spec}, {opening[1:]}, "spec": *mutant}}\n')
    yield of_text(policy, "anchor:merge key", one, f'{opening}, "spec": {{"<<": {spec}}}}}\n')
    yield of_text(policy, "anchor:merged", one, f'{opening}, "spec": {{<<: &mutant {spec}}}}}\n')
    yield of_text(policy, "tag", one, f'{opening}, "spec": !!map {spec}}}\n')
    other = flow(beside.get("spec"))
    yield of_text(policy, "key twice:bad first", one, f'{opening}, "spec": {spec}, "spec": {other}}}\n')
    yield of_text(policy, "key twice:bad last", one, f'{opening}, "spec": {other}, "spec": {spec}}}\n')
    for detail, key in (
        ("generateName", {"generateName": "mutant-"}),
        ("empty name", {"name": "", "generateName": "mutant-"}),
    ):
        metadata = {field: value for field, value in named["metadata"].items() if field != "name"} | key
        yield of_text(policy, f"generateName:{detail}", one, flow({**named, "metadata": metadata}))
    both = {**named["metadata"], "generateName": "mutant-"}
    yield of_text(policy, "generateName:and a name", one, flow({**named, "metadata": both}))


def _namespaces(policy: str, one: Object) -> Iterator[Mutant]:
    if not one["metadata"].get("namespace"):
        return
    for name in _NAMESPACES:
        yield _set(policy, f"namespace:{name}", one, ("metadata", "namespace"), name)
    yield _set(policy, "namespace:none", one, ("metadata", "namespace"), None)


def _versions(policy: str, one: Object, schemas: SchemaSet) -> Iterator[Mutant]:
    group, _, now = one["apiVersion"].rpartition("/")
    served = {
        version.rpartition("/")[2]
        for version, kind in schemas.kinds
        if kind == one["kind"] and version.rpartition("/")[0] == group
    }
    for version in sorted(served | set(_FOREIGN_VERSIONS) - {now}):
        if version != now:
            other = f"{group}/{version}" if group else version
            yield _set(policy, f"version:{other!r}", one, ("apiVersion",), other)
    for other in (one["kind"].lower(), f"{one['kind']}s", f"{one['kind']} "):
        yield _set(policy, f"kind:{other!r}", one, ("kind",), other)


def _set(policy: str, operator: str, one: Object, path: Path, other: str | None) -> Mutant:
    """The object with another text at a path; None removes the field."""
    value, holder, last = changed(one, path)
    if other is None:
        del holder[last]
    else:
        holder[last] = other
    return of_value(policy, operator, one, "", value)


def _named(one: Object) -> Object:
    return {**one, "metadata": {**one["metadata"], "name": "NAME"}}


def _without_words(one: Object, name: str) -> Object:
    value = copy.deepcopy(one)
    (value["metadata"].get("annotations") or {}).pop(EXPECTED_MESSAGE, None)
    value["metadata"]["name"] = name
    return value


_EVERYWHERE = ("removed", "null", "emptied", "negated", "moved:up")


def resource_mutants(snapshot: Snapshot, policy: str, statement: Statement, schemas: SchemaSet) -> list[Mutant]:
    """The mutants of one policy's good and bad objects, each once.

    Raises InputError for a demand that no good object shows: it would make no mutant.
    """
    good, bad = good_and_bad(snapshot, policy)
    harms = harms_of(bad, good)
    found: dict[str, Mutant] = {}
    for mutant in (
        *_of_fields(policy, statement, good),
        *transplanted(policy, harms, good),
        *wrapped(policy, bad, good, schemas),
        *in_other_kinds(policy, harms, bad, good, schemas),
        *respelled(policy, bad),
        *in_other_notations(policy, bad, good),
        *_of_bad_values(policy, statement, bad),
    ):
        found.setdefault(mutant.name, mutant)
    return list(found.values())


def good_and_bad(snapshot: Snapshot, policy: str) -> tuple[list[Object], list[Object]]:
    """The good and the bad objects of a policy's tests."""
    good, bad = good_objects(snapshot, policy), bad_objects(snapshot, policy)
    return [manifest.value for manifest in good], [manifest.value for manifest in bad]


def _of_bad_values(policy: str, statement: Statement, bad: Sequence[Object]) -> Iterator[Mutant]:
    """Every text of bad objects that the statement names in the other spellings, each text once."""
    seen: set[tuple[str, str]] = set()
    for one in bad:
        for path, text in paths(one):
            for way, other in spellings(text) if isinstance(text, str) else ():
                named = any(entry.covers(path, way) for entry in statement.bad_values)
                if named and other != text and (text, way) not in seen:
                    seen.add((text, way))
                    value, holder, last = changed(one, path)
                    holder[last] = other
                    yield of_value(policy, f"bad value:{way}", one, dotted(path), value)


def _of_fields(policy: str, statement: Statement, good: Sequence[Object]) -> Iterator[Mutant]:
    """Every change of every demanded field: those that take it away in every place of a kind, others once for a kind.

    The items of a list count as one place.
    """
    shown: set[tuple[str, str, str]] = set()
    used: set[Demand] = set()
    for one in good:
        for demand, path in demanded(statement, one):
            used.add(demand)
            place = dotted(path)
            form = re.sub(r"\[\d+\]", "[]", place)
            for operator, value in field_changes(one, path):
                key = (one["kind"], form if operator in _EVERYWHERE else str(path[-1]), operator)
                if key not in shown:
                    shown.add(key)
                    yield of_value(policy, operator, one, place, value)
    for demand in statement.demands:
        if demand not in used:
            told = f"{demand.place!r} is a field of no good object, so that no mutant shows it"
            raise InputError(Problem(statement.file, "demands", told, f"Show it in {GOOD}, or correct the place."))

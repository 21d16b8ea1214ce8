"""Makes all mutants of a policy's test objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import dotted, read_documents
from neuroscale.gate.mutation.command_spellings import respelled
from neuroscale.gate.mutation.field_operators import field_changes, spellings
from neuroscale.gate.mutation.harms import harms_of, transplanted
from neuroscale.gate.mutation.mutant import Mutant, Object, changed, of_value, paths
from neuroscale.gate.mutation.other_kinds import in_other_kinds
from neuroscale.gate.mutation.statement import Demand, Statement, demanded
from neuroscale.gate.mutation.wrappers import wrapped
from neuroscale.gate.mutation.yaml_notations import in_other_notations
from neuroscale.policies.description import BAD, GOOD
from neuroscale.repo.layout import POLICIES
from neuroscale.repo.snapshot import Snapshot, read_text

_EVERYWHERE = ("removed", "null", "emptied", "negated", "moved:up")


def resource_mutants(snapshot: Snapshot, policy: str, statement: Statement, schemas: SchemaSet) -> list[Mutant]:
    """The mutants of one policy's good and bad objects, each once.

    Raises InputError for a demand that no good object shows: it would make no mutant.
    """
    good, bad = objects(snapshot, policy, GOOD), objects(snapshot, policy, BAD)
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


def objects(snapshot: Snapshot, policy: str, which: str) -> list[Object]:
    """The good or the bad objects of a policy's tests."""
    path = f"{POLICIES}/{policy}/{which}"
    return [document.value for document in read_documents(read_text(snapshot, path), path)]


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

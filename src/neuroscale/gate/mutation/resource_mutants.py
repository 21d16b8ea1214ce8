"""All mutants of a policy's test objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import dotted, read_documents
from neuroscale.gate.mutation.field_operators import field_changes
from neuroscale.gate.mutation.harms import harms_of, transplanted
from neuroscale.gate.mutation.mutant import Mutant, Object, of_value
from neuroscale.gate.mutation.statement import Demand, Statement, demanded
from neuroscale.gate.mutation.wrappers import wrapped
from neuroscale.policies.description import BAD, GOOD
from neuroscale.repo.layout import POLICIES
from neuroscale.repo.snapshot import Snapshot, read_text

_EVERYWHERE = ("removed", "null", "emptied", "negated", "moved:up")


def resource_mutants(snapshot: Snapshot, policy: str, statement: Statement, schemas: SchemaSet) -> list[Mutant]:
    """The mutants of one policy's good and bad objects, each once.

    Raises InputError for a demand that no good object shows: it would make no mutant.
    """
    good, bad = objects(snapshot, policy, GOOD), objects(snapshot, policy, BAD)
    found: dict[str, Mutant] = {}
    for mutant in (
        *_of_fields(policy, statement, good),
        *transplanted(policy, harms_of(bad, good), good),
        *wrapped(policy, bad, good, schemas),
    ):
        found.setdefault(mutant.name, mutant)
    return list(found.values())


def objects(snapshot: Snapshot, policy: str, which: str) -> list[Object]:
    """The good or the bad objects of a policy's tests."""
    path = f"{POLICIES}/{policy}/{which}"
    return [document.value for document in read_documents(read_text(snapshot, path), path)]


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

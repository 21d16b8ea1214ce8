"""Reads `policies/NAME/mutations.yaml`: the fields that a policy demands, and the mutants that it rightly lets pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import Document, Path, dotted, read_mapping
from neuroscale.repo.layout import POLICIES
from neuroscale.repo.snapshot import Snapshot, read_text
from policy_mutation.mutant import Mutant, Object, paths

FILE = "mutations.yaml"
_FIELDS = {"demands", "bad_values", "equivalents", "policy_equivalents", "policy_gaps"}
_DEMAND = {"place", "holds"}
_BAD_VALUE = {"place", "ways"}
_EQUIVALENT = {"operators", "place", "kinds", "base", "where", "reason"}
_WHERE = ("everywhere", "gate", "admission")


@dataclass(frozen=True)
class Demand:
    """A field of good objects that must be there and right. `holds`: only where the value has this text in it."""

    place: str
    holds: str = ""

    def covers(self, path: Path, value: Any) -> bool:
        """Whether the demand is about this field of an object."""
        return _matches(self.place, dotted(path)) and (not self.holds or self.holds in str(value))


@dataclass(frozen=True)
class BadValue:
    """A text of bad objects that stays as bad in other spellings. `ways`: the names of these changes."""

    place: str
    ways: tuple[str, ...]

    def covers(self, path: Path, way: str) -> bool:
        """Whether the field stays bad after such a change."""
        return _matches(self.place, dotted(path)) and any(_matches(one, way) for one in self.ways)


@dataclass(frozen=True)
class Equivalent:
    """Mutants that nobody needs to refuse or to notice, and why. `where`: the gate, admission, or everywhere."""

    operators: tuple[str, ...]
    place: str
    kinds: tuple[str, ...]
    base: str
    where: str
    reason: str

    def covers(self, operator: str, place: str, kind: str = "", base: str = "") -> bool:
        """Whether the entry names such a mutant."""
        return (
            any(_matches(one, operator) for one in self.operators)
            and _matches(self.place, place)
            and (not self.kinds or kind in self.kinds)
            and _matches(self.base, base)
        )

    def excuses(self, mutant: Mutant, where: str) -> bool:
        """Whether the entry says why this mutant passes there (`gate` or `admission`)."""
        return self.where in ("everywhere", where) and self.covers(
            mutant.operator, mutant.place, mutant.kind, mutant.base
        )


@dataclass(frozen=True)
class Statement:
    """A policy's statement. Without a file it demands no field and excuses nothing.

    `equivalents` are about mutants of the test objects, `of_policy` about mutants of the policy. `gaps`: mutants of the
    policy that its tests ought to notice and do not yet; they stay in the count of the unnoticed.
    """

    file: str
    demands: tuple[Demand, ...] = ()
    equivalents: tuple[Equivalent, ...] = ()
    of_policy: tuple[Equivalent, ...] = ()
    gaps: tuple[Equivalent, ...] = ()
    bad_values: tuple[BadValue, ...] = ()


def read_statement(snapshot: Snapshot, policy: str) -> Statement:
    """The statement of a policy. Raises InputError naming the file and the field."""
    file = f"{POLICIES}/{policy}/{FILE}"
    if snapshot.read(file) is None:
        return Statement(file)
    document = read_mapping(read_text(snapshot, file), file)
    _known(document, document.value, _FIELDS, (), file)
    demands = [
        Demand(_text(document, one, "place", path, file), str(one.get("holds", "")))
        for path, one in _entries(document, "demands", _DEMAND, file)
    ]
    bad_values = tuple(
        BadValue(_text(document, one, "place", path, file), _list(document, one, "ways", path, file))
        for path, one in _entries(document, "bad_values", _BAD_VALUE, file)
    )
    equivalents, of_policy, gaps = (
        tuple(_equivalent(document, path, one, file) for path, one in _entries(document, field, _EQUIVALENT, file))
        for field in ("equivalents", "policy_equivalents", "policy_gaps")
    )
    return Statement(file, tuple(demands), equivalents, of_policy, gaps, bad_values)


def _equivalent(document: Document, path: Path, one: Mapping[str, Any], file: str) -> Equivalent:
    operators = _list(document, one, "operators", path, file)
    where = one.get("where", _WHERE[0])
    if where not in _WHERE:
        raise _wrong(document, (*path, "where"), f"is not one of {', '.join(_WHERE)}", "Write gate.", file)
    reason = _text(document, one, "reason", path, file)
    place, base = str(one.get("place", "*")), str(one.get("base", "*"))
    return Equivalent(operators, place, tuple(one.get("kinds") or ()), base, where, reason)


def demanded(statement: Statement, value: Object) -> Iterator[tuple[Demand, Path]]:
    """The fields of an object that the statement demands."""
    for path, found in paths(value):
        for demand in statement.demands:
            if demand.covers(path, found):
                yield demand, path
                break


def _matches(pattern: str, text: str) -> bool:
    """`*` stands for any text, and every other character for itself."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def _entries(document: Document, field: str, known: set[str], file: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    entries = document.value.get(field) or []
    if not isinstance(entries, list):
        raise _wrong(document, (field,), "is not a list", f"Write a list below {field}.", file)
    for index, one in enumerate(entries):
        _known(document, one, known, (field, index), file)
        yield (field, index), one


def _known(document: Document, value: Any, known: set[str], path: Path, file: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(document, path, "is not a mapping", f"Write fields: {', '.join(sorted(known))}.", file)
    for key in sorted(set(value) - known):
        raise _wrong(document, (*path, key), "is not a field here", f"Use {', '.join(sorted(known))}.", file)


def _text(document: Document, value: Mapping[str, Any], key: str, path: Path, file: str) -> str:
    text = value.get(key)
    if not isinstance(text, str) or not text.strip():
        raise _wrong(document, (*path, key), "is missing or not text", f"Write {key}.", file)
    return " ".join(text.split())


def _list(document: Document, value: Mapping[str, Any], key: str, path: Path, file: str) -> tuple[str, ...]:
    found = value.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        raise _wrong(document, (*path, key), f"is not a list of {key}", "Write ['case:*'].", file)
    return tuple(found)


def _wrong(document: Document, path: Path, message: str, fix: str, file: str) -> InputError:
    return InputError(Problem(file, dotted(path), message, fix, document.line(*path)))

"""Counts the mutants of policies and who caught each, and writes the table of docs/policy-strength.md."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.schemas import SchemaSet
from neuroscale.policies.policy_set import PolicySet
from neuroscale.repo.snapshot import Snapshot
from policy_mutation.judge_policies import JudgedPolicy, Notice, judge_policies
from policy_mutation.judge_resources import Judged, Stage, judge_resources
from policy_mutation.mutant import Mutant
from policy_mutation.resource_mutants import resource_mutants
from policy_mutation.statement import Equivalent, Statement, read_statement

TABLE = "docs/policy-strength.md"
"""The document that holds the table of these counts."""
SHARED_TEXT = "(shared text)"
"""The row of the mutants of the text that several policies share."""
_FAULTS = (Stage.ELSEWHERE, Stage.ERROR, Stage.NOBODY)


@dataclass(frozen=True)
class Row:
    """One policy's counts.

    `objects`: mutants of its test objects; `by_policy`, `by_form` (the gate's reading, schemas and kinds) caught them,
    `equivalents` rightly pass. `policies`: mutants of the policy; `noticed` by the gate's reading or its tests. What
    remains of each is not caught. `not_loaded`: changes that are no policy any more; they are counted nowhere else.
    """

    policy: str
    objects: int
    by_policy: int
    by_form: int
    equivalents: int
    policies: int
    noticed: int
    policy_equivalents: int
    not_loaded: int

    @property
    def not_caught(self) -> int:
        """Mutants of test objects that pass the gate for no reason that is written down."""
        return self.objects - self.by_policy - self.by_form - self.equivalents

    @property
    def not_noticed(self) -> int:
        """Mutants of the policy that its tests ought to notice and do not."""
        return self.policies - self.noticed - self.policy_equivalents


@dataclass(frozen=True)
class Strength:
    """All answers. `unused`: entries of the statements, in words, that excuse nothing that an earlier one does not."""

    objects: tuple[Judged, ...]
    policies: tuple[JudgedPolicy, ...]
    rows: tuple[Row, ...]
    unused: tuple[str, ...]

    @property
    def passed(self) -> list[Judged]:
        """The mutants of test objects that the gate does not catch."""
        return [one for one in self.objects if one.stage in _FAULTS]

    @property
    def unnoticed(self) -> list[JudgedPolicy]:
        """The mutants of policies that nobody notices and no statement names."""
        return [one for one in self.policies if one.notice is Notice.NOBODY and not one.excuse and not one.gap]

    @property
    def not_loaded(self) -> list[JudgedPolicy]:
        """The changes of policies that Kyverno cannot load, so that they prove nothing."""
        return [one for one in self.policies if one.notice is Notice.INVALID]


def sampled(mutants: Iterable[Mutant], every: int) -> list[Mutant]:
    """One mutant in `every`, chosen by its name, so that the choice stays the same."""
    return [mutant for mutant in mutants if int(mutant.name.rpartition("-")[2], 16) % every == 0]


def measure(
    snapshot: Snapshot,
    policy_set: PolicySet,
    names: Sequence[str],
    schemas: SchemaSet,
    folder: Path,
    *,
    told: Callable[[str], None],
    every: int = 1,
    workers: int | None = None,
) -> Strength:
    """Judge all mutants of the named policies and of their test objects, or one in `every`.

    `folder`: an empty scratch folder. `told` hears of progress. Raises UntrustedError if a tool gives no usable answer.
    """
    count = workers or os.cpu_count() or 1
    statements = {name: read_statement(snapshot, name) for name in names}
    mutants = [one for name in names for one in resource_mutants(snapshot, name, statements[name], schemas)]

    def excused(mutant: Mutant) -> str:
        return excuse(mutant, statements[mutant.policy], "gate")

    objects = judge_resources(
        sampled(mutants, every), policy_set, schemas, folder / "objects", excused=excused, workers=count, told=told
    )
    judged = judge_policies(
        snapshot, policy_set, names, schemas, folder / "policies", workers=count, told=told, every=every
    )
    policies = [_excused(one, statements) for one in judged]
    unused = _unused(statements, objects, policies) if every == 1 else []
    return Strength(tuple(objects), tuple(policies), tuple(_rows(names, objects, policies)), tuple(unused))


def excuse(mutant: Mutant, statement: Statement, where: str) -> str:
    """Why a mutant may pass there (`gate` or `admission`), as its policy's statement says; "" if it may not."""
    return next((one.reason for one in statement.equivalents if one.excuses(mutant, where)), "")


def _excused(one: JudgedPolicy, statements: Mapping[str, Statement]) -> JudgedPolicy:
    """The answer with what a statement says of the mutant; that of any policy may speak of the shared text."""
    found = _entry_of(one, statements)
    if found is None:
        return one
    statement, entry = found
    return replace(one, gap=True) if entry in statement.gaps else replace(one, excuse=entry.reason)


def _entry_of(one: JudgedPolicy, statements: Mapping[str, Statement]) -> tuple[Statement, Equivalent] | None:
    """The first entry that names an unnoticed mutant of a policy, and its statement. Gaps come last."""
    if one.notice is not Notice.NOBODY:
        return None
    mine = [found for name, found in statements.items() if one.mutant.variable or one.mutant.policy == name]
    entries = [(found, entry) for found in mine for entry in found.of_policy]
    entries += [(found, entry) for found in mine for entry in found.gaps]
    named = (found for found in entries if found[1].covers(one.mutant.operator, one.mutant.place))
    return next(named, None)


def _unused(
    statements: Mapping[str, Statement], objects: Sequence[Judged], policies: Iterable[JudgedPolicy]
) -> list[str]:
    used = {id(found[1]) for found in (_entry_of(one, statements) for one in policies) if found is not None}
    found = []
    for name, statement in statements.items():
        mine = [one for one in objects if one.mutant.policy == name]
        for index, entry in enumerate(statement.equivalents):
            if not any(_excuses_alone(statement.equivalents[:index], entry, one) for one in mine):
                found.append(f"{statement.file}: equivalents: {', '.join(entry.operators)} at {entry.place}")
        for entry in (*statement.of_policy, *statement.gaps):
            if id(entry) not in used:
                found.append(f"{statement.file}: of the policy: {', '.join(entry.operators)} at {entry.place}")
    return found


def _excuses_alone(earlier: Iterable[Equivalent], entry: Equivalent, one: Judged) -> bool:
    """Whether an entry excuses a mutant that no entry before it excuses.

    Only a cluster knows whether a mutant needs an excuse at admission: such an entry excuses what it names.
    """
    if entry.where != "admission" and one.stage is not Stage.EQUIVALENT:
        return False
    as_wide = [other for other in earlier if other.where in ("everywhere", entry.where)]
    first = next((other for other in (*as_wide, entry) if other.excuses(one.mutant, other.where)), None)
    return first is entry


def _rows(names: Sequence[str], objects: Sequence[Judged], policies: Sequence[JudgedPolicy]) -> Iterator[Row]:
    for name in (*names, SHARED_TEXT):
        stages = Counter(one.stage for one in objects if one.mutant.policy == name)
        of_policy = [one for one in policies if (SHARED_TEXT if one.mutant.variable else one.mutant.policy) == name]
        mine = [one for one in of_policy if one.notice is not Notice.INVALID]
        if not stages and not of_policy:
            continue
        yield Row(
            name,
            objects=stages.total(),
            by_policy=stages[Stage.POLICY],
            by_form=stages[Stage.READING] + stages[Stage.SCHEMA] + stages[Stage.KINDS],
            equivalents=stages[Stage.EQUIVALENT],
            policies=len(mine),
            noticed=sum(one.notice is not Notice.NOBODY for one in mine),
            policy_equivalents=sum(bool(one.excuse) for one in mine),
            not_loaded=len(of_policy) - len(mine),
        )


BEGIN, END = "<!-- mutants -->", "<!-- end of mutants -->"
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_TITLES = (
    *("Policy", "Objects", "refused by it", "by form", "equivalent", "passed"),
    *("Mutants of it", "noticed", "equivalent", "unnoticed", "not loaded"),
)


def cells(row: Row) -> tuple[str, ...]:
    """A row's texts, in the order of the table's titles."""
    counts = (row.objects, row.by_policy, row.by_form, row.equivalents, row.not_caught)
    of_policy = (row.policies, row.noticed, row.policy_equivalents, row.not_noticed, row.not_loaded)
    return (row.policy, *map(str, counts), *map(str, of_policy))


def total(rows: Sequence[Row]) -> Row:
    """The sum of all rows."""
    of_objects = ("objects", "by_policy", "by_form", "equivalents")
    names = (*of_objects, "policies", "noticed", "policy_equivalents", "not_loaded")
    return Row("all", **{name: sum(getattr(row, name) for row in rows) for name in names})


def titles() -> tuple[str, ...]:
    """The titles of the table's columns."""
    return _TITLES


def strength_table(rows: Sequence[Row]) -> str:
    """The table as Markdown, with a last row for all policies."""
    lines = [" | ".join(_TITLES), " | ".join(["---", *["---:"] * (len(_TITLES) - 1)])]
    lines += [" | ".join(cells(row)) for row in (*rows, total(rows))]
    return "\n".join(f"| {line} |" for line in lines)


def written(text: str) -> dict[str, tuple[int, ...]]:
    """The numbers of the table in the document, by the policy's name."""
    found = _BLOCK.search(text)
    rows = [line.strip("| ").split(" | ") for line in found[0].splitlines() if line.startswith("|")] if found else []
    return {row[0]: tuple(map(int, row[1:])) for row in rows[2:]}


def with_table(text: str, rows: Sequence[Row], where: str) -> str:
    """The document with the table renewed. Raises InputError if its place is not marked."""
    if not _BLOCK.search(text):
        raise InputError(Problem(where, "", "does not mark the table's place", f"Write {BEGIN} and {END} in it."))
    return _BLOCK.sub(lambda _: f"{BEGIN}\n{strength_table(rows)}\n{END}", text)

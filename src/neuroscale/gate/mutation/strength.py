"""The strength of policies as numbers: how many mutants there are, who caught them, and which nobody caught."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from neuroscale.core.schemas import SchemaSet
from neuroscale.gate.mutation.judge_policies import JudgedPolicy, Notice, judge_policies
from neuroscale.gate.mutation.judge_resources import Judged, Stage, judge_resources
from neuroscale.gate.mutation.mutant import Mutant
from neuroscale.gate.mutation.resource_mutants import resource_mutants
from neuroscale.gate.mutation.statement import Equivalent, Statement, read_statement
from neuroscale.policies.policy_set import PolicySet
from neuroscale.repo.snapshot import Snapshot

SHARED_TEXT = "(shared text)"
"""The row of the mutants of the text that several policies share."""
_FAULTS = (Stage.ELSEWHERE, Stage.ERROR, Stage.NOBODY)


@dataclass(frozen=True)
class Row:
    """One policy's counts.

    `objects`: mutants of its test objects; `by_policy`, `by_form` (the gate's reading, schemas and kinds) caught them,
    `equivalents` rightly pass. `policies`: mutants of the policy; `noticed` by the gate's reading or its tests. What
    remains of each is not caught.
    """

    policy: str
    objects: int
    by_policy: int
    by_form: int
    equivalents: int
    policies: int
    noticed: int
    policy_equivalents: int

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
    """All answers. `unused`: entries of the statements, in words, that excuse no mutant."""

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
    policies = [_excused(one, statements) for one in judged if one.notice is not Notice.INVALID]
    unused = _unused(statements, objects, policies) if every == 1 else []
    return Strength(tuple(objects), tuple(policies), tuple(_rows(names, objects, policies)), tuple(unused))


def excuse(mutant: Mutant, statement: Statement, where: str) -> str:
    """Why a mutant may pass there (`gate` or `admission`), as its policy's statement says; "" if it may not."""
    return next((one.reason for one in statement.equivalents if one.excuses(mutant, where)), "")


def _excused(one: JudgedPolicy, statements: Mapping[str, Statement]) -> JudgedPolicy:
    """The answer with what a statement says of the mutant; that of any policy may speak of the shared text."""
    if one.notice is not Notice.NOBODY:
        return one
    mine = [found for name, found in statements.items() if one.mutant.variable or one.mutant.policy == name]
    for statement in mine:
        for entry in statement.of_policy:
            if entry.covers(one.mutant.operator, one.mutant.place):
                return replace(one, excuse=entry.reason)
    return replace(one, gap=any(_covers(statement.gaps, one) for statement in mine))


def _covers(entries: Iterable[Equivalent], one: JudgedPolicy) -> bool:
    return any(entry.covers(one.mutant.operator, one.mutant.place) for entry in entries)


def _unused(
    statements: Mapping[str, Statement], objects: Iterable[Judged], policies: Iterable[JudgedPolicy]
) -> list[str]:
    equivalent = [one.mutant for one in objects if one.stage is Stage.EQUIVALENT]
    unnoticed = [one.mutant for one in policies if one.notice is Notice.NOBODY]
    found = []
    for name, statement in statements.items():
        for entry in statement.equivalents:
            mine = (one for one in equivalent if one.policy == name)
            if entry.where != "admission" and not any(entry.excuses(one, "gate") for one in mine):
                found.append(f"{statement.file}: equivalents: {', '.join(entry.operators)} at {entry.place}")
        for entry in (*statement.of_policy, *statement.gaps):
            if not any(entry.covers(one.operator, one.place) for one in unnoticed):
                found.append(f"{statement.file}: of the policy: {', '.join(entry.operators)} at {entry.place}")
    return found


def _rows(names: Sequence[str], objects: Sequence[Judged], policies: Sequence[JudgedPolicy]) -> Iterator[Row]:
    for name in (*names, SHARED_TEXT):
        stages = Counter(one.stage for one in objects if one.mutant.policy == name)
        mine = [one for one in policies if (SHARED_TEXT if one.mutant.variable else one.mutant.policy) == name]
        if not stages and not mine:
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
        )

"""Asks the gate about mutants of test objects: its reading, its schemas, its kinds, and Kyverno with the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from neuroscale.core import tool_cache
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.gate.checks.judged_kinds import evaluate_kinds
from neuroscale.gate.checks.kyverno_process import Batch, KyvernoResult, reference
from neuroscale.gate.checks.policy import applicable, ask_with_tripwires, tripwire_of
from neuroscale.gate.checks.schema import evaluate_schemas
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.policies.policy_set import Policy, PolicySet
from policy_mutation.mutant import Mutant

_One = TypeVar("_One")
_Found = TypeVar("_Found")

_MOST_OBJECTS = 500  # of one Kyverno process
_OWN_KINDS = "refused-kind"
"""A rule of the kinds check that says what the policy refused-kinds says: only the policy judges at admission."""


class Stage(StrEnum):
    """Who catches a mutant. `EQUIVALENT`: it passes, and the policy's statement says why. The last three are faults."""

    POLICY = "policy"
    READING = "reading"
    SCHEMA = "schema"
    KINDS = "kinds"
    EQUIVALENT = "equivalent"
    ELSEWHERE = "refused at another place"
    ERROR = "ended in an evaluation error"
    NOBODY = "passed"


CAUGHT = frozenset({Stage.POLICY, Stage.READING, Stage.SCHEMA, Stage.KINDS})


@dataclass(frozen=True)
class Judged:
    """A mutant, who caught it, and in which words."""

    mutant: Mutant
    stage: Stage
    said: str = ""


def judge_resources(
    mutants: Sequence[Mutant],
    policy_set: PolicySet,
    schemas: SchemaSet,
    folder: Path,
    *,
    excused: Callable[[Mutant], str],
    workers: int,
    told: Callable[[str], None],
) -> list[Judged]:
    """The gate's answer about each mutant, in their order.

    `folder`: an empty scratch folder. `excused`: why a mutant may pass, or "". `told` hears of progress. The policy is
    asked only about what the gate's reading and the schemas let through. Another policy's refusal counts for nothing:
    the test objects of one policy need not please the others.
    Raises UntrustedError if a tool gives no usable answer.
    """
    told(f"reading {len(mutants)} mutants")
    found: dict[str, Judged] = {}
    read: dict[str, tuple[Mutant, Manifest]] = {}
    for mutant in mutants:
        try:
            manifests = read_manifests(mutant.text.encode(), f"{mutant.name}.yaml")
        except InputError as error:
            found[mutant.name] = Judged(mutant, Stage.READING, str(error))
            continue
        bad = [manifest for manifest in manifests if manifest.name == mutant.name]
        if len(bad) != 1:
            found[mutant.name] = Judged(mutant, Stage.NOBODY, "the gate does not see the bad object in the file")
        else:
            read[mutant.name] = (mutant, bad[0])
    told(f"checking the form of {len(read)}")
    _by_form(read, found, policy_set, schemas, folder)
    told(f"asking Kyverno about {len(read)}")
    _by_own_policy(read, found, policy_set, schemas, folder / "own", workers, told)
    for name, (mutant, _) in read.items():
        reason = excused(mutant)
        found[name] = Judged(mutant, Stage.EQUIVALENT if reason else Stage.NOBODY, reason)
    return [found[mutant.name] for mutant in mutants]


_Read = dict[str, tuple[Mutant, Manifest]]


def _by_form(read: _Read, found: dict[str, Judged], policy_set: PolicySet, schemas: SchemaSet, folder: Path) -> None:
    manifests = [manifest for _, manifest in read.values()]
    checked = evaluate_schemas(manifests, schemas, tool_cache.find("kubeconform"), folder / "schema")
    kinds, _ = evaluate_kinds(manifests, policy_set.policies, schemas, strict=True)
    for stage, evaluation in ((Stage.SCHEMA, checked), (Stage.KINDS, kinds)):
        for finding in evaluation.findings:
            if finding.rule == _OWN_KINDS:
                continue
            name = finding.file.removesuffix(".yaml")
            if name in read:
                mutant, _ = read.pop(name)
                found[name] = Judged(mutant, stage, finding.message)


def _by_own_policy(
    read: _Read,
    found: dict[str, Judged],
    policy_set: PolicySet,
    schemas: SchemaSet,
    folder: Path,
    workers: int,
    told: Callable[[str], None],
) -> None:
    counts = Counter(mutant.policy for mutant, _ in read.values())
    policies = {policy.name: policy for policy in policy_set.policies}
    batches: list[tuple[Policy, list[Manifest]]] = []
    for name in counts:
        mine = [manifest for mutant, manifest in read.values() if mutant.policy == name]
        batches += [
            (policies[name], mine[start : start + _MOST_OBJECTS]) for start in range(0, len(mine), _MOST_OBJECTS)
        ]
    done = 0

    def ask(numbered: tuple[int, tuple[Policy, list[Manifest]]]) -> dict[str, KyvernoResult]:
        nonlocal done
        index, (policy, manifests) = numbered
        answers = _answers([policy], manifests, policy_set, schemas, folder / str(index))
        done += len(manifests)
        told(f"Kyverno has judged {done} of {len(read)}")
        return {name: answer for (_, name), answer in answers.items()}

    for answers in _in_threads(ask, enumerate(batches), workers):
        for name, answer in answers.items():
            mutant, _ = read[name]
            if answer.result == "error":
                found[name] = Judged(mutant, Stage.ERROR, answer.message)
            elif answer.result == "fail":
                stage = Stage.POLICY if names_place(mutant, answer.message) else Stage.ELSEWHERE
                found[name] = Judged(mutant, stage, answer.message)
            if name in found:
                del read[name]


def _answers(
    policies: Sequence[Policy], manifests: Sequence[Manifest], policy_set: PolicySet, schemas: SchemaSet, folder: Path
) -> dict[tuple[str, str], KyvernoResult]:
    """The answers of policies by policy and object's name, for the objects that they judge."""
    pairs, homeless = applicable(policies, manifests, schemas)
    if homeless:
        raise UntrustedError(f"an object of an unknown kind passed the schemas: {homeless[0].message}")
    mine = tuple(manifest for manifest in manifests if pairs[id(manifest)])
    needed = {id(tripwire_of(policy, policy_set.tripwires, schemas)) for policy in policies}
    batch = Batch(tuple(policies), tuple(one for one in policy_set.every_tripwire if id(one) in needed), mine)
    folder.parent.mkdir(parents=True, exist_ok=True)
    answers = ask_with_tripwires(batch, pairs, schemas, tool_cache.find("kyverno"), folder)
    names: Mapping[tuple[str, str, str, str], str] = {reference(manifest): manifest.name for manifest in mine}
    return {(policy, names[ref]): answer for (policy, ref), answer in answers.items() if ref in names}


def names_place(mutant: Mutant, message: str) -> bool:
    """Whether a policy's message is about the mutant's place; about the object as a whole where it has none."""
    return not mutant.by_place or _names(mutant, message)


def _names(mutant: Mutant, message: str) -> bool:
    """Whether one of the message's places is the mutant's, is in it or holds it."""
    places = message.partition(": ")[0].split(", ")
    return any(_within(place, mutant.place) or _within(mutant.place, place) for place in places)


def _within(place: str, other: str) -> bool:
    return place == other or (place.startswith(other) and place[len(other)] in ".[")


def _in_threads(ask: Callable[[_One], _Found], ones: Iterable[_One], workers: int) -> list[_Found]:
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(ask, ones))

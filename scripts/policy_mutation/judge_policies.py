"""Finds what notices a changed policy: the gate's reading of policies, or the policy's own good and bad objects.

A mutant is caught if one good object is refused, or one bad object passes or is refused in other words.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import dump, flow
from neuroscale.gate.checks.kyverno_process import KyvernoResult, read_answers
from neuroscale.gate.checks.policy import check_reach
from neuroscale.gate.run_upstream_tool import run_tool
from neuroscale.policies.bad_objects import CASES, EXPECTED_MESSAGE, GOOD
from neuroscale.policies.policy_set import TRIPWIRES, Policy, PolicySet, load_policy_set
from neuroscale.repo.layout import POLICIES
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot
from policy_mutation.mutant import Object
from policy_mutation.policy_mutants import PolicyMutant, policy_mutants, shared_mutants
from policy_mutation.resource_mutants import good_and_bad

_MOST_POLICIES = 60  # in one Kyverno process
_FIRST_ROUND = 4  # objects; each later round has twice as many, and only the mutants that nobody noticed yet

_Expected = Mapping[tuple[str, str], str]  # the announced message of each object by (kind, name), or "" for a good one


class Notice(StrEnum):
    """Who notices the change. `INVALID`: Kyverno cannot load it, so that it proves nothing; it is counted apart."""

    GATE = "the gate's reading"
    TESTS = "its tests"
    NOBODY = "nobody"
    INVALID = "not a policy"


_STILL_ASKED = (Notice.NOBODY, Notice.INVALID)
"""The answers of one policy's tests after which those of another are asked about a change of the shared text."""


@dataclass(frozen=True)
class JudgedPolicy:
    """A mutant of a policy, and who noticed it.

    `by`: the first object with another answer. `excuse`: why nobody needs to notice it, or "". `gap`: the statement
    names it as one that the tests do not notice yet.
    """

    mutant: PolicyMutant
    notice: Notice
    by: str = ""
    excuse: str = ""
    gap: bool = False


def judge_policies(
    snapshot: Snapshot,
    policy_set: PolicySet,
    names: Iterable[str],
    schemas: SchemaSet,
    folder: Path,
    *,
    workers: int,
    told: Callable[[str], None],
    every: int = 1,
) -> list[JudgedPolicy]:
    """Judge the mutants of the named policies, and those of the shared text if all policies are named.

    `every`: only one mutant in so many. `folder`: an empty scratch folder. Raises UntrustedError if Kyverno gives no
    usable answer, or if the unchanged policy does not answer as its tests say.
    """
    chosen = [policy for policy in policy_set.policies if policy.name in set(names)]
    tests = {policy.name: _tests(snapshot, policy.name) for policy in policy_set.policies}
    needed = [TRIPWIRES, *(f"{POLICIES}/{one.name}/{file}" for one in chosen if one.tripwire for file in (GOOD, CASES))]
    tripwires = {path: snapshot.read(path) or b"" for path in needed}
    done = 0

    def judge(policy: Policy) -> list[JudgedPolicy]:
        nonlocal done
        found = _judge_one(
            policy, list(policy_mutants(policy))[::every], tests[policy.name], tripwires, schemas, folder
        )
        done += 1
        told(f"judged the mutants of {done} of {len(chosen)} policies")
        return found

    with ThreadPoolExecutor(max_workers=workers) as pool:
        judged = [one for found in pool.map(judge, chosen) for one in found]
    if len(chosen) == len(policy_set.policies):
        told("judging the mutants of the shared text")
        judged += _judge_shared(chosen, tests, folder, every)
    return judged


@dataclass(frozen=True)
class _Tests:
    """A policy's objects in rounds, each with objects for many of its messages, and what it must say of each object."""

    rounds: tuple[tuple[Object, ...], ...]
    expected: _Expected


def _tests(snapshot: Snapshot, name: str) -> _Tests:
    good, bad = good_and_bad(snapshot, name)
    # In turn one object of each message, and a good one.
    sorts: dict[str, list[Object]] = {"": good}
    for one in bad:
        sorts.setdefault(_announced(one).partition(": ")[2], []).append(one)
    mixed = [one for row in itertools.zip_longest(*sorts.values()) for one in row if one is not None]
    expected = {_key(one): "" for one in good} | {_key(one): _announced(one) for one in bad}
    rounds = []
    size = max(_FIRST_ROUND, len(sorts))
    while mixed:
        rounds.append(tuple(mixed[:size]))
        mixed, size = mixed[size:], 2 * size
    return _Tests(tuple(rounds), expected)


def _announced(one: Object) -> str:
    return str(one["metadata"]["annotations"][EXPECTED_MESSAGE])


def _key(one: Object) -> tuple[str, str]:
    return str(one["kind"]), str(one["metadata"]["name"])


def _judge_one(
    policy: Policy,
    mutants: Sequence[PolicyMutant],
    tests: _Tests,
    tripwires: Mapping[str, bytes],
    schemas: SchemaSet,
    folder: Path,
) -> list[JudgedPolicy]:
    found: dict[int, JudgedPolicy] = {}
    for index, mutant in enumerate(mutants):
        if mutant.operator.startswith(("scope:", "loosened:")):
            told = _refused_by_the_gate(policy, mutant, tripwires, schemas)
            if told:
                found[index] = JudgedPolicy(mutant, Notice.GATE, told)
    left = {index: mutant for index, mutant in enumerate(mutants) if index not in found}
    by_tests(policy, left, tests, folder / policy.name, found)
    return [found[index] for index in range(len(mutants))]


def _refused_by_the_gate(
    policy: Policy, mutant: PolicyMutant, tripwires: Mapping[str, bytes], schemas: SchemaSet
) -> str:
    try:
        files = {**tripwires, policy.file: dump(mutant.value).encode()}
        check_reach(load_policy_set(MemorySnapshot(files)).policies, schemas)
    except UntrustedError as error:
        return str(error)
    return ""


def by_tests(
    policy: Policy,
    left: Mapping[int, PolicyMutant],
    tests: _Tests,
    folder: Path,
    found: dict[int, JudgedPolicy],
) -> None:
    """Ask Kyverno about the tests' objects with all mutants of one policy at once, and note what is noticed."""
    alive = dict(left)
    for number, part in enumerate(tests.rounds):
        indexes = list(alive)
        for start in range(0, len(indexes), _MOST_POLICIES):
            chunk = {index: alive[index] for index in indexes[start : start + _MOST_POLICIES]}
            answers = _ask_apart(policy, chunk, part, folder / f"{number}-{start}")
            _trusted(policy, part, answers, tests.expected)
            for index, mutant in chunk.items():
                said = [(one, answers.get((_variant(index), *_key(one)))) for one in part]
                # What has answered before has been loaded, so that a missing answer is another one.
                silent = number == 0 and all(answer is None for _, answer in said)
                if silent and not mutant.operator.startswith("scope:"):
                    found[index] = JudgedPolicy(mutant, Notice.INVALID)
                    continue
                other = next((one for one, answer in said if _differs(answer, tests.expected[_key(one)])), None)
                if other is not None:
                    found[index] = JudgedPolicy(mutant, Notice.TESTS, _key(other)[1])
        alive = {index: mutant for index, mutant in alive.items() if index not in found}
    for index, mutant in alive.items():
        found[index] = JudgedPolicy(mutant, Notice.NOBODY)


def _judge_shared(
    policies: Sequence[Policy], tests: Mapping[str, _Tests], folder: Path, every: int
) -> list[JudgedPolicy]:
    """The mutants of the shared text. Each policy's tests look for what no other noticed."""
    mutants = list(shared_mutants(list(policies)))[::every]
    noticed: dict[int, JudgedPolicy] = {}
    for policy in sorted(policies, key=lambda one: -len(tests[one.name].expected)):
        left = {
            index: changed[policy.name]
            for index, (_, _, changed) in enumerate(mutants)
            if policy.name in changed and (index not in noticed or noticed[index].notice in _STILL_ASKED)
        }
        found: dict[int, JudgedPolicy] = {}
        if left:
            by_tests(policy, left, tests[policy.name], folder / f"shared-{policy.name}", found)
        # That a policy cannot hold the change does not say that another's tests noticed it.
        noticed |= {
            index: one for index, one in found.items() if one.notice is not Notice.INVALID or index not in noticed
        }
    return [noticed[index] for index in sorted(noticed)]


def _ask_apart(
    policy: Policy, mutants: Mapping[int, PolicyMutant], part: Sequence[Object], folder: Path
) -> dict[tuple[str, str, str], KyvernoResult]:
    """The same as `_ask`, without the mutants for which Kyverno drops every policy of its process."""
    answers = _ask(policy, mutants, part, folder)
    if not mutants or any(name == _variant(-1) for name, _, _ in answers):
        return answers
    if len(mutants) == 1:
        return _ask(policy, {}, part, folder / "unchanged")
    indexes = list(mutants)
    for number, half in enumerate((indexes[: len(indexes) // 2], indexes[len(indexes) // 2 :])):
        answers |= _ask_apart(policy, {index: mutants[index] for index in half}, part, folder / str(number))
    return answers


def _ask(
    policy: Policy, mutants: Mapping[int, PolicyMutant], part: Sequence[Object], folder: Path
) -> dict[tuple[str, str, str], KyvernoResult]:
    """The answers of the mutants, and of the unchanged policy, by (policy, kind, name of the object)."""
    folder.mkdir(parents=True)
    files = []
    for index, value in {**{index: mutant.value for index, mutant in mutants.items()}, -1: policy.value}.items():
        named = {**value, "metadata": {**copy.deepcopy(value["metadata"]), "name": _variant(index)}}
        files.append(folder / f"{_variant(index)}.yaml")
        files[-1].write_text(flow(named))
    resources = folder / "resources.yaml"
    resources.write_text("".join(f"---\n{flow(one)}\n" for one in part))
    run = run_tool(
        [
            tool_cache.find("kyverno"),
            "apply",
            *files,
            "--resource",
            resources,
            "--policy-report",
            "--output-format",
            "json",
        ],
        folder=folder,
        timeout=120 + 0.05 * len(part) * len(files),
        statuses=frozenset({0, 1}),
        environment={"GOGC": "400"},
    )
    return {(name, ref[1], ref[3]): answer for (name, ref), answer in read_answers(run.output).items()}


def _trusted(
    policy: Policy, part: Sequence[Object], answers: Mapping[tuple[str, str, str], KyvernoResult], expected: _Expected
) -> None:
    for one in part:
        if _differs(answers.get((_variant(-1), *_key(one))), expected[_key(one)]):
            raise UntrustedError(
                f"the policy {policy.name} does not answer for {_key(one)[1]} as its tests say, so its mutants prove "
                f"nothing. Run the tests of {POLICIES}/{policy.name} first."
            )


def _differs(answer: KyvernoResult | None, expected: str) -> bool:
    if answer is None:
        return True
    return (answer.result, answer.message if expected else "") != (("fail", expected) if expected else ("pass", ""))


def _variant(index: int) -> str:
    return "unchanged" if index == -1 else f"mutant-{index:05}"

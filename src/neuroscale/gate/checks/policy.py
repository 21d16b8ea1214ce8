"""The policy check: Kyverno's CLI judges, and the gate compares its answers with the answers that it must give.

The exit status alone proves nothing: Kyverno ends with 0 even if it loaded no policy or no object matched. So the gate
computes which policy applies to which object, demands one answer for every such pair, and sends a known-bad object
through every process, which each of its policies must refuse with its own message.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from neuroscale.catalog.settings import LONGEST_DAYS, PRODUCTION_RULES
from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.gate.check import APPLIED, GateCheck, Run
from neuroscale.gate.checks.kyverno_process import (
    Batch,
    KyvernoResult,
    Reference,
    last_lines,
    pair_list,
    reference,
    run_kyverno,
)
from neuroscale.gate.checks.refused_kinds import REFUSED, plural_of
from neuroscale.gate.checks.stored_keys import is_stored_key
from neuroscale.gate.evaluation import Evaluation, manifest_finding
from neuroscale.gate.policy_exceptions import WRITABLE_ROOT, Exceptions
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import TRIPWIRES, Policy, PolicySet

GATE = "policy"


class MissedTripwireError(UntrustedError):
    """A policy answered about its tripwire in another way than it must."""

    def __init__(self, policy: Policy, tripwire: Manifest, answer: KyvernoResult) -> None:
        self.policy = policy
        self.answer = answer
        fix = (
            "Change that object so that it breaks the policy, or correct the policy's rule or its annotation "
            "neuroscale.dev/tripwire-message."
            if policy.tripwire is None
            else f"Correct the rule in {policy.file}, or the first case in {tripwire.file}."
        )
        super().__init__(
            f"the policy {policy.name} did not refuse its tripwire as it must: about the {tripwire.subject} of "
            f"{tripwire.file} it answered {answer.result!r} with {answer.message!r} instead of "
            f"{policy.tripwire_message!r}. {fix}"
        )


def tripwire_of(policy: Policy, tripwires: Iterable[Manifest], schemas: SchemaSet) -> Manifest:
    """The tripwire that a policy must refuse: its own, or else the first of `tripwires` of a kind that it judges.

    Raises UntrustedError if there is none.
    """
    for tripwire in tripwires if policy.tripwire is None else (policy.tripwire,):
        kind = schemas.kinds.get((tripwire.api_version, tripwire.kind))
        if kind is not None and policy.applies(tripwire, kind.plural):
            return tripwire
    if policy.tripwire is not None:
        told = f"the first case in {policy.tripwire.file}, the policy's tripwire, is of a kind that it does not judge"
        raise UntrustedError(f"{told}. Write a case of another kind before it, or add the kind in {policy.file}.")
    raise UntrustedError(f"no tripwire in {TRIPWIRES} is of a kind that the policy {policy.name} judges. Add one.")


def ask_with_tripwires(
    batch: Batch, pairs: Mapping[int, frozenset[str]], schemas: SchemaSet, kyverno: Path, folder: Path
) -> dict[tuple[str, Reference], KyvernoResult]:
    """Run one Kyverno process and return its answers, those for the tripwires too.

    `pairs`: the names of the policies that judge each object, by the object's id(). Raises UntrustedError if a tripwire
    was not refused as it must be, or an answer is missing, surplus or neither pass, fail nor error.
    """
    run = run_kyverno(batch, kyverno, folder)
    answers = run.answers
    if not answers:
        raise UntrustedError(f"Kyverno evaluated nothing, not even the tripwires. It printed: {last_lines(run.errors)}")
    expected = {
        (policy.name, reference(manifest))
        for manifest in batch.manifests
        for policy in batch.policies
        if policy.name in pairs[id(manifest)]
    }
    for tripwire in batch.tripwires:
        plural = schemas.kinds[tripwire.api_version, tripwire.kind].plural
        expected |= {
            (policy.name, reference(tripwire)) for policy in batch.policies if policy.applies(tripwire, plural)
        }
    for policy in batch.policies:
        tripwire = tripwire_of(policy, batch.tripwires, schemas)
        answer = answers.get((policy.name, reference(tripwire)))
        if answer is None:
            raise UntrustedError(
                f"Kyverno did not evaluate the policy {policy.name}: its tripwire came back without an answer, so the "
                f"policy was not loaded. Check {policy.file}. Kyverno printed: {last_lines(run.errors)}"
            )
        if (answer.result, answer.message) != ("fail", policy.tripwire_message):
            raise MissedTripwireError(policy, tripwire, answer)
    if missing := sorted(expected - set(answers)):
        named = pair_list(missing)
        raise UntrustedError(f"Kyverno gave no answer for {len(missing)} of {len(expected)} pairs: {named}.")
    if surplus := sorted(set(answers) - expected):
        raise UntrustedError(f"Kyverno answered for pairs that no policy rule covers: {pair_list(surplus)}.")
    if odd := sorted(pair for pair, answer in answers.items() if answer.result not in ("pass", "fail", "error")):
        raise UntrustedError(f"Kyverno neither passed nor refused: {pair_list(odd)}.")
    if run.exit_status != 1:
        raise UntrustedError(
            f"Kyverno ended with exit status {run.exit_status} although its own results hold refused tripwires."
        )
    return answers


# Kyverno compiles every policy again for every object, so its time grows with objects x policies: the policies are
# split among processes, and each process gets only the objects that one of its policies judges.
_MOST_OBJECTS = 500
_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
# With fewer pairs of a policy and an object, to share them evenly takes longer than it saves.
_FEWEST_PAIRS = 60
# Kyverno starts in the time of some 25 pairs, whether a rule joins them or not. To leave out half as many pays for a
# second process, which has a processor of its own.
_PAIRS_LEFT_OUT = 12


class PolicyCheck(GateCheck):
    """Whether every object passes the policies: those of the base, or of the work tree if there is no base."""

    name = GATE
    title = "Policies"
    needs = APPLIED
    beside = True

    def begin(self, run: Run) -> None:
        # Before other checks take the processor: Kyverno is the last program to end.
        run.judge.policies()
        run.schemas()

    def evaluate(self, run: Run) -> Evaluation:
        return evaluate_by(run, run.judge.policies(), self.name)


def evaluate_by(run: Run, policy_set: PolicySet, folder: str) -> Evaluation:
    """Judge every object of a run by these policies. `folder` is an unused name in the run's scratch folder."""
    return evaluate_policies(
        policy_set,
        run.applied,
        run.schemas(),
        tool_cache.find("kyverno"),
        run.folder / folder,
        today=run.today,
        longest_days=run.longest_days,
    )


def evaluate_policies(
    policy_set: PolicySet,
    manifests: Sequence[Manifest],
    schemas: SchemaSet,
    kyverno: Path,
    folder: Path,
    *,
    today: date,
    longest_days: int = LONGEST_DAYS,
    workers: int | None = None,
) -> Evaluation:
    """Judge every object by every policy that applies to it.

    `folder` is an empty scratch folder; `longest_days`, how far ahead an exception may end; `workers`, how many Kyverno
    processes share the policies. Raises UntrustedError as soon as one answer cannot be trusted.
    """
    check_reach(policy_set.policies, schemas)
    pairs, homeless = applicable(policy_set.policies, manifests, schemas)
    count = workers or os.cpu_count() or 1
    few = not workers and sum(len(names) for names in pairs.values()) < _FEWEST_PAIRS
    groups = _by_tripwire(policy_set, schemas, count) if few else _by_weight(policy_set.policies, count)
    batches = _batches(policy_set, groups, manifests, pairs, schemas)
    findings = list(homeless)
    # The production check and the fit check look at the exceptions from their own rules.
    elsewhere = (*PRODUCTION_RULES, WRITABLE_ROOT)
    own = [exception for exception in policy_set.exceptions if exception.policy not in elsewhere]
    exceptions = Exceptions(lambda: own, today, longest_days)
    expected = evaluated = 0

    def ask(index: int) -> dict[tuple[str, Reference], KyvernoResult]:
        return ask_with_tripwires(batches[index], pairs, schemas, kyverno, folder / f"batch-{index}")

    # Threads only wait for the processes; a failure in one batch cancels those that have not started.
    with ThreadPoolExecutor(max_workers=count) as pool:
        outcomes = list(pool.map(ask, range(len(batches))))
    for batch, answers in zip(batches, outcomes, strict=True):
        for policy in batch.policies:
            for manifest in batch.manifests:
                if policy.name not in pairs[id(manifest)]:
                    continue
                expected += 1
                answer = answers[policy.name, reference(manifest)]
                evaluated += 1
                if answer.result != "pass":
                    findings.append(_finding(policy, manifest, answer, exceptions))
    findings += exceptions.unneeded(manifests)
    covered = {id(manifest) for manifest in manifests if pairs[id(manifest)]}
    detail = f"{len(policy_set.policies)} policies, {len(covered)} of {len(manifests)} objects have one that applies"
    if others := sorted({manifest.kind for manifest in manifests if id(manifest) not in covered}):
        detail += f"; none judges {', '.join(others)}"
    # Every policy is in at least one batch, and a batch raises UntrustedError if it misses one of its tripwires.
    caught = len({policy.name for batch in batches for policy in batch.policies})
    return Evaluation(tuple(findings), evaluated, expected, "policy results", len(policy_set.policies), caught, detail)


def check_reach(policies: Iterable[Policy], schemas: SchemaSet) -> None:
    """Check that every rule names existing resources, in every version: a missing version would slip past the policy.

    A rule may also name a refused kind that set-up has no definition of, in all versions.

    Raises UntrustedError naming the policy and the rule.
    """
    versions: dict[tuple[str, str], set[str]] = {}
    for (api_version, _), kind in schemas.kinds.items():
        group, _, version = api_version.rpartition("/")
        versions.setdefault((group, kind.plural), set()).add(version)
    for group, name in REFUSED:
        versions.setdefault((group, plural_of(name)), {"*"})
    for policy in policies:
        for rule in policy.rules:
            for group in rule.groups:
                for resource in rule.resources:
                    known = versions.get((group, resource.partition("/")[0]))
                    if known is None:
                        raise UntrustedError(
                            f"the policy {policy.name} names {group or 'core'}/{resource}, which no cluster serves. "
                            f"Correct {policy.file}."
                        )
                    if "*" not in rule.versions and not known <= rule.versions:
                        raise UntrustedError(
                            f"the policy {policy.name} leaves out {', '.join(sorted(known - rule.versions))} of "
                            f"{group or 'core'}/{resource}. Name every version in {policy.file}."
                        )


def applicable(
    policies: Iterable[Policy], manifests: Sequence[Manifest], schemas: SchemaSet
) -> tuple[dict[int, frozenset[str]], list[Finding]]:
    """The names of the policies that apply to each object (by its `id`), and findings for unknown kinds."""
    pairs: dict[int, frozenset[str]] = {}
    findings = []
    for manifest in manifests:
        kind = schemas.kinds.get((manifest.api_version, manifest.kind))
        plural = kind.plural if kind else plural_of(manifest.kind)
        refused = (manifest.group, manifest.kind) in REFUSED and _VERSION.fullmatch(manifest.version)
        asked = policies if kind or refused else ()
        pairs[id(manifest)] = frozenset(policy.name for policy in asked if policy.applies(manifest, plural))
        if kind is None and not pairs[id(manifest)] and not is_stored_key(manifest):
            message = f"no policy can judge {manifest.api_version} {manifest.kind}: the kind is not known here"
            fix = "Correct apiVersion and kind, or add the module with its CRD to the set-up."
            findings.append(manifest_finding(GATE, "unknown-kind", manifest, ("kind",), message, fix))
    return pairs, findings


def _by_tripwire(policy_set: PolicySet, schemas: SchemaSet, count: int) -> list[list[Policy]]:
    """The policies of the tripwire that most share, and the others: in one process, each would be compiled for the
    objects of the other, too. All together if that is not worth a second process."""
    groups: dict[str, list[Policy]] = {}
    for policy in policy_set.policies:
        groups.setdefault(tripwire_of(policy, policy_set.tripwires, schemas).name, []).append(policy)
    most, *others = sorted(groups.values(), key=len, reverse=True)
    rest = [policy for group in others for policy in group]
    if count == 1 or len(most) * len(others) < _PAIRS_LEFT_OUT:
        return [[*most, *rest]]
    return [most, rest]


def _by_weight(policies: Sequence[Policy], count: int) -> list[list[Policy]]:
    """The policies in `count` groups that take about as long as each other."""
    # Long policies take long to compile: hand them out longest first, always to the lightest group.
    groups: list[list[Policy]] = [[] for _ in range(min(count, len(policies)))]
    weights = [0] * len(groups)
    lengths = {policy.name: len(json.dumps(policy.value)) for policy in policies}
    for policy in sorted(policies, key=lambda policy: (-lengths[policy.name], policy.name)):
        lightest = weights.index(min(weights))
        groups[lightest].append(policy)
        weights[lightest] += lengths[policy.name]
    return groups


def _batches(
    policy_set: PolicySet,
    groups: Iterable[Sequence[Policy]],
    manifests: Sequence[Manifest],
    pairs: Mapping[int, frozenset[str]],
    schemas: SchemaSet,
) -> list[Batch]:
    """Every (policy, object) pair in exactly one batch, every policy in at least one."""
    batches: list[Batch] = []
    for group in groups:
        names = {policy.name for policy in group}
        rounds: list[dict[Reference, Manifest]] = [{}]
        for manifest in manifests:
            if names.isdisjoint(pairs[id(manifest)]):
                continue
            name = reference(manifest)
            # Kyverno cannot distinguish the same object of two environments, so they go to different processes.
            for place in rounds:
                if name not in place and len(place) < _MOST_OBJECTS:
                    place[name] = manifest
                    break
            else:
                rounds.append({name: manifest})
        needed = {id(tripwire_of(policy, policy_set.tripwires, schemas)) for policy in group}
        # In their order, those of single policies last: of the shared ones, each policy's is the first that it judges.
        tripwires = tuple(tripwire for tripwire in policy_set.every_tripwire if id(tripwire) in needed)
        batches.extend(Batch(tuple(group), tripwires, tuple(place.values())) for place in rounds)
    return batches


def _finding(policy: Policy, manifest: Manifest, answer: KyvernoResult, exceptions: Exceptions) -> Finding:
    """The finding for an object that does not pass a policy. An exception does not cover a policy that did not run."""
    if answer.result == "error":
        exceptions.need(policy.name, manifest)
        told = f"the policy could not be evaluated: {answer.message}"
        return manifest_finding(GATE, policy.name, manifest, ("kind",), told, policy.fix)
    refused = manifest_finding(GATE, policy.name, manifest, ("kind",), answer.message or "refused", policy.fix)
    return exceptions.applied(manifest, refused)

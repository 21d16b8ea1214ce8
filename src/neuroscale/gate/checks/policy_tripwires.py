"""Asks Kyverno with tripwires, and compares its answers with those that had to come.

Each policy must refuse its tripwire with its own message, and every pair of a policy and an object that it judges must
have exactly one answer. Otherwise nobody can trust that Kyverno judged at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.gate.checks.kyverno import (
    Batch,
    KyvernoResult,
    Reference,
    last_lines,
    pair_list,
    reference,
    run_kyverno,
)
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import TRIPWIRES, Policy


def tripwire_of(policy: Policy, tripwires: Iterable[Manifest], schemas: SchemaSet) -> Manifest:
    """The tripwire that a policy must refuse. Raises UntrustedError if no tripwire is of a kind that it judges."""
    for tripwire in tripwires:
        kind = schemas.kinds.get((tripwire.api_version, tripwire.kind))
        if kind is not None and policy.applies(tripwire, kind.plural):
            return tripwire
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
            raise UntrustedError(
                f"the policy {policy.name} did not refuse its tripwire as it must: about the {tripwire.subject} of "
                f"{tripwire.file} it answered {answer.result!r} with {answer.message!r} instead of "
                f"{policy.tripwire_message!r}. Change that object so that it breaks the policy, or correct the "
                "policy's rule or its annotation neuroscale.dev/tripwire-message."
            )
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

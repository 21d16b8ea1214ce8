"""Runs the tests of each policy that a change alters.

Two judges: `kyverno test` over each policy's cases, and the policy check's own evaluation over its good and bad
resources, where every bad one must be refused with the message that it announces.

Judges every object by the policies as a change leaves them, beside the base's, and finds unfinished policies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.gate.check import APPLIED, GateCheck, LeftOut, Run
from neuroscale.gate.checks.kyverno_process import RARER_COLLECTION
from neuroscale.gate.checks.policy import MissedTripwireError, evaluate_by, evaluate_policies
from neuroscale.gate.evaluation import (
    Evaluation,
    GateResult,
    file_finding,
    guarded,
    manifest_finding,
    problem_findings,
)
from neuroscale.gate.policy_exceptions import exception_findings
from neuroscale.gate.run_upstream_tool import run_tool
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.bad_objects import CASES, EXPECTED_MESSAGE, GOOD, bad_files, bad_objects, good_objects
from neuroscale.policies.new_policy import PLACEHOLDER
from neuroscale.policies.policy_set import SHARED_TEXT, TRIPWIRES, Policy, PolicySet
from neuroscale.policies.render import KYVERNO_TEST, rendered_policy, shared_blocks
from neuroscale.repo.layout import POLICIES, POLICY_FILE
from neuroscale.repo.snapshot import Snapshot, read_text

if TYPE_CHECKING:
    from neuroscale.gate.merged_change import Change


class ChangedPoliciesCheck(GateCheck):
    """Judges by the change's own policies, and looks at the exceptions that it brings."""

    name = "policy-of-head"
    title = "Policies of the change"
    needs = APPLIED
    beside = True

    def left_out(self, run: Run) -> LeftOut | None:
        return None if run.change is not None and run.change.touches(POLICIES) else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        if run.change is None:
            raise UntrustedError("this run has no change, and so no changed policies.")
        policy_set, altered = run.after.policies(), set(run.change.paths)
        try:
            seen = evaluate_by(run, policy_set, self.name)
        except MissedTripwireError as missed:
            own = missed.policy.tripwire
            if own is None or not run.change.touches(f"{POLICIES}/{missed.policy.name}"):
                raise
            seen = Evaluation((_missed(self.name, own, missed),), 0, 0, "policy results", 1, 1)
        brought = [one for one in policy_set.exceptions if one.file in altered]
        unfinished = [
            file_finding(
                self.name,
                "unfinished-policy",
                policy.file,
                f"the annotation {name} of the policy {policy.name} still holds a new policy's text ({PLACEHOLDER})",
                "Write the text that people read under the policy's findings.",
            )
            for policy in policy_set.policies
            if policy.file in altered
            for name, text in policy.value["metadata"]["annotations"].items()
            if PLACEHOLDER in str(text)
        ]
        of_exceptions = exception_findings(brought, run.today, run.longest_days)
        return replace(seen, findings=(*seen.findings, *unfinished, *of_exceptions))


def _missed(gate: str, case: Manifest, missed: MissedTripwireError) -> Finding:
    """The finding for a case that the policy, whose tripwire it is, does not refuse as it announces."""
    policy, answer = missed.policy, missed.answer
    told = "is not refused" if answer.result == "pass" else f"ends with {answer.result!r} and {answer.message!r}"
    message = f"{told}: the first case of {policy.name} is its tripwire, and must be refused with "
    fix = f"Correct the rule in {policy.file}, or the case."
    return manifest_finding(gate, policy.name, case, ("kind",), f"{message}{policy.tripwire_message!r}", fix)


GATE = "policy-tests"


class ChangedPolicyTestsCheck(GateCheck):
    """Whether the policies that a change alters still do what their tests say."""

    name = GATE
    title = "Tests of the changed policies"
    beside = True

    def left_out(self, run: Run) -> LeftOut | None:
        return None if _to_test(run.change) else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        names, policy_set = _to_test(run.change), run.after.policies()
        tested = evaluate_policy_tests(
            run.given.snapshot,
            policy_set,
            names,
            run.schemas(),
            tool_cache.find("kyverno"),
            run.folder / GATE,
            today=run.today,
        )
        altered = [policy for policy in policy_set.policies if policy.name in names]
        return replace(tested, findings=(*shared_text_findings(run.given.snapshot, altered), *tested.findings))


def policy_names(snapshot: Snapshot) -> set[str]:
    """The names of the policies' folders, readable or not."""
    paths = (entry.path for entry in snapshot.entries(POLICIES))
    return {path.split("/")[1] for path in paths if path.endswith(f"/{POLICY_FILE}")}


def _to_test(change: Change | None) -> frozenset[str]:
    """The policies to test. Tests depend on the policy's folder, the tripwires and the shared text."""
    if change is None or not change.touches(POLICIES):
        return frozenset()
    every = policy_names(change.after)
    if TRIPWIRES in change.paths or SHARED_TEXT in change.paths:
        return frozenset(every)
    return frozenset(name for name in every if change.touches(f"{POLICIES}/{name}"))


def shared_text_findings(snapshot: Snapshot, policies: Sequence[Policy]) -> list[Finding]:
    """Policies whose shared text differs from the repository's one place for it."""
    texts = {policy.file: read_text(snapshot, policy.file) for policy in policies}
    needed = snapshot.read(SHARED_TEXT) is not None or any("-- shared: " in text for text in texts.values())
    findings = []
    try:
        blocks = shared_blocks(snapshot) if needed else {}
    except InputError as error:
        return problem_findings(GATE, "shared-text", error)
    for policy in policies:
        try:
            if rendered_policy(snapshot, policy, blocks) != texts[policy.file]:
                message = f"holds a block of shared text that differs from {SHARED_TEXT}"
                fix = f"Change {SHARED_TEXT}, and run: neuroscale policy render."
                findings.append(file_finding(GATE, "shared-text", policy.file, message, fix))
        except InputError as error:
            findings += problem_findings(GATE, "shared-text", error)
    return findings


def tested_policy(snapshot: Snapshot, policy_set: PolicySet, policy: Policy, folder: Path) -> GateResult:
    """Run the tests of one policy of a repository as the check does. `folder` is an empty scratch folder."""

    def evaluate() -> Evaluation:
        today, kyverno = datetime.now(UTC).date(), tool_cache.find("kyverno")
        seen = evaluate_policy_tests(
            snapshot, policy_set, {policy.name}, schemas.find(), kyverno, folder / "tests", today=today
        )
        return replace(seen, findings=(*shared_text_findings(snapshot, [policy]), *seen.findings))

    return guarded(GATE, policy.name, evaluate)


def evaluate_policy_tests(
    snapshot: Snapshot,
    policy_set: PolicySet,
    names: Container[str],
    known: SchemaSet,
    kyverno: Path,
    folder: Path,
    *,
    today: date,
) -> Evaluation:
    """Run the tests of some policies of a repository, which `policy_set` holds. `folder` is an empty scratch folder.

    It leaves out names without a policy.
    """
    tested_policies = [policy for policy in policy_set.policies if policy.name in names]

    def test(policy: Policy) -> Evaluation:
        alone = PolicySet((policy,), policy_set.tripwires)
        return _test_policy(snapshot, alone, known, kyverno, folder / policy.name, today)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        tested = list(pool.map(test, tested_policies))
    return Evaluation(
        tuple(finding for seen in tested for finding in seen.findings),
        evaluated=sum(seen.evaluated for seen in tested),
        expected=sum(seen.expected for seen in tested),
        unit="test resources",
        tripwires=len(tested_policies),
        caught=sum(seen.caught for seen in tested),
    )


def _test_policy(
    snapshot: Snapshot, alone: PolicySet, known: SchemaSet, kyverno: Path, folder: Path, today: date
) -> Evaluation:
    """Run the tests of the one policy in `alone`."""
    (policy,) = alone.policies
    try:
        good, bad = good_objects(snapshot, policy.name), bad_objects(snapshot, policy.name)
        for which, file, manifests in (("good", GOOD, good), ("bad", CASES, bad)):
            if not manifests:
                path, fix = f"{POLICIES}/{policy.name}/{file}", f"Write at least one {which} resource."
                raise InputError.at(path, "", "holds no resource", fix)
    except InputError as error:
        return Evaluation(tuple(problem_findings(GATE, "unreadable", error)), 0, 0, "test resources", 1, 1)
    try:
        seen = evaluate_policies(alone, [*good, *bad], known, kyverno, folder / "apply", today=today, workers=1)
    except MissedTripwireError as missed:
        if policy.tripwire is None:
            raise
        return Evaluation((_missed(GATE, bad[0], missed),), 0, 0, "test resources", 1, 1)
    findings = [
        *_compare(policy, good, bad, seen.findings),
        *_kyverno_test(snapshot, policy, [*good, *bad], kyverno, folder / "test"),
    ]
    return Evaluation(
        tuple(findings), seen.evaluated, len(good) + len(bad), "test resources", seen.tripwires, seen.caught
    )


def _compare(
    policy: Policy, good: Sequence[Manifest], bad: Sequence[Manifest], refused: Sequence[Finding]
) -> list[Finding]:
    """Good resources that were refused, and bad ones that were not refused with their announced message."""
    messages = {(finding.file, finding.line, finding.subject): finding.message for finding in refused}

    def at(manifest: Manifest, message: str, fix: str) -> Finding:
        return manifest_finding(GATE, policy.name, manifest, ("kind",), message, fix)

    findings = []
    for manifest in good:
        message = messages.get((manifest.file, manifest.line("kind"), manifest.subject))
        if message is not None:
            findings.append(at(manifest, f"is refused: {message}", "Correct the policy or the resource."))
    for manifest in bad:
        message = messages.get((manifest.file, manifest.line("kind"), manifest.subject))
        announced = manifest.value["metadata"].get("annotations", {}).get(EXPECTED_MESSAGE)
        if message is None:
            findings.append(at(manifest, "is not refused", "Correct the policy: it misses this resource."))
        elif message != announced:
            text = f"is refused with {message!r}, but announces {announced!r}"
            findings.append(at(manifest, text, "Correct the policy's message or the case's."))
    return findings


def _kyverno_test(
    snapshot: Snapshot, policy: Policy, resources: Sequence[Manifest], kyverno: Path, folder: Path
) -> list[Finding]:
    """Run `kyverno test` on one policy's folder and demand an answer for each of its resources.

    Its exit status is 0 too when nothing was compared, so the rows are read and counted.
    """
    root = f"{POLICIES}/{policy.name}"
    files = {path: text.encode() for path, text in bad_files(snapshot, [policy]).items()}
    for entry in snapshot.entries(root):
        data = snapshot.read(entry.path)
        if data is None:
            raise UntrustedError(f"{entry.path} is listed but cannot be read.")
        files[entry.path] = data
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    cases = f"{root}/{KYVERNO_TEST}"
    if snapshot.read(cases) is None:
        fix = "Run: neuroscale policy render."
        return [file_finding(GATE, policy.name, cases, "is missing", fix)]
    run = run_tool(
        [kyverno, "test", (folder / cases).parent, "--require-tests", "--output-format", "json", "--remove-color"],
        folder=folder,
        timeout=300,
        statuses=frozenset({0, 1}),
        environment=RARER_COLLECTION,
    )
    rows = _rows(run.output)
    failing = [row for row in rows if row.get("RESULT") != "Pass" or row.get("REASON") != "Ok"]
    named = {str(row.get("RESOURCE", "")).rpartition("/")[2] for row in rows if row.get("POLICY") == policy.name}
    wrong = [
        (
            f"{row.get('RESOURCE')} ends with {row.get('RESULT')}: {row.get('REASON')}",
            "Correct the policy or the expected result.",
        )
        for row in failing
    ] + [
        (f"{manifest.subject} of {manifest.file} is not among the test's results", "Run: neuroscale policy render.")
        for manifest in resources
        if manifest.name not in named
    ]
    findings = [file_finding(GATE, policy.name, cases, message, fix) for message, fix in wrong]
    if run.exit_status != (1 if failing else 0) and not findings:
        raise UntrustedError(
            f"`kyverno test` ended with {run.exit_status} for {policy.name}, which its results do not explain: "
            f"{(run.errors or run.output)[-500:]}"
        )
    return findings


def _rows(output: str) -> list[dict[str, Any]]:
    """The result rows in Kyverno's output, which mixes them with log lines."""
    decoder = json.JSONDecoder()
    rows: list[dict[str, Any]] = []
    lines = output.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.rstrip() == "[":
            block, _ = decoder.raw_decode("".join(lines[index:]))
            rows.extend(row for row in block if isinstance(row, dict))
    return rows

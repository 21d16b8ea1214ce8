"""Applies exceptions to the findings of policies, and reports faulty exceptions as findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

from neuroscale.gate.check import file_finding, manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import PolicyException

GATE = "policy"


def exception_findings(exceptions: Iterable[PolicyException], today: date, longest_days: int) -> list[Finding]:
    """A finding at the file of each exception that is not valid."""
    return [
        file_finding(
            GATE, f"exception-{fault.rule}", one.file, f"{fault.field}: the exception {fault.message}", fault.fix
        )
        for one in exceptions
        if (fault := one.fault(today, longest_days)) is not None
    ]


def unneeded_exceptions(
    in_force: Sequence[PolicyException], manifests: Sequence[Manifest], needed: set[tuple[str, int]]
) -> list[Finding]:
    """A notice for each exception that its object does not need, since the policy does not refuse the object."""
    named: dict[tuple[str, str, str], list[Manifest]] = {}
    for manifest in manifests if in_force else ():
        named.setdefault((manifest.kind, manifest.namespace, manifest.name), []).append(manifest)
    return [
        manifest_finding(
            GATE,
            "exception-unneeded",
            manifest,
            ("kind",),
            f"the policy {one.policy} does not refuse it, and {one.file} excepts it until {one.expires}: {one.reason}",
            f"Remove {one.file}.",
            severity=Severity.NOTICE,
        )
        for one in in_force
        for manifest in named.get((one.kind, one.namespace, one.name), ())
        if (one.policy, id(manifest)) not in needed
    ]


def with_exceptions(
    finding: Finding,
    manifest: Manifest,
    exceptions: Sequence[PolicyException],
    today: date,
    longest_days: int,
) -> Finding:
    """A policy's finding after the exceptions: a notice if one of them is valid, and otherwise why none is."""
    for exception in exceptions:
        if not exception.covers(finding.rule, manifest):
            continue
        fault = exception.fault(today, longest_days)
        if fault is None:
            note = f"{finding.message} (excepted by {exception.file} until {exception.expires}: {exception.reason})"
            return finding.model_copy(update={"severity": Severity.NOTICE, "message": note})
        note = f"{finding.message} (the exception {exception.file} {fault.message})"
        finding = finding.model_copy(update={"message": note})
    return finding

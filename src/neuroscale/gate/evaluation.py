"""What a check saw and found, and the guard that turns every unforeseen end of one into 'untrusted'."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from neuroscale.core.errors import InputError, Problem, UntrustedError
from neuroscale.core.yaml_io import Path
from neuroscale.gate.verdict import Check, Finding, Outcome, Severity
from neuroscale.manifests.objects import Manifest

MOST_FINDINGS = 1000
"""The most findings of one check that a verdict lists."""
_LONGEST = 2000  # characters of a finding's message
_MORE = "more"  # the rule of the finding that counts those that a verdict does not list


@dataclass(frozen=True)
class GateResult:
    """A gate's account of its run, and its findings."""

    check: Check
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """What a gate saw, before the guard judges it.

    The gate looked at `evaluated` of `expected` `unit`s, could judge all but `unjudged` of those, and recognised
    `caught` of its `tripwires` known-bad ones.
    """

    findings: tuple[Finding, ...]
    evaluated: int
    expected: int
    unit: str
    tripwires: int
    caught: int
    detail: str = ""
    unjudged: int = 0


def guarded(name: str, title: str, evaluate: Callable[[], Evaluation]) -> GateResult:
    """Run one gate. It passes only when it looked at everything, caught every tripwire and found no error."""
    start = time.monotonic()

    def ended(outcome: Outcome, detail: str, seen: Evaluation | None = None) -> GateResult:
        check = Check(
            name=name,
            title=title,
            outcome=outcome,
            evaluated=seen.evaluated if seen else 0,
            expected=seen.expected if seen else 0,
            unjudged=seen.unjudged if seen else 0,
            unit=seen.unit if seen else "objects",
            tripwires=seen.tripwires if seen else 0,
            tripwires_caught=seen.caught if seen else 0,
            seconds=round(time.monotonic() - start, 3),
            detail=detail,
        )
        return GateResult(check, _bounded(name, seen.findings) if seen else ())

    try:
        seen = evaluate()
    except UntrustedError as error:
        return ended(Outcome.UNTRUSTED, str(error))
    except Exception as error:
        return ended(Outcome.UNTRUSTED, f"the gate itself failed: {type(error).__name__}: {error}")
    if seen.evaluated != seen.expected:
        return ended(
            Outcome.UNTRUSTED, f"evaluated {seen.evaluated} of {seen.expected} {seen.unit}. {seen.detail}".strip(), seen
        )
    if seen.caught != seen.tripwires or seen.tripwires == 0:
        return ended(
            Outcome.UNTRUSTED, f"caught {seen.caught} of {seen.tripwires} tripwires. {seen.detail}".strip(), seen
        )
    if any(finding.severity is Severity.ERROR for finding in seen.findings):
        return ended(Outcome.FINDINGS, seen.detail, seen)
    if seen.unjudged and seen.unjudged == seen.expected:
        return ended(Outcome.NOT_RUN, seen.detail, seen)
    return ended(Outcome.PASSED, seen.detail, seen)


def _bounded(name: str, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The first findings, errors before notices, and one that counts the others: a verdict stays readable."""
    kept = tuple(
        one if len(one.message) <= _LONGEST else one.model_copy(update={"message": f"{one.message[:_LONGEST]}..."})
        for one in sorted(findings, key=lambda one: one.severity is Severity.NOTICE)[:MOST_FINDINGS]
    )
    if len(findings) <= MOST_FINDINGS:
        return kept
    more = len(findings) - MOST_FINDINGS
    told = f"and {more} more findings of this check, here and in other files, are not listed"
    fix = "Correct those that are listed, and run the gate again."
    first = kept[0]
    return (*kept, file_finding(name, _MORE, first.file, told, fix, severity=first.severity))


def says_all(finding: Finding) -> bool:
    """Whether the finding stands for itself alone, and a verdict's bounds have cut nothing off its message."""
    return finding.rule != _MORE and len(finding.message) <= _LONGEST


def file_finding(
    gate: str,
    rule: str,
    file: str,
    message: str,
    fix: str,
    line: int | None = None,
    *,
    severity: Severity = Severity.ERROR,
) -> Finding:
    """A finding at a file, or at a line of it."""
    return Finding(gate=gate, rule=rule, severity=severity, file=file, line=line, message=message, fix=fix)


def manifest_finding(
    gate: str,
    rule: str,
    manifest: Manifest,
    path: Path,
    message: str,
    fix: str,
    *,
    subject: str = "",
    severity: Severity = Severity.ERROR,
) -> Finding:
    """A finding at a field of a manifest. `subject`: the part of the object that is meant, if not all of it."""
    return Finding(
        gate=gate,
        rule=rule,
        severity=severity,
        file=manifest.file,
        line=manifest.line(*path),
        subject=subject or manifest.subject,
        message=message,
        fix=fix,
    )


def problem_findings(gate: str, rule: str, problems: InputError | Iterable[Problem]) -> list[Finding]:
    """Findings for input problems."""
    return [
        file_finding(
            gate, rule, one.where, f"{one.field} {one.message}" if one.field else one.message, one.fix, one.line
        )
        for one in (problems.problems if isinstance(problems, InputError) else problems)
    ]

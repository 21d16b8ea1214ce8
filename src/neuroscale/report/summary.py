"""Sums up a verdict for every report: how the run ended, its title, its counts, the order of its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from neuroscale.catalog.directions import Notice
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import lines
from neuroscale.gate.verdict import (
    CHANGE_CHECK,
    Check,
    Finding,
    Outcome,
    ServiceReport,
    Severity,
    Verdict,
    exit_status,
)

FINDINGS_SHOWN = 30  # in a report that a person reads from top to bottom; JSON and JUnit hold all
SERVICES_IN_FULL = 8  # a change that touches more is shown with one line for each

# The words with which a headline may begin, so that no report can say "passed" above a run that did not pass.
_LABELS = {
    ExitStatus.PASSED: ("Passed", "Nothing to check"),
    ExitStatus.FINDINGS: ("Refused",),
    ExitStatus.UNUSABLE: ("The input cannot be judged",),
    ExitStatus.UNTRUSTED: ("The gate cannot be trusted",),
}


@dataclass(frozen=True)
class Counts:
    """Numbers over the whole run. `errors` refuse the change, `notices` do not."""

    errors: int
    notices: int
    services: int
    checks: int
    not_run: int
    tripwires: int
    caught: int
    seconds: float


def counts(verdict: Verdict) -> Counts:
    """The numbers of a run."""
    errors = len(errors_of(verdict))
    return Counts(
        errors=errors,
        notices=len(verdict.findings) - errors,
        services=len(verdict.services),
        checks=len(verdict.checks),
        not_run=sum(check.outcome is Outcome.NOT_RUN for check in verdict.checks),
        tripwires=sum(check.tripwires for check in verdict.checks),
        caught=sum(check.tripwires_caught for check in verdict.checks),
        seconds=sum(check.seconds for check in verdict.checks),
    )


def status(verdict: Verdict) -> ExitStatus:
    """How the run ended: the worst of its exit status, its checks and its findings.

    A run in which no check passed is not a pass either, whatever it claims.
    """
    worst = max(ExitStatus(verdict.exit_status), exit_status(verdict.checks))
    if worst is ExitStatus.PASSED and errors_of(verdict):
        return ExitStatus.FINDINGS
    if worst is ExitStatus.PASSED and not any(check.outcome is Outcome.PASSED for check in verdict.checks):
        return ExitStatus.UNTRUSTED
    return worst


def title(verdict: Verdict) -> str:
    """The headline's first line. It begins with the word for how the run ended, added if it is missing."""
    labels = _LABELS[status(verdict)]
    first = next(iter(lines(verdict.headline)), labels[0])
    return first if first.startswith(labels) else f"{labels[0]}: {first}"


def says(shown: str, check: Check) -> bool:
    """Whether a title already holds all of the detail of a check."""
    return bool(check.detail.strip()) and check.detail.strip() in shown


def label(verdict: Verdict) -> str:
    """How the run ended, without details."""
    return _LABELS[status(verdict)][0]


def errors_of(verdict: Verdict) -> list[Finding]:
    """The findings that refuse the change, by file and line."""
    return _sorted(finding for finding in verdict.findings if finding.severity is Severity.ERROR)


def notices_of(verdict: Verdict) -> list[Finding]:
    """The findings that refuse nothing: what a reviewer must see first, and then the others by file and line."""
    return [*alerts_of(verdict), *other_notices_of(verdict)]


def alerts_of(verdict: Verdict) -> list[Finding]:
    """The notices that a reviewer must see first, the most dangerous first."""
    order = {str(notice): number for number, notice in enumerate(Notice)}
    found = _sorted(one for one in verdict.findings if one.severity is not Severity.ERROR and _comes_first(one))
    return sorted(found, key=lambda finding: order.get(finding.rule, len(order)))


def other_notices_of(verdict: Verdict) -> list[Finding]:
    """The other findings that refuse nothing, by file and line."""
    return _sorted(one for one in verdict.findings if one.severity is not Severity.ERROR and not _comes_first(one))


def _comes_first(finding: Finding) -> bool:
    return finding.gate == CHANGE_CHECK or finding.rule == Notice.OWN_FACTS


def untrusted_or_unusable(verdict: Verdict) -> list[Check]:
    """The checks that gave no answer, the untrusted first."""
    wanted = (Outcome.UNTRUSTED, Outcome.UNUSABLE)
    return sorted((check for check in verdict.checks if check.outcome in wanted), key=lambda c: wanted.index(c.outcome))


def services_to_show(verdict: Verdict) -> tuple[list[ServiceReport], int]:
    """The services that the change alters, or whose plan is gone, different or refused, the refused first; and how many
    others there are."""
    order = {"refused": 0, "tight": 1, "fits": 2}
    shown = [
        service
        for service in verdict.services
        if service.change == "changed"  # with the same plan, its other files may restart the pods
        or service.plan is None
        or service.plan.verdict == "refused"
        or service.plan != service.plan_before
    ]
    shown.sort(key=lambda one: (order[one.plan.verdict] if one.plan else 3, one.environment, one.name))
    return shown, len(verdict.services) - len(shown)


def by_file(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """Findings that are in order of their files, grouped by file."""
    return [(file, list(group)) for file, group in groupby(findings, key=lambda finding: finding.file)]


def by_rule(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    """How many findings each `gate/rule` has, the most frequent first."""
    found = Counter(rule(finding) for finding in findings)
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))


def rule(finding: Finding) -> str:
    """`gate/rule`, the name by which a finding is looked up."""
    return f"{finding.gate}/{finding.rule}"


def place(finding: Finding) -> str:
    """`file:line`, or the file alone."""
    return finding.file if finding.line is None else f"{finding.file}:{finding.line}"


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda f: (f.file, f.line or 0, f.gate, f.rule, f.subject, f.message))

"""Finds the errors of services that a change leaves alone, and makes those that the base has, too, notices."""

from __future__ import annotations

from collections.abc import Mapping

from neuroscale.core.printable import plainly_counted
from neuroscale.gate.check import Run, Subject
from neuroscale.gate.evaluation import GateResult, says_all
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import Finding, Outcome, Severity


def faults_of_unchanged_services(run: Run) -> dict[str, list[Finding]]:
    """The errors in folders of services that the change leaves alone, by the name of the check: a change of the catalog
    judges every service anew."""
    folders = tuple(f"{service.path.folder}/" for service in run.given.services if service.change == "checked")
    faults = {
        result.check.name: [finding for finding in _errors(result) if f"{finding.file}/".startswith(folders)]
        for result in run.results
    }
    return {name: findings for name, findings in faults.items() if findings}


def _errors(result: GateResult) -> list[Finding]:
    """The errors of a check that can be trusted."""
    known = result.findings if result.check.outcome is Outcome.FINDINGS else ()
    return [finding for finding in known if finding.severity is Severity.ERROR]


def base_of(run: Run, change: Change) -> Subject:
    """The services that the change leaves alone, as the base judges them: as a change that alters nothing."""
    before, subject = change.before, run.subject
    nothing = Change(change.git, change.base, change.base, change.base, {})
    unchanged = GateInput(before, tuple(service for service in run.given.services if service.change == "checked"))
    return Subject(unchanged, lambda: (), before, nothing, server=subject.server, strict=subject.strict)


def with_faults_of_base_as_notices(run: Run, left: Mapping[str, list[Finding]], base: Run) -> Run:
    """The run, in which an error of a service that the change leaves alone is a notice where the base's own judgement
    has it in the same words: one broken service on main does not refuse every change of the catalog. What the change
    breaks, or breaks otherwise, stays an error; so does what the bounds of a verdict cut, since the rest may differ."""
    known = {_words_of(finding) for result in base.results for finding in _errors(result)}
    for result in run.results:
        excused = [
            finding for finding in left.get(result.check.name, ()) if says_all(finding) and _words_of(finding) in known
        ]
        if not excused:
            continue
        findings = tuple(_as_notice(finding) if finding in excused else finding for finding in result.findings)
        excuse = f"{plainly_counted(len(excused), 'finding')} that the base has, too"
        changed: dict[str, object] = {"detail": "; ".join(filter(None, (result.check.detail, excuse)))}
        if not any(finding.severity is Severity.ERROR for finding in findings):
            changed["outcome"] = Outcome.PASSED
        run = run.with_result(GateResult(result.check.model_copy(update=changed), findings))
    return run


def _words_of(finding: Finding) -> tuple[str, str, int | None, str, str]:
    return finding.rule, finding.file, finding.line, finding.subject, finding.message


def _as_notice(finding: Finding) -> Finding:
    message = f"the base has this already, and the change leaves the service alone: {finding.message}"
    return finding.model_copy(update={"severity": Severity.NOTICE, "message": message})

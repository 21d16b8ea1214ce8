"""A verdict as JUnit XML, in the shape that Jenkins, GitLab and most readers of test reports agree on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import one_line, xml
from neuroscale.gate.verdict import Check, Finding, Outcome, Verdict
from neuroscale.report import phrases, summary

_LONGEST = 1e9  # seconds; what is longer was not measured


@dataclass
class _Suite:
    """One test suite: the account of one check and its findings."""

    name: str
    time: float = 0.0
    cases: list[ET.Element] = field(default_factory=list)
    notices: list[Finding] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)

    def add(
        self, name: str, time: float = 0.0, tag: str = "", message: str = "", kind: str = "", text: str = ""
    ) -> None:
        """Add a test case; `tag` is failure, error or skipped, "" for one that passed."""
        name, time = one_line(name, 500), min(max(time, 0.0), _LONGEST)
        self.names[name] += 1
        if self.names[name] > 1:  # readers merge cases of one name
            name = f"{name} ({self.names[name]})"
        case = ET.Element("testcase", name=name, classname=f"neuroscale.{one_line(self.name)}", time=f"{time:.3f}")
        if tag:
            attributes = {"message": one_line(message)} | ({"type": one_line(kind)} if kind else {})
            ET.SubElement(case, tag, attributes).text = xml(text) or None
        self.cases.append(case)

    def count(self, tag: str) -> int:
        return sum(case.find(tag) is not None for case in self.cases)

    def element(self) -> ET.Element:
        suite = ET.Element("testsuite", {"name": one_line(self.name)} | _numbers([self]))
        suite.extend(self.cases)
        if self.notices:
            lines = [f"notice: {summary.place(one)}: {summary.rule(one)}: {_body(one)}" for one in self.notices]
            ET.SubElement(suite, "system-out").text = xml("\n".join(lines))
        return suite


def to_junit(verdict: Verdict) -> str:
    """One test suite for each check: a failed case for each finding that refuses, one passed case where it passed.

    What gave no answer is an error, what was not run is skipped. A run that did not pass always has a failure, one
    that cannot be trusted an error.
    """
    suites: dict[str, _Suite] = {}
    for check in verdict.checks:
        _add_check(suites.setdefault(check.name, _Suite(check.name)), check)
    for finding in summary.errors_of(verdict):
        _add_failure(suites.setdefault(finding.gate, _Suite(finding.gate)), finding)
    for finding in summary.notices_of(verdict):
        suites.setdefault(finding.gate, _Suite(finding.gate)).notices.append(finding)
    _add_missing_red(suites, verdict)
    everything = list(suites.values())
    root = ET.Element("testsuites", {"name": "neuroscale gate"} | _numbers(everything))
    root.extend(suite.element() for suite in everything)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_check(suite: _Suite, check: Check) -> None:
    suite.time += min(max(check.seconds, 0.0), _LONGEST)
    if check.outcome is Outcome.PASSED:
        suite.add(check.title, check.seconds)
    elif check.outcome is Outcome.NOT_RUN:
        suite.add(check.title, tag="skipped", message=check.detail or "not run")
    elif check.outcome is not Outcome.FINDINGS:
        detail = f"{check.title}: {phrases.outcome(check)}"
        suite.add(check.title, check.seconds, "error", detail, check.outcome.value, check.detail)


def _add_failure(suite: _Suite, finding: Finding) -> None:
    subject = f" {finding.subject}" if finding.subject else ""
    name = f"{finding.rule} {summary.place(finding)}{subject}"
    text = f"{summary.place(finding)}\n{_body(finding)}"
    suite.add(name, tag="failure", message=finding.message, kind=summary.rule(finding), text=text)


def _add_missing_red(suites: dict[str, _Suite], verdict: Verdict) -> None:
    """See that a report is as red as its verdict, also where no single check or finding says so."""
    ended = summary.status(verdict)
    errors = sum(suite.count("error") for suite in suites.values())
    failures = sum(suite.count("failure") for suite in suites.values())
    title = summary.title(verdict)
    if ended in (ExitStatus.UNTRUSTED, ExitStatus.UNUSABLE) and not errors:
        suites.setdefault("gate", _Suite("gate")).add("verdict", 0.0, "error", title, ended.name.lower(), title)
    elif ended is ExitStatus.FINDINGS and not failures:
        suites.setdefault("gate", _Suite("gate")).add("verdict", 0.0, "failure", title, ended.name.lower(), title)


def _body(finding: Finding) -> str:
    return f"{finding.message}\nFix: {finding.fix}" if finding.fix else finding.message


def _numbers(suites: list[_Suite]) -> dict[str, str]:
    return {
        "tests": str(sum(len(suite.cases) for suite in suites)),
        "failures": str(sum(suite.count("failure") for suite in suites)),
        "errors": str(sum(suite.count("error") for suite in suites)),
        "skipped": str(sum(suite.count("skipped") for suite in suites)),
        "time": f"{sum(suite.time for suite in suites):.3f}",
    }

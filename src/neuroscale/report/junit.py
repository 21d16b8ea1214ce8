"""Writes a verdict as JUnit XML.

Writes test suites as JUnit XML, in the shape that Jenkins, GitLab and most readers of test reports agree on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.etree import ElementTree as ET

from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import one_line, xml
from neuroscale.gate.verdict import Check, Finding, Outcome, Verdict
from neuroscale.report import phrases, summary

Tag = Literal["", "failure", "error", "skipped"]


@dataclass(frozen=True)
class Case:
    """One test case; `name` and `classname` are each one harmless line.

    `tag`: how it ended, "" if it passed; `message`, `kind` and `text` say why. `output`: the output of a passed case.
    """

    name: str
    classname: str
    seconds: float = 0.0
    tag: Tag = ""
    message: str = ""
    kind: str = ""
    text: str = ""
    output: str = ""

    def element(self) -> ET.Element:
        """Its XML."""
        attributes = {"name": self.name, "classname": self.classname, "time": f"{self.seconds:.3f}"}
        case = ET.Element("testcase", attributes)
        if self.tag:
            told = {"message": one_line(self.message)} | ({"type": one_line(self.kind)} if self.kind else {})
            ET.SubElement(case, self.tag, told).text = xml(self.text) or None
        elif self.output:
            ET.SubElement(case, "system-out").text = xml(self.output)
        return case


@dataclass
class Suite:
    """Test cases, the seconds that they took together, and output lines of the suite as a whole."""

    name: str
    seconds: float = 0.0
    cases: list[Case] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def count(self, tag: Tag) -> int:
        """The number of cases that ended with this tag."""
        return sum(case.tag == tag for case in self.cases)

    def element(self) -> ET.Element:
        """Its XML."""
        attributes = {"name": one_line(self.name), **_counts([self]), "time": f"{self.seconds:.3f}"}
        suite = ET.Element("testsuite", attributes)
        suite.extend(case.element() for case in self.cases)
        if self.told:
            ET.SubElement(suite, "system-out").text = xml("\n".join(self.told))
        return suite


def junit_file(name: str, suites: Sequence[Suite], seconds: float | None = None) -> str:
    """The whole file. `seconds`: the time of the whole run; None for the sum of the suites' times."""
    attributes = {"name": name}
    if seconds is not None:
        attributes["time"] = f"{seconds:.3f}"
    attributes |= _counts(suites)
    attributes.setdefault("time", f"{sum(suite.seconds for suite in suites):.3f}")
    root = ET.Element("testsuites", attributes)
    root.extend(suite.element() for suite in suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(suites: Sequence[Suite]) -> dict[str, str]:
    return {
        "tests": str(sum(len(suite.cases) for suite in suites)),
        "failures": str(sum(suite.count("failure") for suite in suites)),
        "errors": str(sum(suite.count("error") for suite in suites)),
        "skipped": str(sum(suite.count("skipped") for suite in suites)),
    }


_LONGEST = 1e9  # seconds; a longer time cannot have been measured


@dataclass
class _Suite(Suite):
    """The account of one check and its findings."""

    names: Counter[str] = field(default_factory=Counter)

    def add(
        self, name: str, time: float = 0.0, tag: Tag = "", message: str = "", kind: str = "", text: str = ""
    ) -> None:
        """Add a test case, under a name that no other case of the suite has."""
        name, time = one_line(name, 500), min(max(time, 0.0), _LONGEST)
        self.names[name] += 1
        if self.names[name] > 1:  # readers merge cases of one name
            name = f"{name} ({self.names[name]})"
        self.cases.append(Case(name, f"neuroscale.{one_line(self.name)}", time, tag, message, kind, text))


def to_junit(verdict: Verdict) -> str:
    """One test suite for each check: a failed case for each finding that refuses, or one passed case.

    A check without an answer is an error, a check that did not run is skipped. A run that did not pass always has a
    failure, and a run that cannot be trusted an error.
    """
    suites: dict[str, _Suite] = {}
    for check in verdict.checks:
        _add_check(suites.setdefault(check.name, _Suite(check.name)), check)
    for finding in summary.errors_of(verdict):
        _add_failure(suites.setdefault(finding.gate, _Suite(finding.gate)), finding)
    for finding in summary.notices_of(verdict):
        suite = suites.setdefault(finding.gate, _Suite(finding.gate))
        notice = f"notice: {summary.place(finding)}: {summary.rule(finding)}: {_body(finding)}"
        suite.told.append(notice)
    _add_missing_red(suites, verdict)
    return junit_file("neuroscale gate", list(suites.values()))


def _add_check(suite: _Suite, check: Check) -> None:
    suite.seconds += min(max(check.seconds, 0.0), _LONGEST)
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
    """Make the report as red as its verdict, even if no single check or finding is red."""
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

"""Writes test suites as JUnit XML, in the shape that Jenkins, GitLab and most readers of test reports agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.etree import ElementTree as ET

from neuroscale.core.printable import one_line, xml

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

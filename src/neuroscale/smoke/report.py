"""Formats a run of the smoke tests for people and for other programs: a table, Markdown, JUnit."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import markdown, markdown_cell, one_line, terminal
from neuroscale.report.junit import Case, Suite, Tag, junit_file
from neuroscale.smoke.results import OUTCOMES, Outcome, Report, Result

_WORDS = {"passed": "passed", "failed": "FAILED", "error": "not looked at", "skipped": "not checked"}
_COLOURS = {"passed": "green", "failed": "bold red", "error": "bold red", "skipped": "yellow"}
_TAGS: dict[Outcome, Tag] = {"failed": "failure", "error": "error", "skipped": "skipped"}


def headline(report: Report) -> str:
    """The result in one sentence."""
    counts = ", ".join(f"{report.count(one)} {_WORDS[one].lower()}" for one in OUTCOMES if report.count(one))
    what = {
        ExitStatus.PASSED: "The smoke tests passed",
        ExitStatus.FINDINGS: "The smoke tests failed",
    }.get(report.status, "The smoke tests cannot be trusted")
    return (
        f"{what}: {counts or 'no check ended'} ({report.environment} at {report.revision[:10]}, {report.seconds:.1f} s)"
    )


def line(one: Result) -> str:
    """One check as it ends, for a terminal."""
    place = f"{one.service}: " if one.service else ""
    told = f": {one.message}" if one.message else ""
    return terminal(f"{_WORDS[one.outcome]:<13}  {place}{one.title}{told}", 600)


def print_table(report: Report, console: Console) -> None:
    """The checks, what to do about those that failed, and the result."""
    table = Table(box=None, pad_edge=False, header_style="")
    for name in ("service", "check", "result", "seconds"):
        table.add_column(name, no_wrap=name != "service", justify="right" if name == "seconds" else "left")
    for one in report.checks:
        result = Text(_WORDS[one.outcome], style=_COLOURS[one.outcome])
        if one.outcome == "skipped" and one.needs:
            result.append(f": {terminal(one.needs)} failed")
        table.add_row(Text(terminal(one.service or "-")), Text(terminal(one.check)), result, f"{one.seconds:.2f}")
    console.print(table)
    for one in report.checks:
        if one.outcome != "passed" and not (one.outcome == "skipped" and one.needs):
            place = f"{one.service}/{one.check}" if one.service else one.check
            console.print(Text(f"\n{terminal(place)}: {_WORDS[one.outcome]}: {terminal(one.message, 2000)}"))
            if one.next:
                console.print(Text(f"  next: {terminal(one.next, 2000)}"))
    for problem in report.problems:
        console.print(Text(f"\nThe run cannot be trusted: {terminal(problem, 4000)}"))
    console.print(Text(f"\n{terminal(headline(report))}"))


def to_markdown(report: Report) -> str:
    """For a comment or a workflow's summary: the result first, then what failed, then the table."""
    rows = [f"**{markdown(headline(report))}**", ""]
    rows += [f"- The run cannot be trusted: {markdown(problem)}" for problem in report.problems]
    for one in report.checks:
        if one.outcome in ("failed", "error"):
            place = f"{one.service}: {one.title}" if one.service else one.title
            rows.append(f"- **{markdown(place)}** ({_WORDS[one.outcome].lower()}): {markdown(one.message, 1000)}")
            rows += [f"  Next: {markdown(one.next)}"] if one.next else []
    rows += ["", "| Service | Check | Result | Seconds | Seen |", "| --- | --- | --- | ---: | --- |"]
    for one in report.checks:
        cells = (one.service or "-", one.title, _WORDS[one.outcome])
        told = markdown_cell(one.message)
        rows.append(f"| {' | '.join(markdown_cell(cell) for cell in cells)} | {one.seconds:.2f} | {told} |")
    return "\n".join(rows) + "\n"


def to_junit(report: Report) -> str:
    """One suite for each service. A run that did not pass has a failure; a run that cannot be trusted has an error."""
    suites: dict[str, Suite] = {}
    for one in report.checks:
        name = one.service or report.environment
        suite = suites.setdefault(name, Suite(name))
        suite.cases.append(_case(one, name))
        suite.seconds += round(one.seconds, 3)
    if report.problems:
        told = "\n".join(report.problems)
        own = suites.setdefault("the run", Suite("the run"))
        own.cases.append(Case("can be trusted", "smoke", 0.0, "error", told, text=told))
    return junit_file("neuroscale smoke", list(suites.values()), report.seconds)


def _case(one: Result, suite: str) -> Case:
    name, classname = one_line(f"{one.check}: {one.title}", 500), f"smoke.{one_line(suite)}"
    tag = _TAGS.get(one.outcome, "")
    if not tag:
        return Case(name, classname, one.seconds, output=one.message)
    text = f"{one.message}\nNext: {one.next}" if one.next else one.message
    return Case(name, classname, one.seconds, tag, one.message, text=text)

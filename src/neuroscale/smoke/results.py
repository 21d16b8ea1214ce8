"""Holds the results of a run of the smoke tests, decides whether it passed, and formats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.errors import ExitStatus
from neuroscale.core.json_text import json_text
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import markdown, markdown_cell, one_line, terminal
from neuroscale.report.junit import Case, Suite, Tag, junit_file


class FindingError(AssertionError):
    """The check found a fault. `seen`: the observation; `do`: what to do next. `way`: how the way to the service
    failed, where no answer was wrong (see `EndpointError.way`)."""

    def __init__(self, seen: str, do: str, *, way: str = "") -> None:
        super().__init__(seen)
        self.seen = seen
        self.do = do
        self.way = way


class NotApplicableError(Exception):
    """There is nothing to check in this environment, for the reason given. The report lists it as not checked."""


class NeedsError(Exception):
    """Not checked because another check of the same service failed: `check` is its id. If that check did not fail, this
    one counts as an error, so that the run is red."""

    def __init__(self, check: str, why: str) -> None:
        super().__init__(why)
        self.check = check


class CannotTellError(Exception):
    """The check could not decide. `do`: what to do next."""

    def __init__(self, seen: str, do: str) -> None:
        super().__init__(seen)
        self.do = do


def require(holds: object, seen: str, do: str, *, way: str = "") -> None:
    """Raises FindingError if the condition does not hold."""
    if not holds:
        raise FindingError(seen, do, way=way)


Version = Literal["", "new", "old", "either"]
"""Which version of a service answered a check: its newest generation, an earlier one, or one of both; "" if nothing
was asked of the service, or its pods could not be told apart."""
VERSIONS: tuple[Version, ...] = ("", "new", "old", "either")

Way = Literal["", "once", "twice"]
"""Whether a check failed only because the way to the service failed, so that no answer of the service was wrong: in
one run (`once`), or for the same reason in a fresh run a minute later, too (`twice`)."""
WAYS: tuple[Way, ...] = ("", "once", "twice")

Outcome = Literal["passed", "failed", "error", "skipped"]
OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "error", "skipped")


@dataclass(frozen=True)
class Result:
    """One check of one service ("" for a check of the whole environment). `error`: the check could not decide.
    `skipped`: not checked, `message` says why; `needs` is the failed check that it depends on, "" if there was nothing
    to check. `reason`: how the way failed (see `EndpointError.way`), `changing` or `lossy`; "" if it did not."""

    service: str
    check: str
    title: str
    outcome: Outcome
    seconds: float = 0.0  # its duration
    message: str = ""
    next: str = ""  # what to do
    needs: str = ""
    version: Version = ""
    way: Way = ""
    reason: str = ""

    @property
    def misleads(self) -> bool:
        """Whether it passed, but not surely against the newest version."""
        return self.outcome == "passed" and self.version in ("old", "either")


@dataclass(frozen=True)
class Report:
    """A whole run."""

    environment: str
    revision: str  # the commit whose facts were compared; `started` in UTC
    started: str
    seconds: float  # its duration
    checks: tuple[Result, ...]
    problems: tuple[str, ...] = ()  # why the run as a whole cannot be trusted

    @property
    def status(self) -> ExitStatus:
        """Passed only if every check ran and passed, or had nothing to check. Untrusted outranks findings if the run as
        a whole is in doubt. A failed check counts as a finding even if another check could not decide."""
        outcomes = {check.outcome for check in self.checks}
        if self.problems or not outcomes & {"passed", "failed"}:
            return ExitStatus.UNTRUSTED
        if "failed" in outcomes:
            return ExitStatus.FINDINGS
        return ExitStatus.UNTRUSTED if "error" in outcomes else ExitStatus.PASSED

    @property
    def passed(self) -> bool:
        """Whether the run passed: its exit status is 0."""
        return self.status is ExitStatus.PASSED

    @property
    def doubtful(self) -> tuple[str, ...]:
        """The services of which no check failed but by the way to them, and that in one run only."""
        sure = {one.service for one in self.checks if one.outcome == "failed" and one.way != "once"}
        return tuple(dict.fromkeys(one.service for one in self.checks if one.way == "once" and one.service not in sure))

    def count(self, outcome: Outcome) -> int:
        """How many checks ended with this outcome."""
        return sum(check.outcome == outcome for check in self.checks)


def settled(checks: list[Result], services: tuple[str, ...]) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """The checks as they count, and the reasons why the run cannot be trusted. A check that was skipped because of
    another check is an error if that one did not fail. A service without any check that ran makes the run untrusted,
    and so does a check with two results."""
    failed = {(one.service, one.check) for one in checks if one.outcome == "failed"}
    counted, problems = [], []
    for one in checks:
        if one.outcome == "skipped" and one.needs and not {(one.service, one.needs), ("", one.needs)} & failed:
            message = f"{one.message} (the check {one.needs} did not fail)"
            one = replace(one, outcome="error", message=message)
        counted.append(one)
    looked = {one.service for one in checks if one.outcome in ("passed", "failed")}
    problems += [f"no check of {service} ran" for service in services if service not in looked]
    names = [(one.service, one.check) for one in checks]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems += [f"{check} of {service or 'the environment'} has two results" for service, check in twice]
    return tuple(counted), tuple(problems)


def confirmed(first: Report, second: Report, pause: float) -> Report:
    """The report of a first run, with the checks of its doubtful services from a `second` run after `pause` seconds.

    A check fails `twice` if the way to its service failed for the same reason in both runs. A second run that cannot be
    trusted changes nothing: what the first one proved stays proven, and the rest stays in doubt.
    """
    if second.problems:
        return replace(first, seconds=first.seconds + second.seconds)
    anew = {(one.service, one.check): one for one in second.checks if one.service in first.doubtful}
    before = {(one.service, one.reason) for one in first.checks if one.way}

    def one_of_both(earlier: Result) -> Result:
        after = anew.get((earlier.service, earlier.check))
        if after is None:
            return earlier
        told = after.message
        if earlier.outcome in ("failed", "error"):
            later = f"in a second run, {duration(round(pause))} after"
            told = f"{told or _WORDS[after.outcome]} ({later}: {earlier.message})"
        after = replace(after, message=told)
        again = after.way and (after.service, after.reason) in before
        return replace(after, outcome="failed", way="twice") if again else after

    return replace(first, seconds=first.seconds + second.seconds, checks=tuple(map(one_of_both, first.checks)))


def to_json(report: Report) -> str:
    """The report for programs: schema_version 1."""
    found: dict[str, Any] = {
        "schema_version": 1,
        "environment": report.environment,
        "revision": report.revision,
        "passed": report.passed,
        "exit_status": int(report.status),
        "started": report.started,
        "seconds": round(report.seconds, 3),
        "problems": list(report.problems),
        "checks": [asdict(check) for check in report.checks],
    }
    return json_text(found) + "\n"


def from_record(found: Mapping[str, Any]) -> Result:
    """A result as the run recorded it. Raises ValueError if the record is not a result."""
    texts = {name: found.get(name) for name in ("service", "check", "title", "outcome", "message", "next", "needs")}
    seconds, version = found.get("seconds"), found.get("version", "")
    if not all(isinstance(text, str) for text in texts.values()) or texts["outcome"] not in OUTCOMES:
        raise ValueError("a result lacks a field")
    way, reason = found.get("way", ""), found.get("reason", "")
    if not isinstance(seconds, int | float) or not texts["check"] or version not in VERSIONS or way not in WAYS:
        raise ValueError("a result lacks a field")
    return Result(seconds=float(seconds), version=version, way=way, reason=str(reason), **texts)  # type: ignore[arg-type]


_WORDS = {"passed": "passed", "failed": "FAILED", "error": "not looked at", "skipped": "not checked"}
_BY: dict[Version, str] = {"old": " (old version)", "either": " (old or new version)"}
_COLOURS = {"passed": "green", "failed": "bold red", "error": "bold red", "skipped": "yellow"}
_TAGS: dict[Outcome, Tag] = {"failed": "failure", "error": "error", "skipped": "skipped"}


def headline(report: Report) -> str:
    """The result in one sentence."""
    counts = ", ".join(f"{report.count(each)} {_WORDS[each].lower()}" for each in OUTCOMES if report.count(each))
    what = {ExitStatus.PASSED: "The smoke tests passed", ExitStatus.FINDINGS: "The smoke tests failed"}.get(
        report.status, "The smoke tests cannot be trusted"
    )
    old = sum(one.misleads for one in report.checks)
    counts += f", {old} of them not by the new version alone" if old else ""
    where = f"{report.environment} at {report.revision[:10]}, {duration(report.seconds)}"
    return f"{what}: {counts or 'no check ended'} ({where})"


def line(check: Result) -> str:
    """One check as it ends, for a terminal."""
    place = f"{check.service}: " if check.service else ""
    told = f": {check.message}" if check.message else ""
    return terminal(f"{_WORDS[check.outcome]:<13}  {place}{check.title}{told}", 600)


def print_table(report: Report, console: Console) -> None:
    """The checks, what to do about those that failed, and the result."""
    table = Table(box=None, pad_edge=False, header_style="")
    for name in ("service", "check", "result", "seconds"):
        table.add_column(name, no_wrap=name != "service", justify="right" if name == "seconds" else "left")
    for check in report.checks:
        result = Text(_WORDS[check.outcome], style="yellow" if check.misleads else _COLOURS[check.outcome])
        result.append(_BY[check.version] if check.misleads else "")
        if check.outcome == "skipped" and check.needs:
            result.append(f": {terminal(check.needs)} failed")
        table.add_row(Text(terminal(check.service or "-")), Text(terminal(check.check)), result, f"{check.seconds:.2f}")
    console.print(table)
    for check in report.checks:
        if check.outcome != "passed" and not (check.outcome == "skipped" and check.needs):
            place = f"{check.service}/{check.check}" if check.service else check.check
            console.print(Text(f"\n{terminal(place)}: {_WORDS[check.outcome]}: {terminal(check.message, 2000)}"))
            if check.next:
                console.print(Text(f"  next: {terminal(check.next, 2000)}"))
    for problem in report.problems:
        console.print(Text(f"\nThe run cannot be trusted: {terminal(problem, 4000)}"))
    console.print(Text(f"\n{terminal(headline(report))}"))


def to_markdown(report: Report) -> str:
    """For a comment or a workflow's summary: the result first, then what failed, then the table."""
    rows = [f"**{markdown(headline(report))}**", ""]
    rows += [f"- The run cannot be trusted: {markdown(problem)}" for problem in report.problems]
    for check in report.checks:
        if check.outcome in ("failed", "error"):
            place = f"{check.service}: {check.title}" if check.service else check.title
            rows.append(f"- **{markdown(place)}** ({_WORDS[check.outcome].lower()}): {markdown(check.message, 1000)}")
            rows += [f"  Next: {markdown(check.next)}"] if check.next else []
    rows += ["", "| Service | Check | Result | Seconds | Seen |", "| --- | --- | --- | ---: | --- |"]
    for check in report.checks:
        cells = (check.service or "-", check.title, _WORDS[check.outcome])
        told = markdown_cell(check.message)
        rows.append(f"| {' | '.join(markdown_cell(cell) for cell in cells)} | {check.seconds:.2f} | {told} |")
    return "\n".join(rows) + "\n"


def to_junit(report: Report) -> str:
    """One suite for each service. A run that did not pass has a failure; a run that cannot be trusted has an error."""
    suites: dict[str, Suite] = {}
    for check in report.checks:
        name = check.service or report.environment
        suite = suites.setdefault(name, Suite(name))
        suite.cases.append(_case(check, name))
        suite.seconds += round(check.seconds, 3)
    if report.problems:
        told = "\n".join(report.problems)
        own = suites.setdefault("the run", Suite("the run"))
        own.cases.append(Case("can be trusted", "smoke", 0.0, "error", told, text=told))
    return junit_file("neuroscale smoke", list(suites.values()), report.seconds)


def _case(check: Result, suite: str) -> Case:
    name, classname = one_line(f"{check.check}: {check.title}", 500), f"smoke.{one_line(suite)}"
    tag = _TAGS.get(check.outcome, "")
    if not tag:
        return Case(name, classname, check.seconds, output=check.message)
    text = f"{check.message}\nNext: {check.next}" if check.next else check.message
    return Case(name, classname, check.seconds, tag, check.message, text=text)

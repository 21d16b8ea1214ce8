"""Holds the results of a run of the smoke tests, and decides whether it passed.

Defines how a check of `smoke-tests/` ends: it returns (passed), or raises one of these errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from neuroscale.core.errors import ExitStatus
from neuroscale.core.json_text import json_text


class FindingError(AssertionError):
    """The check found a fault. `seen`: the observation; `do`: what to do next."""

    def __init__(self, seen: str, do: str) -> None:
        super().__init__(seen)
        self.seen = seen
        self.do = do


class NotApplicableError(Exception):
    """There is nothing to check in this environment, for the reason given. The report lists it as not checked."""


class NeedsError(Exception):
    """Not checked because another check of the same service failed: `check` is its id.

    If that check did not fail, this one counts as an error, so that the run is red.
    """

    def __init__(self, check: str, why: str) -> None:
        super().__init__(why)
        self.check = check


class CannotTellError(Exception):
    """The check could not decide. `do`: what to do next."""

    def __init__(self, seen: str, do: str) -> None:
        super().__init__(seen)
        self.do = do


def require(holds: object, seen: str, do: str) -> None:
    """Raises FindingError if the condition does not hold."""
    if not holds:
        raise FindingError(seen, do)


Outcome = Literal["passed", "failed", "error", "skipped"]
OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "error", "skipped")


@dataclass(frozen=True)
class Result:
    """One check of one service ("" for a check of the whole environment).

    `error`: the check could not decide. `skipped`: not checked, `message` says why; `needs` is the failed check that it
    depends on, "" if there was nothing to check. `seconds`: its duration; `next`: what to do.
    """

    service: str
    check: str
    title: str
    outcome: Outcome
    seconds: float = 0.0
    message: str = ""
    next: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Report:
    """A whole run. `revision`: the commit whose facts were compared; `started` in UTC; `seconds`: its duration.

    `problems`: why the run as a whole cannot be trusted.
    """

    environment: str
    revision: str
    started: str
    seconds: float
    checks: tuple[Result, ...]
    problems: tuple[str, ...] = ()

    @property
    def status(self) -> ExitStatus:
        """Passed only if every check ran and passed, or had nothing to check.

        Untrusted outranks findings if the run as a whole is in doubt. A failed check counts as a finding even if
        another check could not decide.
        """
        outcomes = {one.outcome for one in self.checks}
        if self.problems or not outcomes & {"passed", "failed"}:
            return ExitStatus.UNTRUSTED
        if "failed" in outcomes:
            return ExitStatus.FINDINGS
        return ExitStatus.UNTRUSTED if "error" in outcomes else ExitStatus.PASSED

    @property
    def passed(self) -> bool:
        """Whether the run passed: its exit status is 0."""
        return self.status is ExitStatus.PASSED

    def count(self, outcome: Outcome) -> int:
        """How many checks ended with this outcome."""
        return sum(one.outcome == outcome for one in self.checks)


def settled(checks: list[Result], services: tuple[str, ...]) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """The checks as they count, and the reasons why the run cannot be trusted.

    A check that was skipped because of another check is an error if that one did not fail. A service without any check
    that ran makes the run untrusted, and so does a check with two results.
    """
    failed = {(one.service, one.check) for one in checks if one.outcome == "failed"}
    counted, problems = [], []
    for one in checks:
        if one.outcome == "skipped" and one.needs and not {(one.service, one.needs), ("", one.needs)} & failed:
            message = f"{one.message} (the check {one.needs} did not fail)"
            one = Result(one.service, one.check, one.title, "error", one.seconds, message, one.next, one.needs)
        counted.append(one)
    looked = {one.service for one in checks if one.outcome in ("passed", "failed")}
    problems += [f"no check of {service} ran" for service in services if service not in looked]
    names = [(one.service, one.check) for one in checks]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems += [f"{check} of {service or 'the environment'} has two results" for service, check in twice]
    return tuple(counted), tuple(problems)


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
        "checks": [asdict(one) for one in report.checks],
    }
    return json_text(found) + "\n"


def from_record(found: Mapping[str, Any]) -> Result:
    """A result as the run recorded it. Raises ValueError if the record is not a result."""
    texts = {name: found.get(name) for name in ("service", "check", "title", "outcome", "message", "next", "needs")}
    seconds = found.get("seconds")
    if not all(isinstance(text, str) for text in texts.values()) or texts["outcome"] not in OUTCOMES:
        raise ValueError("a result lacks a field")
    if not isinstance(seconds, int | float) or not texts["check"]:
        raise ValueError("a result lacks a field")
    return Result(seconds=float(seconds), **texts)  # type: ignore[arg-type]

"""Reads the evidence of an environment after a merge: the smoke tests' report, and the status of its services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from neuroscale.bench.result import RESULT, short_text
from neuroscale.core.errors import InputError
from neuroscale.core.files import read_bounded
from neuroscale.core.json_text import read_object
from neuroscale.core.units import MIB
from neuroscale.repo.layout import ServicePath
from neuroscale.smoke.results import Report, Result, from_record

SMOKE, STATUS = "smoke.json", "status.json"
"""The files of an environment, in a folder of its name: the output of `smoke --json` and `status --json`."""
BENCH = "bench"
"""The folder beside them that holds what `bench-merged` measured, in a folder of each service's name."""
LARGEST_BYTES = 16 * MIB

Outcome = Literal["passed", "failed", "environment", "waiting", "untrusted", "uncovered"]
"""`environment`: its own checks passed, but one of the environment as a whole failed. `waiting`: the service is not
deployed yet, or still starts within its budget. `untrusted`: it could not be tested. `uncovered`: the workflow does not
test its environment."""

# The verdicts of a service that equals Git. Any other service is being deployed, or is blocked for
# a reason that the change did not cause.
_SETTLED = ("ready", "failed")


_ONLY_THE_WAY = (
    "Only the way to it failed, and no second run a minute later confirmed that: it is neither passed nor reverted."
)


@dataclass(frozen=True)
class ServiceEvidence:
    """One service: the outcome of its tests, and the reason if `checks` does not hold it.

    `url` is "" if it has none, `model` the name that requests use ("": unknown). `measured`: what a short benchmark of
    it says ("": none was run); it never changes the outcome.
    """

    path: ServicePath
    outcome: Outcome
    why: str = ""
    checks: tuple[Result, ...] = ()
    url: str = ""
    model: str = ""
    measured: str = ""

    @property
    def name(self) -> str:
        """`ENVIRONMENT/SERVICE`."""
        return f"{self.path.environment}/{self.path.service}"

    @property
    def failed(self) -> tuple[Result, ...]:
        return tuple(check for check in self.checks if check.outcome == "failed")


@dataclass(frozen=True)
class Evidence:
    """One environment. `revision` is the commit that was tested, or was to be ("": not known). `checks`: those of the
    environment as a whole. `problems`: why no result can be trusted."""

    environment: str
    revision: str = ""
    services: tuple[ServiceEvidence, ...] = ()
    checks: tuple[Result, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def trusted(self) -> bool:
        return not self.problems


def not_covered(environment: str, revision: str, services: Iterable[str]) -> Evidence:
    """The evidence of an environment with services that the workflow was not told to test."""
    why = (
        f"The smoke workflow does not cover the environment {environment}: nothing tests this service after a merge, "
        f"and nothing reverts it. An administrator names it in the variable NEUROSCALE_SMOKE_ENVIRONMENTS "
        f"(platform/forge/README.md), unless its nodes are simulated, as on a local platform."
    )
    rows = [ServiceEvidence(ServicePath(environment, name), "uncovered", why) for name in sorted(services)]
    return Evidence(environment, revision, tuple(rows))


def with_untested(evidence: Evidence, revision: str, services: Iterable[str]) -> Evidence:
    """The evidence of a run that cannot be trusted, with those services of the commit `revision` of which it says
    nothing: each is untrusted."""
    known = {service.path.service for service in evidence.services}
    why = " ".join(evidence.problems)
    rows = [
        ServiceEvidence(ServicePath(evidence.environment, name), "untrusted", why)
        for name in sorted(set(services) - known)
    ]
    return replace(evidence, revision=revision, services=(*evidence.services, *rows))


@dataclass(frozen=True)
class _Status:
    verdict: str
    reason: str
    url: str = ""
    model: str = ""


class _UnreadableError(Exception):
    """A file is missing, or does not have the format that its command writes."""


def read_evidence(folder: Path, environment: str) -> Evidence:
    """The evidence in the folder of an environment. A file that is missing or broken makes it untrusted."""
    try:
        report = _report(_json(folder / environment / SMOKE))
    except _UnreadableError as error:
        return Evidence(environment, problems=(f"The smoke tests left no report that can be read: {error}.",))
    problems = [f"{problem}." for problem in report.problems]
    if report.environment != environment:
        problems.append(f"The report belongs to the environment {report.environment}.")
    if not any(check.outcome in ("passed", "failed") for check in report.checks):
        problems.append("The smoke tests did not test any service.")
    try:
        statuses = _statuses(_json(folder / environment / STATUS), environment)
    except _UnreadableError as error:
        # Without the status, a service that fails looks like one that still starts.
        statuses = {}
        problems.append(f"The status of the services is not known: {error}.")
    shared = tuple(check for check in report.checks if not check.service)
    names = sorted({check.service for check in report.checks if check.service})
    could_not = [check for check in shared if check.outcome == "error"]
    problems += [f"{check.title}: {check.message or 'could not be checked'}." for check in could_not]
    return Evidence(
        environment,
        report.revision,
        tuple(
            replace(
                _judged(report, environment, name, statuses.get(name), trusted=not problems),
                measured=_measured(folder / environment / BENCH / name / RESULT),
            )
            for name in names
        ),
        shared,
        tuple(problems),
    )


def _measured(path: Path) -> str:
    """What a short benchmark of a service says; "" where none was run."""
    if not path.exists():
        return ""
    try:
        return short_text(_json(path))
    except (_UnreadableError, KeyError, IndexError, TypeError, ValueError):
        return "The short benchmark left no result that can be read."


def _judged(report: Report, environment: str, name: str, status: _Status | None, *, trusted: bool) -> ServiceEvidence:
    checks = tuple(check for check in report.checks if check.service == name)
    outcomes = {check.outcome for check in checks}
    outcome: Outcome
    why = ""
    if not trusted:
        outcome, why = "untrusted", "The run as a whole cannot be trusted."
    elif "failed" in outcomes and status is None:
        outcome, why = "untrusted", "Its status in the cluster is unknown."
    elif "failed" in outcomes and status is not None and status.verdict not in _SETTLED:
        outcome, why = "waiting", f"Its deployment is not finished ({status.verdict}): {status.reason}"
    elif "failed" in outcomes and name in report.doubtful:
        outcome, why = "untrusted", _ONLY_THE_WAY
    elif "failed" in outcomes:
        outcome, why = "failed", status.reason if status is not None and status.verdict == "failed" else ""
    elif "error" in outcomes or "passed" not in outcomes:
        outcome, why = "untrusted", "Not every check could decide."
    elif kept := sorted({check.needs for check in checks if check.outcome == "skipped" and check.needs}):
        outcome, why = "untrusted", f"Checks of it did not run, because {', '.join(kept)} failed."
    elif any(check.misleads for check in checks):
        outcome, why = "waiting", "Pods of the version before this merge still answer."
    elif broken := [check.title for check in report.checks if not check.service and check.outcome == "failed"]:
        outcome, why = "environment", f"Its own checks passed, but not those of the environment: {', '.join(broken)}."
    elif undecided := [check.title for check in report.checks if not check.service and check.outcome == "error"]:
        outcome, why = "untrusted", f"Checks of the environment could not decide: {', '.join(undecided)}."
    else:
        outcome = "passed"
    url, model = (status.url, status.model) if status else ("", "")
    return ServiceEvidence(ServicePath(environment, name), outcome, why, checks, url, model)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        record = read_object(read_bounded(path, LARGEST_BYTES, "")) or {}
    except InputError as error:
        raise _UnreadableError(f"{path.name} {error.problems[0].message}") from error
    except ValueError as error:
        raise _UnreadableError(f"{path.name} is not JSON") from error
    if record.get("schema_version") != 1:
        raise _UnreadableError(f"{path.name} is not of schema version 1")
    return record


def _report(record: Mapping[str, Any]) -> Report:
    checks, problems, seconds = record.get("checks"), record.get("problems") or [], record.get("seconds")
    texts = [record.get(name) for name in ("environment", "revision", "started")]
    if not isinstance(checks, list) or not isinstance(problems, list) or not isinstance(seconds, int | float):
        raise _UnreadableError(f"{SMOKE} lacks a field")
    if not all(isinstance(text, str) for text in [*texts, *problems]):
        raise _UnreadableError(f"{SMOKE} lacks a field")
    environment, revision, started = map(str, texts)
    try:
        read = tuple(from_record({"needs": "", **check}) for check in checks)
    except (ValueError, TypeError) as error:
        raise _UnreadableError(f"a check in {SMOKE} lacks a field") from error
    report = Report(environment, revision, started, float(seconds), read, tuple(map(str, problems)))
    if report.passed is not record.get("passed"):
        raise _UnreadableError(f"{SMOKE} claims that the run {'did not pass' if report.passed else 'passed'}")
    return report


def _statuses(record: Mapping[str, Any], environment: str) -> dict[str, _Status]:
    services = record.get("services")
    if not isinstance(services, list):
        raise _UnreadableError(f"{STATUS} lacks a field")
    read = {}
    for service in services:
        texts = [service.get(name) if isinstance(service, dict) else None for name in ("name", "verdict", "reason")]
        if not all(isinstance(text, str) for text in texts):
            raise _UnreadableError(f"a service in {STATUS} lacks a field")
        if service.get("environment") == environment:
            name, verdict, reason = map(str, texts)
            read[name] = _Status(verdict, reason, str(service.get("url") or ""), str(service.get("model") or ""))
    return read

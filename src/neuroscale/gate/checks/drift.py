"""The drift check: Git holds exactly what the request and its plan render to, and the plan is the planner's own."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, TypeVar

from neuroscale.catalog.settings import LONGEST_DAYS
from neuroscale.core.errors import InputError, Problem, UntrustedError
from neuroscale.core.printable import plainly_counted
from neuroscale.core.yaml_io import decode
from neuroscale.gate.check import Evaluation, GateCheck, LeftOut, file_finding, problem_findings
from neuroscale.gate.checks.history import History
from neuroscale.gate.judged_files import ServiceFolder
from neuroscale.gate.platform_sources import UNREADABLE
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.planning.override_shortfalls import shortfalls_of
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.planning.planner import plan, request_digest, settings_key
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import PLAN_FILE, REQUEST_FILE
from neuroscale.repo.snapshot import Snapshot
from neuroscale.request.service_request import KnownNames, Request, check_request, fault_of, load_request

if TYPE_CHECKING:
    from neuroscale.gate.run_state import Run

GATE = "drift"
_SHOWN_LINES = 6
_LARGEST_FILE = 128 * 1024  # bytes of a request or a plan

T = TypeVar("T")


class DriftCheck(GateCheck):
    """Whether services match what their requests and plans render to. Hands on their plans."""

    name = GATE
    title = "Drift"

    def __init__(self) -> None:
        self._old_plans = 0

    def left_out(self, run: Run) -> LeftOut | None:
        if _is_without_services(run):
            return LeftOut("no service folder of this repository is among the files") if run.given.plain else None
        if run.platform is None:
            return LeftOut(UNREADABLE)
        return None

    def evaluate(self, run: Run) -> Evaluation:
        if _is_without_services(run):
            caught = _tripwires()
            return Evaluation((), 0, 0, "services", caught, caught)
        if run.platform is None:
            raise UntrustedError("the drift check has no platform to render by.")
        services, change = run.given.services, run.change
        history = None if change is None else History(change, [service.path.folder for service in services])
        evaluation, plans = evaluate_drift(
            run.given.snapshot, services, run.platform, run.today, history, run.longest_days
        )
        run.plans.update(plans)
        self._old_plans = sum(finding.rule == "old-lock" for finding in evaluation.findings)
        return evaluation

    def not_checked(self, run: Run) -> Iterable[str]:
        if _is_without_services(run) and run.given.plain:
            yield (
                "Drift: these manifests were not rendered by this repository, so there is nothing to compare them with."
            )
        if run.change is None and self._old_plans:
            yield (
                f"{plainly_counted(self._old_plans, 'plan')} older than the catalog: without a base "
                "commit, an edited plan looks like an old one."
            )


def _is_without_services(run: Run) -> bool:
    """Whether no service is among the files, and nothing else needed the platform."""
    return not run.given.services and run.result("catalog") is None


def evaluate_drift(
    snapshot: Snapshot,
    services: tuple[ServiceFolder, ...],
    platform: PlanningInputs,
    today: date,
    history: History | None = None,
    longest_days: int = LONGEST_DAYS,
) -> tuple[Evaluation, dict[str, Plan]]:
    """Compare every service with what it renders to; returns the readable plans by service folder too.

    `history`: the earlier states of the base branch, if there is one; a folder that a revert brings back is not an
    edit. `longest_days`: how far ahead an override may end.

    Raises UntrustedError if the comparison does not see a known difference.
    """
    caught = _tripwires()
    findings: list[Finding] = []
    plans: dict[str, Plan] = {}
    present = [service for service in services if service.change != "removed"]
    for service in present:
        request, found = _request(snapshot, service.path.folder)
        findings.extend(found)
        if request is None:
            continue
        findings.extend(_overrides(service.path.folder, request, today, longest_days))
        found, locked = _service(snapshot, service, request, platform, history)
        findings.extend(found)
        if locked is not None:
            plans[service.path.folder] = locked
    return Evaluation(tuple(findings), len(present), len(present), "services", caught, caught), plans


def _request(snapshot: Snapshot, folder: str) -> tuple[Request | None, list[Finding]]:
    try:
        return read_file(snapshot, f"{folder}/{REQUEST_FILE}", load_request), []
    except InputError as error:
        return None, problem_findings(GATE, "request", error)


def _service(
    snapshot: Snapshot, service: ServiceFolder, request: Request, platform: PlanningInputs, history: History | None
) -> tuple[list[Finding], Plan | None]:
    folder = service.path.folder
    try:
        locked = read_file(snapshot, f"{folder}/{PLAN_FILE}", load_plan)
    except InputError as error:
        return problem_findings(GATE, "plan", error), None
    if locked is None:
        return [], None  # the files check reports that it is missing
    findings = _belongs(service, request, locked)
    try:
        check_request(request, KnownNames.of(platform.catalog, platform.settings), f"{folder}/{REQUEST_FILE}")
    except InputError as error:
        return [*findings, *problem_findings(GATE, "request", error)], locked
    if locked.lock.request_digest != request_digest(request):
        findings.append(
            file_finding(
                GATE,
                "outdated-plan",
                f"{folder}/{PLAN_FILE}",
                "was made for other answers than request.yaml holds",
                f"Run `neuroscale replan {folder}` and commit the result.",
            )
        )
        return findings, locked
    findings.extend(_plan_findings(service, request, locked, platform, history))
    if locked.verdict == "refused":
        findings.append(
            file_finding(
                GATE,
                "refused-plan",
                f"{folder}/{PLAN_FILE}",
                f"the plan is refused: {' '.join(locked.reasons)}",
                _alternatives(locked),
            )
        )
        return findings, locked
    findings.extend(_less_than_asked(folder, request, locked))
    return [*findings, *_file_findings(snapshot, folder, request, locked, platform, history)], locked


def _file_findings(
    snapshot: Snapshot, folder: str, request: Request, locked: Plan, platform: PlanningInputs, history: History | None
) -> list[Finding]:
    """Whether the files are what request and plan render to, or were like this on the base branch before."""
    try:
        rendered = render(request, locked, platform.template)
    except InputError as error:
        findings = problem_findings(GATE, "render", error)
    else:
        actual = {name: data for name in rendered if (data := snapshot.read(f"{folder}/{name}")) is not None}
        findings = compare(folder, {name: text.encode() for name, text in rendered.items()}, actual)
    if not findings or history is None or (stood := history.stood(folder)) is None:
        return findings
    names = ", ".join(sorted({finding.file.rpartition("/")[2] for finding in findings}))
    return [
        file_finding(
            GATE,
            "restored-files",
            folder,
            f"is as it was on the base branch at {stood}; today's template renders something else: {names}",
            f"Run `neuroscale replan {folder}` and commit the result when you want the newer one.",
            severity=Severity.NOTICE,
        )
    ]


def read_file(snapshot: Snapshot, path: str, load: Callable[[str, str], T]) -> T | None:
    """A request or a plan; None if the file does not exist. Raises InputError if it cannot be read."""
    data = snapshot.read(path)
    if data is not None and len(data) > _LARGEST_FILE:
        told = f"has {len(data)} bytes, which is far more than a service has"
        raise InputError(Problem(path, "", told, f"Write at most {_LARGEST_FILE} bytes."))
    return None if data is None else load(decode(data, path), path)


def _belongs(service: ServiceFolder, request: Request, locked: Plan) -> list[Finding]:
    """The request and the plan name the folder that they lie in."""
    findings = []
    for file, named in ((REQUEST_FILE, request), (PLAN_FILE, locked)):
        for field, expected in (("service", service.path.service), ("environment", service.path.environment)):
            if (value := getattr(named, field)) != expected:
                findings.append(
                    file_finding(
                        GATE,
                        "wrong-folder",
                        f"{service.path.folder}/{file}",
                        f"{field} is {value!r}, but the folder says {expected!r}",
                        f"Write {field}: {expected}, or move the folder.",
                    )
                )
    return findings


def _overrides(folder: str, request: Request, today: date, longest_days: int) -> list[Finding]:
    """A finding for every override; one in force is a notice."""
    findings = []
    for override in request.overrides:
        fault = fault_of(override.reason, override.expires, today, longest_days)
        subject = f"the override of {override.field}"
        if fault is None:
            rule, fix, severity = "override", "Remove it when it is no longer needed.", Severity.NOTICE
            message = f"{subject} with {override.value} is in force until {override.expires}: {override.reason}"
        else:
            rule, fix, severity = f"override-{fault.rule}", fault.fix, Severity.ERROR
            message = f"{subject} {fault.message}"
        fix += f" Then run `neuroscale replan {folder}` and commit the result."
        findings.append(file_finding(GATE, rule, f"{folder}/{REQUEST_FILE}", message, fix, severity=severity))
    return findings


def _less_than_asked(folder: str, request: Request, locked: Plan) -> list[Finding]:
    """A notice for everything that overrides take from the answers of the form."""
    fix = f"Change the overrides or the answers, run `neuroscale replan {folder}` and commit the result."
    return [
        file_finding(GATE, "less-than-asked", f"{folder}/{REQUEST_FILE}", one, fix, severity=Severity.NOTICE)
        for one in shortfalls_of(request, locked)
    ]


def _plan_findings(
    service: ServiceFolder, request: Request, locked: Plan, platform: PlanningInputs, history: History | None
) -> list[Finding]:
    """Whether the lock matches the planner's plan.

    A lock from this very catalog, planner and template must equal a new plan. An older one was accepted when it was
    merged; but a change may bring in or alter a lock only if it says what the planner says, or if it brings back the
    whole folder as it was merged once.
    """
    file = f"{service.path.folder}/{PLAN_FILE}"
    fresh = plan(request, platform.catalog, platform.settings, platform.template.version)
    if fresh == locked:
        return []
    differing = _differing_fields(locked, fresh)
    command = f"Run `neuroscale replan {service.path.folder}` and commit the result"
    if not differing:
        return [
            file_finding(
                GATE,
                "old-lock",
                file,
                "is older than the catalog, the settings, the planner or the template; a new plan says the same",
                f"{command} when you want the newer one.",
                severity=Severity.NOTICE,
            )
        ]
    shown = "; ".join(differing[:4]) + (f" and {len(differing) - 4} more" if len(differing) > 4 else "")
    same_origin = _origin(fresh) == _origin(locked)
    if same_origin or service.plan_changed:
        stood = None if history is None else history.stood(service.path.folder)
        if stood is not None:
            return [
                file_finding(
                    GATE,
                    "restored-plan",
                    file,
                    f"is the plan of {stood} of the base branch, with its request and its files; "
                    f"a new plan would differ: {shown}",
                    f"{command} when you want the newer one.",
                    severity=Severity.NOTICE,
                )
            ]
        never = "" if history is None else f", and no such folder was found {history.reach}"
        return [
            file_finding(
                GATE,
                "edited-plan",
                file,
                f"differs from the plan that the planner makes for this request{never}: {shown}",
                f"{command}; an exception to the plan belongs in the request's overrides.",
            )
        ]
    return [
        file_finding(
            GATE,
            "old-lock",
            file,
            f"is older than the catalog, the settings, the planner or the template; a new plan would differ: {shown}",
            f"{command} when you want the newer one.",
            severity=Severity.NOTICE,
        )
    ]


def _origin(made: Plan) -> tuple[str | None, ...]:
    """The digests and versions that a plan was made from, without its request."""
    lock = made.lock
    settings = lock.entries.get(settings_key(made.environment))
    return (lock.catalog_digest, settings, lock.planner_version, lock.template_version)


def _differing_fields(locked: Plan, fresh: Plan) -> list[str]:
    """`field: locked value -> planned value` for every field but the lock itself."""
    before, after = locked.model_dump(mode="json"), fresh.model_dump(mode="json")
    return [
        f"{field}: {_short(before[field])} -> {_short(after[field])}"
        for field in after
        if field != "lock" and before[field] != after[field]
    ]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _alternatives(locked: Plan) -> str:
    if not locked.alternatives:
        return "Change the request: no choice of the catalog works for it."
    return "Choose one that works: " + "; ".join(alternative.change for alternative in locked.alternatives[:3]) + "."


def compare(folder: str, rendered: Mapping[str, bytes], actual: Mapping[str, bytes]) -> list[Finding]:
    """One finding for every file whose bytes are not what was rendered; the files check reports missing files."""
    findings = []
    for name in sorted(rendered):
        if name not in actual or rendered[name] == actual[name]:
            continue
        expected = rendered[name].decode("utf-8", "replace").splitlines()
        found = actual[name].decode("utf-8", "replace").splitlines()
        line = next(
            (number for number, (left, right) in enumerate(zip(expected, found, strict=False), 1) if left != right),
            min(len(expected), len(found)) + 1,
        )
        changes = [
            text
            for text in difflib.unified_diff(expected, found, "rendered", "in Git", lineterm="", n=0)
            if text[:3] not in ("---", "+++") and text[:2] != "@@"
        ]
        shown = " | ".join(changes[:_SHOWN_LINES]) + (" | ..." if len(changes) > _SHOWN_LINES else "")
        findings.append(
            file_finding(
                GATE,
                "edited",
                f"{folder}/{name}",
                f"differs from what request and plan render to: {shown or 'white space or line ends'}",
                f"Run `neuroscale render {folder}/{REQUEST_FILE}`; change the request, not the rendered file.",
                max(1, min(line, len(found))),
            )
        )
    return findings


def _tripwires() -> int:
    """Differences that the comparison must see; returns how many it saw."""
    rendered = {"inferenceservice.yaml": b"kind: InferenceService\nspec: {}\n"}
    good = rendered["inferenceservice.yaml"]
    for bad in (good.replace(b"{}", b"{a: 1}"), good + b"# x\n", good.replace(b"\n", b"\r\n"), good[:-1], b""):
        if not compare("tripwire", rendered, {"inferenceservice.yaml": bad}):
            raise UntrustedError(f"the drift check did not see that {bad!r} differs from {good!r}.")
    return 5

"""The drift check: Git holds exactly what the request and its plan render to, and the plan is the planner's own.

A folder that a revert brings back is not an edit (`earlier_states`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import date
from functools import partial

from neuroscale.catalog.settings import LONGEST_DAYS
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.printable import one_line, plainly_counted, shortened
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.checks.earlier_states import History, Stood
from neuroscale.gate.checks.repository_costs import TeamUse
from neuroscale.gate.evaluation import Evaluation, file_finding, problem_findings
from neuroscale.gate.judged_files import ServiceFolder
from neuroscale.gate.platform_sources import UNREADABLE
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.planning.override_shortfalls import shortfalls_of
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.planning.planner import request_digest, settings_key
from neuroscale.planning.rollout import quota_shortage, strategy
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.template import Template
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import CATALOG_INFO, KEY_FILE, PLAN_FILE, REQUEST_FILE
from neuroscale.repo.snapshot import Snapshot, read_file
from neuroscale.request.service_request import Request, check_request, fault_of, load_request

GATE = "drift"
_SHOWN_LINES = 6


class DriftCheck(GateCheck):
    """Whether services match what their requests and plans render to. Hands on their plans."""

    name = GATE
    title = "Drift"
    needs = ("catalog",)

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
        evaluation, self.value = evaluate_drift(
            run.given.snapshot, services, run.platform, run.today, history, run.longest_days
        )
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
    use = TeamUse(snapshot, platform.catalog)
    for service in present:
        comparison = _Comparison(snapshot, service, platform, history, use)
        locked = comparison.run(today, longest_days)
        findings.extend(comparison.findings)
        if locked is not None:
            plans[service.path.folder] = locked
    return Evaluation(tuple(findings), len(present), len(present), "services", caught, caught), plans


class _Comparison:
    """The comparison of one service's request, plan and files, with its findings."""

    def __init__(
        self,
        snapshot: Snapshot,
        service: ServiceFolder,
        platform: PlanningInputs,
        history: History | None,
        use: TeamUse,
    ) -> None:
        self.snapshot, self.service, self.platform, self.history = snapshot, service, platform, history
        self.use = use
        self.folder = service.path.folder
        self.replan = f"Run `neuroscale replan {self.folder}` and commit the result"
        self.findings: list[Finding] = []

    def say(self, rule: str, name: str, message: str, fix: str, *, notice: bool = False) -> None:
        """Add a finding at a file of the folder, or at the folder itself ("")."""
        severity = Severity.NOTICE if notice else Severity.ERROR
        self.findings.append(
            file_finding(GATE, rule, f"{self.folder}/{name}".rstrip("/"), message, fix, severity=severity)
        )

    def run(self, today: date, longest_days: int) -> Plan | None:
        """The service's plan if it can be read; the files check reports files that are missing."""
        rule = "request"
        try:
            request = read_file(self.snapshot, f"{self.folder}/{REQUEST_FILE}", load_request)
            if request is None:
                return None
            self._overrides(request, today, longest_days)
            rule = "plan"
            locked = read_plan(self.snapshot, self.folder)
        except InputError as error:
            self.findings += problem_findings(GATE, rule, error)
            return None
        if locked is not None:
            self._belongs(request, locked)
            self._compare(request, locked)
        return locked

    def _compare(self, request: Request, locked: Plan) -> None:
        try:
            check_request(request, self.platform.known, f"{self.folder}/{REQUEST_FILE}")
        except InputError as error:
            self.findings += problem_findings(GATE, "request", error)
            return
        if locked.lock.request_digest != request_digest(request):
            self.say(
                "outdated-plan", PLAN_FILE, "was made for other answers than request.yaml holds", f"{self.replan}."
            )
            return
        self._plan(request, locked)
        if locked.verdict == "refused":
            message = f"the plan is refused: {' '.join(locked.reasons)}"
            self.say("refused-plan", PLAN_FILE, message, _alternatives(locked))
            return
        fix = f"Change the overrides or the answers, run `neuroscale replan {self.folder}` and commit the result."
        for shortfall in shortfalls_of(request, locked):  # what overrides take from the answers of the form
            self.say("less-than-asked", REQUEST_FILE, shortfall, fix, notice=True)
        self._quota(locked)
        self._files(request, locked)

    def _quota(self, locked: Plan) -> None:
        """Whether the team's quota in Git can ever hold the pods, and those that a rollout starts beside them."""
        team = self.platform.catalog.teams.get(locked.tenancy.team)
        if team is not None and (short := quota_shortage(locked, team.quota, self.use.beside(locked))) is not None:
            fix = f"{short.fix} Then run `neuroscale replan {self.folder}` and commit the result."
            # A plan from before was accepted as it is, and who takes no more than until now may run.
            grows = self.history is None or self.history.grows(self.folder, locked)
            runs = not (grows or strategy(locked)[0] or quota_shortage(locked, team.quota))
            self.say("beyond-quota", PLAN_FILE, short.told, fix, notice=locked.rollout is None or runs)

    def _belongs(self, request: Request, locked: Plan) -> None:
        """The request and the plan name the folder that they lie in."""
        path = self.service.path
        for file, named in ((REQUEST_FILE, request), (PLAN_FILE, locked)):
            for field, expected in (("service", path.service), ("environment", path.environment)):
                if (value := getattr(named, field)) != expected:
                    message = f"{field} is {value!r}, but the folder says {expected!r}"
                    self.say("wrong-folder", file, message, f"Write {field}: {expected}, or move the folder.")

    def _overrides(self, request: Request, today: date, longest_days: int) -> None:
        """A finding for every override; one in force is a notice."""
        for override in request.overrides:
            fault = fault_of(override.reason, override.expires, today, longest_days)
            message = f"the override of {override.field}"
            if fault is None:
                rule, fix = "override", "Remove it when it is no longer needed."
                message += f" with {override.value} is in force until {override.expires}: {override.reason}"
            else:
                rule, fix, message = f"override-{fault.rule}", fault.fix, f"{message} {fault.message}"
            fix += f" Then run `neuroscale replan {self.folder}` and commit the result."
            self.say(rule, REQUEST_FILE, message, fix, notice=fault is None)

    def _stood(self, request: Request, locked: Plan) -> Stood | None:
        """The newest commit of the base branch whose own template renders the folder as it is, if there is a history
        and the folder stood there before."""
        if self.history is None:
            return None
        return self.history.stood(self.folder, partial(self._is_rendered, request, locked))

    def _is_rendered(self, request: Request, locked: Plan, template: Template) -> bool:
        return not self._differences(render(request, locked, template))

    def _differences(self, rendered: dict[str, str]) -> list[Finding]:
        """The files that differ from rendered ones."""
        for name in (CATALOG_INFO, KEY_FILE):  # what is not rendered is not to be there
            rendered.setdefault(name, "")
        read = {name: self.snapshot.read(f"{self.folder}/{name}") for name in rendered}
        actual = {name: data for name, data in read.items() if data is not None}
        different = compare(self.folder, {name: text.encode() for name, text in rendered.items()}, actual)
        if rendered[KEY_FILE] and KEY_FILE not in actual:  # the files check cannot know that the plan needs it
            message, fix = "is missing, and the plan takes the API key from a secret store", f"{self.replan}."
            different.append(file_finding(GATE, "edited", f"{self.folder}/{KEY_FILE}", message, fix))
        return different

    def _files(self, request: Request, locked: Plan) -> None:
        """Whether the files are what request and plan render to, or were like this on the base branch before."""
        try:
            rendered = render(request, locked, self.platform.template)
        except InputError as error:
            faults = problem_findings(GATE, "render", error)
        else:
            faults = self._differences(rendered)
            if rendered[info := CATALOG_INFO] and self.history and self.history.removes(f"{self.folder}/{info}"):
                fix = f"Run `neuroscale render {self.folder}/{REQUEST_FILE}` and commit the file."
                faults.append(file_finding(GATE, "edited", f"{self.folder}/{info}", "is removed alone", fix))
        if not faults:
            return
        names = ", ".join(sorted({fault.file.rpartition("/")[2] for fault in faults}))
        if stands := self.history and self.history.stands(self.folder, partial(self._is_rendered, request, locked)):
            message = f"is as {stands} rendered it; the template renders something else by now: {names}"
            self.say("old-files", "", message, f"{self.replan} when you want the newer one.", notice=True)
            return
        if (stood := self._stood(request, locked)) is None:
            self.findings += faults
            return
        message = f"is as it was on the base branch at {stood}; today's template renders something else: {names}"
        self.say("restored-files", "", message, f"{self.replan} when you want the newer one.", notice=True)

    def _plan(self, request: Request, locked: Plan) -> None:
        """Whether the lock matches the planner's plan.

        A lock from this very catalog, planner and template must equal a new plan. An older one was accepted when it was
        merged; but a change may bring in or alter a lock only if it says what the planner says, or if it brings back
        the whole folder as it was merged once.
        """
        platform = self.platform
        fresh = self.platform.plan(request)
        if fresh == locked:
            return
        newer = f"{self.replan} when you want the newer one."
        older = "is older than the catalog, the settings, the planner or the template; a new plan"
        differing = _differing_fields(locked, fresh)
        if not differing:
            self.say("old-lock", PLAN_FILE, f"{older} says the same", newer, notice=True)
            return
        shown = shortened(differing, 4, separator="; ")
        if _origin(fresh) != _origin(locked) and not self.service.plan_changed:
            self.say("old-lock", PLAN_FILE, f"{older} would differ: {shown}", newer, notice=True)
        elif (stood := self._stood(request, locked)) is not None:
            message = f"is the plan of {stood} of the base branch, with its request and its files; "
            self.say("restored-plan", PLAN_FILE, f"{message}a new plan would differ: {shown}", newer, notice=True)
            offered = platform.settings.environments[request.environment].accelerators
            if locked.accelerator not in offered:
                message = (
                    f"asks for {locked.accelerator}, which {request.environment} no longer has: its pods would wait"
                )
                fix = f"{self.replan}: it chooses among {', '.join(offered)}. Or give {request.environment} the "
                fix += f"accelerator back first (environments.{request.environment}.accelerators of the settings)."
                self.say("no-accelerator", PLAN_FILE, message, fix)
        else:
            never = "" if self.history is None else f", and {self.history.never(self.folder)}"
            message = f"differs from the plan that the planner makes for this request{never}: {shown}"
            fix = f"{self.replan}; an exception to the plan belongs in the request's overrides."
            self.say("edited-plan", PLAN_FILE, message, fix)


def _origin(made: Plan) -> tuple[str | None, ...]:
    """The digests and versions that a plan was made from, without its request."""
    lock = made.lock
    settings = lock.entries.get(settings_key(made.environment))
    return (lock.catalog_digest, settings, lock.planner_version, lock.template_version)


def _differing_fields(locked: Plan, fresh: Plan) -> list[str]:
    """`field: locked value -> planned value` for every field but the lock itself."""
    before, after = locked.model_dump(mode="json"), fresh.model_dump(mode="json")
    return [
        f"{field}: {one_line(str(before[field]), 80)} -> {one_line(str(after[field]), 80)}"
        for field in after
        if field != "lock" and before[field] != after[field]
    ]


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
        message = f"differs from what request and plan render to: {shown or 'white space or line ends'}"
        fix = f"Run `neuroscale render {folder}/{REQUEST_FILE}`; change the request, not the rendered file."
        findings.append(file_finding(GATE, "edited", f"{folder}/{name}", message, fix, max(1, min(line, len(found)))))
    return findings


def _tripwires() -> int:
    """Differences that the comparison must see; returns how many it saw."""
    rendered = {"inferenceservice.yaml": b"kind: InferenceService\nspec: {}\n"}
    (good,) = rendered.values()
    for bad in (good.replace(b"{}", b"{a: 1}"), good + b"# x\n", good.replace(b"\n", b"\r\n"), good[:-1], b""):
        if not compare("tripwire", rendered, {"inferenceservice.yaml": bad}):
            raise UntrustedError(f"the drift check did not see that {bad!r} differs from {good!r}.")
    return 5

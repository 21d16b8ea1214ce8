"""Runs the gate once: every check in its turn over one input, and then the verdict.

Makes the verdict of a run from the results of its checks, in the order and the words that every report shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import date
from importlib import import_module
from pathlib import Path

from neuroscale import __version__
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.files import scratch_folder
from neuroscale.core.printable import plainly_counted
from neuroscale.gate.check import GateCheck, Run, Subject, begin, in_order
from neuroscale.gate.evaluation import GateResult, file_finding, says_all
from neuroscale.gate.file_kinds import in_words
from neuroscale.gate.judged_files import GateInput, ServiceFolder, read_paths, texts_of_files
from neuroscale.gate.merged_change import Change, read_change, texts_of, touches_rendering
from neuroscale.gate.verdict import Alterations, Check, Finding, Outcome, ServiceReport, Severity, Verdict, exit_status
from neuroscale.manifests.objects import Manifest
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.repo.layout import CATALOG, POLICIES, REQUEST_FILE, RUNTIMES, SERVICE_FILE, ServicePath
from neuroscale.repo.snapshot import read_file
from neuroscale.request.service_request import ChangedAnswer, changed_answers, load_request

_NO_SERVER = (
    "Rules that only an API server knows (CEL rules of custom resources, quantities, port ranges): this run asked none."
)


def make_verdict(run: Run, not_checked: Sequence[str]) -> Verdict:
    """The verdict on a run whose checks have ended. `not_checked`: what they did not look at, in words."""
    given, change, results, anew = run.given, run.change, run.results, run.anew
    altered = run.altered.alterations if run.altered else None
    checks = tuple(result.check for result in results)
    services = tuple(_report(run, service) for service in given.services)
    seen = [*(finding for result in results for finding in result.findings), *moved_services(services)]
    found = merged(seen, [*anew.manifests, *anew.servers] if anew else [])
    findings = tuple(
        sorted(
            found,
            key=lambda finding: (
                finding.severity is Severity.NOTICE,
                finding.file,
                finding.line or 0,
                finding.gate,
                finding.rule,
                finding.message,
            ),
        )
    )
    status = exit_status(checks)
    return Verdict(
        tool_version=__version__,
        exit_status=status.value,
        headline=_headline(status, checks, findings, given, run.unjudged, altered),
        base=change.base if change else "",
        head=change.head if change else "",
        paths=run.subject.paths,
        checks=checks,
        findings=findings,
        services=services,
        cost=run.cost,
        effects=anew.effects if anew else None,
        altered=altered,
        notes=tuple(_who_judged(run)),
        not_checked=(*not_checked, *_unseen(checks, given)),
    )


def merged(findings: Sequence[Finding], rendered: Sequence[Manifest]) -> list[Finding]:
    """The findings of a run; those that say the same about several rendered objects become one."""
    places = {(one.file, one.subject): one for one in rendered if one.service is not None}
    kept: dict[tuple[str, ...], Finding] = {}
    others: dict[tuple[str, ...], set[str]] = {}
    for number, finding in enumerate(findings):
        one = places.get((finding.file, finding.subject))
        if one is None:
            kept[str(number),] = finding
            continue
        message = finding.message.replace(one.name, "\0")
        key: tuple[str, ...] = (finding.gate, finding.rule, finding.severity, finding.file, message, finding.fix)
        kept.setdefault(key, finding)
        others.setdefault(key, set()).add(finding.subject)
    for key, subjects in others.items():
        more = f" and {len(subjects) - 1} more like it" if len(subjects) > 1 else ""
        first = kept[key]
        kept[key] = first.model_copy(update={"message": f"rendered for {first.subject}{more}: {first.message}"})
    return list(kept.values())


def _who_judged(run: Run) -> Iterator[str]:
    change = run.change
    if change is None:
        if run.given.services:
            yield "The run has no base, so the policies and exceptions of this work tree decided."
        return
    if change.touches(POLICIES):
        yield "The change alters policies or exceptions: the base's decided, and the change's own ran beside them."
    if change.touches(CATALOG):
        yield (
            "The change alters the catalog: the base's facts decided whether a service fits. "
            "The change's own facts stood in for those that the base lacks, and judged beside the base's."
        )


def _unseen(checks: Sequence[Check], given: GateInput) -> Iterator[str]:
    if not any(check.name == "server" and check.outcome in (Outcome.PASSED, Outcome.FINDINGS) for check in checks):
        yield _NO_SERVER
    if given.ignored:
        names = ", ".join(given.ignored[:5]) + (" and others" if len(given.ignored) > 5 else "")
        yield f"{plainly_counted(len(given.ignored), 'file')} without a manifest's ending: {names}."


def _report(run: Run, service: ServiceFolder) -> ServiceReport:
    """What a change does to a service; what the base has of it, and is not readable, is left out."""
    # Imported late: Kyverno begins its work before planning is imported.
    from neuroscale.planning.rollout import accelerator_quota
    from neuroscale.rendering.service_folder import same_pods

    folder, change = service.path.folder, run.change
    made = run.plans.get(folder)
    quota = accelerator_quota(made, run.platform.catalog) if made is not None and run.platform is not None else None
    plan_before: Plan | None = None
    answers: tuple[ChangedAnswer, ...] = ()
    same: bool | None = None
    if change is not None and service.change != "added":
        after = run.given.snapshot
        with suppress(InputError):
            plan_before = read_plan(change.before, folder)
        with suppress(InputError):
            old, new = (read_file(one, f"{folder}/{REQUEST_FILE}", load_request) for one in (change.before, after))
            answers = changed_answers(old, new) if old and new else ()
        same = same_pods(*(one.read(f"{folder}/{SERVICE_FILE}") for one in (change.before, after)))
        # KServe merges the pods of a service with its runtime.
        same = False if same and change.touches(RUNTIMES) else same
    return ServiceReport(
        environment=service.path.environment,
        name=service.path.service,
        change=service.change,
        plan=made,
        plan_before=plan_before,
        answers=answers,
        same_pods=same,
        quota=quota,
    )


def moved_services(reports: Sequence[ServiceReport]) -> Iterator[Finding]:
    """A notice for each service that goes on in another namespace, or that may take the place of a removed one."""
    from neuroscale.planning.rollout import move

    removed = [report for report in reports if report.change == "removed"]
    fix = "For no gap, request it there first, and retire the old one once its callers have moved."
    for report in reports:
        olds = [report] if report.change == "changed" else removed if report.change == "added" else []
        for before in (old.plan_before for old in olds if old.environment == report.environment):
            if before is None or report.plan is None or report.plan.verdict == "refused":
                continue
            if report.change == "changed":
                moves, lead = before.tenancy.namespace != report.plan.tenancy.namespace, ""
            else:
                moves = before.model == report.plan.model
                lead = f"if it takes the place of {before.service}, which the change removes: "
            if moves:
                message = f"{lead}{move(before, report.plan)}"
                folder = ServicePath(report.environment, report.name).folder
                yield file_finding("files", "moved-service", folder, message, fix, severity=Severity.NOTICE)


def _headline(
    status: ExitStatus,
    checks: tuple[Check, ...],
    findings: tuple[Finding, ...],
    given: GateInput,
    unjudged: Sequence[Manifest],
    altered: Alterations | None,
) -> str:
    if status is ExitStatus.UNTRUSTED:
        broken = ", ".join(check.title for check in checks if check.outcome is Outcome.UNTRUSTED)
        return f"The gate cannot be trusted, so this is not a verdict: {broken}"
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        files = len({finding.file for finding in errors})
        return f"Refused: {plainly_counted(len(errors), 'finding')} in {plainly_counted(files, 'file')}"
    beside = in_words(altered.files) if altered else ""
    if not given.services and not given.plain and not given.strays:
        if beside:
            return f"Passed: no service differs, and a person must look at {beside}"
        return "Nothing to check: no manifest differs"
    if given.services:
        number, word, left = len(given.services), "service", len({one.service for one in unjudged if one.service})
    else:
        number, word, left = len(given.plain), "file", len({one.file for one in unjudged})
    if left == number and not beside:
        return f"Nothing to check: {plainly_counted(left, word)} of kinds that nothing judges"
    parts = [f"Passed: {plainly_counted(number - left, word)} checked"]
    if left:
        parts.append(f"{plainly_counted(left, word)} with kinds that nothing judges")
    remarks = [f"{check.unjudged} of {check.expected} {check.unit} not judged" for check in checks if check.unjudged]
    remarks += [f"a person must look at {beside}"] if beside else []
    return "; ".join([", and ".join(parts), *remarks])


def gate_paths(paths: list[Path], root: Path, today: date, *, server: bool = False, strict: bool = False) -> Verdict:
    """Judge folders and files, with `server` by an API server too. Raises InputError for a path without manifests.

    `strict`: an object of a kind that nothing judges is a finding; otherwise the verdict only names it.
    """
    given = read_paths(paths, root)
    names = tuple(map(str, paths))
    subject = Subject(given, lambda: texts_of_files(given), given.snapshot, paths=names, server=server, strict=strict)
    return _judge(subject, today)


def gate_change(change: Change, today: date, *, server: bool = False, strict: bool = True) -> Verdict:
    """Judge what merging the change's head into its base brings, with `server` by an API server too.

    Policies and exceptions are the base's. `strict`: an object of a kind that nothing judges is a finding.
    """
    subject = Subject(
        read_change(change), lambda: texts_of(change), change.before, change, server=server, strict=strict
    )
    return _judge(subject, today)


_CHECKS = {
    "files": "files:FilesCheck",
    "change": "change_notices:ChangeCheck",
    "effects": "effects:EffectsCheck",
    "effects-fit": "fit.check:RenderedAnewFitCheck",
    "policy": "policy:PolicyCheck",
    "schema": "schema:SchemaCheck",
    "secrets": "secrets:SecretsCheck",
    "policy-of-head": "changed_policies:ChangedPoliciesCheck",
    "policy-tests": "changed_policies:ChangedPolicyTestsCheck",
    "server": "api_server:ApiServerCheck",
    "kinds": "judged_kinds:KindsCheck",
    "owners": "owners:OwnersCheck",
    "catalog": "catalog:CatalogCheck",
    "drift": "drift:DriftCheck",
    "fit": "fit.check:FitCheck",
    "fit-of-head": "fit.check:ChangedFactsFitCheck",
    "platform": "platform_files:PlatformFilesCheck",
    "production": "production:ProductionCheck",
    "cost": "cost:CostCheck",
}
"""The checks and their classes, in the order in which they begin, if none has to wait for what it needs.

Checks that wait for other programs begin as soon as all objects are known. The others are imported in their turn, while
those programs run: planning alone takes a tenth of a second of a processor.
"""


def all_checks(*, of_change: bool = True, renders_anew: bool = True) -> Iterator[GateCheck]:
    """Every check, for one run. `of_change`: whether the input is a change, and `renders_anew`: whether services are
    rendered otherwise after it; without, the checks of it would be left out."""
    left_out = (*(() if of_change else ("change",)), *(() if renders_anew else ("effects", "effects-fit")))
    return in_order([name for name in _CHECKS if name not in left_out], _made)


def _made(name: str) -> GateCheck:
    module, _, of = _CHECKS[name].partition(":")
    folder = "neuroscale.gate" if "." in module else "neuroscale.gate.checks"
    check: GateCheck = getattr(import_module(f"{folder}.{module}"), of)()
    return check


def _judge(subject: Subject, today: date) -> Verdict:
    with (
        scratch_folder("neuroscale-gate-") as scratch,
        ThreadPoolExecutor() as pool,
        ExitStack() as ending,  # before the pool, so that a run that breaks off does not wait for a server's answers
    ):
        change = subject.change
        renders_anew = change is not None and touches_rendering(change)
        checks = all_checks(of_change=change is not None, renders_anew=renders_anew)
        run, not_checked = _ended(Run(subject, today, scratch, ending), checks, pool)
        if change is not None and (left := _faults_of_unchanged_services(run)):
            (scratch / "base").mkdir()
            checks = in_order(_needed_by({name.removesuffix("-of-head") for name in left}), _made)
            base, _ = _ended(Run(_base_of(run, change), today, scratch / "base", ending), checks, pool)
            run = _with_faults_of_base_as_notices(run, left, base)
    return make_verdict(run, not_checked)


def _ended(run: Run, checks: Iterable[GateCheck], pool: ThreadPoolExecutor) -> tuple[Run, list[str]]:
    """The run after its checks, and what they did not look at, in words."""
    not_checked: list[str] = []
    beside: list[tuple[GateCheck, Future[GateResult | None]]] = []

    def ended(check: GateCheck, result: GateResult | None) -> None:
        nonlocal run
        run = run.ended_with(check.name, result, check.value)
        not_checked.extend(check.not_checked(run.seen_by(check)))

    for check in checks:
        end = begin(check, run)
        if check.beside:
            beside.append((check, pool.submit(end)))
        else:
            ended(check, end())
    for check, future in beside:
        ended(check, future.result())
    return run, not_checked


def _faults_of_unchanged_services(run: Run) -> dict[str, list[Finding]]:
    """The errors in folders of services that the change leaves alone, by the name of the check: a change of the catalog
    judges every service anew."""
    folders = tuple(f"{one.path.folder}/" for one in run.given.services if one.change == "checked")
    faults = {
        result.check.name: [one for one in _errors(result) if f"{one.file}/".startswith(folders)]
        for result in run.results
    }
    return {name: found for name, found in faults.items() if found}


def _errors(result: GateResult) -> list[Finding]:
    """The errors of a check that can be trusted."""
    known = result.findings if result.check.outcome is Outcome.FINDINGS else ()
    return [one for one in known if one.severity is Severity.ERROR]


def _needed_by(names: set[str]) -> list[str]:
    """These checks and all that they need, in the order of the table."""
    while more := {needed for name in names for needed in _made(name).needs} - names:
        names = names | more
    return [name for name in _CHECKS if name in names]


def _base_of(run: Run, change: Change) -> Subject:
    """The services that the change leaves alone, as the base judges them: as a change that alters nothing."""
    before, subject = change.before, run.subject
    nothing = Change(change.git, change.base, change.base, change.base, {})
    given = GateInput(before, tuple(one for one in run.given.services if one.change == "checked"))
    return Subject(given, lambda: (), before, nothing, server=subject.server, strict=subject.strict)


def _with_faults_of_base_as_notices(run: Run, left: Mapping[str, list[Finding]], base: Run) -> Run:
    """The run, in which an error of a service that the change leaves alone is a notice where the base's own judgement
    has it in the same words: one broken service on main does not refuse every change of the catalog. What the change
    breaks, or breaks otherwise, stays an error; so does what the bounds of a verdict cut, since the rest may differ."""
    known = {_said(one) for result in base.results for one in _errors(result)}
    for result in run.results:
        excused = [one for one in left.get(result.check.name, ()) if says_all(one) and _said(one) in known]
        if not excused:
            continue
        findings = tuple(_as_notice(one) if one in excused else one for one in result.findings)
        told = f"{plainly_counted(len(excused), 'finding')} that the base has, too"
        changed: dict[str, object] = {"detail": "; ".join(filter(None, (result.check.detail, told)))}
        if not any(one.severity is Severity.ERROR for one in findings):
            changed["outcome"] = Outcome.PASSED
        run = run.with_result(GateResult(result.check.model_copy(update=changed), findings))
    return run


def _said(finding: Finding) -> tuple[str, str, int | None, str, str]:
    return finding.rule, finding.file, finding.line, finding.subject, finding.message


def _as_notice(finding: Finding) -> Finding:
    told = f"the base has this already, and the change leaves the service alone: {finding.message}"
    return finding.model_copy(update={"severity": Severity.NOTICE, "message": told})

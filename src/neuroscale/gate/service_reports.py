"""Reports what a change does to each service that it touches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from neuroscale.core.errors import InputError
from neuroscale.gate.check import Run
from neuroscale.gate.evaluation import file_finding
from neuroscale.gate.judged_files import ServiceFolder
from neuroscale.gate.verdict import CHANGE_CHECK, Finding, ServiceReport, Severity
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.repo.layout import REQUEST_FILE, RUNTIMES, SERVICE_FILE, ServicePath
from neuroscale.repo.snapshot import read_file
from neuroscale.request.service_request import ChangedAnswer, changed_answers, load_request


def service_report(run: Run, service: ServiceFolder) -> ServiceReport:
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
            old, new = (read_file(side, f"{folder}/{REQUEST_FILE}", load_request) for side in (change.before, after))
            answers = changed_answers(old, new) if old and new else ()
        same = same_pods(*(side.read(f"{folder}/{SERVICE_FILE}") for side in (change.before, after)))
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


def own_revisions(run: Run) -> Iterator[Finding]:
    """A notice for each service whose request names another commit of its model than before: nobody reviewed it."""
    if run.platform is None:
        return
    fix = "Check on the Hub that the commit is one of the model's main branch, or enter it in the catalog first."
    for service in run.given.services:
        file = f"{service.path.folder}/{REQUEST_FILE}"
        old = new = None
        with suppress(InputError):
            new = read_file(run.given.snapshot, file, load_request)
        with suppress(InputError):
            old = read_file(run.change.before, file, load_request) if run.change is not None else None
        entry = run.platform.catalog.models.get(new.model) if new is not None else None
        if new is None or entry is None or new.model_revision is None or entry.weights.revision is not None:
            continue
        if old is None or (old.model, old.model_revision) != (new.model, new.model_revision):
            message = f"loads the commit {new.model_revision} of {new.model}, for which the catalog names no revision"
            yield file_finding(CHANGE_CHECK, "own-revision", file, message, fix, severity=Severity.NOTICE)


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

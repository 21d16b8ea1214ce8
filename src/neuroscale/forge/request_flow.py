"""Runs the change stage: from a form's checked answers, or a change of the catalog, to an open pull request.

Nothing is pushed unless the gate passes, and the clone only gains Git objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import neuroscale
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import markdown as prose
from neuroscale.core.printable import markdown_code as code
from neuroscale.core.printable import terminal
from neuroscale.core.yaml_io import decode
from neuroscale.forge import description
from neuroscale.forge.branches import check_branch_name, holds
from neuroscale.forge.interface import PullRequest, RepositoryRef
from neuroscale.forge.service_pull_request import (
    Base,
    OpenRequest,
    Publisher,
    PullRequestOutcome,
    WantedPullRequest,
    until_nobody_interferes,
)
from neuroscale.gate.verdict import Verdict
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.planning.planner import plan, request_digest
from neuroscale.planning.rejected_choices import not_chosen
from neuroscale.planning.rollout import accelerator_quota
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.rendering.scaffolder.interpreter import branch_name
from neuroscale.rendering.scaffolder.plan_step import FORM, RefusedPlanError, answers_of
from neuroscale.rendering.service_folder import SERVICE_FILE, pull_request_of, same_pods
from neuroscale.repo.git import Git
from neuroscale.repo.layout import PLAN_FILE, REQUEST_FILE, ServicePath
from neuroscale.repo.snapshot import GitSnapshot, Snapshot
from neuroscale.request.service_request import KnownNames, Request, check_request, load_request

CATALOG_BRANCHES = "neuroscale/catalog/"

Answers = Callable[[PlanningInputs], Request]
"""Makes the request from a form's answers; it may ask the user for choices that the inputs leave open. It is called
once, and raises InputError if the answers cannot be used; the stage itself refuses names that the inputs lack."""

Say = Callable[[str], None]
"""Called with a sentence for each step that takes a while."""


@dataclass(frozen=True)
class Refused:
    """Planning found no way to serve the request. Nothing was pushed."""

    plan: Plan


@dataclass(frozen=True)
class Outcome:
    """What became of a wanted pull request: it is `published`, or the gate's `verdict` did not pass, or neither, where
    the base already holds everything."""

    branch: str
    base: Base
    service: ServicePath | None = None  # None for a change of the catalog
    published: PullRequestOutcome | None = None
    verdict: Verdict | None = None
    unwanted: PullRequest | None = None  # one that is open although the base holds everything
    notes: tuple[str, ...] = ()  # sentences


@dataclass(frozen=True)
class CatalogChange:
    """Files by path in the repository, the pull request's title, and sentences that say why and from where."""

    files: Mapping[str, str]
    title: str
    sentences: tuple[str, ...]


Make = Callable[[Snapshot, Snapshot], CatalogChange]
"""The change for the files of the main branch, and those of the open pull request's branch (else the same)."""


def request_service(git: Git, publisher: Publisher, answers: Answers, say: Say) -> Refused | Outcome:
    """Plan, render, judge, push and open the pull request, or bring the open one up to date.

    Names that the catalog or the settings of the forge's main branch lack are refused before the forge is asked for
    pull requests. Raises InputError for answers that cannot be used (the file is `FORM` for a form's answers),
    ForgeError, and ForgeUnavailableError.
    """
    request: Request | None = None

    def attempt() -> Refused | Outcome:
        nonlocal request
        base = publisher.base()
        inputs = read_planning_inputs(GitSnapshot(git, base.commit))
        _warn_of_old_program(git, base, say)
        if request is None:
            request = answers(inputs)
        check_request(request, KnownNames.of(inputs.catalog, inputs.settings), FORM)
        branch = branch_name(inputs.template, answers_of(request))
        check_branch_name(git, branch)
        there = publisher.open_request(base, branch)
        try:
            wanted, notes = _service(git, base, there, inputs, request, branch)
        except RefusedPlanError as error:
            return Refused(error.plan)
        outcome = _bring(git, publisher, base, there, wanted, say)
        path = ServicePath(request.environment, request.service)
        return replace(outcome, service=path, notes=(*notes, *outcome.notes))

    return until_nobody_interferes(attempt, say)


def propose(git: Git, publisher: Publisher, subject: str, make: Make, say: Say) -> Outcome:
    """Make a change of the catalog, judge it, push it and open its pull request, or bring the open one up to date.

    `subject`: a word for the branch. Raises InputError, ForgeError and ForgeUnavailableError.
    """
    branch = f"{CATALOG_BRANCHES}{subject}"

    def attempt() -> Outcome:
        check_branch_name(git, branch)
        base = publisher.base()
        there = publisher.open_request(base, branch)
        change = make(GitSnapshot(git, base.commit), GitSnapshot(git, there.tip if there else base.commit))
        title = description.title(change.title)

        def describe(head: RepositoryRef, login: str) -> str:
            return description.section(_text(change, login, head, branch), title)

        message = f"{title}\n\n{' '.join(change.sentences)}"
        wanted = WantedPullRequest(branch, title, describe, None, change.files, message)
        return _bring(git, publisher, base, there, wanted, say)

    return until_nobody_interferes(attempt, say)


def _bring(
    git: Git, publisher: Publisher, base: Base, there: OpenRequest | None, wanted: WantedPullRequest, say: Say
) -> Outcome:
    """Judge what is wanted and publish it. Raises BranchMovedError when somebody else came first."""
    outcome = Outcome(wanted.branch, base)
    if holds(git, base.commit, wanted.folder, wanted.files):
        return replace(outcome, unwanted=there.pull if there else None)
    prepared = publisher.prepare(base, there, wanted)
    if prepared.is_new:
        say("Judging the change")
        verdict = _judge(git, base.commit, prepared.commit)
        if verdict.exit_status != ExitStatus.PASSED.value:
            return replace(outcome, verdict=verdict)
        say(f"{terminal(verdict.headline)}. Publishing")
    published = publisher.publish(base, there, prepared, wanted)
    return replace(outcome, published=published, notes=published.notes)


def _service(
    git: Git, base: Base, there: OpenRequest | None, inputs: PlanningInputs, request: Request, branch: str
) -> tuple[WantedPullRequest, tuple[str, ...]]:
    """The pull request for a service, and notes on it. The service's overrides stay; its plan stays too if the answers
    are unchanged.

    Raises InputError if the existing files cannot be read, and RefusedPlanError.
    """
    catalog, settings, template = inputs.catalog, inputs.settings, inputs.template
    path = ServicePath(request.environment, request.service)
    merged = _read_there(git, base.commit, path, base.branch)
    newest = merged
    if there is not None and there.tip != base.commit:
        # Nobody has reviewed these overrides yet, but somebody wrote them: the reviewer of the pull request decides.
        newest = _read_there(git, there.tip, path, there.pull.head_branch) or merged
    notes = []
    overrides = newest[0].overrides if newest else ()
    request = request.model_copy(update={"overrides": overrides})
    if overrides:
        check_request(request, KnownNames.of(catalog, settings), REQUEST_FILE)
        fields = ", ".join(override.field for override in overrides)
        notes.append(f"Kept from the service's {REQUEST_FILE}: the override of {fields}.")
    before = merged[1] if merged else None
    planned = plan(request, catalog, settings, template.version)
    if before is not None and before.lock.request_digest == request_digest(request):
        if before.model_copy(update={"lock": planned.lock}) != planned:
            notes.append(
                "The service keeps its plan, since its answers are the same. The catalog, the settings or the planner "
                f"changed since: `neuroscale replan {path.folder}` renews it."
            )
        planned = before
    pull = pull_request_of(request, planned, template)
    if pull.target_branch not in (None, base.branch) or branch == base.branch:
        raise InputError.at(
            template.where,
            "targetBranchName",
            f"is {pull.target_branch!a}, and the forge's main branch is {base.branch!a}",
            "Make the two the same, and give the request's branch another name.",
        )
    title = description.title(pull.title)
    file = f"{path.folder}/{SERVICE_FILE}"

    def describe(head: RepositoryRef, login: str) -> str:
        others = not_chosen(request, catalog, settings, planned)
        subject = description.Subject(
            request,
            planned,
            before,
            others,
            is_new=merged is None,
            asked_before=merged[0] if merged else None,
            quota=accelerator_quota(planned, catalog),
            same_pods=same_pods(GitSnapshot(git, base.commit).read(file), pull.files[file].encode()),
        )
        return description.describe(subject, login, head, branch, title)

    return WantedPullRequest(branch, title, describe, path.folder, pull.files, pull.commit_message), tuple(notes)


def _text(change: CatalogChange, login: str, head: RepositoryRef, branch: str) -> str:
    files = "\n".join(f"- {code(path, 200)}" for path in sorted(change.files))
    reasons = "\n".join(f"- {prose(sentence)}" for sentence in change.sentences)
    lead = f"{code(login, 80)} asks for a change of the catalog, from {code(f'{head.slug}:{branch}', 200)}."
    return f"{lead}\n\n{reasons}\n\nFiles:\n\n{files}"


def _read_there(git: Git, commit: str, path: ServicePath, branch: str) -> tuple[Request, Plan | None] | None:
    """Request and plan of a service at a commit; None if it does not exist there. A plan that cannot be read is
    None."""
    snapshot = GitSnapshot(git, commit)
    file = f"{path.folder}/{REQUEST_FILE}"
    data = snapshot.read(file)
    if data is None:
        return None
    where = f"{branch}:{file}"
    try:
        request = load_request(decode(data, where), where)
    except InputError as error:
        fix = "Repair it there first, so that its overrides are not lost."
        raise InputError([replace(problem, fix=f"{problem.fix} {fix}") for problem in error.problems]) from error
    lock = snapshot.read(f"{path.folder}/{PLAN_FILE}")
    try:
        made = None if lock is None else load_plan(decode(lock, PLAN_FILE), PLAN_FILE)
    except InputError:
        made = None
    return request, made if made is not None and made.lock.request_digest == request_digest(request) else None


def _judge(git: Git, base: str, head: str) -> Verdict:
    """The verdict on the commit, by the base's policies and, if the change alters the gate, by the base's gate."""
    # If nothing will be pushed, nothing is judged, and the checks need not be loaded.
    from neuroscale.gate.gate_code_of_base import judge_by_base, needs_judges
    from neuroscale.gate.merged_change import find_change
    from neuroscale.gate.runner import gate_change

    change = find_change(git, base, head)
    return judge_by_base(change) if needs_judges(change) else gate_change(change, datetime.now(UTC).date())


def _warn_of_old_program(git: Git, base: Base, say: Say) -> None:
    """Warn if this program differs from the base's program, which judges the pull request."""
    if not Path(neuroscale.__file__).resolve().is_relative_to(git.root.resolve()):
        return
    here, there = (git.run("rev-parse", f"{one}:src", check=False).stdout for one in ("HEAD", base.commit))
    if here != there:
        say(f"This clone's program is not that of {base.branch}, which judges the pull request: consider git pull")

"""Runs the change stage: from a form's checked answers to an open pull request.

Input: a clone, a forge, and the answers. Output: the outcome (`Refused`, `NotPassed`, `NoDifference` or
`Requested`). Nothing is pushed unless the gate passes, and the clone only gains Git objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import neuroscale
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.printable import terminal
from neuroscale.core.yaml_io import decode
from neuroscale.forge import description
from neuroscale.forge.branches import BranchMovedError, check_branch_name, holds
from neuroscale.forge.interface import ForgeError
from neuroscale.forge.interface import PullRequest as OpenPullRequest
from neuroscale.forge.service_pull_request import Base, OpenRequest, Publisher, PullRequestOutcome, WantedPullRequest
from neuroscale.gate.verdict import Verdict
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.planning.planner import plan, request_digest
from neuroscale.planning.rejected_choices import not_chosen
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.rendering.scaffolder.interpreter import RenderedPullRequest, branch_name
from neuroscale.rendering.scaffolder.plan_step import FORM, Existing, RefusedPlanError, answers_of, planned
from neuroscale.rendering.scaffolder.template import PUBLISH
from neuroscale.rendering.service_folder import RENDERED_FILES, run_template
from neuroscale.repo.git import Git
from neuroscale.repo.layout import PLAN_FILE, REQUEST_FILE, ServicePath
from neuroscale.repo.snapshot import GitSnapshot
from neuroscale.request.service_request import KnownNames, Request, check_request, load_request

Answers = Callable[[PlanningInputs], Request]
"""Makes the request from a form's answers; it may ask the user for choices that the inputs leave open. It is called
once, and raises InputError if the answers cannot be used; the stage itself refuses names that the inputs lack.
"""

Say = Callable[[str], None]
"""Called with a sentence for each step that takes a while."""

_LOOKS = 5  # attempts if somebody else moves the branch meanwhile


@dataclass(frozen=True)
class Refused:
    """Planning found no way to serve the request. Nothing was pushed."""

    plan: Plan


@dataclass(frozen=True)
class Change:
    """The folder of a service, and the branch that brings it to the base."""

    path: ServicePath
    branch: str
    base: Base


@dataclass(frozen=True)
class NotPassed:
    """The gate did not pass the change. Nothing was pushed."""

    change: Change
    verdict: Verdict


@dataclass(frozen=True)
class NoDifference:
    """The base already holds the requested service. `pull`: a pull request that is open for it all the same. `notes`
    are sentences.
    """

    change: Change
    pull: OpenPullRequest | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Requested:
    """The pull request is open and up to date. `notes` are sentences about unexpected facts."""

    change: Change
    published: PullRequestOutcome
    notes: tuple[str, ...]


Outcome = Refused | NotPassed | NoDifference | Requested


@dataclass(frozen=True)
class _Service:
    """The planned service: its files by path, the state that it replaces, and notes."""

    pull: RenderedPullRequest
    request: Request
    plan: Plan
    before: Plan | None
    is_new: bool
    notes: tuple[str, ...]


def request_service(git: Git, publisher: Publisher, answers: Answers, say: Say) -> Outcome:
    """Plan, render, judge, push and open the pull request, or bring the open one up to date.

    Names that the catalog or the settings of the forge's main branch lack are refused before the forge is asked for
    pull requests. Raises InputError for answers that cannot be used (the file is `FORM` for a form's answers),
    ForgeError, and ForgeUnavailableError.
    """
    request = None
    for _ in range(_LOOKS):
        try:
            base = publisher.base()
            inputs = read_planning_inputs(GitSnapshot(git, base.commit))
            _warn_of_old_program(git, base, say)
            if request is None:
                request = answers(inputs)
            check_request(request, KnownNames.of(inputs.catalog, inputs.settings), FORM)
            return _once(git, publisher, base, inputs, request, say)
        except BranchMovedError as error:
            say(f"{error} Looking again")
    raise ForgeError("Somebody else keeps changing the branch. Find out who, and run the command again.")


def _once(git: Git, publisher: Publisher, base: Base, inputs: PlanningInputs, request: Request, say: Say) -> Outcome:
    """One attempt. Raises BranchMovedError when somebody else came first."""
    path = ServicePath(request.environment, request.service)
    branch = branch_name(inputs.template, answers_of(request))
    check_branch_name(git, branch)
    there = publisher.open_request(base, branch)
    try:
        service = _plan(git, base, there, inputs, request)
    except RefusedPlanError as error:
        return Refused(error.plan)
    if service.pull.target_branch not in (None, base.branch) or branch == base.branch:
        raise InputError(
            Problem(
                inputs.template.where,
                "targetBranchName",
                f"is {service.pull.target_branch!a}, and the forge's main branch is {base.branch!a}",
                "Make the two the same, and give the request's branch another name.",
            )
        )
    change = Change(path, branch, base)
    if holds(git, base.commit, path.folder, service.pull.files):
        return NoDifference(change, there.pull if there else None, service.notes)
    title = description.title(service.pull.title)
    subject = description.Subject(
        service.request,
        service.plan,
        service.before,
        not_chosen(service.request, inputs.catalog, inputs.settings, service.plan),
        service.is_new,
    )
    wanted = WantedPullRequest(
        branch=branch,
        folder=path.folder,
        files=service.pull.files,
        title=title,
        message=service.pull.commit_message,
        describe=lambda head, login: description.describe(subject, login, head, branch, title),
    )
    prepared = publisher.prepare(base, there, wanted)
    if prepared.is_new:
        say("Judging the change")
        verdict = gate_verdict(git, base.commit, prepared.commit)
        if verdict.exit_status != ExitStatus.PASSED.value:
            return NotPassed(change, verdict)
        say(f"{terminal(verdict.headline)}. Publishing")
    published = publisher.publish(base, there, prepared, wanted)
    return Requested(change, published, (*service.notes, *published.notes))


def _plan(git: Git, base: Base, there: OpenRequest | None, inputs: PlanningInputs, request: Request) -> _Service:
    """Plan and render the service. Its overrides stay; its plan stays too if the answers are unchanged.

    Raises InputError if the existing files cannot be read, and RefusedPlanError.
    """
    path = ServicePath(request.environment, request.service)
    merged = _read_there(git, base.commit, path, base.branch)
    newest = merged
    if there is not None and there.tip != base.commit:
        # Nobody has reviewed these overrides yet, but somebody wrote them: the reviewer of the pull request decides.
        newest = _read_there(git, there.tip, path, there.pull.head_branch) or merged
    overrides = newest[0].overrides if newest else ()
    existing = Existing(overrides, merged[1] if merged else None)
    request, made = planned(request, inputs.catalog, inputs.settings, inputs.template.version, existing)
    pull = run_template(request, made, inputs.template).pull_request
    if pull is None:
        raise InputError(Problem(inputs.template.where, "spec.steps", "open no pull request", f"Add a step {PUBLISH}."))
    wrong = [name for name in pull.files if name not in {f"{path.folder}/{file}" for file in RENDERED_FILES}]
    if wrong:
        raise InputError(
            Problem(wrong[0], "", f"is not a file of {path.folder}", "Correct the template's targetPath and skeleton.")
        )
    notes = []
    if overrides:
        fields = ", ".join(override.field for override in overrides)
        notes.append(f"Kept from the service's {REQUEST_FILE}: the override of {fields}.")
    if merged and merged[1] == made and _differs(made, plan(request, inputs.catalog, inputs.settings)):
        notes.append(
            "The service keeps its plan, since its answers are the same. The catalog, the settings or the planner "
            f"changed since: `neuroscale replan {path.folder}` renews it."
        )
    return _Service(pull, request, made, merged[1] if merged else None, merged is None, tuple(notes))


def _read_there(git: Git, commit: str, path: ServicePath, branch: str) -> tuple[Request, Plan | None] | None:
    """Request and plan of a service at a commit; None if it does not exist there. A plan that cannot be read is
    None.
    """
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


def _differs(locked: Plan, fresh: Plan) -> bool:
    """Whether two plans have different content, whatever their inputs were."""
    return locked.model_copy(update={"lock": fresh.lock}) != fresh


def gate_verdict(git: Git, base: str, head: str) -> Verdict:
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

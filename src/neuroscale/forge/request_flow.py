"""Runs the change stage: from what a caller makes of a service to an open pull request.

Nothing is pushed unless the gate passes, and the clone only gains Git objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import neuroscale
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import one_line, terminal
from neuroscale.core.yaml_io import decode
from neuroscale.forge.commits import check_branch_name, holds, is_ancestor
from neuroscale.forge.description import Description, Subject
from neuroscale.forge.interface import PullRequest
from neuroscale.forge.service_pull_request import (
    Base,
    OpenRequest,
    Publisher,
    PullRequestOutcome,
    WantedPullRequest,
    until_nobody_interferes,
)
from neuroscale.gate.verdict import Verdict
from neuroscale.planning.model_revision import Newest
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.planning.planner import request_digest
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.rendering.scaffolder.interpreter import branch_name
from neuroscale.rendering.scaffolder.plan_step import RefusedPlanError, answers_of
from neuroscale.repo.git import Git
from neuroscale.repo.layout import PLAN_FILE, REQUEST_FILE, ServicePath
from neuroscale.repo.snapshot import GitSnapshot
from neuroscale.request.service_request import KnownNames, Request, load_request

Say = Callable[[str], None]
"""Called with a sentence for each step that takes a while."""


@dataclass(frozen=True)
class Main:
    """The forge's main branch as it is now, which the clone has, and what it plans and renders with. `newest`: looks up
    a revision of a model that production demands and the catalog lacks (None: nobody is asked)."""

    git: Git
    base: Base
    inputs: PlanningInputs
    newest: Newest | None = field(default=None, compare=False)

    @property
    def snapshot(self) -> GitSnapshot:
        return GitSnapshot(self.git, self.base.commit)

    @property
    def known(self) -> KnownNames:
        """The names that its requests may use."""
        return self.inputs.known


@dataclass(frozen=True)
class Version:
    """The answers of a service at a commit, and the plan that was made for them (None: it has none that can be
    read)."""

    request: Request
    plan: Plan | None


@dataclass(frozen=True)
class Service:
    """A service: on main (None: it is not there), and by the newest commit of its open pull request (without one: the
    same; None also where that removes it)."""

    main: Main
    path: ServicePath
    branch: str
    merged: Version | None
    newest: Version | None
    there: OpenRequest | None
    moved: bool = False  # main changed it since its open pull request began


@dataclass(frozen=True)
class Draft:
    """What a command makes of a service: its whole folder (no `files`: it is removed), and how that is told."""

    files: Mapping[str, str]
    message: str
    description: Description
    subject: Subject | None = None  # None: the service is removed, or its plan cannot be read
    notes: tuple[str, ...] = ()  # sentences
    source: Version | None = None  # of a promotion: the service as it is where it comes from


class Change(ABC):
    """A change of one service, as a command wants it. Both methods raise InputError for what cannot be done."""

    @abstractmethod
    def subject(self, main: Main) -> Request:
        """The answers by which the template names the service's branch. Called again where main moved meanwhile."""

    @abstractmethod
    def draft(self, service: Service) -> Draft:
        """What the service is to become. Raises RefusedPlanError as well."""


@dataclass(frozen=True)
class Refused:
    """Planning found no way to serve the request, by what main plans with. Nothing was pushed."""

    request: Request
    plan: Plan
    inputs: PlanningInputs


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
    is_removal: bool = False
    notes: tuple[str, ...] = ()  # sentences
    draft: Draft | None = field(default=None, compare=False)  # of a service


class Desk:
    """Where services are changed: a clone, and the forge that gets the pull requests. `asked_by`: the person for whom
    the token's account asks ("": nobody else). `newest`: looks up revisions of models (None: nobody is asked).

    Every method raises ForgeError, ForgeUnavailableError and InputError.
    """

    def __init__(
        self, git: Git, publisher: Publisher, say: Say, asked_by: str = "", newest: Newest | None = None
    ) -> None:
        self._newest = newest
        self._asked_by = asked_by
        self.git = git
        self.publisher = publisher
        self._say = say
        self._main: Main | None = None
        self._told: set[str] = set()

    def main(self) -> Main:
        """The forge's main branch as it is now."""
        base = self.publisher.base()
        if self._main is None or self._main.base != base:
            inputs = read_planning_inputs(GitSnapshot(self.git, base.commit))
            self._main = Main(self.git, base, inputs, self._newest)
            _warn_of_old_program(self.git, base, self._say)
        return self._main

    def service(self, main: Main, subject: Request, pulls: Sequence[PullRequest] | None = None) -> Service:
        """The service of these answers. `pulls`: the open pull requests, where many services are looked at (None: the
        forge is asked)."""
        branch = branch_name(main.inputs.template, answers_of(subject))
        check_branch_name(self.git, branch)
        there = self.publisher.open_request(main.base, branch, pulls)
        path = ServicePath(subject.environment, subject.service)
        merged = newest = version_at(self.git, main.base.commit, path, main.base.branch)
        moved = False
        # A branch that main holds already says nothing that main has not changed since.
        if there is not None and not is_ancestor(self.git, there.tip, main.base.commit):
            newest = version_at(self.git, there.tip, path, there.pull.head_branch)
            began = self.git.run("merge-base", there.tip, main.base.commit, check=False).stdout.decode().strip()
            moved = self.git.tree(began, path.folder) != self.git.tree(main.base.commit, path.folder)
        self._warn_of_old_clone(main, path.folder)
        return Service(main, path, branch, merged, newest, there, moved)

    def _warn_of_old_clone(self, main: Main, folder: str) -> None:
        if folder not in self._told and self.git.tree("HEAD", folder) != self.git.tree(main.base.commit, folder):
            self._say(f"This clone's {folder} is not that of {main.base.where}, which counts here")
            self._told.add(folder)

    def look(self, change: Change) -> Refused | tuple[Service, Draft]:
        """What a change would make of its service. Only reads."""
        main = self.main()
        service = self.service(main, change.subject(main))
        try:
            return service, change.draft(service)
        except RefusedPlanError as error:
            return Refused(error.request, error.plan, main.inputs)

    def propose(self, change: Change, show: Callable[[Service, Draft], None] | None = None) -> Refused | Outcome:
        """Plan, render, judge, push and open the pull request of a change, or bring the open one up to date.

        `show` is called once, before the change is judged.
        """
        shown = False

        def attempt() -> Refused | Outcome:
            looked = self.look(change)
            if isinstance(looked, Refused):
                return looked
            service, draft = looked
            nonlocal shown
            if show is not None and not shown:
                show(service, draft)
            shown = True
            text, message = draft.description, draft.message
            if self._asked_by:
                text = replace(text, asked_for=self._asked_by)
                message = f"{message}\n\nAsked-for-by: {one_line(self._asked_by, 100)}"
            wanted = WantedPullRequest(service.branch, text, service.path.folder, draft.files, message)
            outcome = judge_and_publish(self.git, self.publisher, service.main.base, service.there, wanted, self._say)
            notes = (*draft.notes, *outcome.notes)
            return replace(outcome, service=service.path, notes=notes, is_removal=not draft.files, draft=draft)

        return until_nobody_interferes(attempt, self._say)


def judge_and_publish(
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


def version_at(git: Git, commit: str, path: ServicePath, branch: str) -> Version | None:
    """A service at a commit; None if it does not exist there. `branch` names the commit in messages.

    Raises InputError for a request that cannot be read.
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
    fits = made is not None and made.lock.request_digest == request_digest(request)
    return Version(request, made if fits else None)


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

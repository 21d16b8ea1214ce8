"""`neuroscale request`: from a form's answers to an open pull request."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

import neuroscale
from neuroscale.cli.answers import Answers, ask, check_source, read_answers
from neuroscale.cli.context import Context, read_platform
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.printable import terminal
from neuroscale.core.yaml_io import decode
from neuroscale.forge import description
from neuroscale.forge.branches import Access, Branches, BranchMovedError, check_branch_name, holds
from neuroscale.forge.connect import connect
from neuroscale.forge.interface import ForgeError
from neuroscale.forge.service_pull_request import Base, OpenRequest, Published, Publisher, Wanted
from neuroscale.forge.token import find_token
from neuroscale.gate.verdict import Verdict
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.planning.planner import plan, request_digest
from neuroscale.planning.rejected_choices import not_chosen
from neuroscale.rendering.scaffolder.interpreter import branch_name
from neuroscale.rendering.scaffolder.plan_step import answers_of, request_of
from neuroscale.rendering.service_folder import RENDERED_FILES, Existing, PullRequest, RefusedPlanError, scaffold
from neuroscale.repo.git import Git
from neuroscale.repo.layout import PLAN_FILE, REQUEST_FILE, ServicePath, find_root
from neuroscale.repo.snapshot import GitSnapshot
from neuroscale.request.service_request import Request, load_request

_LOOKS = 5  # at a branch that somebody else moves meanwhile


@dataclass(frozen=True)
class Options:
    """What the command line says. `token_file` None: the token is in the environment."""

    answers: Path | None
    interactive: bool
    remote: str
    token_file: Path | None
    as_json: bool


@dataclass(frozen=True)
class _Service:
    """What was planned for the service: its files by path, what it replaces, and what to tell about it."""

    path: ServicePath
    pull: PullRequest
    request: Request
    plan: Plan
    before: Plan | None
    is_new: bool
    notes: tuple[str, ...]


def request_service(options: Options, repository: Path | None) -> int:
    """Plan, render, judge, push and open the pull request, or bring the open one up to date.

    Nothing is pushed unless the gate passes, and nothing in the clone changes but for objects that git adds.
    """
    check_source(options.answers, interactive=options.interactive)
    given = None if options.answers is None else read_answers(options.answers)
    root = find_root(repository or Path.cwd())
    token = find_token(options.token_file)
    git = Git(root)
    try:
        remote = _remote_url(git, options.remote)
        _say(f"Looking at {options.remote}")
        publisher = Publisher(connect(remote, token), Branches(git, Access(remote, token)))
        for _ in range(_LOOKS):
            try:
                base = publisher.base()
                context = read_platform(root, GitSnapshot(git, base.commit))
                _warn_of_old_program(git, base)
                if given is None:
                    given = ask(context.template, context.settings, on_stderr=True)
                return _once(publisher, git, base, context, given, as_json=options.as_json)
            except BranchMovedError as error:
                _say(f"{error} Looking again")
        raise ForgeError("The branch changes all the time. See who else works on it, and run it again.")
    finally:
        git.close()


def _once(publisher: Publisher, git: Git, base: Base, context: Context, given: Answers, *, as_json: bool) -> int:
    """One attempt. Raises BranchMovedError when somebody else came first."""
    with given.located():
        request = request_of(given.values)
        branch = branch_name(context.template, answers_of(request))
        check_branch_name(git, branch)
        there = publisher.open_request(base, branch)
        try:
            service = _plan(git, base, there, context, request, given.values)
        except RefusedPlanError as error:
            return _tell_refused(error, as_json=as_json)
    if service.pull.target_branch not in (None, base.branch) or branch == base.branch:
        raise InputError(
            Problem(
                context.template.where,
                "targetBranchName",
                f"is {service.pull.target_branch!a}, and the forge's main branch is {base.branch!a}",
                "Make the two the same, and name the branch of a request otherwise.",
            )
        )
    facts = {
        "environment": service.path.environment,
        "service": service.path.service,
        "branch": branch,
        "base_branch": base.branch,
        "base_commit": base.commit,
    }
    if holds(git, base.commit, service.path.folder, service.pull.files):
        return _tell_nothing(service, there, base, facts, as_json=as_json)
    title = description.title(service.pull.title)
    subject = description.Subject(
        service.request,
        service.plan,
        service.before,
        not_chosen(service.request, context.catalog, context.settings, service.plan),
        service.is_new,
    )
    wanted = Wanted(
        branch=branch,
        folder=service.path.folder,
        files=service.pull.files,
        title=title,
        message=service.pull.commit_message,
        describe=lambda head, login: description.describe(subject, login, head, branch, title),
    )
    prepared = publisher.prepare(base, there, wanted)
    if prepared.is_new:
        _say("Judging the change")
        verdict = _judge(git, base.commit, prepared.commit)
        if verdict.exit_status != ExitStatus.PASSED.value:
            return _tell_red(verdict, facts, as_json=as_json)
        _say(f"{terminal(verdict.headline)}. Publishing")
    published = publisher.publish(base, there, prepared, wanted)
    return _tell_published(service, published, facts, as_json=as_json)


def _plan(
    git: Git, base: Base, there: OpenRequest | None, context: Context, request: Request, values: Mapping[str, Any]
) -> _Service:
    """Plan and render the service. Its overrides stay, and at unchanged answers its plan.

    Raises InputError where what is there cannot be read, and RefusedPlanError.
    """
    path = ServicePath(request.environment, request.service)
    merged = _read_there(git, base.commit, path, base.branch)
    newest = merged
    if there is not None and there.tip != base.commit:
        # Not reviewed yet, but somebody's words: who reviews the pull request decides on them.
        newest = _read_there(git, there.tip, path, there.pull.head_branch) or merged
    overrides = newest[0].overrides if newest else ()
    existing = Existing(overrides, merged[1] if merged else None)
    published: list[PullRequest] = []

    def publish(pull: PullRequest) -> Mapping[str, Any]:
        published.append(pull)
        return {"remoteUrl": "", "pullRequestNumber": 0, "targetBranchName": pull.target_branch or ""}

    scaffold(values, context.template, context.catalog, context.settings, publish, existing)
    (pull,) = published
    wrong = [name for name in pull.files if name not in {f"{path.folder}/{file}" for file in RENDERED_FILES}]
    if wrong:
        raise InputError(
            Problem(wrong[0], "", f"is no file of {path.folder}", "Correct the template's targetPath and skeleton.")
        )
    made = load_plan(pull.files[f"{path.folder}/{PLAN_FILE}"], PLAN_FILE)
    request = request.model_copy(update={"overrides": overrides})
    notes = []
    if overrides:
        fields = ", ".join(override.field for override in overrides)
        notes.append(f"Kept from the service's {REQUEST_FILE}: the override of {fields}.")
    if merged and merged[1] == made and _differs(made, plan(request, context.catalog, context.settings)):
        notes.append(
            "The service keeps its plan, since its answers are the same. The catalog, the settings or the planner "
            f"moved on: `neuroscale replan {path.folder}` renews it."
        )
    return _Service(path, pull, request, made, merged[1] if merged else None, merged is None, tuple(notes))


def _read_there(git: Git, commit: str, path: ServicePath, branch: str) -> tuple[Request, Plan | None] | None:
    """Request and plan of a service at a commit; None where it is not there. A plan that cannot be read is none."""
    snapshot = GitSnapshot(git, commit)
    file = f"{path.folder}/{REQUEST_FILE}"
    data = snapshot.read(file)
    if data is None:
        return None
    where = f"{branch}:{file}"
    try:
        request = load_request(decode(data, where), where)
    except InputError as error:
        fix = "Repair it there first: what it says of overrides must not be lost."
        raise InputError([replace(problem, fix=f"{problem.fix} {fix}") for problem in error.problems]) from error
    lock = snapshot.read(f"{path.folder}/{PLAN_FILE}")
    try:
        made = None if lock is None else load_plan(decode(lock, PLAN_FILE), PLAN_FILE)
    except InputError:
        made = None
    return request, made if made is not None and made.lock.request_digest == request_digest(request) else None


def _differs(locked: Plan, fresh: Plan) -> bool:
    """Whether two plans say different things, whatever they were made from."""
    return locked.model_copy(update={"lock": fresh.lock}) != fresh


def _judge(git: Git, base: str, head: str) -> Verdict:
    """The verdict on the commit, by the base's policies and, where the change alters the gate, by the base's gate."""
    from neuroscale.gate.base_gate import judge_by_base, needs_judges
    from neuroscale.gate.change import find_change
    from neuroscale.gate.runner import gate_change

    change = find_change(git, base, head)
    return judge_by_base(change) if needs_judges(change) else gate_change(change, datetime.now(UTC).date())


def _remote_url(git: Git, remote: str) -> str:
    """The address of a git remote, by the remote's name."""
    done = git.run("remote", "get-url", "--", remote, check=False)
    if done.returncode != 0:
        named = git.text("remote").split()
        raise InputError(
            Problem(
                "the command line",
                "--remote",
                f"{remote!a} is not a git remote of this clone",
                f"Name one of {', '.join(named)}." if named else "Add one: git remote add origin URL.",
            )
        )
    return done.stdout.decode(errors="replace").strip()


def _warn_of_old_program(git: Git, base: Base) -> None:
    """Tell where the program that runs here is not the base's, which judges the pull request."""
    if not Path(neuroscale.__file__).resolve().is_relative_to(git.root.resolve()):
        return
    here, there = (git.run("rev-parse", f"{one}:src", check=False).stdout for one in ("HEAD", base.commit))
    if here != there:
        _say(f"This clone's program is not that of {base.branch}, which judges the pull request: consider git pull")


def _tell_refused(error: RefusedPlanError, *, as_json: bool) -> int:
    if as_json:
        _print_json({"outcome": "refused", "plan": error.plan.model_dump(mode="json"), "notes": []})
        return error.exit_status
    from rich.console import Console

    from neuroscale.report.plan_view import print_plan

    print_plan(error.plan, Console(highlight=False))
    typer.echo("Nothing was pushed.")
    return error.exit_status


def _tell_red(verdict: Verdict, facts: Mapping[str, Any], *, as_json: bool) -> int:
    if as_json:
        from neuroscale.report.json_report import to_json

        _print_json({"outcome": "not_passed", **facts, "verdict": json.loads(to_json(verdict)), "notes": []})
        return verdict.exit_status
    from rich.console import Console

    from neuroscale.report.terminal import print_verdict

    print_verdict(verdict, Console(highlight=False))
    typer.echo("Nothing was pushed.")
    return verdict.exit_status


def _tell_nothing(
    service: _Service, there: OpenRequest | None, base: Base, facts: Mapping[str, Any], *, as_json: bool
) -> int:
    notes = list(service.notes)
    if there is not None:
        notes.append(
            f"{there.pull.url} is open for this service, and stays as it is: close it if it is not wanted any more."
        )
    if as_json:
        pull = there.pull if there else None
        urls = {"url": pull.url if pull else None, "number": pull.number if pull else None}
        _print_json({"outcome": "no_difference", **facts, **urls, "notes": notes})
        return ExitStatus.PASSED
    typer.echo(f"{base.branch} serves {service.path.folder} as asked for: nothing to do, no pull request.")
    _print_notes(notes)
    return ExitStatus.PASSED


def _tell_published(service: _Service, published: Published, facts: Mapping[str, Any], *, as_json: bool) -> int:
    notes = [*service.notes, *published.notes]
    pull = published.pull
    if as_json:
        _print_json(
            {
                "outcome": published.result,
                **facts,
                "url": pull.url,
                "number": pull.number,
                "repository": published.repository.slug,
                "commit": published.commit,
                "notes": notes,
            }
        )
        return ExitStatus.PASSED
    what = {
        "opened": "Opened pull request",
        "updated": "Brought up to date pull request",
        "unchanged": "Nothing to do: up to date is pull request",
    }[published.result]
    typer.echo(f"{what} {pull.number}: {terminal(pull.url)}")
    typer.echo(f"  {terminal(pull.title)}")
    typer.echo(f"  branch {facts['branch']} of {published.repository.slug}, commit {published.commit}")
    _print_notes(notes)
    return ExitStatus.PASSED


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        typer.echo(f"  {terminal(note)}")


def _print_json(fields: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({"schema_version": 1, **fields}, indent=2) + "\n")


def _say(text: str) -> None:
    typer.echo(f"{text} ...", err=True)

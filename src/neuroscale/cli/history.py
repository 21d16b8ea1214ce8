"""`neuroscale history`: tells a service's changes from Git, the forge and Argo CD."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroscale.actions.chosen_cluster import Where, asked_cluster, open_cluster
from neuroscale.actions.open_repository import open_repository, opened_publisher
from neuroscale.cli.options import (
    TO_STDERR,
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    LocalForgeOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
    print_json,
)
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.errors import ExitStatus, InputError, NeuroscaleError
from neuroscale.core.printable import counted, terminal
from neuroscale.forge.service_history import (
    Change,
    changes,
    with_deployments,
    with_pull_requests,
)
from neuroscale.repo.git import Git
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.services import find_service, removed_services, services_of
from neuroscale.repo.snapshot import GitSnapshot
from neuroscale.request.service_request import ChangedAnswer


def show_history(
    service: Annotated[
        str,
        typer.Argument(help="A service: its folder, ENVIRONMENT/SERVICE, or a name that one environment has or had."),
    ],
    limit: Annotated[int, typer.Option("--limit", help="The most changes to show.", min=1, max=1000)] = 20,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Tell a service's changes, also a retired one's: who asked, who approved, what changed and why, when it was merged
    and live, what the gate and the smoke tests said. What the forge or Argo CD cannot be asked is named at the end.
    Exit status: 0 also then, 2 the service is not known."""
    opened = open_repository(repository)
    branch = opened.settings.repository.default_branch
    missing: list[str] = []
    with contextlib.ExitStack() as stack:
        git = stack.enter_context(contextlib.closing(Git(opened.root)))
        forge, tip = None, ""
        try:
            _, publisher = stack.enter_context(
                opened_publisher(opened.root, remote, token_file, TO_STDERR, local=local)
            )
            forge, base = publisher.forge, publisher.base()
            branch, tip = base.branch, base.commit
        except NeuroscaleError as error:
            missing.append(f"The forge (who asked and approved, and what the gate and the smoke tests said): {error}")
            tip = _fetched(opened.root, branch)
        known = (*services_of(GitSnapshot(git, tip)), *removed_services(git, tip))
        path = find_service(service, known, opened.root, f"{branch}, nor was it one")
        history = changes(git, tip, path, limit)
        if git.text("rev-parse", "--is-shallow-repository") == "true":
            missing.append("Git: the clone is shallow, so older changes are not in it. Run: git fetch --unshallow")
        if forge is not None:
            history, gaps = with_pull_requests(forge, branch, history)
            missing += gaps
        where = asked_cluster(Where(context, kubeconfig, state), opened.root, path.environment, TO_STDERR)
        try:
            with open_cluster(where) as cluster:
                history, gaps = with_deployments(git, cluster, path, history)
            missing += gaps
        except NeuroscaleError as error:
            missing.append(f"Argo CD: {error}")
    if as_json:
        print_json(_mapping(path, history, missing))
    else:
        for line in _lines(path, branch, history, limit, missing):
            typer.echo(line)
    return ExitStatus.PASSED


def _fetched(root: Path, branch: str) -> str:
    """The newest commit of the main branch in the clone. Raises InputError without git."""
    with contextlib.closing(Clone(root, branch)) as clone:
        clone.fetch()
        if clone.tip is None:
            raise InputError.at(str(root), "", "is not a clone of git", "Clone the platform repository.")
        return clone.tip


def _mapping(path: ServicePath, history: list[Change], missing: list[str]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "service": path.service,
        "environment": path.environment,
        "changes": [_as_json(dataclasses.asdict(change)) for change in history],
        "missing": missing,
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, ChangedAnswer):
        return value.model_dump()
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _lines(path: ServicePath, branch: str, history: list[Change], limit: int, missing: list[str]) -> Iterator[str]:
    most = f"the last {counted(limit, 'change')}" if len(history) == limit else counted(len(history), "change")
    yield f"{path.name}: {most} on {branch}, the newest first"
    for change in history:
        yield ""
        yield f"{_time(change.merged)}  {change.kind}  {change.commit[:12]}  {terminal(change.subject)}"
        for name, text in _rows(change):
            yield f"  {name:<12}{terminal(text, 4000)}"
    if missing:
        yield ""
        yield "Missing from this answer"
    for gap in missing:
        yield f"  - {terminal(gap, 1000)}"


def _rows(change: Change) -> Iterator[tuple[str, str]]:
    pull = change.asked
    if pull is None:
        yield "by", change.author
    else:
        approved = f"approved by {', '.join(pull.approved_by)}" if pull.approved_by else "approved by nobody"
        person = f" on behalf of {pull.asked_for}" if pull.asked_for else ""
        yield "asked by", f"{pull.asked_by}{person}, {approved}: {pull.url}"
    if change.kind == "changed" and change.answers:
        yield "answers", "; ".join(map(_answer, change.answers))
    elif change.kind == "added":
        yield "answers", "; ".join(f"{answer.field} {answer.after}" for answer in change.answers)
    if change.plan:
        yield "plan", "; ".join(change.plan)
    if change.kind == "changed":
        yield "files", ", ".join(change.files)
    why = [*([pull.why] if pull and pull.why else []), *change.reasons]
    if why:
        yield "why", " ".join("; ".join(why).split())
    if pull is not None:
        comments = [f"'{comment.text}' (comment by {comment.author})" for comment in pull.gate_comments]
        yield "gate", ": ".join([pull.gate or "no status", *comments])
        tests = [f"'{comment.text}' (comment by {comment.author})" for comment in pull.smoke_tests]
        yield "smoke tests", "; ".join(tests) or "no comment"
    if change.live is not None:
        latest = ", at the latest: Argo CD keeps no older deployment" if change.live.at_the_latest else ""
        yield "live", f"{_time(change.live.since)}{latest}"


def _answer(answer: ChangedAnswer) -> str:
    return f"{answer.field} {answer.before or 'not set'} -> {answer.after or 'not set'}"


def _time(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"

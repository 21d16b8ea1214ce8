"""Tells the history of a service, also of one that was retired.

Git says what changed and when it was merged; the forge who asked and who approved, why, and what the gate and the smoke
tests said; Argo CD when it was live.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from neuroscale.core.errors import InputError
from neuroscale.core.printable import one_line
from neuroscale.core.validation import items
from neuroscale.core.yaml_io import decode
from neuroscale.forge import description
from neuroscale.forge.after_merge import comments as smoke
from neuroscale.forge.interface import Comment, ForgeError, ForgeUnavailableError, PullRequest
from neuroscale.forge.main_protection import REQUIRED_CHECK
from neuroscale.forge.rest import Forge
from neuroscale.gate.verdict import ServiceReport
from neuroscale.kube.client import Cluster
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.rendering.object_names import application_name
from neuroscale.rendering.platform.argocd import NAMESPACE
from neuroscale.repo.git import Git
from neuroscale.repo.layout import PLAN_FILE, REQUEST_FILE, ServicePath
from neuroscale.repo.snapshot import GitSnapshot
from neuroscale.report import phrases
from neuroscale.report.markdown import MARKER
from neuroscale.request.service_request import ChangedAnswer, Request, changed_answers, load_request

_APPLICATION = ("argoproj.io/v1alpha1", "Application")
_LONGEST = 500  # characters of a text that a person wrote
_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)

Kind = Literal["added", "changed", "removed"]


@dataclass(frozen=True)
class Comments:
    """What a workflow's comment says, and the account that wrote it: anybody who may comment could write one alike."""

    author: str
    text: str


@dataclass(frozen=True)
class MergedPullRequest:
    """The merged pull request of a change.

    `asked_for`: the person for whom the account asked, as its description says; "" for nobody else. `why`: what people
    wrote into its description, and the sentences with which a command began it. `gate`: the state of the gate's status
    at the head that was merged, "" if it has none.
    """

    number: int
    url: str
    title: str
    asked_by: str
    asked_for: str
    approved_by: tuple[str, ...]
    why: str
    gate: str
    gate_comments: tuple[Comments, ...]
    smoke_tests: tuple[Comments, ...]


@dataclass(frozen=True)
class Live:
    """When Argo CD deployed a change. `at_the_latest`: it keeps no older deployment, so this may have been earlier."""

    since: datetime
    at_the_latest: bool


@dataclass(frozen=True)
class Change:
    """A change of a service's folder on the main branch. `author` and `subject` are those of the commit.

    `plan` says in words what of the plan changed, `reasons` holds those of the overrides that it brought. `asked` is
    None if no pull request brought it, or if the forge was not asked; `live` is None likewise.
    """

    commit: str
    merged: datetime
    author: str
    subject: str
    kind: Kind
    answers: tuple[ChangedAnswer, ...]
    plan: tuple[str, ...]
    files: tuple[str, ...]
    reasons: tuple[str, ...]
    asked: MergedPullRequest | None = None
    live: Live | None = None


def changes(git: Git, tip: str, path: ServicePath, limit: int) -> list[Change]:
    """At most `limit` changes of a service, the newest first, by the first parents of the commit `tip`. Raises
    GitError."""
    shown = "--format=%H%n%P%n%ct%n%an%n%s"
    log = ("log", "-z", "--first-parent", f"--max-count={limit}", shown, tip, "--", path.folder)
    return [_change(git, path, record.strip("\n").split("\n")) for record in git.records(*log)]


def _change(git: Git, path: ServicePath, fields: Sequence[str]) -> Change:
    commit, parents, when, author, *subject = fields
    parent = parents.split(" ")[0]
    sides = [_side(git, one, path) for one in (parent, commit)]
    before, after = sides
    kind: Kind = "removed" if not after.files else "added" if not before.files else "changed"
    reasons = () if after.request is None else _reasons(before.request, after.request)
    names = {*before.files, *after.files}
    return Change(
        commit,
        datetime.fromtimestamp(int(when), UTC),
        author,
        " ".join(subject),
        kind,
        () if kind == "removed" else changed_answers(before.request, after.request),
        tuple(_planned(path, before.plan, after.plan)),
        tuple(sorted(name for name in names if before.files.get(name) != after.files.get(name))),
        reasons,
    )


@dataclass(frozen=True)
class _Side:
    """The folder at a commit: the ids of its files by name, and what of it can be read."""

    files: dict[str, str]
    request: Request | None = None
    plan: Plan | None = None


def _side(git: Git, commit: str, path: ServicePath) -> _Side:
    if not commit:
        return _Side({})
    snapshot = GitSnapshot(git, commit)
    files = {entry.path.removeprefix(f"{path.folder}/"): entry.object_id for entry in snapshot.entries(path.folder)}
    texts = [snapshot.read(f"{path.folder}/{name}") or b"" for name in (REQUEST_FILE, PLAN_FILE)]
    request, plan = None, None
    try:
        request = load_request(decode(texts[0], REQUEST_FILE), REQUEST_FILE)
        plan = load_plan(decode(texts[1], PLAN_FILE), PLAN_FILE)
    except InputError:
        pass  # a file of another version: the list of files still says that it changed
    return _Side(files, request, plan)


def _reasons(before: Request | None, after: Request) -> tuple[str, ...]:
    known = set() if before is None else set(before.overrides)
    return tuple(f"{one.field}: {one.reason}" for one in after.overrides if one not in known)


def _planned(path: ServicePath, before: Plan | None, after: Plan | None) -> Iterable[str]:
    if before is None or after is None:
        return
    report = ServiceReport(
        environment=path.environment, name=path.service, change="changed", plan=after, plan_before=before
    )
    told = phrases.differences(report, str)
    old, new = phrases.price(before), phrases.price(after)
    if old != new:
        told.append(f"price from {old} to {new}")
    if not told and before != after:
        old_fields, new_fields = before.model_dump(), after.model_dump()
        other = [name for name in new_fields if name != "lock" and old_fields[name] != new_fields[name]]
        told.append(f"planned anew: other {', '.join(other)}" if other else "planned anew, with the same result")
    yield from told


def with_pull_requests(forge: Forge, branch: str, found: Sequence[Change]) -> tuple[list[Change], list[str]]:
    """The changes with what the forge says of each, and a sentence for each that it could not say."""
    told: list[Change] = []
    missing: list[str] = []
    for index, change in enumerate(found):
        try:
            pull = forge.merged_pull(change.commit, branch)
            told.append(change if pull is None else replace(change, asked=_asked(forge, pull)))
        except ForgeUnavailableError as error:
            missing.append(f"The forge, for {len(found) - index} of {len(found)} changes: {error}")
            return [*told, *found[index:]], missing
        except ForgeError as error:
            missing.append(f"The pull request of {change.commit[:12]}: {error}")
            told.append(change)
    return told, missing


def _asked(forge: Forge, pull: PullRequest) -> MergedPullRequest:
    wanted = REQUIRED_CHECK[forge.kind]
    statuses = [one for one in forge.statuses(forge.merged_head(pull)) if one.context == wanted]
    comments = forge.comments(pull.number)
    return MergedPullRequest(
        pull.number,
        pull.url,
        pull.title,
        pull.author,
        description.asked_for(pull),
        forge.approved_by(pull.number),
        _why(pull),
        statuses[0].state if statuses else "",
        tuple(headlines(comments, MARKER)),
        tuple(headlines(comments, smoke.MARKER)),
    )


def _why(pull: PullRequest) -> str:
    people = _HIDDEN.sub("", description.around(pull)).strip()
    return one_line(" ".join((people, *description.said(pull))).strip().removeprefix("Why: "), _LONGEST)


def headlines(comments: Iterable[Comment], marker: str) -> Iterable[Comments]:
    """The first heading of each comment of a workflow, without its symbol."""
    for comment in comments:
        lines = comment.body.replace("\r\n", "\n").split("\n")
        heading = next((line for line in lines if line.startswith("## ")), "")
        if lines[0] == marker and heading:
            yield Comments(comment.author, heading.removeprefix("## ").lstrip("✅❌⏳🛑⚠️ ")[:_LONGEST])


def with_deployments(
    git: Git, cluster: Cluster, path: ServicePath, found: Sequence[Change]
) -> tuple[list[Change], list[str]]:
    """The changes with the time since which each was live, by Argo CD's own history of the service's application.

    Argo CD writes the revision of each deployment into `status.history`, and keeps ten unless it is told otherwise.
    Raises KubernetesError.
    """
    application = cluster.get(*_APPLICATION, application_name(path.environment, path.service), NAMESPACE)
    if application is None:
        gone = bool(found) and found[0].kind == "removed"
        why = "it goes with its service" if gone else "it belongs to another cluster, or is not made yet"
        return list(found), [
            f"Argo CD: {cluster.name} has no application {application_name(path.environment, path.service)}: {why}."
        ]
    deployments = [one for row in items(application, "status", "history") if (one := _deployment(row)) is not None]
    deployments.sort()
    # An application goes with its service, and one that came back has another.
    own = next((index for index, change in enumerate(found) if change.kind == "removed"), len(found))
    told = [replace(change, live=_live(git, change.commit, deployments)) for change in found[:own]]
    unknown = {revision for _, revision, _ in deployments if not git.knows(revision)}
    missing = [f"Argo CD: this clone lacks {len(unknown)} of the deployed commits. Fetch them."] if unknown else []
    if 0 < own < len(found):
        since = found[own].commit[:12]
        missing.append(f"Argo CD: its application was made anew when the service came back, after {since} removed it.")
    return [*told, *found[own:]], missing


def _deployment(row: Any) -> tuple[datetime, str, int] | None:
    """The time, the revision and the number of a deployment; None if a field is missing."""
    try:
        return datetime.fromisoformat(str(row["deployedAt"])), str(row["revision"]), int(row.get("id", 0))
    except (KeyError, TypeError, ValueError):
        return None


def _live(git: Git, commit: str, deployments: Sequence[tuple[datetime, str, int]]) -> Live | None:
    """The first deployment of a revision that has the commit."""
    for index, (when, revision, number) in enumerate(deployments):
        ancestor = ("merge-base", "--is-ancestor", commit, revision)
        if git.knows(revision) and git.run(*ancestor, check=False).returncode == 0:
            return Live(when, at_the_latest=index == 0 and number > 0)
    return None

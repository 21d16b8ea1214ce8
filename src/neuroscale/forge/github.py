"""Talks to GitHub and GitHub Enterprise Server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from neuroscale.forge.http import AnswerError, Client, Limits, Query
from neuroscale.forge.interface import (
    Account,
    CommitStatus,
    ForgeError,
    Protection,
    RepositoryInfo,
    RepositoryRef,
    StatusState,
    Token,
)
from neuroscale.forge.rest import Forge, path_of
from neuroscale.forge.rest_shapes import RepositoryShape, newest, read

PUBLIC_SERVER = "https://github.com"
PUBLIC_API = "https://api.github.com"

_PAGE: Query = {"per_page": 100}
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_STATES: dict[str, StatusState] = {"success": "success", "pending": "pending"}
# The account of a workflow's own token; GitHub does not report it.
_WORKFLOW_LOGIN = "github-actions[bot]"
_WORKFLOW_EMAIL = "41898282+github-actions[bot]@users.noreply.github.com"


class _User(BaseModel):
    id: int
    login: str
    name: str | None = None
    email: str | None = None


class _Object(BaseModel):
    sha: str


class _GitRef(BaseModel):
    object: _Object


class _Status(BaseModel):
    id: int
    context: str
    state: str
    description: str | None
    target_url: str | None
    updated_at: datetime


class _CheckRun(BaseModel):
    id: int
    name: str
    status: str
    conclusion: str | None
    started_at: datetime | None
    html_url: str | None


class _Check(BaseModel):
    context: str


class _Parameters(BaseModel):
    required_approving_review_count: int = 0
    required_status_checks: list[_Check] = []
    allowed_merge_methods: list[str] | None = None
    merge_method: str = ""  # of a merge queue


class _Settings(BaseModel):
    allow_rebase_merge: bool | None = None  # GitHub shows it only to those who may write


class _Rule(BaseModel):
    type: str
    parameters: _Parameters = _Parameters()


class GitHubForge(Forge):
    """A repository on GitHub. `workflow`: this runs in a workflow, whose token's account cannot be asked for."""

    kind = "github"
    _page_size = _PAGE
    _approval = "APPROVE"
    _not_yet = ("base branch was modified. review and try the merge again.",)

    def __init__(
        self,
        repository: RepositoryRef,
        token: Token,
        limits: Limits | None = None,
        *,
        api: str = "",
        workflow: bool = False,
    ) -> None:
        api = api or (PUBLIC_API if repository.server == PUBLIC_SERVER else f"{repository.server}/api/v3")
        super().__init__(Client(api, token, headers=_HEADERS, limits=limits), repository)
        self._workflow = workflow

    def branch(self, repository: RepositoryRef, name: str) -> str | None:
        # Not the branches endpoint: for a renamed branch it answers with the new one.
        answer = self._client.get(path_of(repository, "git", "ref", f"heads/{name}"), accept=(404,))
        return None if answer.status == 404 else read(_GitRef, answer.data).object.sha

    def protection(self, branch: str) -> Protection | None:
        """What its rulesets say; GitHub's older branch protection is not read."""
        path = self._path("rules", "branches", branch)
        rules = [read(_Rule, data) for data in self._client.pages(path, _PAGE)]
        if not rules:
            return None
        checks = {check.context: None for rule in rules for check in rule.parameters.required_status_checks}
        approvals = max(rule.parameters.required_approving_review_count for rule in rules)
        direct_pushes = all(rule.type != "pull_request" for rule in rules)
        return Protection(tuple(checks), approvals, direct_pushes, self._rebases([rule.parameters for rule in rules]))

    def _rebases(self, rules: Sequence[_Parameters]) -> tuple[str, ...] | None:
        """The names of the ways to merge by rebasing that its rulesets and its settings allow."""
        if any(rule.merge_method.upper() == "REBASE" for rule in rules):
            return ("the merge queue's rebase",)
        lists = [rule.allowed_merge_methods for rule in rules if rule.allowed_merge_methods is not None]
        if any("rebase" not in allowed for allowed in lists):
            return ()
        allowed = read(_Settings, self._client.get(self._path()).data).allow_rebase_merge
        return None if allowed is None else ("rebase",) if allowed else ()

    def statuses(self, sha: str) -> list[CommitStatus]:
        return newest([*self._commit_statuses(sha), *self._check_runs(sha)])

    def _commit_statuses(self, sha: str) -> Iterator[tuple[tuple[float, int], CommitStatus]]:
        for data in self._client.pages(self._path("commits", sha, "statuses"), _PAGE):
            shape = read(_Status, data)
            state = _STATES.get(shape.state, "failure")
            status = CommitStatus(shape.context, state, shape.description or "", shape.target_url or "")
            yield (shape.updated_at.timestamp(), shape.id), status

    def _check_runs(self, sha: str) -> Iterator[tuple[tuple[float, int], CommitStatus]]:
        """The check runs of a commit; one that has not begun counts as the newest of its name."""
        query = {**_PAGE, "filter": "latest"}
        for data in self._client.pages(self._path("commits", sha, "check-runs"), query, "check_runs"):
            shape = read(_CheckRun, data)
            state: StatusState = "failure"  # also skipped and neutral: neither proves anything
            if shape.status != "completed":
                state = "pending"
            elif shape.conclusion == "success":
                state = "success"
            began = shape.started_at.timestamp() if shape.started_at else float("inf")
            told = CommitStatus(shape.name, state, shape.conclusion or shape.status, shape.html_url or "")
            yield (began, shape.id), told

    def _ask_account(self) -> Account:
        try:
            answer = self._client.get("/user")
        except AnswerError as error:
            if error.status != 403:
                raise
            if self._workflow:
                return Account(_WORKFLOW_LOGIN, _WORKFLOW_LOGIN, _WORKFLOW_EMAIL)
            raise ForgeError(
                f"GitHub does not name the token's account: {error.said or 'no reason given'}. Use a person's "
                f"token, or inside a workflow the workflow's own token."
            ) from None
        user = read(_User, answer.data)
        host = urlsplit(self.repository.server).hostname or "github.com"
        email = user.email or f"{user.id}+{user.login}@users.noreply.{host}"
        return Account(user.login, user.name or user.login, email)

    def _find_fork(self, login: str) -> RepositoryInfo | None:
        return self._own_fork(login)[0]

    def _make_fork(self, login: str) -> RepositoryInfo | None:
        # Asked again, GitHub answers with the existing fork, which may have another name.
        body = {"default_branch_only": False}
        answer = self._client.send("POST", self._path("forks"), idempotent=True, body=body)
        there = self._to_info(read(RepositoryShape, answer.data))
        if there.ref.owner.lower() != login.lower():
            raise ForgeError(f"GitHub made the fork {there.ref.slug}, which does not belong to {login}.")
        return there

    def _open_pulls(self, head_owner: str, head_branch: str, base_branch: str) -> Query:
        head = {"head": f"{head_owner}:{head_branch}"} if head_branch else {}
        return {**_PAGE, "state": "open", **head, "base": base_branch}

    def _pulls_from(self, head: RepositoryRef, head_branch: str, base_branch: str) -> Iterable[Any]:
        query = {**_PAGE, "state": "all", "head": f"{head.owner}:{head_branch}", "base": base_branch}
        return self._client.pages(self._path("pulls"), query)

    def _pulls_with(self, sha: str) -> Iterable[Any]:
        return self._client.pages(self._path("commits", sha, "pulls"), _PAGE)

    def _head(self, head: RepositoryRef, head_branch: str) -> str:
        return f"{head.owner}:{head_branch}"

    def _is_duplicate(self, error: AnswerError) -> bool:
        return error.status == 422 and "pull request already exists" in error.said.lower()

    def _send_merge(self, number: int, head_sha: str) -> None:
        fields = {"merge_method": "squash", "sha": head_sha}
        self._client.send("PUT", self._path("pulls", number, "merge"), idempotent=False, body=fields)

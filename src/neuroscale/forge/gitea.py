"""Talks to Gitea and Forgejo."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from neuroscale.forge.http import AnswerError, Client, Limits, Query
from neuroscale.forge.interface import (
    Account,
    CommitStatus,
    ForgeError,
    Protection,
    PullRequest,
    RepositoryInfo,
    RepositoryRef,
    StatusState,
    Token,
)
from neuroscale.forge.rest import Forge, path_of
from neuroscale.forge.rest_shapes import RepositoryShape, newest, read

_PAGE: Query = {"limit": 50}
_STATES: dict[str, StatusState] = {"success": "success", "pending": "pending"}


class _User(BaseModel):
    login: str
    full_name: str = ""
    email: str = ""


class _Commit(BaseModel):
    id: str


class _Branch(BaseModel):
    commit: _Commit


class _RefObject(BaseModel):
    sha: str


class _Ref(BaseModel):
    ref: str
    object: _RefObject


class _Status(BaseModel):
    id: int
    context: str
    status: str
    description: str = ""
    target_url: str = ""


class _BranchRule(BaseModel):
    rule_name: str
    enable_push: bool
    enable_status_check: bool
    status_check_contexts: list[str] | None
    required_approvals: int


class _MergeStyles(BaseModel):
    allow_rebase: bool
    allow_rebase_explicit: bool
    allow_fast_forward_only_merge: bool = False


class GiteaForge(Forge):
    """A repository on Gitea or Forgejo."""

    kind = "gitea"
    _page_size = _PAGE
    _approval = "APPROVED"
    # Gitea answers the first while it checks whether a pull request merges cleanly, and for one that does not.
    _not_yet = ("please try again later", "merge push out of date")

    def __init__(self, repository: RepositoryRef, token: Token, limits: Limits | None = None) -> None:
        super().__init__(Client(f"{repository.server}/api/v1", token, limits=limits), repository)

    def branch(self, repository: RepositoryRef, name: str) -> str | None:
        answer = self._client.get(path_of(repository, "branches", name), accept=(404,))
        return None if answer.status == 404 else read(_Branch, answer.data).commit.id

    def protection(self, branch: str) -> Protection | None:
        """Only the repository's administrators may read it. A rule for several branches (with stars) does not count."""
        answer = self._client.get(self._path("branch_protections"), accept=(403, 404))
        if answer.status != 200:
            raise ForgeError(
                f"The token may not read how {self.repository.slug} is protected. Use that of an administrator of it."
            )
        rules = [read(_BranchRule, data) for data in answer.data]
        rule = next((one for one in rules if one.rule_name == branch), None)
        if rule is None:
            return None
        checks = tuple(rule.status_check_contexts or ()) if rule.enable_status_check else ()
        styles = read(_MergeStyles, self._client.get(self._path()).data).model_dump()
        rebases = tuple(name for name, allowed in styles.items() if allowed)
        return Protection(checks, rule.required_approvals, rule.enable_push, rebases)

    def statuses(self, sha: str) -> list[CommitStatus]:
        shapes = (read(_Status, data) for data in self._client.pages(self._path("statuses", sha), _PAGE))
        return newest(
            (
                shape.id,
                CommitStatus(
                    shape.context,
                    _STATES.get(shape.status, "failure"),
                    shape.description,
                    self._absolute(shape.target_url),
                ),
            )
            for shape in shapes
        )

    def merged_head(self, pull: PullRequest) -> str:
        """Gitea keeps it under `refs/pull`; the pull request itself names the present tip of its branch, which may be
        the head of a later one. Raises ForgeError if it is not kept."""
        name = f"pull/{pull.number}/head"
        answer = self._client.get(self._path("git", "refs", *name.split("/")), accept=(404,))
        refs = [read(_Ref, data) for data in answer.data] if isinstance(answer.data, list) else []
        head = next((ref.object.sha for ref in refs if ref.ref == f"refs/{name}"), "")
        if answer.status == 404 or not head:
            raise ForgeError(f"{self.repository.slug} does not keep the head of pull request {pull.number}.")
        return head

    def _ask_account(self) -> Account:
        user = read(_User, self._client.get("/user").data)
        return Account(user.login, user.full_name or user.login, user.email or user.login)

    def _find_fork(self, login: str) -> RepositoryInfo | None:
        there, _ = self._own_fork(login)
        if there is not None:
            return there
        # The fork may have another name, so only the list shows it.
        for data in self._client.pages(self._path("forks"), _PAGE):
            shape = read(RepositoryShape, data)
            if shape.owner.login == login:
                return self._to_info(shape)
        return None

    def _make_fork(self, login: str) -> RepositoryInfo | None:
        _, taken = self._own_fork(login)
        name = f"{self.repository.owner}-{self.repository.name}" if taken else self.repository.name
        # 409: the fork was made meanwhile.
        answer = self._client.send("POST", self._path("forks"), idempotent=False, body={"name": name}, accept=(409,))
        return None if answer.status == 409 else self._to_info(read(RepositoryShape, answer.data))

    def _open_pulls(self, head_owner: str, head_branch: str, base_branch: str) -> Query:
        del head_owner, head_branch  # Gitea cannot search for them
        return {**_PAGE, "state": "open", "base_branch": base_branch, "sort": "recentupdate"}

    def _pulls_from(self, head: RepositoryRef, head_branch: str, base_branch: str) -> Iterable[Any]:
        path = self._path("pulls", base_branch, f"{head.slug}:{head_branch}")
        answer = self._client.get(path, accept=(404,))
        return [] if answer.status == 404 else [answer.data]

    def _pulls_with(self, sha: str) -> Iterable[Any]:
        answer = self._client.get(self._path("commits", sha, "pull"), accept=(404,))
        return [] if answer.status == 404 else [answer.data]

    def _head(self, head: RepositoryRef, head_branch: str) -> str:
        if head.slug.lower() == self.repository.slug.lower():
            return head_branch
        if head.name.lower() == self.repository.name.lower():
            return f"{head.owner}:{head_branch}"
        return f"{head.slug}:{head_branch}"

    def _is_duplicate(self, error: AnswerError) -> bool:
        return error.status == 409

    def _send_merge(self, number: int, head_sha: str) -> None:
        fields = {"do": "squash", "head_commit_id": head_sha}
        self._client.send("POST", self._path("pulls", number, "merge"), idempotent=False, body=fields)

"""Defines a forge's objects and operations for all kinds of forges.

Waits for a forge's background work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from neuroscale.core.errors import ExitStatus, NeuroscaleError
from neuroscale.core.secret_text import SecretText
from neuroscale.core.waiting import attempts

Kind = Literal["github", "gitea"]
IssueState = Literal["open", "closed"]
PullState = Literal["open", "closed", "merged"]
StatusState = Literal["pending", "success", "failure"]
"""`failure` also stands for a forge's error, cancelled, timed out, skipped or warning: none of these is a pass."""


class ForgeError(NeuroscaleError):
    """The forge did not do a request; the message says which, why, and what to do. Never holds a token."""


class ForgeUnavailableError(ForgeError):
    """The forge is down, too slow, limits the rate or answers with errors, after a bounded number of attempts."""


class MergeRefusedError(ForgeError):
    """The forge refuses to merge: a required status, a review or a protected file stands against it."""

    exit_status = ExitStatus.FINDINGS


Token = SecretText
"""The identifier of an account on a forge."""


@dataclass(frozen=True)
class RepositoryRef:
    """A repository on a forge. `server` is its address without a trailing slash, such as `https://github.com`."""

    server: str
    owner: str
    name: str

    @property
    def slug(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def clone_url(self) -> str:
        return f"{self.server}/{self.slug}.git"


@dataclass(frozen=True)
class Account:
    """The owner of a token. `name` and `email` are never empty: they fall back to the login."""

    login: str
    name: str
    email: str


@dataclass(frozen=True)
class RepositoryInfo:
    """A repository as the token sees it; `may_push` says whether it may push branches to it."""

    ref: RepositoryRef
    default_branch: str
    may_push: bool


@dataclass(frozen=True)
class PullRequest:
    """A pull request. `head_owner` is the owner of the branch's repository ("" if that is gone)."""

    number: int
    url: str
    title: str
    body: str
    state: PullState
    author: str
    head_owner: str
    head_branch: str
    head_sha: str
    base_branch: str


@dataclass(frozen=True)
class Comment:
    """A comment in the conversation of a pull request."""

    id: int
    author: str
    body: str


@dataclass(frozen=True)
class Issue:
    """An issue that is not a pull request. `author` is "" where the account is gone."""

    number: int
    url: str
    title: str
    body: str
    state: IssueState
    author: str


@dataclass(frozen=True)
class CommitStatus:
    """The newest status (or check run) of a commit under one name."""

    context: str
    state: StatusState
    description: str
    url: str


@dataclass(frozen=True)
class Protection:
    """How a forge protects a branch: the checks that a merge needs, its approvals, and whether anybody may push to the
    branch without a pull request. Who may pass the rules by is not known.
    """

    required_checks: tuple[str, ...]
    approvals: int
    direct_pushes: bool


class Forge(Protocol):
    """One repository on a forge.

    Every method raises ForgeUnavailableError if the forge cannot be reached in a bounded time, and ForgeError for a
    refusal. Methods that create are idempotent: called twice, or answered with an error after the work was done, they
    leave one pull request, one fork.
    """

    @property
    def kind(self) -> Kind: ...

    @property
    def repository(self) -> RepositoryRef: ...

    def account(self) -> Account:
        """The token's account; for a workflow's token, the forge's own bot."""

    def info(self) -> RepositoryInfo: ...

    def fork(self) -> RepositoryInfo:
        """The account's fork of the repository, ready for a push; it is made if it does not exist."""

    def branch(self, repository: RepositoryRef, name: str) -> str | None:
        """The commit that a branch of the repository (or of a fork) points to; None if the branch does not exist."""

    def pull(self, number: int) -> PullRequest: ...

    def find_pull(self, head_owner: str, head_branch: str, base_branch: str) -> PullRequest | None:
        """The open pull request from that branch, or None."""

    def last_pull(self, head: RepositoryRef, head_branch: str, base_branch: str) -> PullRequest | None:
        """The newest pull request from that branch, open, closed or merged; None if there never was one."""

    def merged_pull(self, sha: str, base_branch: str) -> PullRequest | None:
        """The merged pull request that brought a commit to its base; None if somebody pushed the commit."""

    def open_pull(self, title: str, body: str, head: RepositoryRef, head_branch: str, base_branch: str) -> PullRequest:
        """Open a pull request, or return the one that is already open, unchanged."""

    def update_pull(self, number: int, title: str, body: str) -> PullRequest: ...

    def comments(self, number: int) -> list[Comment]:
        """All comments, oldest first."""

    def create_comment(self, number: int, body: str) -> Comment:
        """Not idempotent by itself: a caller that must not repeat a comment looks for it first."""

    def update_comment(self, comment_id: int, body: str) -> Comment: ...

    def delete_comment(self, comment_id: int) -> None:
        """Delete a comment; one that is gone already is not an error."""

    def open_issues(self) -> list[Issue]:
        """All that are open, oldest first."""

    def create_issue(self, title: str, body: str) -> Issue:
        """Not idempotent by itself: who must not repeat an issue looks for it first."""

    def update_issue(self, number: int, title: str, body: str, state: IssueState) -> Issue: ...

    def protection(self, branch: str) -> Protection | None:
        """How the branch of the repository is protected; None if nothing protects it."""

    def statuses(self, sha: str) -> list[CommitStatus]:
        """The newest status of each name."""

    def approve(self, number: int, head_sha: str) -> None: ...

    def merge(self, number: int, head_sha: str) -> None:
        """Squash it into its base, if its head is still `head_sha`. Does nothing if it is merged. Raises
        MergeRefusedError.
        """


_PAUSE = 0.5


def wait_for_status(forge: Forge, sha: str, context: str, within: float) -> CommitStatus:
    """The status `context` of a commit once it is no longer pending.

    Raises ForgeUnavailableError when that takes longer than `within` seconds.
    """
    status: CommitStatus | None = None
    for _ in attempts(within, _PAUSE):
        status = next((one for one in forge.statuses(sha) if one.context == context), None)
        if status is not None and status.state != "pending":
            return status
    state = f"is still pending ({status.description}, {status.url})" if status else "did not appear"
    raise ForgeUnavailableError(
        f"The status {context!r} of commit {sha[:12]} {state} after {within:.0f} s. Check that a runner is up."
    )

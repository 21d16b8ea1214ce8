"""Defines a forge's objects and errors for all kinds of forges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neuroscale.core.errors import ExitStatus, NeuroscaleError
from neuroscale.core.secret_text import SecretText

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


SOME_APP = "github-actions[bot]"
"""The login that GitHub's adapter returns for every token of an app, because such a token does not show its account."""

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

    `rebases`: the forge's names of the ways to merge that bring each commit of a pull request to the branch, although
    the gate judged them together; None if the token may not read them."""

    required_checks: tuple[str, ...]
    approvals: int
    direct_pushes: bool
    rebases: tuple[str, ...] | None = ()

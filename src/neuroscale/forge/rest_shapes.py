"""Describes the fields that this program reads in answers of GitHub's and Gitea's REST interfaces, and reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from neuroscale.forge.interface import Comment, CommitStatus, ForgeError, Issue, IssueState, PullRequest, PullState


class UserShape(BaseModel):
    """The fields of an answer that this program reads; forges send many more."""

    login: str


class PermissionsShape(BaseModel):
    push: bool = False


class RepositoryShape(BaseModel):
    name: str
    owner: UserShape
    default_branch: str = ""
    archived: bool = False
    permissions: PermissionsShape | None = None
    parent: RepositoryShape | None = None


class BranchShape(BaseModel):
    label: str
    ref: str
    sha: str
    repo: RepositoryShape | None


class PullShape(BaseModel):
    number: int
    html_url: str
    title: str
    body: str | None
    state: str
    merged_at: str | None
    merge_commit_sha: str | None = None
    user: UserShape | None
    head: BranchShape
    base: BranchShape
    mergeable: bool | None = None


class CommentShape(BaseModel):
    id: int
    user: UserShape | None
    body: str | None = None


class IssueShape(BaseModel):
    """`pull_request` is there where it is a pull request, which forges list among the issues."""

    number: int
    html_url: str
    title: str
    body: str | None = None
    state: str
    user: UserShape | None
    pull_request: dict[str, Any] | None = None


class ReviewShape(BaseModel):
    user: UserShape | None
    state: str
    commit_id: str | None
    dismissed: bool = False
    stale: bool = False

    @property
    def is_verdict(self) -> bool:
        return self.state not in ("COMMENT", "COMMENTED", "PENDING", "REQUEST_REVIEW")

    @property
    def approves(self) -> bool:
        return self.state == "APPROVED" and not (self.dismissed or self.stale)


Shape = TypeVar("Shape", bound=BaseModel)


def read(shape: type[Shape], data: Any) -> Shape:
    """The needed fields of a forge's answer. Raises ForgeError if one is missing or of another type."""
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, entry["loc"])) or "everything" for entry in error.errors()[:3])
        raise ForgeError(
            f"The forge's answer lacks needed fields ({fields}). Check whether the forge's version is supported."
        ) from None


def same_text(text: str) -> str:
    """Text for comparison: forges change line ends and cut white space at the end."""
    return text.replace("\r\n", "\n").rstrip()


def newest(entries: Iterable[tuple[Any, CommitStatus]]) -> list[CommitStatus]:
    """The status with the highest key of each name, by name."""
    found: dict[str, tuple[Any, CommitStatus]] = {}
    for key, status in entries:
        if status.context not in found or key >= found[status.context][0]:
            found[status.context] = (key, status)
    return [found[name][1] for name in sorted(found)]


def to_comment(data: Any) -> Comment:
    """A comment, from a forge's answer."""
    shape = read(CommentShape, data)
    return Comment(shape.id, shape.user.login if shape.user else "", shape.body or "")


def to_issue(shape: IssueShape) -> Issue:
    """An issue, from a forge's answer."""
    state: IssueState = "open" if shape.state == "open" else "closed"
    author = shape.user.login if shape.user else ""
    return Issue(shape.number, shape.html_url, shape.title, shape.body or "", state, author)


def to_pull(shape: PullShape) -> PullRequest:
    """A pull request, from a forge's answer."""
    state: PullState = "merged" if shape.merged_at else "open" if shape.state == "open" else "closed"
    return PullRequest(
        number=shape.number,
        url=shape.html_url,
        title=shape.title,
        body=shape.body or "",
        state=state,
        author=shape.user.login if shape.user else "",
        head_owner=shape.head.repo.owner.login if shape.head.repo else "",
        # Gitea names its own copy if the branch is gone; the label is still the branch's name.
        head_branch=shape.head.label if shape.head.ref.startswith("refs/") else shape.head.ref,
        head_sha=shape.head.sha,
        base_branch=shape.base.ref,
    )

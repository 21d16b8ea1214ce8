"""Does the operations on a forge; GitHub and Gitea share most of their REST interfaces."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any
from urllib.parse import urljoin

from neuroscale.core.money_and_time import duration
from neuroscale.core.waiting import attempts
from neuroscale.forge.http import AnswerError, Client, OutcomeUnknownError, Query, segments
from neuroscale.forge.interface import (
    Account,
    Comment,
    CommitStatus,
    ForgeError,
    ForgeUnavailableError,
    Issue,
    IssueState,
    Kind,
    MergeRefusedError,
    Protection,
    PullRequest,
    RepositoryInfo,
    RepositoryRef,
)
from neuroscale.forge.rest_shapes import (
    IssueShape,
    PullShape,
    RepositoryShape,
    ReviewShape,
    read,
    same_text,
    to_comment,
    to_issue,
    to_pull,
)

# Seconds between reads while the forge works in the background; the last one repeats.
PAUSES = (0.25, 0.5, 1.0, 2.0, 3.0)


class Forge(ABC):
    """One repository on a forge, over a client of its REST interface.

    Every method raises ForgeUnavailableError if the forge cannot be reached in a bounded time, and ForgeError for a
    refusal. Methods that create are idempotent: called twice, or answered with an error after the work was done, they
    leave one pull request, one fork. (A comment or an issue is not: a caller that must not repeat it looks first.)
    """

    kind: Kind
    _page_size: Query
    _approval: str
    _not_yet: tuple[str, ...]

    def __init__(self, client: Client, repository: RepositoryRef) -> None:
        self._client = client
        self.repository = repository
        self._account: Account | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.repository.server}/{self.repository.slug})"

    def account(self) -> Account:
        """The token's account; for a workflow's token, the forge's own bot."""
        if self._account is None:
            self._account = self._ask_account()
        return self._account

    def info(self) -> RepositoryInfo:
        return self._info_of(self.repository)

    def may_read(self) -> bool:
        """Whether the token may read the repository's files; to see that the repository exists is not enough."""
        one = dict.fromkeys(self._page_size, 1)
        return self._client.get(self._path("branches"), one, accept=(403, 404)).status == 200

    def fork(self) -> RepositoryInfo:
        """The account's fork of the repository, ready for a push; it is made if it does not exist."""
        login = self.account().login
        if login.lower() == self.repository.owner.lower():
            raise ForgeError(
                f"{self.repository.slug} belongs to {login}, whose token this is, and cannot be forked. "
                "Give the token the right to push, or use somebody else's."
            )
        problem = ForgeUnavailableError(
            f"The fork of {self.repository.slug} for {login} is not ready yet. Run the command again in some minutes."
        )
        for _ in self._waits():
            there = self._find_fork(login)
            if there is None:
                try:
                    there = self._make_fork(login)
                except OutcomeUnknownError as error:
                    problem = error
            # A fork is listed before the forge has copied its branches.
            if there is not None and self.branch(there.ref, there.default_branch) is not None:
                return self._info_of(there.ref)
        raise problem

    def pull(self, number: int) -> PullRequest:
        return self._to_pull(self._pull_shape(number))

    def find_pull(self, head_owner: str, head_branch: str, base_branch: str) -> PullRequest | None:
        """The open pull request from that branch, or None."""
        return next(self._find_pulls(head_owner, head_branch, base_branch), None)

    def open_pulls(self, base_branch: str) -> list[PullRequest]:
        """All open pull requests to the branch, each once, also if it changes between two pages."""
        return list({pull.number: pull for pull in self._find_pulls("", "", base_branch)}.values())

    def _find_pulls(self, head_owner: str, head_branch: str, base_branch: str) -> Iterator[PullRequest]:
        for data in self._client.pages(self._path("pulls"), self._open_pulls(head_owner, head_branch, base_branch)):
            pull = self._to_pull(read(PullShape, data))
            wanted = (head_owner.lower() or pull.head_owner.lower(), head_branch or pull.head_branch, base_branch)
            if pull.state == "open" and (pull.head_owner.lower(), pull.head_branch, pull.base_branch) == wanted:
                yield pull

    def last_pull(self, head: RepositoryRef, head_branch: str, base_branch: str) -> PullRequest | None:
        """The newest pull request from that branch, open, closed or merged; None if there never was one."""
        found = [
            pull
            for data in self._pulls_from(head, head_branch, base_branch)
            for pull in [self._to_pull(read(PullShape, data))]
            if (pull.head_branch, pull.base_branch) == (head_branch, base_branch)
        ]
        return max(found, key=lambda pull: pull.number, default=None)

    def merged_pull(self, sha: str, base_branch: str) -> PullRequest | None:
        """The merged pull request that brought a commit to its base; None if somebody pushed the commit."""
        shapes = [read(PullShape, data) for data in self._pulls_with(sha)]
        merged = [shape for shape in shapes if shape.merged_at and shape.base.ref == base_branch]
        # A commit may lie in several pull requests; the one that was merged by it brought it.
        merged.sort(key=lambda shape: (shape.merge_commit_sha != sha, shape.number))
        return self._to_pull(merged[0]) if merged else None

    def merged_head(self, pull: PullRequest) -> str:
        """The commit that was judged before the merged pull request was merged."""
        return pull.head_sha

    def open_pull(self, title: str, body: str, head: RepositoryRef, head_branch: str, base_branch: str) -> PullRequest:
        """Open a pull request, or return the one that is already open, unchanged."""
        fields = {"title": title, "body": body, "head": self._head(head, head_branch), "base": base_branch}
        problem: ForgeError | None = None
        for _ in self._waits():
            if there := self._only_pull(head.owner, head_branch, base_branch):
                return there
            # A branch that was pushed a moment ago may not be listed yet.
            if self.branch(head, head_branch) is None:
                problem = ForgeError(
                    f"{head.slug} has no branch {head_branch}, so no pull request can be opened. Push the branch."
                )
                continue
            try:
                answer = self._client.send("POST", self._path("pulls"), idempotent=False, body=fields)
                opened = self._to_pull(read(PullShape, answer.data))
            except OutcomeUnknownError as error:
                problem = error
            except AnswerError as error:
                if not self._is_duplicate(error):
                    raise
                problem = error
            else:
                return self._only_pull(head.owner, head_branch, base_branch) or opened
        raise problem or AssertionError("unreachable: a try returns or leaves a problem")

    def _only_pull(self, head_owner: str, head_branch: str, base_branch: str) -> PullRequest | None:
        """As `find_pull`; of several, the oldest, after the account's others are closed.

        Gitea looks for an open pull request before it opens one, but without a lock: two programs that ask at the same
        moment get one each. Its numbers grow in the order of its transactions, so both programs keep the same one.
        """
        # A pull request that changes between two pages may be listed twice.
        by_number = {pull.number: pull for pull in self._find_pulls(head_owner, head_branch, base_branch)}
        found = [by_number[number] for number in sorted(by_number)]
        for pull in found[1:]:
            if pull.author == self.account().login:
                body = f"Closed: #{found[0].number} was opened from the same branch at the same time.\n\n{pull.body}"
                fields = {"state": "closed", "body": body}
                path = self._path("pulls", pull.number)
                # 409: the other program closes it at this moment.
                self._client.send("PATCH", path, idempotent=True, body=fields, accept=(409,))
        return found[0] if found else None

    def update_pull(self, number: int, title: str, body: str) -> PullRequest:
        there = self.pull(number)
        if (there.title, same_text(there.body)) == (title, same_text(body)):
            return there
        fields = {"title": title, "body": body}
        answer = self._client.send("PATCH", self._path("pulls", number), idempotent=True, body=fields)
        return self._to_pull(read(PullShape, answer.data))

    def comments(self, number: int) -> list[Comment]:
        """All comments, oldest first."""
        listed = self._client.pages(self._path("issues", number, "comments"), self._page_size)
        return sorted((to_comment(data) for data in listed), key=lambda comment: comment.id)

    def create_comment(self, number: int, body: str) -> Comment:
        path = self._path("issues", number, "comments")
        return to_comment(self._client.send("POST", path, idempotent=False, body={"body": body}).data)

    def update_comment(self, comment_id: int, body: str) -> Comment:
        path = self._path("issues", "comments", comment_id)
        return to_comment(self._client.send("PATCH", path, idempotent=True, body={"body": body}).data)

    def delete_comment(self, comment_id: int) -> None:
        """Delete a comment; one that is gone already is not an error."""
        path = self._path("issues", "comments", comment_id)
        self._client.send("DELETE", path, idempotent=True, accept=(404, 410))

    def open_issues(self) -> list[Issue]:
        """All that are open, oldest first."""
        listed = self._client.pages(self._path("issues"), {**self._page_size, "state": "open"})
        shapes = [read(IssueShape, data) for data in listed]
        return sorted((to_issue(one) for one in shapes if one.pull_request is None), key=lambda issue: issue.number)

    def create_issue(self, title: str, body: str) -> Issue:
        fields = {"title": title, "body": body}
        answer = self._client.send("POST", self._path("issues"), idempotent=False, body=fields)
        return to_issue(read(IssueShape, answer.data))

    def update_issue(self, number: int, title: str, body: str, state: IssueState) -> Issue:
        fields = {"title": title, "body": body, "state": state}
        answer = self._client.send("PATCH", self._path("issues", number), idempotent=True, body=fields)
        return to_issue(read(IssueShape, answer.data))

    def approve(self, number: int, head_sha: str) -> None:
        fields = {"event": self._approval, "commit_id": head_sha, "body": ""}
        problem: ForgeError | None = None
        for _ in self._waits():
            if self.pull(number).head_sha != head_sha:
                raise ForgeError(f"Pull request {number} has another head than {head_sha[:12]}. Judge the new head.")
            if self._approved(number, head_sha):
                return
            try:
                self._client.send("POST", self._path("pulls", number, "reviews"), idempotent=False, body=fields)
            except OutcomeUnknownError as error:
                problem = error
            else:
                return
        raise problem or AssertionError("unreachable: a try returns or leaves a problem")

    def approved_by(self, number: int) -> tuple[str, ...]:
        """The accounts whose last verdict on it is an approval that still counts."""
        return tuple(login for login, last in self._verdicts(number).items() if last.approves)

    def merge(self, number: int, head_sha: str) -> None:
        """Squash it into its base, if its head is still `head_sha`. Does nothing if it is merged. Raises
        MergeRefusedError."""
        problem: ForgeError | None = None
        under_way = False
        for _ in self._waits():
            there = self.pull(number)
            if there.state == "merged":
                return
            if there.state == "closed":
                raise MergeRefusedError(f"Pull request {number} is closed. Reopen it first.")
            if there.head_sha != head_sha:
                other = f"{head_sha[:12]}: {there.head_sha[:12]}. Judge the new head."
                raise MergeRefusedError(f"Pull request {number} has another head than {other}")
            try:
                self._send_merge(number, head_sha)
            except OutcomeUnknownError as error:
                problem, under_way = error, True
            except AnswerError as error:
                if error.status not in (405, 409, 422):
                    raise
                problem = MergeRefusedError(
                    f"The forge does not merge pull request {number}: {error.said or 'it gives no reason'}. "
                    "See the requirements on its page."
                )
                shape = self._pull_shape(number)
                if shape.merged_at:
                    return
                # Refused only because the forge still checks whether it can be merged, because the base moved, because
                # it still works at the merge that an earlier attempt asked for, or for a reason that was cut off.
                not_yet = error.said.lower() in ("", *self._not_yet) or shape.mergeable is None
                if not (not_yet or under_way):
                    raise problem from None
            else:
                return
        raise problem or AssertionError("unreachable: a try returns or leaves a problem")

    @abstractmethod
    def branch(self, repository: RepositoryRef, name: str) -> str | None:
        """The commit that a branch of the repository (or of a fork) points to; None if the branch does not exist."""

    @abstractmethod
    def protection(self, branch: str) -> Protection | None:
        """How the branch of the repository is protected; None if nothing protects it."""

    @abstractmethod
    def statuses(self, sha: str) -> list[CommitStatus]:
        """The newest status of each name."""

    @abstractmethod
    def _ask_account(self) -> Account: ...

    @abstractmethod
    def _find_fork(self, login: str) -> RepositoryInfo | None: ...

    @abstractmethod
    def _make_fork(self, login: str) -> RepositoryInfo | None:
        """Asks for the fork; None if the caller must look for it again. Raises OutcomeUnknownError."""

    @abstractmethod
    def _open_pulls(self, head_owner: str, head_branch: str, base_branch: str) -> Query:
        """A query for open pull requests that brings at least those from that branch ("": from any)."""

    @abstractmethod
    def _pulls_from(self, head: RepositoryRef, head_branch: str, base_branch: str) -> Iterable[Any]:
        """At least the newest pull request of any state from that branch."""

    @abstractmethod
    def _pulls_with(self, sha: str) -> Iterable[Any]:
        """The pull requests that a commit of the base belongs to, at least the merged one."""

    @abstractmethod
    def _head(self, head: RepositoryRef, head_branch: str) -> str:
        """The name that the forge wants for a branch of another repository."""

    @abstractmethod
    def _is_duplicate(self, error: AnswerError) -> bool:
        """Whether a pull request was refused because it already exists."""

    @abstractmethod
    def _send_merge(self, number: int, head_sha: str) -> None: ...

    def _waits(self) -> Iterator[None]:
        """Yields for each attempt until the patience ends; at least three times, to find work that may have been
        done."""
        ends = time.monotonic() + self._client.limits.patience
        for count, pause in enumerate(chain(PAUSES, repeat(PAUSES[-1]))):
            yield
            if count >= 2 and time.monotonic() + pause > ends:
                return
            time.sleep(pause)

    def _path(self, *parts: str | int) -> str:
        return path_of(self.repository, *parts)

    def _info_of(self, repository: RepositoryRef) -> RepositoryInfo:
        return self._to_info(read(RepositoryShape, self._client.get(path_of(repository)).data))

    def _own_fork(self, login: str) -> tuple[RepositoryInfo | None, bool]:
        """The account's repository of the same name if that is a fork of this one, and whether the name is taken."""
        path = path_of(RepositoryRef(self.repository.server, login, self.repository.name))
        answer = self._client.get(path, accept=(404,))
        if answer.status == 404:
            return None, False
        shape = read(RepositoryShape, answer.data)
        parent = shape.parent
        if parent is None or f"{parent.owner.login}/{parent.name}".lower() != self.repository.slug.lower():
            return None, True
        return self._to_info(shape), True

    def _pull_shape(self, number: int) -> PullShape:
        return read(PullShape, self._client.get(self._path("pulls", number)).data)

    def _approved(self, number: int, head_sha: str) -> bool:
        last = self._verdicts(number).get(self.account().login)
        return last is not None and last.approves and last.commit_id == head_sha

    def _verdicts(self, number: int) -> dict[str, ReviewShape]:
        """The last verdict of each account that reviewed it."""
        listed = self._client.pages(self._path("pulls", number, "reviews"), self._page_size)
        shapes = (read(ReviewShape, data) for data in listed)
        return {shape.user.login: shape for shape in shapes if shape.user is not None and shape.is_verdict}

    def _to_info(self, shape: RepositoryShape) -> RepositoryInfo:
        ref = RepositoryRef(self.repository.server, shape.owner.login, shape.name)
        may_push = shape.permissions is not None and shape.permissions.push and not shape.archived
        return RepositoryInfo(ref, shape.default_branch, may_push)

    _to_pull = staticmethod(to_pull)

    def _absolute(self, url: str | None) -> str:
        return urljoin(f"{self.repository.server}/", url) if url else ""


def path_of(repository: RepositoryRef, *parts: str | int) -> str:
    return "/" + segments("repos", repository.owner, repository.name, *parts)


def wait_for_status(forge: Forge, sha: str, context: str, within: float) -> CommitStatus:
    """The status `context` of a commit once it is no longer pending. Raises ForgeUnavailableError when that takes
    longer than `within` seconds."""
    status: CommitStatus | None = None
    for _ in attempts(within, PAUSES[1]):
        status = next((one for one in forge.statuses(sha) if one.context == context), None)
        if status is not None and status.state != "pending":
            return status
    state = f"is still pending ({status.description}, {status.url})" if status else "did not appear"
    raise ForgeUnavailableError(
        f"The status {context!r} of commit {sha[:12]} {state} after {duration(within)}. Check that a runner is up."
    )

"""Keeps one comment of a workflow on a pull request: a hidden marker identifies it, and it is edited in place.

Keeps the one issue of a workflow: opens it, updates its text, and closes it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Literal

from neuroscale.core.waiting import repeatedly
from neuroscale.forge.http import AnswerError, OutcomeUnknownError
from neuroscale.forge.interface import Comment, ForgeError, ForgeUnavailableError, Issue
from neuroscale.forge.rest import PAUSES, Forge
from neuroscale.forge.rest_shapes import same_text
from neuroscale.report.markdown import MARKER

LONGEST = 65_536
"""Characters of an issue's text, which is GitHub's limit and below Gitea's."""
_ATTEMPTS = 6
_FIRST_PAUSE = 0.25  # seconds

IssueOutcome = Literal["opened", "updated", "closed", "unchanged", "nothing to say"]


@dataclass(frozen=True)
class IssueResult:
    """The result of a run; `issue` is None if the forge has no such issue."""

    outcome: IssueOutcome
    issue: Issue | None


def keep_issue(forge: Forge, marker: str, title: str, body: str | None, *, may_open: bool = True) -> IssueResult:
    """Make `title` and `body` those of the open issue that goes by `marker`; None for `body` closes it.

    `may_open`: whether an issue is opened if none is open; otherwise only an open one is updated.

    Only issues of the token's own account whose text begins with the marker are its own. Of several, which a race or a
    repeated request may have left, the oldest stays and the others are closed. Run twice, it changes nothing.

    Raises ForgeError for a text that is too long, and what the forge raises.
    """
    text = None if body is None else f"{marker}\n{body}"
    if text is not None and len(text) > LONGEST:
        raise ForgeError(f"The issue has {len(text):,} characters, {LONGEST:,} are allowed. Make it shorter.")
    return repeatedly(
        lambda: _kept(forge, marker, title, text, may_open=may_open),
        attempts=_ATTEMPTS,
        # The issue may have been opened: look again.
        again=lambda error: isinstance(error, OutcomeUnknownError),
        first_pause=_FIRST_PAUSE,
    )


def _kept(forge: Forge, marker: str, title: str, text: str | None, *, may_open: bool) -> IssueResult:
    login = forge.account().login
    mine = [issue for issue in forge.open_issues() if issue.author == login and issue.body.startswith(marker)]
    for issue in mine[1:] if text is not None else mine:
        forge.update_issue(issue.number, issue.title, issue.body, "closed")
    if text is None:
        return IssueResult("closed" if mine else "nothing to say", mine[0] if mine else None)
    if not mine and not may_open:
        return IssueResult("nothing to say", None)
    if not mine:
        return IssueResult("opened", forge.create_issue(title, text))
    (oldest, *more) = mine
    if (oldest.title, same_text(oldest.body)) == (title, same_text(text)):
        return IssueResult("updated" if more else "unchanged", oldest)
    return IssueResult("updated", forge.update_issue(oldest.number, title, text, "open"))


Outcome = Literal["created", "updated", "unchanged", "a newer commit is there", "a newer run has written it"]

_RUN = re.compile(r"<!-- neuroscale-run number=([0-9]{1,18}) attempt=([0-9]{1,18}) head=([0-9a-f]{40,64}) -->")


@dataclass(frozen=True)
class Run:
    """The run of a workflow that judged `head_sha`; of two runs on the same head, the one with the higher number and
    attempt is newer."""

    number: int
    attempt: int
    head_sha: str

    @property
    def marker(self) -> str:
        return f"<!-- neuroscale-run number={self.number} attempt={self.attempt} head={self.head_sha} -->"


def write_comment(forge: Forge, number: int, markdown: str, run: Run, marker: str = MARKER) -> Outcome:
    """Make `markdown` the text of the comment with this `marker`, which is a line of its own; by default the gate's.

    Only comments of the token's own account that begin with the marker belong to the workflow. If a race or a repeated
    request has left several, the oldest stays. Nothing is written if the pull request has another head than the one
    that was judged, or if a newer run has already written.

    Forges do not offer conditional writes: a run that is delayed between its last read and its write overwrites a newer
    run that did both meanwhile. A workflow's concurrency group keeps two runs apart. A comment that the forge creates
    only after this call has given up on it, created another and ended stays beside that one until the next run.

    Raises ForgeError for a comment that is too long, and the errors of the forge.
    """
    body = f"{marker}\n{run.marker}\n{markdown.removeprefix(marker).lstrip()}"
    if len(body) > LONGEST:
        raise ForgeError(f"The comment has {len(body):,} characters, {LONGEST:,} are allowed. Make it shorter.")
    return _Comment(forge, number, body, run, marker).write()


class _Comment:
    """One attempt to write the comment: reads, acts, and reads again until nothing is left to do."""

    def __init__(self, forge: Forge, number: int, body: str, run: Run, marker: str) -> None:
        self.forge = forge
        self.number = number
        self.body = body
        self.run = run
        self.marker = marker
        self.login = forge.account().login
        self.written: Comment | None = None
        self.outcome: Outcome = "unchanged"

    def write(self) -> Outcome:
        problem: ForgeError | None = None
        for pause in (0.0, *PAUSES):
            time.sleep(pause if problem else 0)
            if self.forge.pull(self.number).head_sha != self.run.head_sha:
                return "a newer commit is there"
            try:
                if self._step():
                    return self.outcome
                problem = None
            except OutcomeUnknownError as error:
                problem = error
            except AnswerError as error:
                if error.status not in (404, 410):
                    raise
                problem = error  # somebody deleted it between the read and the write
        raise problem or ForgeUnavailableError(
            f"Others keep changing the comment on pull request {self.number}. Run the command again."
        )

    def _step(self) -> bool:
        """Take one step towards the wanted comments. Returns whether nothing was left to do."""
        mine = self._mine()
        if not mine:
            self._written(self.forge.create_comment(self.number, self.body), "created")
            return False
        oldest = mine[0]
        newest = max(mine, key=self._age)
        if self._age(newest) > (self.run.number, self.run.attempt):
            self.outcome = "a newer run has written it"
            body = newest.body
        else:
            body = self.body
        changed = False
        if not self._holds(oldest, body):
            comment = self.forge.update_comment(oldest.id, body)
            if body is self.body:
                self._written(comment, "updated")
            changed = True
        for comment in mine[1:]:
            self.forge.delete_comment(comment.id)
            changed = True
        return not changed

    def _mine(self) -> list[Comment]:
        """The workflow's comments, oldest first, with the one just written, which a forge may list late."""
        there = {
            comment.id: comment
            for comment in self.forge.comments(self.number)
            if comment.author == self.login and comment.body.startswith(self.marker)
        }
        if self.written is not None and not there:
            there[self.written.id] = self.written
        return [there[key] for key in sorted(there)]

    def _written(self, comment: Comment, outcome: Outcome) -> None:
        self.written = comment
        # An app's token does not show its account, but its first comment does.
        self.login = comment.author or self.login
        if self.outcome != "created":
            self.outcome = outcome

    def _holds(self, comment: Comment, body: str) -> bool:
        """Whether a comment has this text; for a comment that was just written, the text as the forge returned it
        counts."""
        written = self.written
        if body is self.body and written is not None and written.id == comment.id:
            return comment.body == written.body
        return same_text(comment.body) == same_text(body)

    def _age(self, comment: Comment) -> tuple[int, int]:
        """The age of the run that wrote it; older than every run if it was written for another head, or not by a
        run."""
        lines = comment.body.replace("\r\n", "\n").split("\n", 2)
        match = _RUN.fullmatch(lines[1]) if len(lines) > 1 else None
        if match is None or match[3] != self.run.head_sha:
            return (-1, -1)
        return (int(match[1]), int(match[2]))

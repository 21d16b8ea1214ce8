"""The one comment that a workflow keeps on a pull request: found again by a hidden marker, written in place."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Literal

from neuroscale.forge.http import AnswerError, OutcomeUnknownError
from neuroscale.forge.interface import Comment, Forge, ForgeError, ForgeUnavailableError
from neuroscale.forge.rest import PAUSES, same_text
from neuroscale.report.markdown import MARKER

LONGEST = 65_536
"""Characters of a comment, which is GitHub's limit and below Gitea's."""

Outcome = Literal["created", "updated", "unchanged", "a newer commit is there", "a newer run has written it"]

_RUN = re.compile(r"<!-- neuroscale-run number=([0-9]{1,18}) attempt=([0-9]{1,18}) head=([0-9a-f]{40,64}) -->")


@dataclass(frozen=True)
class Run:
    """The run of a workflow that judged `head_sha`; of two on the same head the higher number and attempt is newer."""

    number: int
    attempt: int
    head_sha: str

    @property
    def marker(self) -> str:
        return f"<!-- neuroscale-run number={self.number} attempt={self.attempt} head={self.head_sha} -->"


@dataclass(frozen=True)
class Published:
    """What came of it. `comment` is the one that is there now; None where nothing was looked at or written."""

    outcome: Outcome
    comment: Comment | None


def publish(forge: Forge, number: int, markdown: str, run: Run, marker: str = MARKER) -> Published:
    """Make `markdown` the comment on a pull request that goes by `marker`, a line of its own; the gate's by default.

    Only comments of the token's own account that begin with it are its own. Of several, which a race or a
    repeated request may have left, the oldest stays. Nothing is written when the pull request has another head than the
    one that was judged, or when a newer run has written already.

    Forges know no conditional writing: a run that is delayed between its last look and its writing, by as much as a
    newer one takes for both, overwrites that. A workflow's concurrency group keeps two from running.

    Raises ForgeError for a comment that is too long, and what the forge raises.
    """
    body = f"{marker}\n{run.marker}\n{markdown.removeprefix(marker).lstrip()}"
    if len(body) > LONGEST:
        raise ForgeError(f"The comment has {len(body):,} characters, {LONGEST:,} are allowed. Make it shorter.")
    return _Comment(forge, number, body, run, marker).publish()


class _Comment:
    """One attempt to publish: looks, acts, and looks again until there is nothing left to do."""

    def __init__(self, forge: Forge, number: int, body: str, run: Run, marker: str) -> None:
        self.forge = forge
        self.number = number
        self.body = body
        self.run = run
        self.marker = marker
        self.login = forge.account().login
        self.written: Comment | None = None
        self.outcome: Outcome = "unchanged"

    def publish(self) -> Published:
        problem: ForgeError | None = None
        for pause in (0.0, *PAUSES):
            time.sleep(pause if problem else 0)
            if self.forge.pull(self.number).head_sha != self.run.head_sha:
                return Published("a newer commit is there", None)
            try:
                if settled := self._step():
                    return Published(self.outcome, settled)
                problem = None
            except OutcomeUnknownError as error:
                problem = error
            except AnswerError as error:
                if error.status not in (404, 410):
                    raise
                problem = error  # somebody deleted it between looking and writing
        raise problem or ForgeUnavailableError(
            f"The comment on pull request {self.number} keeps being changed by others. Run it again."
        )

    def _step(self) -> Comment | None:
        """Bring the comments one step closer; the comment when nothing was left to do."""
        mine = self._mine()
        if not mine:
            self._written(self.forge.create_comment(self.number, self.body), "created")
            return None
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
        return None if changed else oldest

    def _mine(self) -> list[Comment]:
        """The workflow's comments, oldest first; also the one just written, which a forge may list late."""
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
        # An app's token does not tell its account; its first comment does.
        self.login = comment.author or self.login
        if self.outcome != "created":
            self.outcome = outcome

    def _holds(self, comment: Comment, body: str) -> bool:
        """Whether a comment has this text; of what was just written the forge's own form counts."""
        written = self.written
        if body is self.body and written is not None and written.id == comment.id:
            return comment.body == written.body
        return same_text(comment.body) == same_text(body)

    def _age(self, comment: Comment) -> tuple[int, int]:
        """Which run wrote it; below every run where it was written for another head, or by no run."""
        lines = comment.body.replace("\r\n", "\n").split("\n", 2)
        match = _RUN.fullmatch(lines[1]) if len(lines) > 1 else None
        if match is None or match[3] != self.run.head_sha:
            return (-1, -1)
        return (int(match[1]), int(match[2]))

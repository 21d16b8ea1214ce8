"""Keeps the one issue of a workflow: opens it, updates its text, and closes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neuroscale.core.retries import repeatedly
from neuroscale.forge.http import OutcomeUnknownError
from neuroscale.forge.interface import Forge, ForgeError, Issue
from neuroscale.forge.rest import same_text

LONGEST = 65_536
"""Characters of an issue's text, which is GitHub's limit and below Gitea's."""
_ATTEMPTS = 6
_FIRST_PAUSE = 0.25  # seconds

Outcome = Literal["opened", "updated", "closed", "unchanged", "nothing to say"]


@dataclass(frozen=True)
class Kept:
    """The result of a run; `issue` is None if the forge has no such issue."""

    outcome: Outcome
    issue: Issue | None


def keep_issue(forge: Forge, marker: str, title: str, body: str | None, *, may_open: bool = True) -> Kept:
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


def _kept(forge: Forge, marker: str, title: str, text: str | None, *, may_open: bool) -> Kept:
    login = forge.account().login
    mine = [issue for issue in forge.open_issues() if issue.author == login and issue.body.startswith(marker)]
    for issue in mine[1:] if text is not None else mine:
        forge.update_issue(issue.number, issue.title, issue.body, "closed")
    if text is None:
        return Kept("closed" if mine else "nothing to say", mine[0] if mine else None)
    if not mine and not may_open:
        return Kept("nothing to say", None)
    if not mine:
        return Kept("opened", forge.create_issue(title, text))
    (oldest, *more) = mine
    if (oldest.title, same_text(oldest.body)) == (title, same_text(text)):
        return Kept("updated" if more else "unchanged", oldest)
    return Kept("updated", forge.update_issue(oldest.number, title, text, "open"))

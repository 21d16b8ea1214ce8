"""Opens a pull request for a change of the catalog: one for each subject, judged before anything is pushed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import markdown as prose
from neuroscale.core.printable import markdown_code as code
from neuroscale.core.printable import terminal
from neuroscale.forge import description
from neuroscale.forge.branches import BranchMovedError, check_branch_name, holds
from neuroscale.forge.interface import ForgeError, RepositoryRef
from neuroscale.forge.request_flow import Say, gate_verdict
from neuroscale.forge.service_pull_request import Base, Publisher, PullRequestOutcome, WantedPullRequest
from neuroscale.gate.verdict import Verdict
from neuroscale.repo.git import Git
from neuroscale.repo.snapshot import GitSnapshot, Snapshot

PREFIX = "neuroscale/catalog/"
_LOOKS = 5  # at a branch that somebody else moves meanwhile


@dataclass(frozen=True)
class CatalogChange:
    """Files by path in the repository, the pull request's title, and sentences that say why and from where."""

    files: Mapping[str, str]
    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of it: `published`, or a `verdict` that did not pass, or neither where the base has it all."""

    branch: str
    base: Base
    published: PullRequestOutcome | None = None
    verdict: Verdict | None = None


Make = Callable[[Snapshot, Snapshot], CatalogChange]
"""The change for the files of the main branch, and those of the open pull request's branch (else the same)."""


def propose(git: Git, publisher: Publisher, subject: str, make: Make, say: Say) -> Outcome:
    """Make the change, judge it, push it and open its pull request, or bring the open one up to date.

    `subject`: a word for the branch. Raises InputError, ForgeError and ForgeUnavailableError.
    """
    for _ in range(_LOOKS):
        try:
            return _once(git, publisher, f"{PREFIX}{subject}", make, say)
        except BranchMovedError as error:
            say(f"{error} Looking again")
    raise ForgeError("The branch changes all the time. See who else works on it, and run it again.")


def _once(git: Git, publisher: Publisher, branch: str, make: Make, say: Say) -> Outcome:
    check_branch_name(git, branch)
    base = publisher.base()
    there = publisher.open_request(base, branch)
    newest = GitSnapshot(git, there.tip if there else base.commit)
    change = make(GitSnapshot(git, base.commit), newest)
    if holds(git, base.commit, None, change.files):
        return Outcome(branch, base)
    title = description.title(change.title)

    def describe(head: RepositoryRef, login: str) -> str:
        return description.section(_text(change, login, head, branch), title)

    wanted = WantedPullRequest(branch, title, describe, None, change.files, f"{title}\n\n{' '.join(change.sentences)}")
    prepared = publisher.prepare(base, there, wanted)
    if prepared.is_new:
        say("Judging the change")
        verdict = gate_verdict(git, base.commit, prepared.commit)
        if verdict.exit_status != ExitStatus.PASSED.value:
            return Outcome(branch, base, verdict=verdict)
        say(f"{terminal(verdict.headline)}. Publishing")
    return Outcome(branch, base, publisher.publish(base, there, prepared, wanted))


def _text(change: CatalogChange, login: str, head: RepositoryRef, branch: str) -> str:
    files = "\n".join(f"- {code(path, 200)}" for path in sorted(change.files))
    told = "\n".join(f"- {prose(sentence)}" for sentence in change.sentences)
    lead = f"{code(login, 80)} asks for a change of the catalog, from {code(f'{head.slug}:{branch}', 200)}."
    return f"{lead}\n\n{told}\n\nFiles:\n\n{files}"

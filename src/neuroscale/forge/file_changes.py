"""Runs a change of files outside services: from the files that a proposal makes to an open pull request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from neuroscale.core.printable import markdown_code as code
from neuroscale.forge import description
from neuroscale.forge.commits import check_branch_name
from neuroscale.forge.description import Description
from neuroscale.forge.request_flow import Outcome, Say, judge_and_publish
from neuroscale.forge.service_pull_request import Publisher, WantedPullRequest, until_nobody_interferes
from neuroscale.repo.git import Git
from neuroscale.repo.snapshot import GitSnapshot, Snapshot
from neuroscale.repo.written_files import Content

CATALOG_BRANCHES = "neuroscale/catalog/"

T = TypeVar("T")


@dataclass(frozen=True)
class FilesChange(Generic[T]):
    """Files by path in the repository (None: removed), the pull request's title, sentences that say why and from where,
    and `made`: the proposal that they come from. `kind`: what the pull request asks for. `parts`: Markdown that stands
    below the sentences in place of the list of files."""

    files: Mapping[str, Content]
    title: str
    sentences: tuple[str, ...]
    made: T
    kind: str = "a change of the catalog"
    parts: tuple[str, ...] = ()


Make = Callable[[Snapshot, Snapshot], FilesChange[T]]
"""Makes the change for the files of the main branch, and those of the open pull request's branch (else the same)."""


def propose(git: Git, publisher: Publisher, branch: str, make: Make[T], say: Say) -> tuple[Outcome, T]:
    """Make a change, judge it, push it to the branch and open its pull request, or bring the open one up to date.
    Returns what became of it, and the proposal that counted.

    Raises InputError, ForgeError and ForgeUnavailableError.
    """

    def attempt() -> tuple[Outcome, T]:
        check_branch_name(git, branch)
        base = publisher.base()
        there = publisher.open_request(base, branch)
        change = make(GitSnapshot(git, base.commit), GitSnapshot(git, there.tip if there else base.commit))
        title = description.title(change.title)
        files = "\n".join(f"- {code(path, 200)}" for path in sorted(change.files))
        parts = (description.listed(change.sentences), *(change.parts or (f"Files:\n\n{files}",)))
        text = Description(title, change.kind, parts)
        message = f"{title}\n\n{' '.join(change.sentences)}"
        wanted = WantedPullRequest(branch, text, None, change.files, message)
        return judge_and_publish(git, publisher, base, there, wanted, say), change.made

    return until_nobody_interferes(attempt, say)

"""Says whether a service of the main branch passed its smoke test, by what the smoke workflow left on the forge."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.forge.after_merge.comments import record_of
from neuroscale.forge.interface import CommitStatus
from neuroscale.forge.request_flow import Main
from neuroscale.forge.rest import Forge
from neuroscale.forge.revert import last_change
from neuroscale.repo.layout import ServicePath

_NEWEST = 20  # commits of the main branch whose statuses are asked for
_JOB = "smoke"


@dataclass(frozen=True)
class Tested:
    """Whether the last change of a service passed, and a sentence that says by what, or what is missing."""

    passed: bool
    sentence: str


def smoke_tested(forge: Forge, main: Main, path: ServicePath) -> Tested:
    """Whether the smoke workflow passed with the service as it is on main.

    Two things must hold, since anybody may write a comment: the workflow's comment on the merged pull request, whose
    author is not the request's own, says that the service passed, and the workflow's own status of a commit of main
    that has this version is a success. Raises ForgeError.
    """
    name, git = f"{path.environment}/{path.service}", main.git
    change = last_change(git, main.base.commit, path.folder)
    pull = None if change is None else forge.merged_pull(change.commit, main.base.branch)
    if change is None or pull is None:
        return Tested(False, f"{name}: its last change came by no pull request, so no smoke test is told of it.")
    own = ""
    for comment in reversed(forge.comments(pull.number)):
        record = record_of(comment)
        if record is None or name not in record.services:
            continue
        if record.passed(name) and comment.author == pull.author and not comment.author.endswith("[bot]"):
            own = f" that counts: only {pull.author}, who opened it, says there that it passed"
            continue
        if not record.passed(name):
            outcome = record.services[name][0]
            return Tested(False, f"{name}: the comment on {pull.url} says of its smoke test: {outcome}.")
        by = comment.author
        break
    else:
        return Tested(False, f"{name}: {pull.url} has no comment of the smoke tests on it{own}.")
    between = git.text("rev-list", "--first-parent", f"{change.commit}..{main.base.commit}").split()
    for commit in [*between, change.commit][-_NEWEST:]:
        if any(map(_is_success, forge.statuses(commit))):
            return Tested(True, f"{name} passed its smoke test at {commit[:12]} (told by {by} on {pull.url}).")
    told = f"{name}: a comment of {by} on {pull.url} says that it passed, but no commit with this version has a"
    return Tested(False, f"{told} successful run of the workflow {_JOB}.")


def _is_success(status: CommitStatus) -> bool:
    """Whether it is the smoke workflow's: GitHub names the job, Gitea `WORKFLOW / JOB (EVENT)`."""
    return status.state == "success" and (status.context == _JOB or status.context.startswith(f"{_JOB} / {_JOB} ("))

"""Says whether a service of the main branch passed its smoke test, by what the smoke workflow left on the forge."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.forge.after_merge.comments import record_of
from neuroscale.forge.interface import CommitStatus
from neuroscale.forge.request_flow import Main
from neuroscale.forge.rest import Forge
from neuroscale.forge.revert import last_change
from neuroscale.repo.layout import ServicePath

_NEWEST = 20  # the newest commits with a version of the service, whose statuses are asked for
_JOB = "smoke"


@dataclass(frozen=True)
class Tested:
    """Whether the last change of a service passed, and a sentence that says by what, or what is missing."""

    passed: bool
    sentence: str


def smoke_tested(forge: Forge, main: Main, path: ServicePath) -> Tested:
    """Whether the smoke workflow passed with the service as it is on main.

    Two things must hold, since anybody may write a comment, and the forge does not say which account is the workflow's:
    a comment of neither the request's author nor the token's account says that the service passed, and none says
    otherwise; and the workflow's own status of a commit of main that has this version is a success. A run is also a
    success where it does not cover the environment, but then its comment says so. Raises ForgeError.
    """
    name, git = path.name, main.git
    change = last_change(git, main.base.commit, path.folder)
    pull = None if change is None else forge.merged_pull(change.commit, main.base.branch)
    if change is None or pull is None:
        return Tested(False, f"{name}: its last change came by no pull request, so no smoke test is told of it.")
    by, own = "", ""
    for comment in forge.comments(pull.number):
        record = record_of(comment)
        if record is None or name not in record.services:
            continue
        if not record.passed(name):
            outcome = record.services[name][0]
            return Tested(False, f"{name}: the comment on {pull.url} says of its smoke test: {outcome}.")
        if comment.author in (pull.author, forge.account().login) and not comment.author.endswith("[bot]"):
            own = f" that counts: only {comment.author}, who opened it or asks now, says there that it passed"
        else:
            by = comment.author
    if not by:
        return Tested(False, f"{name}: {pull.url} has no comment of the smoke tests on it{own}.")
    between = git.text("rev-list", "--first-parent", f"{change.commit}..{main.base.commit}").split()
    for commit in [*between, change.commit][:_NEWEST]:
        if any(map(_is_success, forge.statuses(commit))):
            return Tested(True, f"{name} passed its smoke test at {commit[:12]} (told by {by} on {pull.url}).")
    told = f"{name}: a comment of {by} on {pull.url} says that it passed, but no commit with this version has a"
    return Tested(False, f"{told} successful run of the workflow {_JOB}.")


def _is_success(status: CommitStatus) -> bool:
    """Whether it is the smoke workflow's: GitHub names the job, Gitea `WORKFLOW / JOB (EVENT)`."""
    return status.state == "success" and (status.context == _JOB or status.context.startswith(f"{_JOB} / {_JOB} ("))

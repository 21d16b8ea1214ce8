"""Says whether a service of the main branch passed its smoke test, by what the smoke workflow left on the forge."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.forge.after_merge.comments import record_of
from neuroscale.forge.request_flow import Main
from neuroscale.forge.rest import Forge
from neuroscale.forge.revert import last_change
from neuroscale.repo.layout import SETTINGS, ServicePath


@dataclass(frozen=True)
class Tested:
    """Whether the last change of a service passed, and a sentence that says by what, or what is missing."""

    passed: bool
    sentence: str


def smoke_tested(forge: Forge, main: Main, path: ServicePath, account: str) -> Tested:
    """Whether the smoke workflow's comment says that the service passed as it is on main.

    `account`: the login that the workflow comments as ("": nobody knows it). Anybody may write a comment, so only that
    account's count: all of those that name the service must say that it passed. Raises ForgeError.
    """
    name = path.name
    if not account:
        missing = f"{SETTINGS} names no account of the smoke workflow (repository.smoke_account)"
        return Tested(False, f"{name}: {missing}, so no comment counts.")
    change = last_change(main.git, main.base.commit, path.folder)
    pull = None if change is None else forge.merged_pull(change.commit, main.base.branch)
    if change is None or pull is None:
        return Tested(False, f"{name}: its last change came by no pull request, so no smoke test is told of it.")
    comments = [each for each in forge.comments(pull.number) if each.author.casefold() == account.casefold()]
    records = [record_of(comment) for comment in comments]
    outcomes = [record.services[name][0] for record in records if record is not None and name in record.services]
    if not outcomes:
        return Tested(False, f"{name}: {pull.url} has no comment of the smoke tests' account {account} on it.")
    for outcome in outcomes:
        if outcome != "passed":
            return Tested(False, f"{name}: the comment on {pull.url} says of its smoke test: {outcome}.")
    return Tested(True, f"{name} passed its smoke test (told by {account} on {pull.url}).")

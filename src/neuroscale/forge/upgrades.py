"""Opens one pull request for each service that planning anew changes, and only so many at one time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from neuroscale.core.errors import InputError
from neuroscale.core.printable import counted, terminal
from neuroscale.forge import description
from neuroscale.forge.interface import ForgeError, ForgeUnavailableError
from neuroscale.forge.request_flow import Change, Desk, Draft, Main, Refused, Service
from neuroscale.forge.service_changes import planned
from neuroscale.rendering.scaffolder.interpreter import branch_name
from neuroscale.rendering.scaffolder.plan_step import answers_of
from neuroscale.rendering.upgrade import Upgrade
from neuroscale.repo.layout import ServicePath
from neuroscale.report.upgrade_view import sentences
from neuroscale.request.service_request import Request

TITLE = "Upgrade "
"""How the title of each of these pull requests begins: those that are open are counted by it."""

Result = Literal["opened", "updated", "unchanged", "declined", "left out", "refused", "waiting"]


@dataclass(frozen=True)
class Done:
    """What became of a service. `url` is that of its pull request, "" if it has none; `why` says what stood against
    it."""

    result: Result
    url: str = ""
    why: str = ""


class Anew(Change):
    """A service with its answers, planned anew."""

    def __init__(self, upgrade: Upgrade) -> None:
        self._upgrade = upgrade

    def subject(self, main: Main) -> Request:
        del main
        return self._upgrade.request

    def draft(self, service: Service) -> Draft:
        if service.merged is None or service.merged.request != self._upgrade.request:
            told = f"has changed on {service.main.base.branch} meanwhile"
            raise InputError.at(service.path.folder, "", told, "Run the command again.")
        if service.there is not None and not _is_upgrade(service):
            told = f"has an open pull request of another change: {service.there.pull.url}"
            raise InputError.at(service.path.folder, "", told, "Have it merged or closed first.")
        name = service.path.name
        title = f"{TITLE}{name}: {', '.join(self._upgrade.moved)}"
        return planned(service, service.merged.request, anew=True, title=title, said=sentences(self._upgrade))


def _is_upgrade(service: Service) -> bool:
    """Whether the open pull request keeps the answers of main, and so only plans them anew."""
    both = service.newest is not None and service.merged is not None
    return both and service.newest.request == service.merged.request  # type: ignore[union-attr]


def open_batch(
    desk: Desk, wanted: Mapping[ServicePath, Upgrade], at_once: int, limit: int, *, declined_too: bool = False
) -> dict[ServicePath, Done]:
    """Bring the open pull requests of these services up to date, and open others in order: at most `limit`, and only
    while fewer than `at_once` of all upgrades are open. `declined_too`: also what somebody closed unmerged before.

    It may be broken off at any point and run again: what is open stays, and the others follow. Raises
    ForgeUnavailableError.
    """
    main = desk.main()
    pulls = desk.publisher.open_pulls(main.base)
    open_now = sum(pull.title.startswith(TITLE) and bool(description.inside(pull)) for pull in pulls)
    branches = {path: branch_name(main.inputs.template, answers_of(one.request)) for path, one in wanted.items()}
    has_pull = {pull.head_branch for pull in pulls}
    done: dict[ServicePath, Done] = {}
    opened = 0
    for path in sorted(wanted, key=lambda one: branches[one] not in has_pull):
        if branches[path] not in has_pull and (open_now >= at_once or opened >= limit):
            why = f"{counted(open_now, 'upgrade')} of {at_once:,} open" if open_now >= at_once else f"--limit {limit:,}"
            done[path] = Done("waiting", why=why)
            continue
        closed = "" if declined_too or branches[path] in has_pull else _declined(desk, wanted[path], branches[path])
        if closed:
            done[path] = Done("declined", closed, "was closed unmerged. Name the service to open it again.")
            continue
        done[path] = _bring(desk, wanted[path])
        if done[path].result == "opened":
            opened, open_now = opened + 1, open_now + 1
    return {path: done[path] for path in wanted}


def _declined(desk: Desk, upgrade: Upgrade, branch: str) -> str:
    """The address of the pull request that asked for exactly this and was closed unmerged; "" if there is none."""
    forge = desk.publisher.forge
    head = forge.repository if forge.info().may_push else forge.fork().ref
    last = forge.last_pull(head, branch, desk.main().base.branch)
    if last is None or last.state != "closed":
        return ""
    looked = desk.look(Anew(upgrade))
    if isinstance(looked, Refused):
        return ""
    text = looked[1].description.section(last.author, head)
    return last.url if text in last.body.replace("\r\n", "\n") else ""


def _bring(desk: Desk, upgrade: Upgrade) -> Done:
    try:
        outcome = desk.propose(Anew(upgrade))
    except InputError as error:
        problem = error.problems[0]
        return Done("left out", why=f"{problem.where} {problem.message}. {problem.fix}")
    except ForgeUnavailableError:
        raise
    except ForgeError as error:
        return Done("left out", why=str(error))
    if isinstance(outcome, Refused):
        return Done("refused", why=f"the planner: {' '.join(outcome.plan.reasons)}")
    if outcome.verdict is not None:
        errors = [one for one in outcome.verdict.findings if one.severity == "error"]
        first = f": {errors[0].message}" if errors else ""
        return Done("refused", why=f"the gate: {terminal(outcome.verdict.headline)}{first}")
    if outcome.published is None:
        return Done("left out", why=f"{outcome.base.branch} holds it already")
    return Done(outcome.published.result, outcome.published.pull.url)

"""Tells the services of the forge's main branch: state, speed, cost, open pull requests, and each one's history."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.core.errors import InputError, NeuroscaleError
from neuroscale.core.printable import one_line
from neuroscale.forge.interface import ForgeError, PullRequest
from neuroscale.forge.request_flow import Main, Version, version_at
from neuroscale.forge.rest import Forge
from neuroscale.forge.service_history import Change, changes, with_pull_requests
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.portal.pending_changes import PendingChanges
from neuroscale.portal.people import Person
from neuroscale.portal.plan_panel import Fact, facts
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.interpreter import branch_name
from neuroscale.rendering.scaffolder.plan_step import answers_of
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.services import services_of

_CHANGES = 10  # of a service's history
_KEPT = 10.0  # seconds for which an answer of the cluster is shown again
_WAITS = 8.0  # seconds that a page waits for one
_log = logging.getLogger(__name__)

Said = Callable[[Main, ServicePath, Version], Sequence[str]]
Evidence = Callable[[Main, ServicePath], Sequence[str]]


@dataclass(frozen=True)
class Measured:
    """What Prometheus has of a service, in words: whether it answers, and for each figure its name, its value now, over
    the time and at its highest, and a chart. `columns`: the headings of the rows."""

    state: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class Surroundings(Protocol):
    """What this program knows besides Git and the forge: a cluster and its Prometheus. Every method raises
    NeuroscaleError where these cannot be asked."""

    def statuses(self, inputs: PlanningInputs, environment: str, service: str) -> Sequence[ServiceStatus]:
        """The services of an environment, or one of them ("": all), as the cluster has them."""

    def metrics(self, inputs: PlanningInputs, environment: str, service: str) -> Measured:
        """A service's metrics of the last minutes."""

    def retiring(self, reason: str) -> Said:
        """Makes the sentences that the pull request of a removal begins with."""

    def evidence(self, forge: Forge, reason: str, to: str) -> Evidence:
        """Makes the sentences that say why a service may be promoted to the environment `to`."""


Value = TypeVar("Value")


@dataclass
class _Question(Generic[Value]):
    """What was asked at `began`, by `time.monotonic`, and may be asked again after `again_from`."""

    began: float
    again_from: float = float("inf")
    answered: threading.Event = field(default_factory=threading.Event)
    value: Value | None = None
    why: str = ""


class Kept(Generic[Value]):
    """Answers of something that may be slow, or silent. It is asked again only when an answer is some seconds old.
    Whoever asks meanwhile waits for the same answer, and for some seconds at most: a silent cluster must hold neither
    a page nor the threads that all pages share. An error is kept as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: dict[str, _Question[Value]] = {}

    def ask(self, name: str, ask: Callable[[], Value]) -> tuple[Value | None, str]:
        """The answer, or None and why there is none. `name`: what is asked about."""
        now = time.monotonic()
        with self._lock:
            question = self._questions.get(name)
            if question is None or question.again_from < now:
                question = self._questions[name] = _Question(now)
                threading.Thread(target=_answer, args=(question, ask), daemon=True).start()
        if not question.answered.wait(max(0.0, question.began + _WAITS - now)):
            return None, f"no answer came within {_WAITS:g} s"
        return question.value, question.why


def _answer(question: _Question[Value], ask: Callable[[], Value]) -> None:
    try:
        question.value = ask()
    except NeuroscaleError as error:
        question.why = one_line(str(error), 300)
    except Exception:
        _log.exception("the cluster was asked, and that failed")
        question.why = "this program failed; see its log"
    finally:
        question.again_from = time.monotonic() + _KEPT
        question.answered.set()


@dataclass(frozen=True)
class Row:
    """A service of the list. `unreadable`: why its answers or its plan cannot be read ("": they can)."""

    path: ServicePath
    model: str
    team: str
    plan: Plan | None
    pulls: tuple[PullRequest, ...]
    unreadable: str = ""

    @property
    def figures(self) -> dict[str, Fact]:
        """The plan's figures by their names."""
        return {} if self.plan is None else {fact.name: fact for fact in facts(self.plan)}


@dataclass(frozen=True)
class Listing:
    """The services, and why the forge could not be asked for pull requests ("": it could). `new`: pull requests that
    ask for a service that main does not have yet."""

    rows: tuple[Row, ...]
    pulls_missing: str
    new: tuple[PullRequest, ...]


def listing(pending_changes: PendingChanges, person: Person) -> Listing:
    """The services of main. Raises ForgeError and InputError where main cannot be read."""
    main = pending_changes.main(person)
    pulls, missing = _open_pulls(pending_changes, person, main)
    rows = tuple(_row(main, path, pulls) for path in services_of(main.snapshot))
    known = {pull.number for row in rows for pull in row.pulls}
    new = tuple(pull for pull in pulls if pull.head_branch.startswith("neuroscale/") and pull.number not in known)
    return Listing(rows, missing, new)


def _open_pulls(pending_changes: PendingChanges, person: Person, main: Main) -> tuple[list[PullRequest], str]:
    """The open pull requests, and why the forge could not be asked for them ("": it could)."""
    try:
        with pending_changes.desk(person) as desk:
            return desk.publisher.open_pulls(main.base), ""
    except ForgeError as error:
        return [], one_line(str(error), 300)


def _row(main: Main, path: ServicePath, pulls: Sequence[PullRequest]) -> Row:
    try:
        version = version_at(main.git, main.base.commit, path, main.base.branch)
        plan = read_plan(main.snapshot, path.folder)
    except InputError as error:
        return Row(path, "", "", None, (), one_line(str(error), 300))
    if version is None:
        return Row(path, "", "", None, (), "its answers are missing")
    branch = branch_name(main.inputs.template, answers_of(version.request))
    own = tuple(pull for pull in pulls if pull.head_branch == branch)
    return Row(path, version.request.model, version.request.team, plan, own)


def row_of(pending_changes: PendingChanges, person: Person, path: ServicePath) -> Row | None:
    """One service of main; None if there is none."""
    main = pending_changes.main(person)
    if path not in services_of(main.snapshot):
        return None
    return _row(main, path, _open_pulls(pending_changes, person, main)[0])


def history(pending_changes: PendingChanges, person: Person, path: ServicePath) -> tuple[list[Change], list[str]]:
    """A service's last changes, and sentences on what the forge could not say of them."""
    main = pending_changes.main(person)
    found = changes(main.git, main.base.commit, path, _CHANGES)
    with pending_changes.desk(person) as desk:
        return with_pull_requests(desk.publisher.forge, main.base.branch, found)

"""Tells the services of the forge's main branch: state, speed, cost, open pull requests, and each one's history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.core.errors import InputError
from neuroscale.core.printable import one_line
from neuroscale.forge.interface import ForgeError, PullRequest
from neuroscale.forge.request_flow import Main, Version, version_at
from neuroscale.forge.rest import Forge
from neuroscale.forge.service_history import Change, changes, with_pull_requests
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.planning.plan_facts import Fact
from neuroscale.portal.pending_changes import PendingChanges
from neuroscale.portal.people import Person
from neuroscale.portal.plan_panel import figures
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.interpreter import branch_name
from neuroscale.rendering.scaffolder.plan_step import answers_of
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.services import services_of

CHART_BOX = 300, 40
_CHANGES = 10  # of a service's history

RemovalSentences = Callable[[Main, ServicePath, Version], Sequence[str]]
Evidence = Callable[[Main, ServicePath], Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """A figure over time, as points of lines in a box of CHART_BOX, which begins at 0 and ends at the highest value.
    `told`: the same in words."""

    lines: tuple[str, ...]
    told: str


def chart(points: Sequence[float | None], span: str, worded: Callable[[float], str]) -> Chart:
    """The chart of values over the time `span`, at equal distances; None, where nothing was measured, is a gap."""
    width, height = CHART_BOX
    measured = [point for point in points if point is not None]
    step, top = width / max(1, len(points)), max(measured, default=0.0)
    parts = [f"over {span}: lowest {worded(min(measured))}, highest {worded(top)}"] if measured else [f"over {span}"]
    if gaps := len(points) - len(measured):
        parts.append(f"nothing measured in {gaps} of {len(points)} parts")
    lines: list[list[str]] = [[]]
    for number, value in enumerate(points):
        if value is None:
            lines.append([])
            continue
        y = height - (max(value, 0.0) / top * height if top > 0 else 0.0)
        # Each value has a width, so that one between two gaps is seen.
        lines[-1] += [f"{x:.1f},{y:.1f}" for x in ((number + 0.2) * step, (number + 0.8) * step)]
    return Chart(tuple(" ".join(line) for line in lines if line), "; ".join(parts))


@dataclass(frozen=True)
class Figure:
    """A measured figure in words: its value now, over the time, and at its highest."""

    name: str
    now: str
    whole: str
    highest: str
    chart: Chart


@dataclass(frozen=True)
class Measured:
    """What Prometheus has of a service: whether it answers, in words, and its figures over the time `span`."""

    state: str
    span: str = ""
    rows: tuple[Figure, ...] = ()


class Surroundings(Protocol):
    """What this program knows besides Git and the forge: a cluster and its Prometheus. Every method raises
    NeuroscaleError where these cannot be asked."""

    def statuses(self, inputs: PlanningInputs, environment: str, service: str) -> Sequence[ServiceStatus]:
        """The services of an environment, or one of them ("": all), as the cluster has them."""

    def metrics(self, inputs: PlanningInputs, environment: str, service: str) -> Measured:
        """A service's metrics of the last minutes."""

    def retiring(self, reason: str) -> RemovalSentences:
        """Makes the sentences that the pull request of a removal begins with."""

    def evidence(self, forge: Forge, reason: str, to: str) -> Evidence:
        """Makes the sentences that say why a service may be promoted to the environment `to`."""


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
        return {} if self.plan is None else figures(self.plan)


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
    merged = changes(main.git, main.base.commit, path, _CHANGES)
    with pending_changes.desk(person) as desk:
        return with_pull_requests(desk.publisher.forge, main.base.branch, merged)

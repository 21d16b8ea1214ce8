"""Reads which plan each service had at which time of a window, from the default branch's own commits."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import decode
from neuroscale.metering.window import Window
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE, ServicePath
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot, Snapshot

_HOUR = timedelta(hours=1)
_NOTHING = "0" * 40  # the object id by which git means that a side of a change has no file


@dataclass(frozen=True)
class Version:
    """The plan of a service in `window`; None: it had none then, or one that cannot be read."""

    window: Window
    plan: Plan | None


@contextlib.contextmanager
def plan_history(root: Path, branch: str, window: Window) -> Iterator[PlanHistory]:
    """The plans in a window by the default branch of a clone, as it was last fetched. Raises GitError.

    Without git, the plans of the work tree stand for the whole window.
    """
    with contextlib.closing(Clone(root, branch)) as clone:
        tip = clone.tip
    if tip is None:
        yield PlanHistory(window, FolderSnapshot(root), unknown_until=window.end)
        return
    with contextlib.closing(Git(root)) as git:
        yield PlanHistory.of_branch(window, git, tip)


@dataclass(frozen=True)
class _Change:
    """A plan from `since` on: the id of its content, "" if it was removed."""

    since: datetime
    blob: str


class PlanHistory:
    """The plans of all services in a window.

    `before`: the repository as it was when the window began. `changes`: by service, the later commits that changed its
    plan, the oldest first; `git` has their contents. `unknown_until`: plans before this time are not known, so the
    oldest known ones stand for them (None: all are known).
    """

    def __init__(
        self,
        window: Window,
        before: Snapshot | None,
        changes: Mapping[ServicePath, list[_Change]] | None = None,
        git: Git | None = None,
        unknown_until: datetime | None = None,
    ) -> None:
        self.window = window
        self.unknown_until = unknown_until
        self._before = before
        self._changes = changes or {}
        self._git = git
        self._versions: dict[ServicePath, tuple[Version, ...]] = {}

    @classmethod
    def of_branch(cls, window: Window, git: Git, tip: str) -> PlanHistory:
        """The plans of a branch that ends at the commit `tip`, by its first parents. Raises GitError.

        A plan counts from the time of its commit on the branch, which is the time of the merge; Argo CD deploys it
        some minutes later.
        """
        start = int(window.start.timestamp())
        rows = [row.split(" ") for row in git.text("log", "--first-parent", "--format=%H %ct", tip).splitlines()]
        base = next((commit for commit, at in rows if int(at) <= start), "")
        unknown_until = None
        if not base and git.text("rev-parse", "--is-shallow-repository") == "true":
            base = rows[-1][0]
            unknown_until = min(window.end, datetime.fromtimestamp(int(rows[-1][1]), UTC))
        before = GitSnapshot(git, base) if base else None
        return cls(window, before, _changes(git, base, tip, window), git, unknown_until)

    def services(self, environments: Iterable[str]) -> list[ServicePath]:
        """The services that had a plan in these environments at some time of the window."""
        names = set(environments)
        found = {path for path in (*self._first, *self._changes) if path.environment in names}
        return sorted(found, key=lambda path: (path.environment, path.service))

    def versions(self, path: ServicePath) -> tuple[Version, ...]:
        """The plans that a service had in the window, one after the other: they fill it."""
        if path not in self._versions:
            self._versions[path] = tuple(self._read(path))
        return self._versions[path]

    def cuts(self, environments: Iterable[str]) -> tuple[datetime, ...]:
        """The full hours nearest to changes of what a replica is: its model, accelerator, size or price.

        Costs before such a time must not be divided by the plan after it. OpenCost's costs of less than an hour are
        inexact, so changes near each other have one time, and those near the ends of the window none.
        """
        names = set(environments)
        found = set()
        for path in self._changes:
            if path.environment in names:
                known = [one for one in self.versions(path) if one.plan is not None]
                for before, after in itertools.pairwise(known):
                    if _replica(before.plan) != _replica(after.plan):
                        late = after.window.start + _HOUR / 2
                        found.add(late.replace(minute=0, second=0, microsecond=0))
        return tuple(sorted(one for one in found if self.window.start + _HOUR <= one <= self.window.end - _HOUR))

    @cached_property
    def _first(self) -> frozenset[ServicePath]:
        entries = [] if self._before is None else self._before.entries(MANIFESTS)
        paths = (ServicePath.of(entry.path) for entry in entries if entry.path.endswith(f"/{PLAN_FILE}"))
        return frozenset(path for path in paths if path is not None)

    def _read(self, path: ServicePath) -> Iterator[Version]:
        where = _plan_of(path)
        since = self.window.start
        plan = None if self._before is None else _plan(self._before.read(where), where)
        for change in self._changes.get(path, ()):
            if change.since > since:
                yield Version(Window(since, change.since), plan)
                since = change.since
            data = self._git.read_object(change.blob) if self._git and change.blob else None
            plan = _plan(data, where)
        yield Version(Window(since, self.window.end), plan)


def _changes(git: Git, base: str, tip: str, window: Window) -> dict[ServicePath, list[_Change]]:
    """The changes of plans after the commit `base` ("": from the first commit on) until the end of the window."""
    shown = ("-z", "--raw", "--no-abbrev", "--no-renames", "--format=commit %ct")
    followed = ("--first-parent", "--diff-merges=first-parent", "--reverse")
    span = f"{base}..{tip}" if base else tip
    found: dict[ServicePath, list[_Change]] = {}
    since = window.start
    records = iter(git.records("log", *shown, *followed, span, "--", MANIFESTS))
    for record in records:
        if not record.startswith("\n:") and not record.startswith(":"):
            # A commit whose clock was late counts from the time of the one before it.
            at = datetime.fromtimestamp(int(record.split(" ")[1]), UTC)
            since = max(since, at)
            continue
        blob = record.split(" ")[3]
        path = next(records)
        service = ServicePath.of(path)
        if service is not None and path == _plan_of(service) and since < window.end:
            found.setdefault(service, []).append(_Change(since, "" if blob.startswith(_NOTHING) else blob))
    return found


def _plan_of(path: ServicePath) -> str:
    return f"{path.folder}/{PLAN_FILE}"


def _plan(data: bytes | None, where: str) -> Plan | None:
    try:
        return None if data is None else load_plan(decode(data, where), where)
    except InputError:
        return None


def _replica(plan: Plan | None) -> object:
    """What costs of a replica depend on, and the model that it serves."""
    if plan is None:
        return None
    hourly = None if plan.cost.hourly is None else plan.cost.hourly / plan.replicas.min
    return (plan.model, plan.accelerator, plan.accelerator_count, plan.resources, hourly)

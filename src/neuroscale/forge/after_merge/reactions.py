"""Turns the evidence of the environments into comments on merged pull requests, and into reverts.

It asks Git which merge changed a service last, and ignores which event started the run. So a run by schedule does the
work that a dropped or killed run left, and a repeated run does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from neuroscale.core.errors import ExitStatus
from neuroscale.core.money_and_time import duration
from neuroscale.forge.after_merge import comments
from neuroscale.forge.after_merge.comments import MARKER, Record, read_record
from neuroscale.forge.after_merge.evidence import Evidence, ServiceEvidence
from neuroscale.forge.commits import is_ancestor
from neuroscale.forge.interface import ForgeError
from neuroscale.forge.rest import Forge
from neuroscale.forge.revert import FolderChange, Merge, Reverted, Reverter, last_change
from neuroscale.forge.sticky_comment import Run, write_comment
from neuroscale.repo.git import Git

NEWEST = timedelta(hours=24)
"""How long after a merge a failure still counts as the merge's fault: until then it gets a comment, and may be
reverted."""


@dataclass(frozen=True)
class Workflow:
    """The workflow's run. `number` and `attempt` order runs; `page` is its address."""

    number: int
    attempt: int
    page: str


@dataclass(frozen=True)
class Outcome:
    """The outcome. `lines` are sentences for the log; `status` is the exit status."""

    status: ExitStatus
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    """A service with the merge that changed it last, if that is new enough to be the cause."""

    service: ServiceEvidence
    merge: Merge | None
    why_not: str = ""


Curl = Callable[[ServiceEvidence], str]
TeamOf = Callable[[ServiceEvidence], str]
"""Says the team of a service, and whom that wants told; "" if it is not known."""


class AfterMerge:
    """Reports the evidence and acts on it. `now`: seconds since 1970. Raises the errors of the forge."""

    def __init__(
        self, forge: Forge, reverter: Reverter, git: Git, run: Workflow, now: float, curl: Curl, team_of: TeamOf
    ) -> None:
        self._forge = forge
        self._reverter = reverter
        self._git = git
        self._run = run
        self._now = now
        self._curl = curl
        self._team_of = team_of
        self._merges: dict[str, Merge | None] = {}

    def act(self, found: Sequence[Evidence], uncovered: Sequence[Evidence] = ()) -> Outcome:
        """Comment on each merge that is not settled, and revert the services that it broke.

        `uncovered`: environments that nobody tests; a merge into one is told so, and changes no exit status.
        """
        rows = [self._row(one, environment) for environment in (*found, *uncovered) for one in environment.services]
        merges = {row.merge.pull.number: row.merge for row in rows if row.merge is not None}
        lines, failures = [], []
        for number, merge in sorted(merges.items()):
            mine = [row.service for row in rows if row.merge is not None and row.merge.pull.number == number]
            try:
                lines += self._settle(merge, mine, found, rows)
            except ForgeError as error:
                # The other merges still get their comments; the next run completes this one.
                failures.append(f"Pull request {number}: {error}")
        lines += [
            f"{row.service.name}: not reverted. {row.why_not}"
            for row in rows
            if row.merge is None and row.service.outcome == "failed"
        ]
        if failures:
            raise ForgeError("\n".join([*lines, *failures]))
        return Outcome(status_of(found) if found or not uncovered else ExitStatus.PASSED, tuple(lines))

    def _row(self, service: ServiceEvidence, environment: Evidence) -> _Row:
        base = self._reverter.base
        revision = environment.revision
        if not self._git.knows(revision) or not is_ancestor(self._git, revision, base.commit):
            return _Row(service, None, f"The commit that was tested, {revision[:12]}, is not one of {base.branch}.")
        change = last_change(self._git, revision, service.path.folder)
        if change is None:
            return _Row(service, None, f"{base.branch} never had {service.path.folder}.")
        age = self._now - change.when
        if age > NEWEST.total_seconds():
            return _Row(
                service,
                None,
                f"Its last change, {change.commit[:12]}, is {duration(age)} old, and a failure counts as a "
                f"change's fault for {duration(NEWEST.total_seconds())}. Look at the cluster, or revert it "
                f"by hand.",
            )
        merge = self._merge_of(change)
        if merge is None:
            why = f"Its last change, {change.commit[:12]}, did not come by a pull request. Revert that by hand."
            return _Row(service, None, why)
        return _Row(service, merge)

    def _merge_of(self, change: FolderChange) -> Merge | None:
        if change.commit not in self._merges:
            self._merges[change.commit] = self._reverter.merge_of(change)
        return self._merges[change.commit]

    def _settle(
        self, merge: Merge, services: list[ServiceEvidence], found: Sequence[Evidence], rows: Sequence[_Row]
    ) -> list[str]:
        """Comment on one merge, once for each result, and revert its services that fail and never passed."""
        pull = merge.pull
        told_before = self._record_of(merge)
        blamed = [one for one in services if one.outcome == "failed" and not told_before.passed(one.name)]
        later = [one for one in services if one.outcome != "passed" and told_before.passed(one.name)]
        lines = [f"{one.name}: not reverted. It passed after pull request {pull.number} was merged." for one in later]
        # A service that passed once is settled: the merged pull request gets no comment on a later failure. Nor does a
        # run that saw nothing hide that it failed.
        news = [
            one
            for one in services
            if one not in later and not (one.outcome == "untrusted" and told_before.failed(one.name))
        ]
        if all(told_before.passed(one.name) for one in news):
            return lines
        beside = [row for row in rows if row.service.outcome == "failed" and row.service not in services]
        own = {row.service.name: row.merge.pull for row in beside if row.merge and self._broke(row.merge, row.service)}
        told = comments.Told(
            services=tuple(news),
            others=tuple(row.service for row in beside if row.service.name not in own),
            own=own,
            shared=tuple(
                check
                for environment in found
                if any(one.path.environment == environment.environment for one in news)
                for check in environment.checks
                if check.outcome in ("failed", "error")
            ),
            run_page=self._run.page,
            curl={one.name: line for one in news if one.outcome == "passed" and (line := self._curl(one))},
            teams={one.name: team for one in news if one.outcome == "failed" and (team := self._team_of(one))},
        )
        reverted = self._revert(merge, blamed, told, told_before.revert) if blamed else None
        record = self._recorded(told_before, news, reverted)
        lines += _lines(merge, news, reverted)
        if record == told_before:
            return lines
        text = f"{record.line()}\n{comments.comment(told, reverted, self._notes(told_before, news))}"
        run = Run(self._run.number, self._run.attempt, pull.head_sha)
        published = write_comment(self._forge, pull.number, text, run, MARKER)
        return [*lines, f"The comment on pull request {pull.number}: {published}."]

    def _broke(self, merge: Merge, service: ServiceEvidence) -> bool:
        """Whether a service has not passed since its own merge, which is then the cause of its failure."""
        return not self._record_of(merge).passed(service.name)

    def _revert(self, merge: Merge, blamed: list[ServiceEvidence], told: comments.Told, number: int) -> Reverted:
        """`number`: the revert that an earlier run told of (0: none)."""
        again = {one.path.folder: why for one in blamed if (why := self._failed_before(merge, one))}
        folders = [one.path.folder for one in blamed if one.path.folder not in again]
        if not folders:
            there = self._reverter.existing(merge, number)
            if there is None:
                return Reverted("refused", refusals={**again, **self._reverter.refusals(merge, list(again))})
        reverted = self._reverter.revert(
            merge,
            folders,
            comments.title(merge, [one for one in blamed if one.path.folder in folders]),
            lambda restored, removed: comments.evidence(merge, told, restored, removed),
            number,
        )
        return Reverted(
            reverted.done, reverted.pull, reverted.folders, reverted.removed, {**reverted.refusals, **again}
        )

    def _failed_before(self, merge: Merge, service: ServiceEvidence) -> str:
        """Why the state before a merge must not be restored; "" if no reason is known.

        So a revert that somebody made by hand is not undone.
        """
        if merge.is_revert or not merge.change.before:
            return ""
        earlier = last_change(self._git, merge.change.before, service.path.folder)
        before = None if earlier is None else self._merge_of(earlier)
        if before is None:
            return ""
        if not self._record_of(before).failed(service.name):
            return ""
        return f"The version before, of pull request {before.pull.number}, failed its smoke test as well."

    def _record_of(self, merge: Merge) -> Record:
        return read_record(self._forge.comments(merge.pull.number), self._forge.account()) or Record()

    @staticmethod
    def _recorded(before: Record, services: list[ServiceEvidence], reverted: Reverted | None) -> Record:
        number = reverted.pull.number if reverted is not None and reverted.pull is not None else 0
        told: Mapping[str, tuple[str, tuple[str, ...]]] = Record.of(services, number).services
        return Record({**before.services, **told}, number or before.revert)

    @staticmethod
    def _notes(before: Record, services: list[ServiceEvidence]) -> list[str]:
        if before.revert and all(one.outcome == "passed" for one in services):
            return [f"It failed before. The revert, pull request {before.revert}, can be closed if it is open."]
        return []


def status_of(found: Sequence[Evidence]) -> ExitStatus:
    """0 only if every environment was tested and all tests passed."""
    services = [one for environment in found for one in environment.services]
    shared = [check for environment in found for check in environment.checks]
    if not found or any(not one.trusted for one in found):
        return ExitStatus.UNTRUSTED
    if any(one.outcome in ("failed", "waiting") for one in services) or any(one.outcome == "failed" for one in shared):
        return ExitStatus.FINDINGS
    if any(one.outcome == "untrusted" for one in services):
        return ExitStatus.UNTRUSTED
    return ExitStatus.PASSED


def _lines(merge: Merge, services: Sequence[ServiceEvidence], reverted: Reverted | None) -> list[str]:
    named = ", ".join(f"{one.name} {one.outcome}" for one in services)
    lines = [f"Pull request {merge.pull.number} ({merge.change.commit[:12]}): {named}"]
    if reverted is not None and reverted.pull is not None:
        lines.append(f"Revert {reverted.pull.url}: {reverted.done}")
    if reverted is not None:
        lines += [f"{folder}: not reverted. {why}" for folder, why in reverted.refusals.items()]
    return lines

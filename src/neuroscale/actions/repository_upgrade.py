"""Brings a platform repository to another version of the tool, and says how far behind it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from neuroscale import __version__
from neuroscale.actions.progress import Progress
from neuroscale.actions.service_change import ForgeChoice
from neuroscale.actions.tool_versions import Target, find_target, pin_of, releases_of, run_version, tool_version
from neuroscale.core.errors import InputError
from neuroscale.forge.file_changes import FilesChange, propose
from neuroscale.forge.request_flow import Outcome
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.rendering.repository_upgrade import RepositoryUpgrade, edited_files, plan_upgrade
from neuroscale.rendering.upgrade import Upgrade, look
from neuroscale.repo.git import Git
from neuroscale.repo.layout import FileClass, ServicePath, file_class
from neuroscale.repo.services import services_of
from neuroscale.repo.snapshot import ChangedSnapshot, FolderSnapshot, GitSnapshot, Snapshot
from neuroscale.repo.three_way_merge import merge_contents
from neuroscale.repo.tool_pin import ListedRelease, ToolPin
from neuroscale.repo.written_files import Content, write_files
from neuroscale.report import repository_upgrade_view as view

BRANCH = "neuroscale/upgrade"

Plan = Callable[[Git, Snapshot], RepositoryUpgrade | None]
Describe = Callable[["Upgraded"], FilesChange["Upgraded"]]


@dataclass(frozen=True)
class Manner:
    """How a repository is changed. `accept_loss`: edits of files that the tool owns may go. `writes`: into the work
    tree, and no pull request."""

    accept_loss: bool = False
    writes: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Wanted(Manner):
    """What a user asks for. `version` (None: the newest), `releases`: the list's place (None: as the pin says)."""

    version: str | None = None
    releases: str | None = None

    def words(self, choice: ForgeChoice, version: str) -> list[str]:
        """The command line by which another version of the tool does the same."""
        named: dict[str, str | None] = {"--to": version, "--releases": self.releases, "--remote": choice.remote}
        named |= {"--token-file": str(choice.token_file or ""), "--repository": str(choice.root)}
        flags = {"--accept-loss": self.accept_loss, "--write": self.writes, "--dry-run": self.dry_run}
        flags["--local"] = choice.local
        values = [word for name, value in named.items() if value for word in (name, value)]
        return ["repository", "upgrade", *values, *(name for name, is_set in flags.items() if is_set)]


@dataclass(frozen=True)
class Upgraded:
    """An upgrade, its services' sentences, and what became of it: `written` paths, or the `outcome` of a pull request.

    Neither where it was a dry run, has nothing to do, or is `stopped` by conflicts or edits that would go.
    """

    upgrade: RepositoryUpgrade
    services: tuple[str, ...]
    stopped: bool = False
    written: tuple[str, ...] = ()
    outcome: Outcome | None = None


def upgrade_repository(choice: ForgeChoice, wanted: Wanted, progress: Progress) -> Upgraded | int:
    """Plan the upgrade, and write it or open its pull request; the exit status where another version did that.

    Raises InputError, ForgeError and ForgeUnavailableError.
    """
    targets: list[Target] = []

    def plan(git: Git, repository: Snapshot) -> RepositoryUpgrade | None:
        pin = pin_of(repository)
        targets.append(find_target(pin, releases_of(pin, wanted.releases), wanted.version))
        return planned(git, repository, targets[-1]) if targets[-1].is_running else None

    def describe(done: Upgraded) -> FilesChange[Upgraded]:
        target = targets[-1]
        title = f"Upgrade the repository to neuroscale {target.wanted.version}"
        sentences = (*view.summary(done.upgrade), f"Its publisher signed it: {target.wanted.publisher}.")
        parts = view.parts(done.upgrade, target.newer, done.services)
        return FilesChange(done.upgrade.files, title, sentences, done, "another version of the tool", parts)

    done = carried_out(choice, wanted, BRANCH, plan, describe, progress)
    if done is not None:
        return done
    version = targets[-1].wanted
    progress.step(f"neuroscale {version.version} does the upgrade itself: installing it by its digest")
    judges = not (wanted.writes or wanted.dry_run)
    return run_version(version, wanted.words(choice, version.version), choice.root, judges=judges)


def carried_out(
    choice: ForgeChoice, manner: Manner, branch: str, plan: Plan, describe: Describe, progress: Progress
) -> Upgraded | None:
    """Write what is planned for the work tree, or open the pull request of what is planned for the main branch; None
    where nothing is planned. Raises InputError, ForgeError and ForgeUnavailableError."""

    def look(git: Git, repository: Snapshot) -> Upgraded | None:
        if (upgrade := plan(git, repository)) is None:
            return None
        services = tuple(service_lines(repository, upgrade)) if upgrade.files else ()
        return Upgraded(upgrade, services, bool(upgrade.conflicts or (upgrade.lost and not manner.accept_loss)))

    if manner.writes:
        with contextlib.closing(Git(choice.root)) as git:
            there = FolderSnapshot(choice.root)
            done = look(git, there)
        if done is None or manner.dry_run or (done.upgrade.lost and not manner.accept_loss):
            return done
        return replace(done, written=tuple(write_files(choice.root, there, done.upgrade.files)))
    with choice.opened(progress, only_looks=manner.dry_run) as (git, publisher):
        commit = publisher.base().commit
        done = look(git, GitSnapshot(git, commit))
        if done is None or done.stopped or manner.dry_run or not done.upgrade.files:
            return done

        def make(base: Snapshot, newest: Snapshot) -> FilesChange[Upgraded]:
            is_same = isinstance(base, GitSnapshot) and base.tree == commit
            now = done if is_same else look(git, base)
            if now is None or now.stopped:
                raise InputError.at("the main branch", "", "changed meanwhile", "Run the command again.")
            return replace(describe(now), files={**restored(base, newest), **now.upgrade.files})

        outcome, proposed = propose(git, publisher, branch, make, progress.step)
        return replace(proposed, outcome=outcome)


def planned(git: Git, repository: Snapshot, target: Target) -> RepositoryUpgrade:
    """The upgrade of a repository to a version, which is this program's. Raises InputError."""
    old, new = (tool_version(pin.version, pin.sha256) for pin in (target.pin, target.wanted))
    merge = partial(merge_contents, git, names=("this repository", f"neuroscale {new.version}"))
    return plan_upgrade(repository, old, new, target.wanted, merge)


def service_lines(repository: Snapshot, upgrade: RepositoryUpgrade) -> Iterator[str]:
    """What planning each service anew would change, in sentences. After conflicts, nothing can be planned."""
    if upgrade.conflicts:
        return
    after = ChangedSnapshot(repository, upgrade.files)
    inputs, paths = read_planning_inputs(after), services_of(after)
    changing: dict[ServicePath, Upgrade | str] = {}
    for path in paths:
        try:
            _, changed = look(after, path, inputs)
        except InputError as error:
            changing[path] = str(error)
            continue
        if changed is not None:
            changing[path] = changed
    yield from view.of_services(changing, len(paths))


def restored(base: Snapshot, newest: Snapshot) -> dict[str, Content]:
    """The base's content of files that only the open pull request changes and that are not the organisation's own: an
    earlier version of the tool, for which it was opened, may have changed others."""
    here, there = ({entry.path: entry.object_id for entry in side.entries()} for side in (base, newest))
    paths = {path for path in {*here, *there} if here.get(path) != there.get(path)}
    return {path: base.read(path) for path in sorted(paths) if file_class(path) not in (FileClass.OWN, None)}


@dataclass(frozen=True)
class RepositoryStatus:
    """How far behind a repository is. `newer`: the releases since its pin, the newest first; None where they are not
    known, as `no_list` says. `edited`: files that the organisation edited and an upgrade merges; `differing`: files of
    the tool that differ from what it delivers or renders; None where they were not compared, as `not_compared` says."""

    pin: ToolPin
    newer: tuple[ListedRelease, ...] | None
    no_list: str = ""
    edited: tuple[str, ...] | None = None
    differing: tuple[str, ...] | None = None
    not_compared: str = ""

    @property
    def running(self) -> str:
        return __version__


def repository_status(root: Path, releases: str | None) -> RepositoryStatus:
    """The status of the work tree. `releases`: the list's place (None: as the pin says). Raises InputError."""
    repository = FolderSnapshot(root)
    pin = pin_of(repository)
    newer, no_list = None, ""
    try:
        listed = releases_of(pin, releases)
        newer = tuple(entry for entry in listed.releases if entry.release > pin.release)[::-1]
    except InputError as error:
        if releases is not None and pin.publisher is not None:
            raise
        no_list = str(error)
    if pin.version != __version__:
        why = f"this program is {__version__}: run the pinned one to see which files differ"
        return RepositoryStatus(pin, newer, no_list, not_compared=why)
    try:
        version = tool_version(pin.version, pin.sha256)
    except InputError as error:
        return RepositoryStatus(pin, newer, no_list, not_compared=str(error))
    with contextlib.closing(Git(root)) as git:
        same = planned(git, repository, Target(pin, pin, ()))
    differing = tuple(sorted({*same.files, *same.lost}))
    return RepositoryStatus(pin, newer, no_list, tuple(edited_files(repository, version)), differing)

"""Reverts a merge: one pull request restores the folders of services as they were before the merge.

Its branch is named after the merge, so that a second run, or one after an interruption, finds it. A second merge that
fails meanwhile joins an open revert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from neuroscale.core.errors import InputError
from neuroscale.forge import description
from neuroscale.forge.branches import Branches
from neuroscale.forge.commits import is_ancestor, make_commit, scratch_index
from neuroscale.forge.description import Description
from neuroscale.forge.interface import PullRequest
from neuroscale.forge.rest import Forge
from neuroscale.forge.service_pull_request import Base, Prepared, Proposal, Publisher, until_nobody_interferes
from neuroscale.repo.git import Git
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import GitSnapshot

PREFIX = "neuroscale/revert/"
_COMMITS = 250  # the most files of a pull request that GitHub lists


@dataclass(frozen=True)
class FolderChange:
    """The newest change of a folder on the main branch: its commit, the commit's time (seconds since 1970), and the
    commit before it ("" if the branch begins with it)."""

    commit: str
    when: int
    before: str


@dataclass(frozen=True)
class Merge:
    """A merged pull request, and the change that it brought to the main branch.

    `change.before` is the commit before all of its commits, also if it was merged by rebasing them.
    """

    pull: PullRequest
    change: FolderChange

    @property
    def branch(self) -> str:
        """The branch of the merge's revert."""
        return f"{PREFIX}{self.pull.number}-{self.change.commit[:12]}"

    @property
    def is_revert(self) -> bool:
        """Whether the merge is itself a revert."""
        return self.pull.head_branch.startswith(PREFIX)


Done = Literal["opened", "open", "closed", "merged", "refused"]


@dataclass(frozen=True)
class Reverted:
    """The outcome of a revert.

    `opened`: now; `open`, `closed`, `merged`: it existed already, and nothing was changed. `refused`: no revert was
    opened, for the reasons in `refusals`, by folder; some folders may be refused while others are reverted. `removed`:
    the folders that are removed, because the merge brought them.
    """

    done: Done
    pull: PullRequest | None = None
    folders: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict)


def last_change(git: Git, tip: str, folder: str) -> FolderChange | None:
    """The newest change of a folder; a merge counts as the changes that it brought. None if the branch never had the
    folder."""
    line = git.text("log", "--first-parent", "--max-count=1", "--format=%H %ct %P", tip, "--", folder)
    if not line:
        return None
    commit, when, *parents = line.split(" ")
    return FolderChange(commit, int(when), parents[0] if parents else "")


def before_all(git: Git, commit: str, belongs: Callable[[str], bool]) -> str:
    """The newest commit from `commit` back, by first parents, for which `belongs` is false; "" if there is none.

    A pull request that was merged by rebasing is several commits of the main branch.
    """
    for earlier in git.text("log", "--first-parent", f"--max-count={_COMMITS}", "--format=%H", commit).split():
        if not belongs(earlier):
            return earlier
    return ""


def with_trees(git: Git, tree: str, folders: Mapping[str, str]) -> str:
    """The tree in which each folder equals its given tree, to the byte; "" removes the folder. Returns its id."""
    with scratch_index(git, tree) as index:
        for folder, wanted in folders.items():
            gone = [f"0 {entry.object_id}\t{entry.path}\0" for entry in GitSnapshot(git, tree).entries(folder)]
            data = "".join(gone).encode(errors="surrogateescape")
            git.run("update-index", "-z", "--index-info", data=data, environment=index)
            if wanted:
                git.run("read-tree", f"--prefix={folder}/", wanted, environment=index)
        return git.run("write-tree", environment=index).stdout.decode().strip()


class Reverter:
    """Opens reverts on a forge, from a clone whose main branch is `base`. Raises the errors of the forge."""

    def __init__(self, forge: Forge, branches: Branches) -> None:
        self._forge = forge
        self._branches = branches
        self._git = branches.git
        self._publisher = Publisher(forge, branches)
        self.base: Base = self._publisher.base()

    def merge_of(self, change: FolderChange) -> Merge | None:
        """The merge that brought a change, or None if it did not come by a pull request."""
        pull = self._forge.merged_pull(change.commit, self.base.branch)
        if pull is None or not change.before:
            return None if pull is None else Merge(pull, change)
        number = pull.number

        def belongs(commit: str) -> bool:
            merged_by = self._forge.merged_pull(commit, self.base.branch)
            return merged_by is not None and merged_by.number == number

        return Merge(pull, replace(change, before=before_all(self._git, change.before, belongs)))

    def existing(self, merge: Merge, number: int = 0) -> PullRequest | None:
        """The revert of a merge, whether open, closed or merged. `number`: as it was noted down (0: it was not), since
        a revert that serves several merges has the branch of one of them."""
        if number:
            return self._forge.pull(number)
        main = self._forge.repository
        pull = self._forge.last_pull(main, merge.branch, self.base.branch)
        if pull is not None or self._forge.info().may_push:
            return pull
        return self._forge.last_pull(self._forge.fork().ref, merge.branch, self.base.branch)

    def refusals(self, merge: Merge, folders: Sequence[str]) -> dict[str, str]:
        """Why a folder cannot be restored; folders that can be restored are left out."""
        reasons = {}
        for folder in folders:
            if merge.is_revert:
                reasons[folder] = "The merge is a revert itself, and reverting it would bring the earlier failure back."
            elif not merge.change.before:
                reasons[folder] = "The main branch begins with this commit, so there is nothing before it."
            elif not is_ancestor(self._git, merge.change.commit, self.base.commit):
                reasons[folder] = "The main branch no longer holds this commit."
            elif self._git.tree(self.base.commit, folder) != self._git.tree(merge.change.commit, folder):
                reasons[folder] = "The folder was changed again since, and a revert would undo that change as well."
        return reasons

    def revert(
        self,
        merge: Merge,
        folders: Sequence[str],
        title: str,
        describe: Callable[[Sequence[str], Sequence[str]], str],
        number: int = 0,
    ) -> Reverted:
        """Open the one revert of a merge, or let an open one of another merge serve for both, unless a revert exists,
        in whatever state. One that is open is brought on top of main. `number`: see `existing`.

        `describe` makes the description from the restored and the removed folders.
        """

        def attempt() -> Reverted:
            existing = self.existing(merge, number)
            if existing is not None:
                existing = self._on_top_of_main(existing) if existing.state == "open" else existing
                return Reverted(existing.state, existing, tuple(folders))
            refusals = self.refusals(merge, folders)
            wanted = {
                folder: self._git.tree(merge.change.before, folder) for folder in folders if folder not in refusals
            }
            if not wanted:
                return Reverted("refused", refusals=refusals)
            removed = tuple(folder for folder, tree in wanted.items() if not tree)
            restored = tuple(folder for folder in wanted if folder not in removed)
            text = describe(restored, removed)
            pull = self._join(merge, wanted, title, text) or self._open(merge, wanted, title, text)
            return Reverted("opened", pull, tuple(wanted), removed, refusals)

        def look_again(_: str) -> None:
            self.base = self._publisher.base()

        return until_nobody_interferes(attempt, look_again)

    def _join(self, merge: Merge, wanted: Mapping[str, str], title: str, text: str) -> PullRequest | None:
        """An open revert that now restores these folders as well, so that one run of the gate and one approval serve
        for both; None if there is none to join.

        A forge merges nothing that is behind main, because the gate judges a change together with everything on main:
        names, budgets and quotas of two services can pass alone and fail together. So a second revert would need a
        second run once the first is merged. One that somebody has approved is about to be merged, and stays as it is.
        A revert that removes a service stays alone: rules on removals count the services of a change.
        """
        if not all(wanted.values()):
            return None
        for pull in self._publisher.open_pulls(self.base):
            if not pull.head_branch.startswith(PREFIX) or self._forge.approved_by(pull.number):
                continue
            try:
                request = self._publisher.open_request(self.base, pull.head_branch, [pull])
            except InputError:
                continue  # somebody else's
            restored = {} if request is None else self._reverted(request.tip)
            differing = any(restored.get(folder, tree) != tree for folder, tree in wanted.items())
            if request is None or not restored or differing or not all(restored.values()):
                continue
            prepared = Prepared(request.tip, is_new=False)  # an earlier run came as far as this
            if not set(wanted) <= set(restored):
                behind = not is_ancestor(self._git, self.base.commit, request.tip)
                parents = [request.tip, self.base.commit] if behind else [request.tip]
                tree = with_trees(self._git, parents[-1], {**restored, **wanted})
                prepared = Prepared(self._commit(merge, wanted, title, tree, parents), is_new=True)
            body = description.inside(pull)
            if merge.pull.url in body:
                return pull
            both = Description(description.title(f"{pull.title}; {title}"), "", tuple(filter(None, (body, text))))
            return self._publisher.publish(self.base, request, prepared, Proposal(pull.head_branch, both)).pull
        return None

    def _on_top_of_main(self, pull: PullRequest) -> PullRequest:
        """An open revert, with main merged into its branch: a forge merges nothing that is behind main, and main moves
        on with each merge and each other revert. One that somebody has approved stays as it is, since a new commit may
        take the approval back."""
        if self._forge.approved_by(pull.number):
            return pull
        try:
            request = self._publisher.open_request(self.base, pull.head_branch, [pull])
        except InputError:
            return pull  # somebody else's
        if request is None or is_ancestor(self._git, self.base.commit, request.tip):
            return pull
        if not (reverted := self._reverted(request.tip)):
            return pull
        tree = with_trees(self._git, self.base.commit, reverted)
        message = f"Merge {self.base.branch} ({self.base.commit[:12]})"
        commit = make_commit(self._git, tree, [request.tip, self.base.commit], message, self._publisher.account)
        same = Description(pull.title, "", (description.inside(pull),))
        proposal = Proposal(pull.head_branch, same)
        return self._publisher.publish(self.base, request, Prepared(commit, is_new=True), proposal).pull

    def _reverted(self, tip: str) -> dict[str, str]:
        """The trees of the folders that an open revert restores, by folder, "" for one that it removes; empty if it
        holds anything else, or if main has changed one of them since."""
        start = self._git.text("merge-base", self.base.commit, tip)
        paths = self._git.records("diff-tree", "-r", "-z", "--no-renames", "--name-only", start, tip)
        trees: dict[str, str] = {}
        for path in paths:
            service = ServicePath.of(path)
            tree = "" if service is None else self._git.tree(tip, service.folder)
            if service is None:
                return {}
            if self._git.tree(start, service.folder) != self._git.tree(self.base.commit, service.folder):
                return {}
            trees[service.folder] = tree
        return trees

    def _commit(self, merge: Merge, wanted: Mapping[str, str], title: str, tree: str, parents: Sequence[str]) -> str:
        lines = [
            f"{'Restores' if tree else 'Removes'} {folder}{' as it was' if tree else ', which was not there'} before "
            f"{merge.change.commit[:12]} (pull request {merge.pull.number})."
            for folder, tree in wanted.items()
        ]
        message = "\n\n".join([title, "\n".join(lines)])
        return make_commit(self._git, tree, parents, message, self._publisher.account)

    def _open(self, merge: Merge, wanted: Mapping[str, str], title: str, text: str) -> PullRequest:
        tree = with_trees(self._git, self.base.commit, wanted)
        commit = self._commit(merge, wanted, title, tree, [self.base.commit])

        proposal = Proposal(merge.branch, Description(title, "", (text,)))
        return self._publisher.publish(self.base, None, Prepared(commit, is_new=True), proposal).pull

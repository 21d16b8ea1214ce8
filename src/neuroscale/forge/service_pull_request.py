"""Brings a service's files into its pull request: one branch and one pull request for each service, also if repeated.

Everything before `publish` only reads. After an interruption at any point, the next run continues from the state that
it finds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from neuroscale.catalog.settings import load_settings
from neuroscale.core.errors import InputError
from neuroscale.core.waiting import repeatedly
from neuroscale.forge import description
from neuroscale.forge.branches import Branches, BranchMovedError
from neuroscale.forge.commits import holds, is_ancestor, make_commit, merged_tree, same_commit, with_files
from neuroscale.forge.description import Description
from neuroscale.forge.interface import (
    SOME_APP,
    Account,
    ForgeError,
    ForgeUnavailableError,
    PullRequest,
    RepositoryInfo,
    RepositoryRef,
)
from neuroscale.forge.rest import Forge
from neuroscale.forge.token import NoTokenError
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.written_files import Content

Result = Literal["opened", "updated", "unchanged"]
_Done = TypeVar("_Done")
_LOOKS = 5  # attempts if somebody else moves the branch meanwhile


@dataclass(frozen=True)
class Base:
    """The branch that pull requests go to, and the commit that it points to. `note`: a sentence that says so where the
    clone was looked at and not the forge ("": the forge)."""

    branch: str
    commit: str
    note: str = ""

    @property
    def where(self) -> str:
        """For messages: which branch it is."""
        return f"{self.branch} {'in this clone' if self.note else 'on the forge'}"


@dataclass(frozen=True)
class OpenRequest:
    """An open pull request, the repository of its branch, and the commit to which the branch points."""

    pull: PullRequest
    repository: RepositoryRef
    tip: str


@dataclass(frozen=True)
class Proposal:
    """A pull request's branch and description."""

    branch: str
    description: Description


@dataclass(frozen=True)
class WantedPullRequest(Proposal):
    """What the pull request is to bring: files by path in the repository (None: removed). `folder`: it then holds these
    and no others, and without files it is removed (None: other files stay as they are)."""

    folder: str | None
    files: Mapping[str, Content]
    message: str


@dataclass(frozen=True)
class Prepared:
    """A commit that only the clone has (`is_new`), or the branch's own if that has the wanted content already."""

    commit: str
    is_new: bool


@dataclass(frozen=True)
class PullRequestOutcome:
    """The outcome. `notes` are sentences about unexpected facts."""

    result: Result
    pull: PullRequest
    repository: RepositoryRef
    commit: str
    notes: tuple[str, ...] = field(default=())


def until_nobody_interferes(attempt: Callable[[], _Done], say: Callable[[str], None]) -> _Done:
    """The result of `attempt`, which begins anew where somebody else moves the branch meanwhile. Raises ForgeError."""

    def again(error: Exception) -> bool:
        if moved := isinstance(error, BranchMovedError):
            say(f"{error} Looking again")
        return moved

    try:
        return repeatedly(attempt, attempts=_LOOKS, again=again)
    except BranchMovedError as error:
        raise ForgeError("Somebody else keeps changing the branch. Find out who, and run the command again.") from error


class Publisher:
    """Reads the forge, builds commits in the clone, and brings branch and pull request up to date.

    Every method raises ForgeUnavailableError and ForgeError; BranchMovedError (a ForgeError) means that somebody else
    came first, and that a new attempt helps.
    """

    def __init__(self, forge: Forge, branches: Branches) -> None:
        self._forge = forge
        self._branches = branches
        self._info: RepositoryInfo = forge.info()
        self.account: Account = forge.account()

    @property
    def forge(self) -> Forge:
        return self._forge

    def base(self) -> Base:
        """The forge's main branch as it is now; afterwards the clone has its commit."""
        branch = self._info.default_branch
        commit = self._branches.fetch(self._forge.repository, branch) if branch else None
        if commit is None:
            raise ForgeError(
                f"{self._forge.repository.slug} has no branch {branch or 'at all'}. Push the platform's files to it."
            )
        return Base(branch, commit)

    def open_pulls(self, base: Base) -> list[PullRequest]:
        """Every open pull request, from whatever repository."""
        return self._forge.open_pulls(base.branch)

    def open_request(self, base: Base, branch: str, among: Sequence[PullRequest] | None = None) -> OpenRequest | None:
        """The open pull request from the branch of the repository, or of the account's fork. `among`: those that
        `open_pulls` listed a moment ago (None: they are asked for).

        Raises InputError if somebody else's is open.
        """
        main, login = self._forge.repository, self.account.login.lower()
        pulls = [pull for pull in (self.open_pulls(base) if among is None else among) if pull.head_branch == branch]
        pulls.sort(key=lambda pull: (pull.head_owner.lower() != main.owner.lower(), pull.number))
        for pull in pulls:
            if not self._is_own(pull):
                raise InputError.at(
                    pull.url,
                    "",
                    f"asks for a change of it already, and {pull.author or 'somebody else'} opened it",
                    f"Have it merged or closed first, or ask its author for the change (the token is {login}'s).",
                )
        if not pulls:
            return None
        pull = pulls[0]
        repository = main if pull.head_owner.lower() == main.owner.lower() else self._forge.fork().ref
        tip = self._branches.fetch(repository, branch)
        if tip is None:
            raise BranchMovedError(f"{pull.url} is open, but its branch {branch} is gone.")
        return OpenRequest(pull, repository, tip)

    def _is_own(self, pull: PullRequest) -> bool:
        """Whether the account opened a pull request, and may push to its branch."""
        login, owner = self.account.login.lower(), pull.head_owner.lower()
        if owner == login != self._forge.repository.owner.lower():
            return True  # whoever opened it from the account's fork
        by_account = pull.author.lower() in ("", login) or (login == SOME_APP and pull.author.endswith("[bot]"))
        return by_account and owner == self._forge.repository.owner.lower() and self._info.may_push

    def prepare(self, base: Base, there: OpenRequest | None, wanted: WantedPullRequest) -> Prepared:
        """The commit to which the branch shall point.

        For an open pull request the commit goes on top of its branch, even if others pushed that, and merges the base
        if it moved on. Without one it is a single commit on the base. Raises InputError for conflicts outside the
        service's folder.
        """
        git = self._branches.git
        message = wanted.message
        if there is None or is_ancestor(git, there.tip, base.commit):
            tree, parents = base.commit, [base.commit]
        elif is_ancestor(git, base.commit, there.tip):
            if holds(git, there.tip, wanted.folder, wanted.files):
                return Prepared(there.tip, is_new=False)
            tree, parents = there.tip, [there.tip]
        else:
            tree, clean = merged_tree(
                git, there.tip, base.commit, [wanted.folder] if wanted.folder else [*wanted.files]
            )
            # A branch that merges cleanly needs no merge commit.
            if clean and all(holds(git, one, wanted.folder, wanted.files) for one in (tree, there.tip)):
                return Prepared(there.tip, is_new=False)
            parents = [there.tip, base.commit]
            message = f"{message}\n\nMerges {base.branch} ({base.commit[:12]})."
        made = with_files(git, tree, wanted.folder, wanted.files)
        return Prepared(make_commit(git, made, parents, message, self.account), is_new=True)

    def publish(
        self, base: Base, there: OpenRequest | None, prepared: Prepared, wanted: Proposal
    ) -> PullRequestOutcome:
        """Push the commit and open or renew the pull request."""
        if there is not None:
            return self._update(base, there, prepared, wanted)
        return self._open(base, prepared, wanted)

    def _update(self, base: Base, there: OpenRequest, prepared: Prepared, wanted: Proposal) -> PullRequestOutcome:
        if prepared.is_new:
            self._branches.push(there.repository, wanted.branch, prepared.commit, there.tip)
        with _completed_by_the_next_run(f"The branch of {there.pull.url} is up to date, but its description is not"):
            now = self._forge.pull(there.pull.number)
            if now.state != "open":
                raise BranchMovedError(f"{there.pull.url} was {now.state} meanwhile.")
            section = wanted.description.section(now.author or self.account.login, there.repository)
            pull, renewed = self._renew(now, section, wanted)
        result: Result = "updated" if prepared.is_new or renewed else "unchanged"
        notes = []
        if not is_ancestor(self._branches.git, base.commit, prepared.commit):
            notes.append(
                f"{base.branch} moved on since, and the two merge cleanly. If the forge wants the branch up to date, "
                "update it on the pull request's page."
            )
        return PullRequestOutcome(result, pull, there.repository, prepared.commit, tuple(notes))

    def _open(self, base: Base, prepared: Prepared, wanted: Proposal) -> PullRequestOutcome:
        repository = self._forge.repository if self._info.may_push else self._forge.fork().ref
        commit, notes = prepared.commit, []
        there = self._branches.fetch(repository, wanted.branch)
        if there is not None and same_commit(self._branches.git, there, commit):
            commit = there  # an earlier run came as far as this
        elif there != commit:
            if there is not None:
                if self._forge.find_pull(repository.owner, wanted.branch, base.branch) is not None:
                    raise BranchMovedError("A pull request was opened meanwhile.")
                last = self._forge.last_pull(repository, wanted.branch, base.branch)
                if last is None or (last.state, last.head_sha) != ("merged", there):
                    notes.append(
                        f"The branch {wanted.branch} pointed to {there}, for which no pull request is open: replaced."
                    )
            self._branches.push(repository, wanted.branch, commit, there)
        with _completed_by_the_next_run(f"The branch {wanted.branch} is pushed, but its pull request is not open yet"):
            text = wanted.description
            section = text.section(self.account.login, repository)
            pull = self._forge.open_pull(text.title, section, repository, wanted.branch, base.branch)
            if pull.author not in ("", self.account.login):  # an app's token does not show its account
                section = text.section(pull.author, repository)
            pull, _ = self._renew(pull, section, wanted)
        return PullRequestOutcome("opened", pull, repository, commit, tuple(notes))

    def _renew(self, pull: PullRequest, section: str, wanted: Proposal) -> tuple[PullRequest, bool]:
        """The pull request with the right title and description, and whether they had to be changed."""
        title, body = description.updated(pull, wanted.description.title, section)
        if (title, body.rstrip()) == (pull.title, pull.body.replace("\r\n", "\n").rstrip()):
            return pull, False
        return self._forge.update_pull(pull.number, title, body), True


class ClonePublisher(Publisher):
    """Stands for a forge that cannot be asked without a token: main is this clone's, and no open pull request is known.
    Only to look at a change; what asks the forge raises `missing`."""

    def __init__(self, root: Path, missing: NoTokenError) -> None:
        self._root = root
        self._missing = missing

    @property
    def forge(self) -> Forge:
        raise self._missing

    def base(self) -> Base:
        # What asks a forge need not load the client of a cluster.
        from neuroscale.cluster.services_in_git import Clone

        branch = load_settings(FolderSnapshot(self._root)).repository.default_branch
        with contextlib.closing(Clone(self._root, branch)) as clone:
            clone.fetch()
            tip = clone.tip
        if tip is None:
            raise self._missing
        note = f"No token of the forge is named, so this looks at {branch} as this clone has it"
        return Base(branch, tip, f"{note}, and at no open pull request. {self._missing.problems[0].fix}")

    def open_request(self, base: Base, branch: str, among: Sequence[PullRequest] | None = None) -> OpenRequest | None:
        del base, branch, among
        return None


def publisher_to_look(root: Path, connected: Callable[[], Publisher]) -> Publisher:
    """The forge as it is `connected`, or without a token for it the clone at `root`."""
    try:
        return connected()
    except NoTokenError as missing:
        return ClonePublisher(root, missing)


@contextlib.contextmanager
def _completed_by_the_next_run(state: str) -> Iterator[None]:
    """Adds to an error of the forge the work that is already done."""
    try:
        yield
    except BranchMovedError:
        raise
    except ForgeError as error:
        kind = ForgeUnavailableError if isinstance(error, ForgeUnavailableError) else ForgeError
        raise kind(f"{error} {state}: the same command completes it.") from error

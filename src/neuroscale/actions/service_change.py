"""Opens the forge that gets a change, and keeps what a change asks a cluster for each state of the main branch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec

from neuroscale.actions.open_repository import opened_publisher, repository_root
from neuroscale.actions.progress import Progress
from neuroscale.core.errors import InputError
from neuroscale.forge.request_flow import Desk, Main
from neuroscale.forge.service_pull_request import Publisher
from neuroscale.models.hub import NewestRevisions
from neuroscale.repo.git import Git

P = ParamSpec("P")


def once_for_each_main(
    make: Callable[Concatenate[Main, P], Sequence[str]],
) -> Callable[Concatenate[Main, P], Sequence[str]]:
    """Sentences that cost a question to a cluster: made again only where the forge's main branch moved meanwhile."""
    by_commit: dict[str, Sequence[str]] = {}

    def remembered(main: Main, /, *rest: P.args, **named: P.kwargs) -> Sequence[str]:
        if main.base.commit not in by_commit:
            by_commit[main.base.commit] = make(main, *rest, **named)
        return by_commit[main.base.commit]

    return remembered


@dataclass(frozen=True)
class ForgeChoice:
    """The repository (None: the one around the current folder) and the forge that a caller names: that of a git remote,
    with a file of its token (None: the environment's), or the local platform's."""

    repository: Path | None
    remote: str
    token_file: Path | None
    local: bool

    @property
    def root(self) -> Path:
        """The root of the repository. Raises InputError where there is none."""
        return repository_root(self.repository)

    def if_asked(self, *, pull_request: bool) -> ForgeChoice | None:
        """None where no pull request is asked for. Raises InputError where --local stands without it."""
        if pull_request:
            return self
        if self.local:
            fault, fix = "names a forge, and no pull request is asked for", "Add --pull-request, or leave --local out."
            raise InputError.at("the command line", "--local", fault, fix)
        return None

    def opened(
        self, progress: Progress, *, only_looks: bool = False
    ) -> contextlib.AbstractContextManager[tuple[Git, Publisher]]:
        """The clone, and what opens pull requests on the forge; see `opened_publisher`."""
        return opened_publisher(
            self.root, self.remote, self.token_file, progress, local=self.local, only_looks=only_looks
        )

    @contextlib.contextmanager
    def desk(self, progress: Progress, *, only_looks: bool = False) -> Iterator[Desk]:
        """Where services are changed; `only_looks`: nothing is, so that the clone is enough where no token is named."""
        with self.opened(progress, only_looks=only_looks) as (git, publisher):
            yield Desk(git, publisher, progress.step, newest=NewestRevisions())

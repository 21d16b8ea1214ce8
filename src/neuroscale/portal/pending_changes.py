"""Opens the pull requests: on the forge's main branch of now, by the path of `neuroscale request` and its like."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroscale.core.errors import InputError, NeuroscaleError, Problem
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.connect import connect
from neuroscale.forge.http import Limits
from neuroscale.forge.interface import Account, ForgeError, ForgeUnavailableError, Token
from neuroscale.forge.request_flow import Change, Desk, Main, Outcome, Refused, Say
from neuroscale.forge.service_pull_request import Publisher
from neuroscale.models.hub import NewestRevisions
from neuroscale.planning.model_revision import Newest
from neuroscale.portal.kept_answers import KeptAnswers
from neuroscale.portal.people import Person
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.repo.git import Git
from neuroscale.repo.snapshot import GitSnapshot

_FRESH = 15.0  # seconds for which main is believed to be where it was
_AT_ONCE = 2  # changes that are judged at once: a verdict takes a core for some seconds
_MOST_WAITING = 20  # changes that wait for that
_MOST_OF_ONE = 3  # of one person
_MOST_KEPT = 200  # changes whose outcome can still be seen
_QUICK = Limits(deadline=8.0, attempts=2)  # of the question who may read: a page waits for it
_log = logging.getLogger(__name__)
_QUIET: Say = lambda _: None  # noqa: E731


class BusyError(NeuroscaleError):
    """Too many changes wait already."""


class NoReaderError(InputError):
    """The forge says that somebody may not read the repository."""


@dataclass
class Job:
    """A change on its way. `steps`: what it does, the newest last. `problem` is the error that ended it."""

    key: str
    owner: str
    title: str
    back: str  # the page to change the answers on
    answers: dict[str, Any]
    steps: list[str] = field(default_factory=list)
    outcome: Outcome | Refused | None = None
    problem: Exception | None = None

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or self.problem is not None


class PendingChanges:
    """A clone at `root`, and the forge at `address` that gets the pull requests ("": there is none, for the reason
    `missing`). The clone only gains objects of Git."""

    def __init__(self, root: Path, address: str, inputs: PlanningInputs, missing: str = "") -> None:
        self.root = root
        self.address = address
        self.missing = missing
        self.git = Git(root)
        self.newest: Newest = NewestRevisions()
        self._inputs = inputs
        self._main: Main | None = None
        self._looked = 0.0
        self._readers: KeptAnswers[bool] = KeptAnswers(errors=False)
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="change")

    def close(self) -> None:
        """Wait for what is being published, and let the clone go."""
        self._pool.shutdown(cancel_futures=True)
        self.git.close()

    def inputs(self, token: Token | None) -> PlanningInputs:
        """What to plan a form with: main's as it was seen last. Those of the start for nobody (None), without a forge,
        and while nobody has looked at main. Raises as `check_reader`."""
        if token is None or not self.address:
            return self._inputs
        self.check_reader(token)
        return self._main.inputs if self._main is not None else self._inputs

    def check_reader(self, token: Token) -> None:
        """What this server keeps, one person's look brought, and everybody's page would show it. So the forge is asked
        for each token, and its answer holds for some seconds. Raises NoReaderError, and ForgeError where the forge does
        not answer: nothing is shown then."""
        self._forge()
        may, why = self._readers.ask(token.secret, lambda: self.may_read(token))
        if may is None:
            raise ForgeError(f"It is not known whether you may read the repository. {why}")
        if not may:
            message = f"The forge does not let your token read {self.address}"
            fix = "Ask its owners for that right, or use another token."
            raise NoReaderError([Problem("the forge", "", message, fix)])

    def may_read(self, token: Token) -> bool:
        """Whether the forge lets a token read the repository. Raises ForgeError."""
        return connect(self._forge(), token, limits=_QUICK).may_read()

    def account(self, token: Token) -> Account:
        """The account of a token. Raises InputError without a forge, and ForgeError."""
        return connect(self._forge(), token).account()

    def _forge(self) -> str:
        if not self.address:
            raise InputError.at("the server", "", f"has no forge: {self.missing}", "Start it in a clone of the forge.")
        return self.address

    @contextlib.contextmanager
    def desk(self, person: Person, say: Say = _QUIET) -> Iterator[Desk]:
        """Where the person changes services. Raises ForgeError and InputError."""
        address = self._forge()
        publisher = Publisher(connect(address, person.token), Branches(self.git, Access(address, person.token)))
        yield Desk(self.git, publisher, say, person.asked_by, self.newest)

    def main(self, person: Person, *, now: bool = False) -> Main:
        """The forge's main branch, at most some seconds old, or as it was seen last while the forge does not answer;
        `now`: as it is now. Raises ForgeError, NoReaderError and InputError."""
        self.check_reader(person.token)
        if not now and self._main is not None and time.monotonic() < self._looked + _FRESH:
            return self._main
        try:
            with self.desk(person) as desk:
                base = desk.publisher.base()
        except ForgeUnavailableError:
            if now or self._main is None:
                raise
            return self._main
        with self._lock:
            if self._main is None or self._main.base != base:
                inputs = read_planning_inputs(GitSnapshot(self.git, base.commit))
                self._main = Main(self.git, base, inputs)
            self._looked = time.monotonic()
            return self._main

    def propose(self, person: Person, change: Callable[[Desk], Change], say: Say = _QUIET) -> Outcome | Refused:
        """Open the pull request of a change, or bring the open one up to date, after the gate's judgement."""
        with self.desk(person, say) as desk:
            return desk.propose(change(desk))

    def start(self, person: Person, job: Job, change: Callable[[Desk], Change]) -> Future[Outcome | Refused]:
        """Begin a change, which goes on while the person looks at a page or waits for its end. Raises BusyError."""
        with self._lock:
            waiting = [other for other in self._jobs.values() if not other.is_over]
            own = [other for other in waiting if other.owner == job.owner]
            if len(waiting) >= _MOST_WAITING or len(own) >= _MOST_OF_ONE:
                raise BusyError("Too many changes are on their way already. Try again when one of them is done.")
            over = [key for key, other in self._jobs.items() if other.is_over]
            for key in over[: max(0, len(self._jobs) - _MOST_KEPT)]:
                del self._jobs[key]
            self._jobs[job.key] = job
        return self._pool.submit(self._run, person, job, change)

    def _run(self, person: Person, job: Job, change: Callable[[Desk], Change]) -> Outcome | Refused:
        try:
            job.steps.append("Looking at the forge's main branch")
            job.outcome = self.propose(person, change, job.steps.append)
        except Exception as error:
            if not isinstance(error, NeuroscaleError):  # a defect: its page says no more than that
                _log.error("a change failed", exc_info=error)
            job.problem = error
            raise
        return job.outcome

    def job(self, key: str, person: Person) -> Job | None:
        """A change that the person began; None if there is none of this key."""
        job = self._jobs.get(key)
        return job if job is not None and job.owner == person.name else None


def new_key() -> str:
    """A key that nobody guesses."""
    return secrets.token_urlsafe(16)

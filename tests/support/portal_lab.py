"""`neuroscale serve` as a process of its own in a clone of a real forge's repository, and its parts without a forge."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn
from fastapi import FastAPI

from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.core.errors import InputError
from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.interface import (
    Account,
    Comment,
    CommitStatus,
    ForgeError,
    ForgeUnavailableError,
    PullRequest,
    RepositoryRef,
    Token,
)
from neuroscale.forge.request_flow import Change, Desk, Outcome, Refused, Say
from neuroscale.forge.rest import Forge
from neuroscale.forge.service_pull_request import Base, OpenRequest, Publisher, PullRequestOutcome
from neuroscale.portal.app import create_app, settings_of
from neuroscale.portal.exposure import Exposure, exposure_at
from neuroscale.portal.pending_changes import PendingChanges
from neuroscale.portal.people import Person
from neuroscale.portal.services import Evidence, Measured, RemovalSentences, Surroundings
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.repo.layout import ServicePath
from neuroscale.request.service_request import Request
from request_site import Site
from waiting import wait_for

T = TypeVar("T")


def beside(ask: Callable[[], T]) -> T:
    """What a function of the forge's client says: it runs a loop of its own, and Playwright's runs in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


@dataclass
class Server:
    """A running server: its address, and what it has printed so far."""

    url: str
    process: subprocess.Popen[str]
    printed: list[str] = field(default_factory=list)


@contextlib.contextmanager
def running_server(site: Site, *options: str) -> Iterator[Server]:
    """Start it, and end it afterwards."""
    command = [sys.executable, "-P", "-m", "neuroscale", "serve", "--port", "0", *options]
    environment = {name: text for name, text in os.environ.items() if name != "KUBECONFIG"}
    process = subprocess.Popen(
        command,
        cwd=site.clone.root,
        env={**environment, "HOME": str(site.folder), **site.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("Pages: http"), first + process.communicate(timeout=20)[0]
    server = Server(first.split()[1].rstrip("/"), process)
    reader = threading.Thread(target=lambda: server.printed.extend(process.stdout or ()), daemon=True)
    reader.start()
    try:
        yield server
    finally:
        process.terminate()
        process.wait(60)
        reader.join(10)
        process.stdout.close()


DEVELOPER = "d" * 40
OTHER = "o" * 40
PORTAL = Token("p" * 40)
OWN = Token("s" * 40)
_LOGINS = {DEVELOPER: "developer", OTHER: "somebody-else", OWN.secret: "portal-bot"}
ADDRESS = "http://127.0.0.1:8088"
EXPOSURE = exposure_at("127.0.0.1", 8088, "", (), "")
PULL = PullRequest(7, "https://forge.example/7", "Serve it", "", "open", "developer", "o", "b", "c" * 40, "main")


class FakeForge(GiteaForge):
    """A forge with one pull request, its statuses and comments."""

    def __init__(self) -> None:
        self.now = PULL
        self.reported: list[CommitStatus] = []
        self.said: list[Comment] = []

    def pull(self, number: int) -> PullRequest:
        return self.now

    def statuses(self, sha: str) -> list[CommitStatus]:
        return self.reported

    def comments(self, number: int) -> list[Comment]:
        return self.said

    def approved_by(self, number: int) -> tuple[str, ...]:
        return ()

    def merged_pull(self, sha: str, base_branch: str) -> PullRequest | None:
        return None


class FakePublisher(Publisher):
    """The main branch of a clone, and the pull requests that somebody opened."""

    def __init__(self, commit: str, pulls: list[PullRequest], forge: Forge) -> None:
        self._commit = commit
        self._pulls = pulls
        self._forge = forge

    def base(self) -> Base:
        return Base("main", self._commit)

    def open_pulls(self, base: Base) -> list[PullRequest]:
        return self._pulls

    def open_request(self, base: Base, branch: str, among: Sequence[PullRequest] | None = None) -> OpenRequest | None:
        return None


@dataclass(frozen=True)
class Brought:
    """A pull request that was asked for: by whom, for which service, and the answers (None: it is removed)."""

    person: Person
    path: ServicePath
    request: Request | None
    message: str


class FakePendingChanges(PendingChanges):
    """Plans and renders on the clone's HEAD as on the forge's main branch, and notes what would be published."""

    def __init__(self, root: Path, inputs: PlanningInputs) -> None:
        super().__init__(root, "https://forge.example/o/r.git", inputs)
        self.forge = FakeForge()
        self.pulls: list[PullRequest] = []
        self.brought: list[Brought] = []
        self.waits: threading.Event | None = None
        self.is_down = False
        self.readers = {DEVELOPER, OTHER, OWN.secret}

    def may_read(self, token: Token) -> bool:
        if self.is_down:
            raise ForgeUnavailableError("The forge does not answer.")
        if token.secret not in _LOGINS:
            raise ForgeError("The forge does not know the token.")
        return token.secret in self.readers

    def account(self, token: Token) -> Account:
        login = _LOGINS.get(token.secret)
        if login is None:
            raise ForgeError("The forge does not know the token.")
        return Account(login, login, login)

    @contextlib.contextmanager
    def desk(self, person: Person, say: Say = lambda _: None) -> Iterator[Desk]:
        if self.is_down:
            raise ForgeUnavailableError("The forge does not answer.")
        publisher = FakePublisher(self.git.text("rev-parse", "HEAD"), self.pulls, self.forge)
        yield Desk(self.git, publisher, say, person.asked_by)

    def propose(self, person: Person, change: Callable[[Desk], Change], say: Say = lambda _: None) -> Outcome | Refused:
        if self.waits is not None:
            self.waits.wait(20)
        with self.desk(person, say) as desk:
            looked = desk.look(change(desk))
        if isinstance(looked, Refused):
            return looked
        service, draft = looked
        subject = draft.subject
        self.brought.append(Brought(person, service.path, subject.request if subject else None, draft.message))
        ref = RepositoryRef("https://forge.example", "o", "r")
        published = PullRequestOutcome("opened", PULL, ref, "c" * 40)
        return Outcome(service.branch, service.main.base, service.path, published)


class NoCluster:
    """What a server without a cluster knows."""

    def statuses(self, inputs: PlanningInputs, environment: str, service: str) -> list[ServiceStatus]:
        raise InputError.at("the cluster", "", "cannot be asked", "Name one.")

    def metrics(self, inputs: PlanningInputs, environment: str, service: str) -> Measured:
        raise InputError.at("Prometheus", "", "cannot be asked", "Name one.")

    def retiring(self, reason: str) -> RemovalSentences:
        return lambda *_: [f"Why: {reason}"] if reason else []

    def evidence(self, forge: Forge, reason: str, to: str) -> Evidence:
        return lambda *_: ["It passed its smoke test."]


@contextlib.contextmanager
def listening(
    pending_changes: FakePendingChanges, surroundings: Surroundings, proxies: tuple[str, ...] = ()
) -> Iterator[int]:
    """The application on a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        port = listener.getsockname()[1]
        app = create_app(pending_changes, surroundings, exposure_at("127.0.0.1", port, "", proxies, ""), OWN, PORTAL)
        server = uvicorn.Server(settings_of(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_for(lambda: server.started, what="the server listens")
            yield port
        finally:
            server.should_exit = True
            thread.join(30)


class Client:
    """A browser without scripts, which keeps cookies and follows nothing. `headers` go with every request."""

    def __init__(self, app: FastAPI, at: str, peer: str) -> None:
        self._app = app
        self._at = at
        self._peer = peer
        self.cookies = httpx.Cookies()
        self.headers: list[tuple[str, str]] = []

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = [*self.headers, *options.pop("headers", ())]

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=(self._peer, 5000))
            async with httpx.AsyncClient(transport=transport, base_url=self._at, cookies=self.cookies) as client:
                answer = await client.request(method, path, headers=headers, **options)
                self.cookies = client.cookies
                return answer

        return asyncio.run(ask())

    def get(self, path: str) -> httpx.Response:
        return self.ask("GET", path)

    def form_token(self) -> str:
        found = re.search(r'name="form_token" value="([0-9a-f]{64})"', self.get("/new").text)
        assert found is not None
        return found[1]

    def send_form(self, path: str, fields: Mapping[str, Any]) -> httpx.Response:
        """Send a form as a page of the server would."""
        return self.ask("POST", path, data={**fields, "form_token": self.form_token()})


def browser(
    pending_changes: FakePendingChanges, exposure: Exposure = EXPOSURE, at: str = ADDRESS, peer: str = "127.0.0.1"
) -> Client:
    """Somebody in front of the server."""
    return Client(create_app(pending_changes, NoCluster(), exposure, OWN, PORTAL), at, peer)


def signed_in(pending_changes: FakePendingChanges, token: str = DEVELOPER) -> Client:
    """Somebody who gave a token."""
    client = browser(pending_changes)
    assert client.send_form("/sign-in", {"token": token}).status_code == 303
    return client


def finished(client: Client, answer: httpx.Response) -> str:
    """The page of the change that an answer leads to, when that is over."""
    assert answer.status_code == 303, answer.text
    place = answer.headers["location"]
    assert place.startswith("/changes/")
    shown: list[str] = []

    def is_over() -> bool:
        shown[:] = [client.get(f"{place}/state").text]
        return "data-over" in shown[0]

    wait_for(is_over, what="the change is over")
    return shown[0]

"""A real HTTP proxy in front of a forge that causes the worst faults of networks and servers.

    with FaultProxy(forge_url) as proxy:
        proxy.add("POST", r"/pulls$", DropAfter())     # the forge does it, the client never hears of it
        client = Client(f"{proxy.url}/api/v1", token)

Git's own HTTP goes through as well.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "host"}


@dataclass(frozen=True)
class Status:
    """Answer with this status; the forge does not get the request."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"message": "injected"}'


@dataclass(frozen=True)
class StatusAfter:
    """The forge gets the request and does it; the answer is this status nevertheless."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"message": "injected"}'


@dataclass
class Late:
    """Reach the forge after the client gave up waiting: right before the client's next request of the same kind."""

    repeated: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class DropBefore:
    """Close the connection; the forge does not get the request."""


@dataclass(frozen=True)
class DropAfter:
    """The forge gets the request and does it; the connection closes without an answer."""


@dataclass(frozen=True)
class Twice:
    """The forge gets the request twice, one after the other; the client gets the second answer."""


@dataclass(frozen=True)
class Truncate:
    """Half of the answer's body; its length is sent (`announced`) or left open."""

    announced: bool = True


@dataclass(frozen=True)
class Trickle:
    """The answer one byte at a time, with so many seconds between them."""

    seconds: float


@dataclass
class Hold:
    """Stop until `release` is set: before the forge gets the request, or when it has done it (`after`)."""

    after: bool = True
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


Fault = Status | StatusAfter | Late | DropBefore | DropAfter | Twice | Truncate | Trickle | Hold


@dataclass(frozen=True)
class Seen:
    """A request that a client sent to the proxy."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class _Rule:
    method: str
    path: re.Pattern[str]
    fault: Fault
    times: int

    def applies_to(self, seen: Seen) -> bool:
        return self.method in ("*", seen.method) and self.path.search(seen.path) is not None


class FaultProxy:
    """Listens on 127.0.0.1 and passes everything on to `target`, except where a fault was added."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self.target = (address.hostname or "127.0.0.1", address.port or 80)
        self.requests: list[Seen] = []
        self.hits = 0  # how many requests had a fault
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}{address.path.rstrip('/')}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add(self, method: str, path: str, fault: Fault, times: int = 1) -> Fault:
        """Apply `fault` to the next `times` requests of that method ("*": any) whose path and query match."""
        with self._lock:
            self._rules.append(_Rule(method, re.compile(path), fault, times))
        return fault

    def clear(self) -> None:
        """Forget the faults and release held requests."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            if isinstance(rule.fault, Hold):
                rule.fault.release.set()
            if isinstance(rule.fault, Late):
                rule.fault.repeated.set()

    @contextmanager
    def fault(self, method: str, path: str, fault: Fault, times: int = 1) -> Iterator[None]:
        """As `add`, for the time of a `with` block."""
        self.add(method, path, fault, times)
        try:
            yield
        finally:
            self.clear()

    def made(self, method: str, path: str) -> list[Seen]:
        """The requests of that method whose path and query match."""
        with self._lock:
            return [seen for seen in self.requests if seen.method == method and re.search(path, seen.path)]

    def _take(self, seen: Seen) -> Fault | None:
        with self._lock:
            self.requests.append(seen)
            for rule in self._rules:
                if rule.times > 0 and rule.applies_to(seen):
                    rule.times -= 1
                    self.hits += 1
                    return rule.fault
        return None

    def _let_late_ones_pass(self, seen: Seen) -> None:
        with self._lock:
            late = [rule.fault for rule in self._rules if isinstance(rule.fault, Late) and rule.applies_to(seen)]
        for one in late:
            one.repeated.set()
            one.arrived.wait(300)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: clients that disconnect are expected here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FaultProxy

    def handle_any(self) -> None:
        self.close_connection = True
        seen = Seen(self.command, self.path, dict(self.headers), self._body())
        match self.owner._take(seen):
            case None:
                self.owner._let_late_ones_pass(seen)
                self._answer(self._deliver(seen))
            case Status(code, headers, body):
                self._write(code, headers, body)
            case StatusAfter(code, headers, body):
                self._deliver(seen)
                self._write(code, headers, body)
            case Late() as late:
                late.repeated.wait(300)
                late_answer = self._deliver(seen)
                late.arrived.set()
                self._answer(late_answer)
            case DropBefore():
                self._drop()
            case DropAfter():
                self._deliver(seen)
                self._drop()
            case Twice():
                self._deliver(seen)
                self._answer(self._deliver(seen))
            case Truncate(announced):
                status, received, body = self._deliver(seen)
                self._write(status, received, body[: len(body) // 2], len(body) if announced else None)
            case Trickle(seconds):
                status, received, body = self._deliver(seen)
                self._write(status, received, b"", len(body))
                for position in range(len(body)):
                    self.wfile.write(body[position : position + 1])
                    time.sleep(seconds)
            case Hold() as hold:
                answer = self._deliver(seen) if hold.after else None
                hold.reached.set()
                hold.release.wait(300)
                self._answer(answer or self._deliver(seen))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - names of the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("content-length", "0")))

    def _deliver(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in seen.headers.items() if name.lower() not in _HOP_BY_HOP}
        connection = http.client.HTTPConnection(*self.owner.target, timeout=120)
        try:
            connection.request(seen.method, seen.path, seen.body or None, headers)
            response = connection.getresponse()
            body = response.read()
            kept = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
            return response.status, kept, body
        except OSError:
            return 502, {}, b'{"message": "the proxy does not reach the forge"}'
        finally:
            connection.close()

    def _answer(self, answer: tuple[int, dict[str, str], bytes]) -> None:
        status, headers, body = answer
        self._write(status, headers, body, len(body))

    def _write(self, status: int, headers: Mapping[str, str], body: bytes, length: int | None = -1) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None and status not in (204, 304):
            self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _drop(self) -> None:
        """Reset the connection, as a server that was killed does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection.close()

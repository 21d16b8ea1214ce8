"""Guards the server: who may connect, how often at once, by which name, from which page, with how much and how slowly,
and how long each may let it plan."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from neuroscale.core.addresses import is_loopback
from neuroscale.core.errors import Face, InputError, NeuroscaleError, Problem
from neuroscale.core.printable import counted
from neuroscale.rendering.scaffolder.plan_step import SCHEMA_VERSION

LARGEST_BODY = 64 * 1024
"""Bytes of a request's body; a form's answers take less than one kibibyte."""
BODY_WITHIN = 10.0
"""Seconds within which a request's head, and then its body, must arrive."""
_READ_ON_WITHIN = 1.0
_READ_ON = 16 * 1024 * 1024
"""Seconds and bytes that a refused request may still take to arrive: a connection that ends with bytes unread is reset,
and the reset can overtake the refusal (RFC 9112, section 9.6)."""
HEALTH = "/healthz"
"""The route that says whether the server is alive."""
MOST_CONNECTIONS = 512
"""Connections at once; another one is answered with 503."""
MOST_OF_ONE = MOST_CONNECTIONS // 2
"""Connections of one address, or of all together that do not come by the proxy. A proxy's own are not counted, since it
brings everybody: it must bound each address itself."""
PLANS_AT_ONCE = 20.0
PLANS_LATER = 0.25
"""Seconds of processor time for which somebody may let the server plan: at once, and then in each second."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    # With `no-referrer`, browsers would send `Origin: null` with the page's own forms.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True)
class Exposure:
    """How the server can be reached.

    `hosts`: the values of `Host` that it answers (a page on another name, made to point here, gets nothing).
    `origins`: the pages whose requests may change anything. `proxies`: the only addresses that may connect (none: any
    that can). `user_header`: the header in which these name the person ("": people sign in with a token). `secure`:
    people come by https alone.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    proxies: tuple[str, ...] = ()
    user_header: str = ""
    secure: bool = False


def exposure_at(host: str, port: int, public_url: str, proxies: tuple[str, ...], user_header: str) -> Exposure:
    """The exposure of a server at an address. Raises InputError where it would be open to a network without
    protection."""
    line = "the command line"
    for address in proxies:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            message, fix = f"{address!r} is not an IP address", "Write the address that the proxy connects from."
            raise InputError.at(line, "--trusted-proxy", message, fix) from None
    if user_header and not proxies:
        message = "is believed from whoever connects, since no proxy is named"
        raise InputError.at(line, "--user-header", message, "Name the proxy that sets it: --trusted-proxy ADDRESS.")
    public = urlsplit(public_url)
    if public_url and (public.scheme not in ("http", "https") or not public.hostname or public.path.strip("/")):
        message = f"{public_url!r} is not the address of a site"
        raise InputError.at(line, "--public-url", message, "Write it such as https://models.example.com.")
    if not is_loopback(host) and not (proxies and public.scheme == "https"):
        raise InputError.at(
            line,
            "--host",
            f"{host} can be reached from a network, where tokens and answers would be readable and anybody could ask",
            "Put a proxy with TLS in front and name it: --trusted-proxy ADDRESS --public-url https://NAME; with "
            "--user-header NAME it also says who asks. Or leave --host out.",
        )
    own = [f"[{host}]" if ":" in host else host]
    if is_loopback(host):
        own += ["127.0.0.1", "localhost", "[::1]"]
    hosts = {f"{name}:{port}" for name in own} | (set(own) if port == 80 else set())
    origins = {f"http://{name}" for name in hosts}
    if public_url:
        hosts.add(public.netloc.lower())
        origins = {f"{public.scheme}://{public.netloc.lower()}"} | (origins if is_loopback(host) else set())
    return Exposure(frozenset(hosts), frozenset(origins), proxies, user_header, public.scheme == "https")


_LABELS = {"to": "Environment", "reason": "Reason", "environment": "the environment", "service": "the service"}
_PAGES = {"request": "its form"}
PAGE = Face("the page", lambda name, _: _LABELS.get(name, name), lambda name: _PAGES.get(name, name))
"""How a page names its fields and what else a person can do."""
PROGRAM = Face("the request", lambda name, _: name, lambda name: name)
"""How the API names them."""


def failure(verdict: str, problems: list[Problem], **extra: Any) -> dict[str, Any]:
    """The one shape of every JSON answer without a result; `message` comes first because Backstage logs the body."""
    problems = [problem.on(PROGRAM) for problem in problems]
    return {
        "message": "; ".join(
            f"{problem.field + ': ' if problem.field else ''}{problem.message}. {problem.fix}" for problem in problems
        ),
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict,
        "problems": [asdict(problem) for problem in problems],
        **extra,
    }


class Guard:
    """Refuses what no route should see, and adds the headers that every answer has. Reads a body whole, within bounds,
    before it passes the request on."""

    def __init__(self, app: Any, exposure: Exposure) -> None:
        self.app = app
        self._exposure = exposure

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in _HEADERS if name.encode() not in present),
                ]
            await send(message)

        if (refused := self._refused(scope)) is not None:
            await _refuse(receive, with_headers, *refused)
            return
        try:
            messages = await asyncio.wait_for(_whole(receive), BODY_WITHIN)
        except TimeoutError:
            problem = Problem("the request", "", f"took longer than {BODY_WITHIN:g} s", "Send it without a pause.")
            await _refuse(receive, with_headers, 408, problem)
            return
        if messages is None:
            fix = "Send the form's answers and nothing else."
            problem = Problem("the form", "", f"is larger than {LARGEST_BODY} bytes", fix)
            await _refuse(receive, with_headers, 413, problem)
            return
        waiting = iter(messages)

        async def again() -> Message:
            return next(waiting, None) or await receive()

        await self.app(scope, again, with_headers)

    def _refused(self, scope: Message) -> tuple[int, Problem] | None:
        exposure = self._exposure
        if _values(scope, b"transfer-encoding") and (
            _values(scope, b"content-length") or scope.get("http_version") == "1.0"
        ):  # A proxy in front may end the request elsewhere, and read the rest as somebody's next one.
            fix = "Send Content-Length alone."
            return 400, Problem("the request", "Transfer-Encoding", "says its length in two ways", fix)
        if scope["path"] == HEALTH and scope["method"] in _SAFE:
            return None  # whoever watches the server knows it by another name, and learns nothing else
        if exposure.proxies and _address((scope.get("client") or ("",))[0]) not in map(_address, exposure.proxies):
            return 403, Problem("the request", "", "does not come by the proxy", "Use the address that people use.")
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in exposure.hosts:
            fix = "Use the server's own address, or start it with --public-url."
            return 421, Problem("the request", "Host", "names another server", fix)
        foreign = any(site not in ("same-origin", "none") for site in _values(scope, b"sec-fetch-site"))
        if scope["method"] in _SAFE:
            # Somebody may follow a link to this server. Whatever else a foreign page loads only costs processor time.
            link = (["navigate"], ["document"])
            foreign = foreign and (_values(scope, b"sec-fetch-mode"), _values(scope, b"sec-fetch-dest")) != link
        else:
            foreign = foreign or any(origin.lower() not in exposure.origins for origin in _values(scope, b"origin"))
        if foreign:
            return 403, Problem("the request", "Origin", "comes from another site's page", "Use this server's page.")
        return None


def _address(text: str) -> str:
    """An address as it is compared: one of IPv4 that came through a socket of IPv6 is the same."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)


def _values(scope: Message, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


async def _whole(receive: Receive) -> list[Message] | None:
    """The messages of a request; None as soon as they are too large, also where they do not state their length."""
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if size > LARGEST_BODY:
            return None
        if message["type"] != "http.request" or not message.get("more_body", False):
            return messages


async def _refuse(receive: Receive, send: Send, status: int, problem: Problem) -> None:
    """Answers at once, and ends the connection after it has thrown away what still comes, within bounds."""
    body = json.dumps(failure("invalid", [problem])).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    # What is left of the body would be read as the next request.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_read_on(receive), _READ_ON_WITHIN)
    await send({"type": "http.response.body", "body": b""})


async def _read_on(receive: Receive) -> None:
    size = 0
    while size < _READ_ON:
        message = await receive()
        size += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


class PunctualProtocol(H11Protocol):
    """Ends a connection that does not send a request's head in time: uvicorn itself would wait for ever. Refuses more
    connections of one address than are its share."""

    exposure = Exposure(frozenset(), frozenset())
    source: str | None = None
    """Whose share of the connections it takes: its address's, that of all that do not come by the proxy (""), or none's
    (a proxy's)."""
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address, proxies = _address(self.client[0] if self.client else ""), map(_address, self.exposure.proxies)
        self.source = address if not self.exposure.proxies else None if address in proxies else ""
        same = sum(getattr(connection, "source", None) == self.source for connection in self.connections)
        if self.source is not None and same > MOST_OF_ONE:
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._late is None:
            self._late = self.loop.call_later(BODY_WITHIN, self.transport.close)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class TooMuchError(NeuroscaleError):
    """Somebody let the server plan for too long. `seconds`: until it plans for them again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"You let this server plan for too long. Ask again in {counted(seconds, 'second')}.")
        self.seconds = seconds


class Allowance:
    """The processor time that planning took for each caller, of which some is forgiven in each second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent: dict[str, tuple[float, float]] = {}  # seconds of processor time, at a time

    @contextlib.contextmanager
    def planning(self, caller: str) -> Iterator[None]:
        """Counts the time of this thread. Raises TooMuchError for a caller who has used all that there is."""
        over = self._left(caller) - PLANS_AT_ONCE
        if over > 0:
            raise TooMuchError(math.ceil(over / PLANS_LATER))
        began = time.thread_time()
        try:
            yield
        finally:
            with self._lock:
                self._spent = {name: spent for name, spent in self._spent.items() if self._left(name) > 0}
                self._spent[caller] = self._left(caller) + time.thread_time() - began, time.monotonic()

    def _left(self, caller: str) -> float:
        """The seconds that are not forgiven yet."""
        spent, at = self._spent.get(caller, (0.0, 0.0))
        return max(0.0, spent - (time.monotonic() - at) * PLANS_LATER)

"""Exchanges JSON with a forge over HTTP: bounded in time, size and attempts, careful with the token and with
repeats."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx

from neuroscale import __version__
from neuroscale.core.addresses import checked_address, is_loopback
from neuroscale.core.errors import InputError, causes
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import counted, one_line
from neuroscale.core.secret_text import redact
from neuroscale.core.units import MIB
from neuroscale.core.waiting import repeatedly
from neuroscale.forge.http_answers import (
    Received,
    advice,
    decoded,
    message_of,
    next_query,
    phrase,
    rate_limit,
    retry_after,
)
from neuroscale.forge.interface import ForgeError, ForgeUnavailableError, Token
from neuroscale.forge.token import check_secret

ADDRESS, SECRET = "the forge's address", "the token"
Query = Mapping[str, str | int | bool]


class AnswerError(ForgeError):
    """The forge refused a request. `status` is HTTP's, `said` the forge's own message."""

    def __init__(self, message: str, status: int, said: str) -> None:
        super().__init__(message)
        self.status = status
        self.said = said


class OutcomeUnknownError(ForgeUnavailableError):
    """A request that must not be repeated blindly got no answer: the forge may or may not have done it."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one call, in seconds unless the name says otherwise.

    `deadline` covers every attempt and every pause of a call; each page of a list is a call of its own. `patience` is
    how long adapters wait for a forge's background work, such as listing a branch that was just pushed.
    """

    deadline: float = 120.0
    attempts: int = 6
    connect: float = 10.0
    silence: float = 30.0
    first_pause: float = 0.5
    longest_pause: float = 15.0
    largest_bytes: int = 64 * MIB
    pages: int = 200
    patience: float = 30.0


@dataclass(frozen=True)
class HttpAnswer:
    """The forge's answer: HTTP's status, headers, and the JSON value of the body (None if it is empty)."""

    status: int
    headers: Mapping[str, str]
    data: Any


class _AttemptError(Exception):
    """An attempt without a usable answer. `delivered`: the forge may have got the request, whole or in part."""

    def __init__(self, reason: str, delivered: bool, pause: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delivered = delivered
        self.pause = pause


class Client:
    """A forge's REST API below `base_url`, such as `https://api.github.com` or `http://127.0.0.1:3000/api/v1`.

    Every attempt uses a connection of its own: nothing is held open, and no request is lost on a connection that the
    forge closed meanwhile. Raises InputError for an address to which the token must not be sent, and for a malformed
    token.
    """

    def __init__(
        self,
        base_url: str,
        token: Token | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.base_url = checked_address(base_url, ADDRESS, SECRET)
        if token is not None:
            check_secret(token.secret, "the forge's token")
        self.limits = limits or Limits()
        self.token = token
        self._headers = {
            "Accept": "application/json",
            "User-Agent": f"neuroscale/{__version__}",
            **(headers or {}),
            **({"Authorization": f"Bearer {token.secret}"} if token else {}),
        }
        address = urlsplit(self.base_url)
        self._loopback = is_loopback(address.hostname or "")
        # Plain HTTP does not need the certificates, which take a while to load.
        plain = address.scheme == "http"
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else httpx.create_ssl_context()

    def __repr__(self) -> str:
        return f"Client({self.base_url!r})"

    def get(self, path: str, query: Query | None = None, *, accept: Sequence[int] = ()) -> HttpAnswer:
        """As `send`, for requests that only read."""
        return self.send("GET", path, query=query, idempotent=True, accept=accept)

    def pages(self, path: str, query: Query | None = None, within: str | None = None) -> Iterator[Any]:
        """The entries of a paged list, from the first on; `within` names the field that holds the list.

        Raises ForgeError when the list has no end.
        """
        asked = dict(query or {})
        seen = 0
        for page in range(1, self.limits.pages + 1):
            answer = self.get(path, asked)
            data = answer.data
            entries = data.get(within) if within is not None and isinstance(data, Mapping) else data
            if not isinstance(entries, list):
                raise ForgeError(f"GET {self._url(path)}: the forge did not answer with a list.")
            yield from entries
            seen += len(entries)
            following = next_query(answer.headers.get("link", ""))
            if following is None:
                # Some of Gitea's lists come without links, with the number of all entries.
                total = answer.headers.get("x-total-count", "")
                if not entries or not total.isdecimal() or seen >= int(total):
                    return
                following = {"page": str(page + 1)}
            if not following.items() - {key: str(value) for key, value in asked.items()}.items():
                break
            # Only the query is used: the address in a link may be another server, or another name of this one.
            asked = {**asked, **following}
        raise ForgeError(f"GET {self._url(path)}: the forge's list has no end after {self.limits.pages} pages.")

    def send(
        self,
        method: str,
        path: str,
        *,
        idempotent: bool,
        query: Query | None = None,
        body: Any = None,
        accept: Sequence[int] = (),
    ) -> HttpAnswer:
        """Send a request and return the answer, whose status is from 200 to 299 or in `accept`.

        `path` is below the base address; its variable parts come out of `segments`. `body` is sent as JSON.
        `idempotent` says whether the request may be repeated when it is unknown whether the forge has done it already.

        Raises AnswerError when the forge refuses, ForgeUnavailableError when no answer comes within the limits, and
        OutcomeUnknownError (one of the latter) when a request that is not idempotent may have been done.
        """
        what = f"{method} {self._url(path)}"
        content = None if body is None else json.dumps(body).encode()
        began = time.monotonic()
        ends = began + self.limits.deadline
        tried = 0

        def ask() -> HttpAnswer:
            nonlocal tried
            tried += 1
            return self._answer(what, self._follow(method, self._url(path), query, content, ends), accept)

        def again(error: Exception) -> bool | float:
            if not isinstance(error, _AttemptError) or (error.delivered and not idempotent):
                return False
            pause = self._pause(tried, error)
            return pause if pause < ends - time.monotonic() else False

        try:
            return repeatedly(ask, attempts=self.limits.attempts, again=again)
        except _AttemptError as failure:
            told = f"{what}: {failure.reason}"
            if failure.delivered and not idempotent:
                unknown = f"{told}. It is unknown whether the forge has done it: look there."
                raise OutcomeUnknownError(self._safe(unknown)) from None
            if failure.pause is not None and failure.pause >= ends - time.monotonic():
                told += f", {_until(failure.pause)}. Run the command again then."
            else:
                took = f"{counted(tried, 'attempt')} in {duration(time.monotonic() - began)}"
                told += f" ({took}). Check that the forge is up, and run the command again."
            raise ForgeUnavailableError(self._safe(told)) from None

    def _url(self, path: str) -> str:
        return f"{self.base_url}/{path.lstrip('/')}"

    def _safe(self, text: str) -> str:
        return redact(text, self.token)

    def _pause(self, attempt: int, failure: _AttemptError) -> float:
        if failure.pause is not None:
            return failure.pause + random.uniform(0, 0.5)  # noqa: S311 - spreads the load, guards nothing
        longest = min(self.limits.longest_pause, self.limits.first_pause * 2 ** (attempt - 1))
        return random.uniform(0, longest)  # noqa: S311

    def _follow(self, method: str, url: str, query: Query | None, content: bytes | None, ends: float) -> Received:
        """One attempt, with redirects within the same server. The token never goes to another one."""
        parameters: Query | None = query
        for _ in range(5):
            received = self._attempt(method, url, parameters, content, ends)
            if received.status not in (301, 302, 303, 307, 308):
                return received
            target = urljoin(url, received.headers.get("location", ""))
            told = self._safe(one_line(target.split("?", 1)[0], 200))
            if _origin(target) != _origin(url):
                raise ForgeError(
                    f"{method} {url}: the forge redirects to another server ({told}), to which the token is not "
                    f"sent. If the repository moved there, change the address of the git remote."
                )
            if method not in ("GET", "HEAD") and received.status not in (307, 308):
                raise ForgeError(
                    f"{method} {url}: the forge redirects to {told}. If the repository moved, change the git remote."
                )
            url, parameters = target, None
        raise ForgeError(f"{method} {url}: the forge's redirects do not end.")

    def _attempt(self, method: str, url: str, query: Query | None, content: bytes | None, ends: float) -> Received:
        seconds = ends - time.monotonic()
        sent = False

        async def trace(event: str, _: Mapping[str, Any]) -> None:
            nonlocal sent
            sent = sent or event.endswith("send_request_headers.started")

        async def exchange() -> Received:
            # Awaited, because only then the deadline covers everything, even a trickle of bytes. The time in which the
            # system's resolver gives a name up is added.
            async with (
                asyncio.timeout(seconds),
                httpx.AsyncClient(
                    verify=self._tls,
                    trust_env=not self._loopback,
                    timeout=httpx.Timeout(self.limits.silence, connect=self.limits.connect),
                    follow_redirects=False,
                ) as client,
                client.stream(
                    method,
                    url,
                    params=None if query is None else dict(query),
                    content=content,
                    headers=self._headers | ({"Content-Type": "application/json"} if content is not None else {}),
                    extensions={"trace": trace},
                ) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > self.limits.largest_bytes:
                        raise ForgeError(
                            f"{method} {url}: the answer is larger than {self.limits.largest_bytes} bytes."
                        )
                return Received(response.status_code, response.headers, bytes(body))

        try:
            return asyncio.run(exchange())
        except TimeoutError:
            raise _AttemptError(f"no complete answer within {self.limits.deadline:g} s", sent) from None
        except httpx.HTTPError as error:
            wrong = next((one for one in causes(error) if isinstance(one, ssl.SSLCertVerificationError)), None)
            if wrong is not None:
                raise ForgeError(
                    f"{method} {url}: the forge's certificate is not valid ({one_line(wrong.verify_message, 200)}). "
                    "Nothing was sent. "
                    "If your organisation has its own authority, name its certificates in SSL_CERT_FILE."
                ) from None
            raise _AttemptError(_reason(error, self.limits), sent) from None

    def _answer(self, what: str, received: Received, accept: Sequence[int]) -> HttpAnswer:
        """The answer of the forge. Raises the reason to ask again, or the error that the answer means."""
        status = received.status
        data, readable = decoded(received.body)
        said = self._safe(message_of(data))
        limit = rate_limit(received, said)
        if limit is not None:
            raise _AttemptError("the forge limits how many requests may be made", False, limit)
        if 200 <= status < 300 or status in accept:
            if not readable and status not in accept:
                raise _AttemptError("the answer is not JSON, or only a part of it", True)
            return HttpAnswer(status, {key.lower(): value for key, value in received.headers.items()}, data)
        told = f"{status} {phrase(status)}" + (f": {said}" if said else "")
        if status == 408 or (status >= 500 and status != 501):
            raise _AttemptError(f"the forge answered {told}", True, retry_after(received.headers))
        raise AnswerError(f"{what}: the forge answered {told}. {advice(status)}", status, said)


def segments(*parts: str | int) -> str:
    """Parts of a path, quoted so that each stays one part whatever characters it has. Raises InputError for `.` and
    `..`."""
    for part in parts:
        if str(part) in ("", ".", ".."):
            raise InputError.at("a request to the forge", "", f"has {str(part)!r} as a name", "Use another name.")
    return "/".join(quote(str(part), safe="") for part in parts)


def _origin(url: str) -> tuple[str, str, int]:
    address = urlsplit(url)
    try:
        port = address.port
    except ValueError:
        port = -1
    return address.scheme, address.hostname or "", port or {"http": 80, "https": 443}.get(address.scheme, 0)


def _reason(error: httpx.HTTPError, limits: Limits) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {limits.connect:g} s"
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {limits.silence:g} s"
    detail = one_line(str(error), 200) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        return f"no connection ({detail})"
    return f"the connection broke ({detail})"


def _until(seconds: float) -> str:
    try:
        at = datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "for a very long time"
    return f"for {duration(seconds)} more, until {at}"

"""Holds an open endpoint, and explains its refusals."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx

from neuroscale.cluster.command_lines import ANY_CLUSTER, CommandLines
from neuroscale.cluster.endpoint.errors import EndpointError, UnreachedError
from neuroscale.cluster.endpoint.routes import DIRECT, OPTION, Routes
from neuroscale.core.addresses import is_loopback
from neuroscale.core.errors import causes
from neuroscale.core.printable import one_line
from neuroscale.core.secret_text import SecretText, redact
from neuroscale.core.units import MIB
from neuroscale.manifests.objects import SERVICE

How = Literal["port-forward", "url"]
_Answer = TypeVar("_Answer")

_NO_POD = (502, 503, 504)
"""The statuses of a gateway that could not ask a pod."""


class TookTooLongError(httpx.TimeoutException):
    """The whole of an answer took longer than it may."""


_WAYS: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLCertVerificationError, ""),
    (socket.gaierror, "dns"),
    (ConnectionRefusedError, "refused"),
    (TookTooLongError, ""),  # the service answers, but too slowly
    (httpx.TimeoutException, "timeout"),
    (TimeoutError, "timeout"),
    (ssl.SSLError, "tls"),
    (httpx.LocalProtocolError, ""),
    (httpx.UnsupportedProtocol, ""),
)
"""How the way failed by the error that shows it, the first that fits."""
_CUT = ("peer closed", "Server disconnected")
"""How the messages of h11 and httpcore begin for a connection that ended too early. Any other protocol error is a wrong
answer."""

_OTHER_NAMES = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL

_LONGEST_WORDS = 500
_LARGEST_ERROR = 64 * 1024
_LARGEST_ANSWER = 64 * MIB
"""Bytes. A token takes some 300 of them in a stream."""


class Asking(Protocol):
    """Sends a request, and decides whether it is sent again after an EndpointError."""

    def __call__(self, ask: Callable[[], _Answer]) -> _Answer: ...


def once(ask: Callable[[], _Answer]) -> _Answer:
    """Send it once."""
    return ask()


@dataclass(frozen=True)
class Endpoint:
    """A served model, for as long as `open_endpoint` holds it open.

    `url`: without a slash at its end. `model`: the name by which the server knows the model. `http`: has `url` as its
    base and sends no key by itself: `headers()` holds it. `how`: by a port-forward through the API server to `pod`, or
    by an address. `lines`: the beginnings of commands for its cluster. `routes`: the ways to hosts. `asking` sends each
    request.
    To ask with another key, or without one: `dataclasses.replace(endpoint, key=...)`.
    """

    url: str
    model: str
    key: SecretText | None
    http: httpx.Client
    how: How
    namespace: str = ""
    service: str = ""
    pod: str = ""
    lines: CommandLines = ANY_CLUSTER
    routes: Routes = DIRECT
    asking: Asking = once

    def headers(self) -> dict[str, str]:
        """The header that sends the key; empty without a key."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key.secret}"}

    def way_of(self, status: int) -> str:
        """The way that failed, where a gateway could not ask a pod; "" for a status of the service itself."""
        return "no pod" if self.how == "url" and status in _NO_POD else ""

    @property
    def look(self) -> str:
        """The command that shows the server's log."""
        where = f"-n {self.namespace} " if self.namespace else ""
        if self.pod:
            return f"{self.lines.kubectl} logs {where}{self.pod}"
        return f"{self.lines.kubectl} logs {where}-l {SERVICE}={self.service or 'SERVICE'}"


def client(url: str, *, direct: bool | None = None, routes: Routes = DIRECT) -> httpx.Client:
    """The HTTP client of an endpoint.

    `direct`: without the proxies that the environment names; None: if the address is one of this machine. A host that
    `routes` lead elsewhere is asked without them, too: a proxy would resolve its name.

    Certificates are verified with the authorities that Python trusts, or those in `$SSL_CERT_FILE`.
    """
    # vLLM closes a connection after 5 idle seconds: ours ends earlier, so vLLM never closes one as a request is sent.
    if direct is None:
        direct = is_loopback(urlsplit(url).hostname or "")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=2.0)
    return httpx.Client(
        base_url=url,
        headers={"Accept-Encoding": "identity"},
        timeout=httpx.Timeout(30.0, connect=10.0),
        limits=limits,
        trust_env=not direct,
        transport=routes.transport(url, limits),
    )


class _Bounded(httpx.SyncByteStream):
    """The bytes of a response, up to a size and a time."""

    def __init__(self, inner: httpx.SyncByteStream, ends: float, most: int) -> None:
        self._inner = inner
        self._ends = ends
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._inner:
            size += len(chunk)
            if size > self._most:
                raise httpx.DecodingError(f"more than {self._most:,} bytes")
            if time.monotonic() > self._ends:
                raise TookTooLongError("it took longer than its time limit")
            yield chunk

    def close(self) -> None:
        self._inner.close()


def bounded(response: httpx.Response, ends: float) -> None:
    """Limit a response that is about to be read to a time (`time.monotonic`) and to a size.

    Raises httpx.DecodingError if it is compressed: no request asks for that, and it hides the size.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx.DecodingError("compressed, which was not asked for")
    most = _LARGEST_ANSWER if response.is_success else _LARGEST_ERROR
    stream = response.stream
    if isinstance(stream, httpx.SyncByteStream):
        response.stream = _Bounded(stream, ends, most)


def server_words(found: Any) -> str:
    """The message in the JSON of a server's error, on one line and shortened."""
    error = found.get("error", found) if isinstance(found, dict) else found
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return one_line(error if isinstance(error, str) else json.dumps(error), _LONGEST_WORDS)


def refused(endpoint: Endpoint, response: httpx.Response) -> EndpointError:
    """The error that a failed response means, with the server's own message."""
    status = response.status_code
    try:
        response.read()
        said = response.text
    except httpx.HTTPError as error:
        said = f"its message could not be read: {type(error).__name__}"
    try:
        said = server_words(json.loads(said))
    except ValueError:
        said = one_line(said, _LONGEST_WORDS)
    said = redact(said, endpoint.key)
    place = response.url.copy_with(query=None)
    told = f"{place} answers {status}: {said or 'without a message'}".removesuffix(".")
    return EndpointError(f"{told}. {_next(endpoint, status, said)}", status, said, way=endpoint.way_of(status))


def _next(endpoint: Endpoint, status: int, said: str) -> str:
    service = endpoint.service or "SERVICE"
    key, look = (endpoint.lines.own(words) for words in (f"key {service} --print", f"status {service}"))
    if status in (401, 403):
        if endpoint.key is None:
            return f"The request had no key. Make the service's key, or read it: {key}"
        return (
            f"It refuses the key. Read the service's own: {key}; while the key is being "
            f"replaced, pods that are not new yet take the earlier one."
        )
    if status == 400 and ("context length" in said or "maximum model length" in said or "max_tokens" in said):
        return "Shorten the prompt, or ask for a shorter answer (--max-tokens)."
    if status == 404 and "model" in said:
        return f"The server serves another model: see {endpoint.url}/v1/models."
    if status == 429:
        return "The server gets too many requests: wait and ask again."
    if 300 <= status < 400:
        return "The server redirects: give the address at which it answers directly."
    if status in (404, 502, 503, 504):
        return f"Is the service ready? See: {look}"
    if status >= 500:
        return f"Read the server's log: {endpoint.look}"
    return "See the server's message."


def unreachable(endpoint: Endpoint, path: str, error: httpx.HTTPError) -> UnreachedError:
    """The error that a missing answer means."""
    place = f"{endpoint.url}{path}"
    look = endpoint.lines.own(f"status {endpoint.service or 'SERVICE'}")
    do = f"Is it ready? See: {look}"
    if isinstance(error, TookTooLongError):
        told = f"{place} did not end its answer in time"
    elif isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        told = f"{place} does not take a connection in time"
    elif isinstance(error, httpx.TimeoutException):
        told = f"{place} does not answer in time"
    elif endpoint.how == "url" and (found := _no_connection(urlsplit(endpoint.url), error)):
        told, do = found
    else:
        told = f"{place} does not answer: {one_line(str(error), 200).rstrip('.') or type(error).__name__}"
    return UnreachedError(redact(told, endpoint.key), do, way_that_failed(error))


def way_that_failed(error: BaseException) -> str:
    """How the way to a service failed (see `EndpointError.way`); "" if an answer came, or a certificate that nobody
    trusts."""
    found = list(causes(error))
    for kind, way in _WAYS:
        if any(isinstance(cause, kind) for cause in found):
            return way
    if isinstance(error, httpx.RemoteProtocolError) and not str(error).startswith(_CUT):
        return ""
    return "cut" if isinstance(error, httpx.TransportError | OSError) else ""


def _no_connection(url: SplitResult, error: BaseException) -> tuple[str, str] | None:
    """Why no connection to a web address came about, and what to do; None if it did, or the reason is another."""
    host, found = url.hostname or "", list(causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in found):
        told = f"the name {host} does not resolve"
        return (
            told,
            f"Is it written right? For a name that no DNS has, `smoke` and curl take {OPTION} HOST:PORT:ADDRESS:PORT.",
        )
    if any(isinstance(cause, ConnectionRefusedError) for cause in found):
        told = f"{host} refuses the connection to port {url.port or (443 if url.scheme == 'https' else 80)}"
        return told, "Does the gateway run, and are host and port right?"
    for cause in found:
        if isinstance(cause, ssl.SSLCertVerificationError):
            if cause.verify_code in _OTHER_NAMES:
                told = f"the certificate at {host} is for another name: {cause.verify_message}"
                return told, "Name the host by which its clients reach it, or correct the gateway's certificate."
            told = f"the certificate of {host} is not trusted: {cause.verify_message}"
            return told, "Name the file with the authority that signed it in $SSL_CERT_FILE."
        if isinstance(cause, ssl.SSLError):
            told = f"TLS with {host} does not begin: {cause.reason or cause}"
            return told, "Are scheme, host and port right, and has the gateway a certificate for this name?"
    return None

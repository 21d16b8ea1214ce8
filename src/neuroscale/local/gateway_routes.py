"""Tells the gateway (Caddy), for each request, which pods of this machine's node answer for its host.

Hosts come from KServe's `status.url`, and pods from the ready addresses of the cluster's EndpointSlices. Caddy asks by
a socket, and its configuration never changes: when it loads a new one, it drops requests that have just come in.

A bare Python runs this file by itself: only the standard library may be imported here.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import ipaddress
import json
import random
import re
import socketserver
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]

SOCKET = "router.sock"
"""Relative to the folder in which both run: a full path could be too long for a socket."""
SYNCED = "synced"
"""A file that exists once the cluster has been read."""
FIRST, SECOND = "X-First", "X-Second"
"""The headers of an answer that name addresses to try."""

POD_NETWORK, LOOPBACK_NETWORK = "10.127.", "127.127."
"""The process of the pod with address 10.127.A.B listens on the loopback address 127.127.A.B."""

_PAGE = 500
_WATCH = 240  # seconds that the API server lets a watch last
_TIMEOUT = _WATCH + 60.0
_SETTLES = 0.02  # seconds in which changes are collected and then applied together
_PAUSE = 1.0

_JSON = {"Content-Type": "application/json"}
_HOST = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


@dataclass(frozen=True)
class Settings:
    """The API server (HOST:PORT), files (its authority, a client's certificate and key), and the node."""

    api: str
    authority: str
    client_certificate: str
    client_key: str
    node: str

    @classmethod
    def read(cls, path: Path) -> Settings:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class RoutedService:
    """An InferenceService: its host, its time of creation (the API's text), and the Kubernetes Service before its
    pods."""

    host: str
    created: str
    namespace: str
    backend: str

    @classmethod
    def of(cls, service: Mapping[str, Any]) -> RoutedService | None:
        """The service, or None if it has no host yet."""
        metadata = service["metadata"]
        host = urllib.parse.urlsplit(str((service.get("status") or {}).get("url") or "")).hostname or ""
        if not _HOST.fullmatch(host):
            return None
        variant = ((service.get("spec") or {}).get("predictor") or {}).get("name")
        backend = f"{metadata['name']}-{variant}-predictor" if variant else f"{metadata['name']}-predictor"
        return cls(host, str(metadata.get("creationTimestamp") or ""), metadata["namespace"], backend)


@dataclass(frozen=True)
class Slice:
    """The ready addresses (127.127.A.B:PORT) of one EndpointSlice on this machine's node."""

    namespace: str
    backend: str
    addresses: tuple[str, ...]

    @classmethod
    def of(cls, endpoint_slice: Mapping[str, Any], node: str) -> Slice:
        metadata = endpoint_slice["metadata"]
        backend = str((metadata.get("labels") or {}).get("kubernetes.io/service-name") or "")
        ports = [item["port"] for item in endpoint_slice.get("ports") or () if item.get("protocol", "TCP") == "TCP"]
        if endpoint_slice.get("addressType") != "IPv4" or not ports:
            return cls(metadata["namespace"], backend, ())
        ready = [
            address
            for endpoint in endpoint_slice.get("endpoints") or ()
            if endpoint.get("nodeName") == node and (endpoint.get("conditions") or {}).get("ready") is True
            for address in endpoint.get("addresses") or ()
        ]
        return cls(
            metadata["namespace"], backend, tuple(f"{_loopback(item)}:{ports[0]}" for item in ready if _is_own(item))
        )


@dataclass(frozen=True)
class Route:
    """A host, and the addresses of the processes that answer for it; empty if no pod is ready."""

    host: str
    addresses: tuple[str, ...]


def routes(services: Iterable[RoutedService], slices: Iterable[Slice]) -> tuple[Route, ...]:
    """The routes by host. If KServe gave several services the same host, the oldest gets it."""
    addresses: dict[tuple[str, str], set[str]] = {}
    for item in slices:
        addresses.setdefault((item.namespace, item.backend), set()).update(item.addresses)
    by_host: dict[str, Route] = {}
    for service in sorted(services, key=lambda item: (item.created, item.namespace, item.backend)):
        own = addresses.get((service.namespace, service.backend), set())
        by_host.setdefault(service.host, Route(service.host, tuple(sorted(own))))
    return tuple(by_host[host] for host in sorted(by_host))


def _is_own(address: str) -> bool:
    try:
        return str(ipaddress.IPv4Address(address)) == address and address.startswith(POD_NETWORK)
    except ValueError:
        return False


def _loopback(address: str) -> str:
    return LOOPBACK_NETWORK + address.removeprefix(POD_NETWORK)


# The cluster ------------------------------------------------------------------------------------------------------


class RefusedError(Exception):
    """The API server answered with an error. `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"the API server answers {code}: {message}")
        self.code = code


class Kind:
    """All objects of one kind, kept up to date by a list and a watch."""

    def __init__(self, settings: Settings, path: str, read: Callable[[Object], Any], changed: threading.Event) -> None:
        self._settings = settings
        self._path = path
        self._read = read
        self._changed = changed
        self._facts: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()
        self.synced = threading.Event()

    def facts(self) -> list[Any]:
        """The facts of each object, without objects that have none."""
        with self._lock:
            return [fact for fact in self._facts.values() if fact is not None]

    def follow(self) -> None:
        """Follow the cluster for ever. While it does not answer, the last known objects stay."""
        while True:
            try:
                version = self._list()
                while True:
                    version = self._watch(version)
            except RefusedError as error:
                if error.code != 410:  # the version is too old: read the list again
                    say(f"{self._path}: {error}")
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                say(f"{self._path}: {type(error).__name__}: {error}")
            time.sleep(_PAUSE)

    def _list(self) -> str:
        facts: dict[tuple[str, str], Any] = {}
        following = ""
        while True:
            query = {"limit": str(_PAGE), **({"continue": following} if following else {})}
            with _get(self._settings, f"{self._path}?{urllib.parse.urlencode(query)}") as answer:
                page = json.load(answer)
            facts.update((_key(item), self._read(item)) for item in page["items"])
            following = page["metadata"].get("continue") or ""
            if not following:
                break
        with self._lock:
            self._facts = facts
        self.synced.set()
        self._changed.set()
        return str(page["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        """Take over events until the server ends the watch. Returns the version to continue from."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": _WATCH}
        with _get(self._settings, f"{self._path}?{urllib.parse.urlencode(query)}") as answer:
            for line in answer:
                event = json.loads(line)
                item = event["object"]
                if event["type"] == "ERROR":
                    raise RefusedError(int(item.get("code") or 0), str(item.get("message")))
                version = str(item["metadata"]["resourceVersion"])
                if event["type"] != "BOOKMARK":
                    self._take(event["type"], item)
        return version

    def _take(self, event: str, item: Object) -> None:
        key, fact = _key(item), None if event == "DELETED" else self._read(item)
        with self._lock:
            same = self._facts.get(key) == fact
            if event == "DELETED":
                self._facts.pop(key, None)
            else:
                self._facts[key] = fact
        if not same:
            self._changed.set()


@contextlib.contextmanager
def _get(settings: Settings, address: str) -> Iterator[http.client.HTTPResponse]:
    """The answer of the API server to a GET. Raises RefusedError, OSError."""
    context = ssl.create_default_context(cafile=settings.authority)
    context.load_cert_chain(settings.client_certificate, settings.client_key)
    connection = http.client.HTTPSConnection(settings.api, timeout=_TIMEOUT, context=context)
    try:
        connection.request("GET", address, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RefusedError(answer.status, answer.read(500).decode(errors="replace"))
        yield answer
    finally:
        connection.close()


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace") or "", item["metadata"]["name"]


# The router -------------------------------------------------------------------------------------------------------


class Router(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers by HTTP to which addresses a host leads, on a socket that only the gateway can reach: see `_Handler`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)  # the socket of an earlier run
        super().__init__(path, _Handler)
        self.table: Mapping[str, tuple[str, ...]] = {}

    def answer(self, host: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body: 200 with two addresses to try, or the answer for the client."""
        addresses = self.table.get(host.partition(":")[0].rstrip(".").lower())
        if addresses:
            # The same address twice if only one is ready.
            first, second = random.sample(addresses, 2) if len(addresses) > 1 else addresses * 2
            return 200, {FIRST: first, SECOND: second}, b""
        if addresses is None:
            return 404, _JSON, error(404, "No service has this host name.", "NotFoundError")
        message = "No pod of this service is ready on this machine. Pods on simulated nodes do not answer."
        return 503, {**_JSON, "Retry-After": "5"}, error(503, message, "ServiceUnavailableError")


class _Handler(http.server.BaseHTTPRequestHandler):
    """`GET /` with the host in question as its Host."""

    server: Router
    protocol_version = "HTTP/1.1"
    timeout = 300.0  # seconds that Caddy may keep a connection for later

    def do_GET(self) -> None:
        status, headers, body = self.server.answer(self.headers.get("Host") or "")
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def error(status: int, message: str, kind: str) -> bytes:
    """The body of an answer in the form of OpenAI's API."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()


def follow(settings: Settings) -> None:
    """Answer for ever by the state of the cluster, on a socket in the current folder."""
    changed = threading.Event()
    services = Kind(settings, "/apis/serving.kserve.io/v1beta1/inferenceservices", RoutedService.of, changed)
    slices = Kind(
        settings, "/apis/discovery.k8s.io/v1/endpointslices", lambda item: Slice.of(item, settings.node), changed
    )
    for kind in (services, slices):
        threading.Thread(target=kind.follow, daemon=True).start()
    for kind in (services, slices):
        kind.synced.wait()
    router = Router(SOCKET)
    threading.Thread(target=router.serve_forever, daemon=True).start()
    while True:
        changed.clear()
        began = time.monotonic()
        router.table = {route.host: route.addresses for route in routes(services.facts(), slices.facts())}
        Path(SYNCED).touch()
        # With thousands of services, let other work run in between.
        time.sleep(max(_SETTLES, time.monotonic() - began))
        changed.wait()


def say(text: str) -> None:
    """Write a line to the log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    follow(Settings.read(Path(sys.argv[1])))

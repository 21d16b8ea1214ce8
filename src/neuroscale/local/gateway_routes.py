"""Tells the gateway (Caddy) which pods of this machine's node answer for which host, as soon as that changes.

Services' hosts are those of KServe's `status.url`, and pods those that the cluster's EndpointSlices call ready. The
configuration is written whole, and given to Caddy by its administration socket: what it is answering goes on.

This file is run by itself, by a Python that has nothing else: only the standard library may be imported here.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import re
import socket
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

CONFIGURATION = "caddy.json"
SOCKET = "admin.sock"
"""Caddy's administration, in the folder that both run in: a full path could be longer than a socket's may be."""
SYNCED = "synced"
"""A file that is there once Caddy's configuration holds what the cluster holds."""
HEALTH = "/healthz"

POD_NETWORK, LOOPBACK_NETWORK = "10.127.", "127.127."
"""The process of the pod with address 10.127.A.B listens on the loopback address 127.127.A.B."""

LARGEST_BODY = 32 * 1024 * 1024  # bytes
HEADER_WITHIN = 5  # seconds
_SERVED = ["/v1/*", "/health"]
_DIAL = "3s"
_ANSWERS_WITHIN = "10m"  # until the first byte: without streaming, that is the whole answer
_PAGE = 500
_WATCH = 240  # seconds that the API server lets a watch last
_TIMEOUT = _WATCH + 60.0
_SETTLES = 0.05  # seconds: what changes together is told to Caddy at once
_PAUSE = 1.0

_HOST = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


@dataclass(frozen=True)
class Settings:
    """Where everything is. `api` is HOST:PORT; ports are on 127.0.0.1; the rest but `node` are paths of files."""

    api: str
    authority: str
    client_certificate: str
    client_key: str
    node: str
    port: int
    redirect_port: int
    certificate: str
    key: str

    @classmethod
    def read(cls, path: Path) -> Settings:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Service:
    """An InferenceService: its host, when it was made (the API's text), and the Kubernetes Service before its pods."""

    host: str
    created: str
    namespace: str
    backend: str

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Service | None:
        """None for one that has no host yet."""
        metadata = found["metadata"]
        host = urllib.parse.urlsplit(str((found.get("status") or {}).get("url") or "")).hostname or ""
        if not _HOST.fullmatch(host):
            return None
        variant = ((found.get("spec") or {}).get("predictor") or {}).get("name")
        backend = f"{metadata['name']}-{variant}-predictor" if variant else f"{metadata['name']}-predictor"
        return cls(host, str(metadata.get("creationTimestamp") or ""), metadata["namespace"], backend)


@dataclass(frozen=True)
class Slice:
    """The ready addresses (127.127.A.B:PORT) of one EndpointSlice on this machine's node."""

    namespace: str
    backend: str
    addresses: tuple[str, ...]

    @classmethod
    def of(cls, found: Mapping[str, Any], node: str) -> Slice:
        metadata = found["metadata"]
        backend = str((metadata.get("labels") or {}).get("kubernetes.io/service-name") or "")
        ports = [one["port"] for one in found.get("ports") or () if one.get("protocol", "TCP") == "TCP"]
        if found.get("addressType") != "IPv4" or not ports:
            return cls(metadata["namespace"], backend, ())
        ready = [
            address
            for endpoint in found.get("endpoints") or ()
            if endpoint.get("nodeName") == node and (endpoint.get("conditions") or {}).get("ready") is True
            for address in endpoint.get("addresses") or ()
        ]
        return cls(
            metadata["namespace"], backend, tuple(f"{_loopback(one)}:{ports[0]}" for one in ready if _is_own(one))
        )


@dataclass(frozen=True)
class Route:
    """A host, and the addresses of the processes that answer for it: none where no pod is ready."""

    host: str
    addresses: tuple[str, ...]


def routes(services: Iterable[Service], slices: Iterable[Slice]) -> tuple[Route, ...]:
    """The routes by host. Of services that KServe gave the same host, the oldest has it."""
    addresses: dict[tuple[str, str], set[str]] = {}
    for one in slices:
        addresses.setdefault((one.namespace, one.backend), set()).update(one.addresses)
    found: dict[str, Route] = {}
    for service in sorted(services, key=lambda one: (one.created, one.namespace, one.backend)):
        own = addresses.get((service.namespace, service.backend), set())
        found.setdefault(service.host, Route(service.host, tuple(sorted(own))))
    return tuple(found[host] for host in sorted(found))


def configuration(found: Iterable[Route], settings: Settings) -> Object:
    """Caddy's configuration: TLS on one loopback port, a redirect to it on the other, and nothing else."""
    found = tuple(found)
    loopback = [{"host": ["127.0.0.1", "localhost"], "path": [HEALTH]}]
    open_, closed = [one for one in found if one.addresses], [one.host for one in found if not one.addresses]
    handlers: list[Object] = [_route([_says(200, "ok")], loopback)]
    handlers += [_route([_body_limit(), _proxy(one)], [{"host": [one.host], "path": _SERVED}]) for one in open_]
    if closed:
        told = "No pod of this service is ready on this machine. Pods of simulated nodes answer nothing."
        handlers.append(_route([_error(503, told)], [{"host": closed, "path": _SERVED}]))
    if found:
        told = "This path is not served from outside: /v1/... and /health are."
        handlers.append(_route([_error(404, told)], [{"host": [one.host for one in found]}]))
    handlers.append(_route([_error(404, "No service has this host name.")]))
    return {
        "admin": {"listen": f"unix/{SOCKET}|0600", "config": {"persist": False}},
        "logging": {"logs": {"default": {"level": "WARN", "encoder": _without_requests()}}},
        "storage": {"module": "file_system", "root": "storage"},
        "apps": {
            "http": {
                "servers": {
                    "https": {
                        **_server(settings.port),
                        "tls_connection_policies": [{}],
                        "routes": handlers,
                        "errors": {"routes": _failures()},
                    },
                    "http": {**_server(settings.redirect_port), "routes": [_route([_to_https()])]},
                }
            },
            "tls": {
                "certificates": {"load_files": [{"certificate": settings.certificate, "key": settings.key}]},
                "automation": {"policies": []},
            },
        },
    }


def _server(port: int) -> Object:
    return {
        "listen": [f"127.0.0.1:{port}"],
        "protocols": ["h1", "h2"],
        "automatic_https": {"disable": True},
        "read_header_timeout": f"{HEADER_WITHIN}s",
        "idle_timeout": "2m",
        "max_header_bytes": 32 * 1024,
    }


def _route(handlers: list[Object], match: list[Object] | None = None) -> Object:
    return {**({"match": match} if match else {}), "handle": handlers, "terminal": True}


def _proxy(route: Route) -> Object:
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": address} for address in route.addresses],
        # What a pod writes goes out at once.
        "flush_interval": -1,
        # Only where no connection could be made is another pod tried: nothing is asked twice.
        "load_balancing": {
            "selection_policy": {"policy": "least_conn"},
            "try_duration": "2s",
            "try_interval": "100ms",
        },
        "transport": {
            "protocol": "http",
            "dial_timeout": _DIAL,
            "response_header_timeout": _ANSWERS_WITHIN,
            # vLLM's server closes idle connections after 5 s, and a request could be on its way then.
            "keep_alive": {"idle_timeout": "2s"},
        },
    }


def _body_limit() -> Object:
    return {"handler": "request_body", "max_size": LARGEST_BODY}


def _to_https() -> Object:
    return {
        "handler": "static_response",
        "status_code": 308,
        "headers": {"Location": ["https://{http.request.host}{http.request.uri}"]},
    }


def _says(status: int, body: str) -> Object:
    return {"handler": "static_response", "status_code": status, "body": body}


def _error(status: int, message: str, kind: str = "") -> Object:
    """An answer in the form of OpenAI's API."""
    usual = {404: "NotFoundError", 413: "BadRequestError", 503: "ServiceUnavailableError"}
    error = {"message": message, "type": kind or usual[status], "param": None, "code": status}
    headers = {"Content-Type": ["application/json"], **({"Retry-After": ["5"]} if status == 503 else {})}
    # Caddy takes a name in braces for a placeholder; with a space before it, it is none.
    body = json.dumps({"error": error}).replace("{", "{ ")
    return {"handler": "static_response", "status_code": status, "headers": headers, "body": body}


def _failures() -> list[Object]:
    """What is said where a pod could not be asked, in place of an empty answer."""

    def when(status: int, handler: Object) -> Object:
        return _route([handler], [{"vars": {"{http.error.status_code}": [str(status)]}}])

    told = "The pod did not answer. Try again; `neuroscale status` says what is wrong."
    return [
        when(413, _error(413, f"The request is larger than {LARGEST_BODY} bytes.")),
        when(502, _error(502, told, "BadGatewayError")),
        when(503, _error(503, told)),
        when(504, _error(504, told, "GatewayTimeoutError")),
    ]


def _without_requests() -> Object:
    """Log lines without what a client sent: its key may stand in a header or, by mistake, in the address."""
    fields = {name: {"filter": "delete"} for name in ("request>headers", "request>uri")}
    return {"format": "filter", "wrap": {"format": "json"}, "fields": fields}


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
    """All objects of one kind, kept as the cluster holds them by a list and a watch of it."""

    def __init__(self, settings: Settings, path: str, read: Callable[[Object], Any], changed: threading.Event) -> None:
        self._settings = settings
        self._path = path
        self._read = read
        self._changed = changed
        self._facts: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()
        self.synced = threading.Event()

    def facts(self) -> list[Any]:
        """What was read of each object, without those of which nothing was."""
        with self._lock:
            return [one for one in self._facts.values() if one is not None]

    def follow(self) -> None:
        """Follow the cluster for ever. While it does not answer, what was known last stays."""
        while True:
            try:
                version = self._list()
                while True:
                    version = self._watch(version)
            except RefusedError as error:
                if error.code != 410:  # too old a version: the list is read anew
                    say(f"{self._path}: {error}")
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                say(f"{self._path}: {type(error).__name__}: {error}")
            time.sleep(_PAUSE)

    def _list(self) -> str:
        found: dict[tuple[str, str], Any] = {}
        following = ""
        while True:
            query = {"limit": str(_PAGE), **({"continue": following} if following else {})}
            with _get(self._settings, f"{self._path}?{urllib.parse.urlencode(query)}") as answer:
                page = json.load(answer)
            found.update((_key(one), self._read(one)) for one in page["items"])
            following = page["metadata"].get("continue") or ""
            if not following:
                break
        with self._lock:
            self._facts = found
        self.synced.set()
        self._changed.set()
        return str(page["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        """Take over events until the server ends the watch; the version to go on from."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": _WATCH}
        with _get(self._settings, f"{self._path}?{urllib.parse.urlencode(query)}") as answer:
            for line in answer:
                event = json.loads(line)
                found = event["object"]
                if event["type"] == "ERROR":
                    raise RefusedError(int(found.get("code") or 0), str(found.get("message")))
                version = str(found["metadata"]["resourceVersion"])
                if event["type"] != "BOOKMARK":
                    self._take(event["type"], found)
        return version

    def _take(self, event: str, found: Object) -> None:
        key, fact = _key(found), None if event == "DELETED" else self._read(found)
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


def _key(found: Mapping[str, Any]) -> tuple[str, str]:
    return found["metadata"].get("namespace") or "", found["metadata"]["name"]


# Caddy ------------------------------------------------------------------------------------------------------------


class _UnixConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def write(text: str, path: Path) -> None:
    """Replace the file, whole or not at all; only its owner may read it."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    half.replace(path)


def load(text: str) -> None:
    """Let the running Caddy take over a configuration. Raises OSError where none runs, ValueError where it refuses."""
    connection = _UnixConnection("localhost", timeout=30.0)
    try:
        connection.request("POST", "/load", text.encode(), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read(1000).decode(errors="replace")
        if answer.status != 200:
            raise ValueError(f"Caddy refuses its configuration ({answer.status}): {said}")
    except http.client.HTTPException as error:
        raise OSError(f"Caddy broke off: {type(error).__name__}") from error
    finally:
        connection.close()


def follow(settings: Settings) -> None:
    """Keep Caddy's configuration what the cluster says, for ever, in the folder that Caddy runs in."""
    changed = threading.Event()
    services = Kind(settings, "/apis/serving.kserve.io/v1beta1/inferenceservices", Service.of, changed)
    slices = Kind(
        settings, "/apis/discovery.k8s.io/v1/endpointslices", lambda found: Slice.of(found, settings.node), changed
    )
    for kind in (services, slices):
        threading.Thread(target=kind.follow, daemon=True).start()
    for kind in (services, slices):
        kind.synced.wait()
    written, loaded, told = "", "", ""
    while True:
        changed.clear()
        began = time.monotonic()
        text = json.dumps(configuration(routes(services.facts(), slices.facts()), settings), indent=1) + "\n"
        if text != written:
            # Caddy reads the file when it starts; one that runs is told.
            write(text, Path(CONFIGURATION))
            written = text
        if text != loaded:
            try:
                load(text)
            except (OSError, ValueError) as error:
                problem = str(error)
            else:
                loaded, problem = text, ""
            if problem and problem != told:
                say(problem)
            told = problem
        Path(SYNCED).touch()
        # With thousands of services, Caddy is given time for something else.
        time.sleep(max(_SETTLES, 2 * (time.monotonic() - began)))
        changed.wait(None if text == loaded else _PAUSE)


def say(text: str) -> None:
    """Write a line to the log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    follow(Settings.read(Path(sys.argv[1])))

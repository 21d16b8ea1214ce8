"""Leads connections to a host to another address, as curl's --connect-to does: for names that no DNS has.

Certificate, SNI and the Host header stay those of the host, so a check of them is as good as by its name.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from neuroscale.core.errors import InputError

OPTION = "--connect-to"
_RULE = re.compile(r"(\[[0-9A-Fa-f:.]*\]|[^:]*):([0-9]*):(\[[0-9A-Fa-f:.]*\]|[^:]*):([0-9]*)")
_LIMITS = httpx.Limits()
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class Rule:
    """Connections to `host` and `port` go to `address` and `to_port`. "" and 0: to any, and to the same."""

    host: str
    port: int
    address: str
    to_port: int


@dataclass(frozen=True)
class Routes:
    """The ways to hosts; the first rule that fits counts. `authority`: the file (PEM) of the one that signs the
    certificates of hosts that a rule leads elsewhere (None: as for all others)."""

    rules: tuple[Rule, ...] = ()
    authority: Path | None = None

    def place(self, host: str, port: int) -> tuple[str, int]:
        """The address and port to connect to."""
        for rule in self.rules:
            if rule.host.lower() in ("", host.lower()) and rule.port in (0, port):
                return rule.address or host, rule.to_port or port
        return host, port

    def context(self, host: str, port: int) -> ssl.SSLContext:
        """What verifies the certificate of a host."""
        elsewhere = self.authority is not None and self.place(host, port) != (host, port)
        return ssl.create_default_context(cafile=self.authority if elsewhere else None)

    def transport(self, url: str, limits: httpx.Limits = _LIMITS) -> httpx.BaseTransport | None:
        """What sends the requests to a web address by its route; None if no rule is for its host."""
        found = httpx.URL(url)
        host, port = _host(found)
        if self.place(host, port) == (host, port):
            return None
        # Without another authority, the one that httpx trusts, or $SSL_CERT_FILE.
        verify = True if self.authority is None else self.context(host, port)
        return _Routed(self, httpx.HTTPTransport(verify=verify, limits=limits))


DIRECT = Routes()


class _Routed(httpx.BaseTransport):
    def __init__(self, routes: Routes, inner: httpx.HTTPTransport) -> None:
        self._routes = routes
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host, port = _host(request.url)
        address, to_port = self._routes.place(host, port)
        routed = httpx.Request(
            request.method,
            request.url.copy_with(host=address, port=to_port),
            headers=request.headers,  # with the Host header of the name
            stream=request.stream,
            # The name that is sent to the server, and that its certificate must have.
            extensions={**request.extensions, "sni_hostname": host},
        )
        return self._inner.handle_request(routed)

    def close(self) -> None:
        self._inner.close()


def read_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """The rules in HOST:PORT:ADDRESS:PORT, each part of which may be empty. Raises InputError."""
    return tuple(_rule(text) for text in texts)


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    ports = [int(port or 0) for port in (found[2], found[4])] if found else []
    if not found or any(port > 65535 for port in ports):
        fix = "Write, as for curl, something like chat.models.example.com:443:127.0.0.1:8443."
        raise InputError.at("the command line", OPTION, f"{text!r} is not HOST:PORT:ADDRESS:PORT", fix)
    host, address = (part.strip("[]") for part in (found[1], found[3]))
    return Rule(host, ports[0], address, ports[1])


def _host(url: httpx.URL) -> tuple[str, int]:
    return url.host, url.port or _PORTS.get(url.scheme, 0)

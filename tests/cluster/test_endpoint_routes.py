"""Ways to hosts that no DNS has: certificate and Host header stay those of the name; and why no connection came."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from model_faults import Certificate
from neuroscale.cluster.endpoint.connection import Endpoint, client, unreachable
from neuroscale.cluster.endpoint.routes import DIRECT, Routes, Rule, read_rules
from neuroscale.core.errors import InputError
from smoke_breakages import certificate

HOST = "chat.models.example.com"


@dataclass
class Gateway:
    """An HTTPS server for one host. `hosts`: the Host headers that it saw."""

    port: int
    certificate: Certificate
    hosts: list[str] = field(default_factory=list)

    def routes(self, host: str = HOST) -> Routes:
        return Routes((Rule(host, 443, "127.0.0.1", self.port),), self.certificate.authority)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    made = certificate(tmp_path_factory.mktemp("gateway"), "gateway", host=HOST)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.hosts.append(self.headers["Host"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert made.certificate is not None
    context.load_cert_chain(made.certificate, made.key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Gateway(server.server_address[1], made)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def test_a_name_is_asked_at_another_address_and_stays_the_name(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # it would resolve the name itself
    with client(f"https://{HOST}", direct=False, routes=gateway.routes()) as http:
        answer = http.get("/v1/models")
    assert (answer.status_code, gateway.hosts[-1]) == (204, HOST)


def told(url: str, routes: Routes) -> str:
    with client(url, direct=False, routes=routes) as http:
        endpoint = Endpoint(url, "tiny", None, http, "url", service="chat")
        with pytest.raises(httpx.HTTPError) as caught:
            http.get("/v1/models")
        return str(unreachable(endpoint, "/v1/models", caught.value))


def test_why_no_connection_came_is_said_by_its_cause(gateway: Gateway) -> None:
    other = "other.example.com"
    assert f"the certificate at {other} is for another name" in told(f"https://{other}", gateway.routes(other))
    untrusted = Routes(gateway.routes().rules)
    assert f"the certificate of {HOST} is not trusted" in told(f"https://{HOST}", untrusted)
    assert "refuses the connection to port 1" in told("https://127.0.0.1:1", DIRECT)
    unresolved = told("https://nowhere.invalid", DIRECT)
    assert "the name nowhere.invalid does not resolve" in unresolved
    assert "ready" not in unresolved


def test_a_rule_holds_for_its_host_and_port_and_empty_parts_for_all() -> None:
    routes = Routes(read_rules(["a.example:443:127.0.0.1:8443", ":80::8080", "[::1]:443:[::2]:"]))
    assert routes.place("A.example", 443) == ("127.0.0.1", 8443)
    assert routes.place("a.example", 444) == ("a.example", 444)
    assert routes.place("b.example", 80) == ("b.example", 8080)
    assert routes.place("::1", 443) == ("::2", 443)
    assert routes.transport("https://b.example") is None


@pytest.mark.parametrize("wrong", ["", "a.example", "a.example:443", "a:443:b:70000", "a:x:b:1", "a:1:b:1:c"])
def test_a_rule_that_cannot_be_read_is_refused_with_the_form(wrong: str) -> None:
    with pytest.raises(InputError, match=r"--connect-to.*HOST:PORT:ADDRESS:PORT"):
        read_rules([wrong])


def test_the_other_authority_is_for_hosts_that_are_led_elsewhere_alone(gateway: Gateway) -> None:
    (trusted,) = gateway.routes().context(HOST, 443).get_ca_certs()
    assert trusted not in gateway.routes().context("b.example", 443).get_ca_certs()

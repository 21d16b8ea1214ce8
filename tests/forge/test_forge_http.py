"""JSON over HTTP with a forge: bounds, redirects, rate limits, and where a token goes."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fault_proxy import DropAfter, FaultProxy, Hold, Status, Trickle
from neuroscale.core.addresses import checked_address, is_loopback
from neuroscale.core.errors import InputError
from neuroscale.forge.http import ADDRESS, SECRET, AnswerError, Client, Limits, OutcomeUnknownError, segments
from neuroscale.forge.interface import ForgeError, ForgeUnavailableError, Token

TOKEN = Token("t0k3n-0123456789abcdef0123456789abcdef")
QUICK = Limits(deadline=5.0, attempts=3, connect=1.0, silence=1.0, first_pause=0.01, longest_pause=0.05)

Reply = tuple[int, Mapping[str, str], bytes]


@dataclass
class Server:
    """Answers by path; remembers what it was asked."""

    url: str = ""
    replies: dict[str, Callable[[], Reply] | Reply] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def says(self, path: str, data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.replies[path] = (status, headers or {}, json.dumps(data).encode())

    def seen(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.asked]


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    memory = Server()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            memory.asked.append((self.command, self.path, headers, body))
            reply = memory.replies.get(self.path, (404, {}, b'{"message": "not found"}'))
            status, more, content = reply() if callable(reply) else reply
            self.send_response_only(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 - names of the base class

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that goes away, or does not trust the certificate."""

    server = Quiet(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    memory.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as memory:
        yield memory


def client(server: Server, limits: Limits = QUICK) -> Client:
    return Client(f"{server.url}/api/", TOKEN, limits=limits)


def test_json_goes_out_and_comes_in_with_the_token_in_its_header(server: Server) -> None:
    server.says("/api/pulls?state=open", {"ok": True}, 201)
    answer = client(server).send("POST", "/pulls", idempotent=False, query={"state": "open"}, body={"title": "ü\n"})
    assert (answer.status, answer.data) == (201, {"ok": True})
    method, path, headers, body = server.asked[0]
    assert (method, path, json.loads(body)) == ("POST", "/api/pulls?state=open", {"title": "ü\n"})
    assert headers["authorization"] == f"Bearer {TOKEN.secret}"
    assert headers["user-agent"].startswith("neuroscale/")


def test_an_empty_answer_is_none(server: Server) -> None:
    server.replies["/api/gone"] = (204, {}, b"")
    assert client(server).send("DELETE", "gone", idempotent=True).data is None


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "expired or withdrawn"),
        (403, "lacks the scope"),
        (404, "check the name"),
        (422, "Repair that, and run"),
        (499, "unknown status"),
    ],
)
def test_a_refusal_says_what_was_asked_what_came_and_what_to_do(server: Server, status: int, advice: str) -> None:
    refusal = {"message": "Validation Failed", "errors": [{"field": "head", "code": "invalid"}, "also\nthis"]}
    server.says("/api/pulls", refusal, status)
    with pytest.raises(AnswerError) as raised:
        client(server).get("/pulls")
    assert raised.value.status == status
    assert raised.value.said == "Validation Failed; head invalid; also this"
    assert str(raised.value).startswith(f"GET {server.url}/api/pulls: the forge answered {status} ")
    assert advice in str(raised.value)
    assert len(server.asked) == 1


def test_a_forge_that_repeats_the_token_does_not_get_it_shown(server: Server) -> None:
    server.says("/api/user", {"message": f"bad token {TOKEN.secret}", "errors": [{"message": TOKEN.secret}]}, 401)
    with pytest.raises(ForgeError) as raised:
        client(server).get("/user")
    assert "bad token ***" in str(raised.value)
    assert TOKEN.secret not in str(raised.value)
    assert TOKEN.secret not in repr(client(server))


def test_long_and_hostile_messages_become_one_short_line(server: Server) -> None:
    server.says("/api/user", {"message": "\x1b[31m" + "x" * 100_000 + "\n::error::boo"}, 400)
    with pytest.raises(ForgeError) as raised:
        client(server).get("/user")
    assert len(str(raised.value)) < 700
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b'{"half": ', b"[" * 100_000, b"\xff\xfe"])
def test_an_answer_that_is_no_json_is_asked_for_again_and_then_reported(server: Server, body: bytes) -> None:
    server.replies["/api/user"] = (200, {}, body)
    with pytest.raises(ForgeUnavailableError, match="not JSON"):
        client(server).get("/user")
    assert len(server.asked) == QUICK.attempts


def test_redirects_are_followed_within_the_same_server(server: Server) -> None:
    server.replies["/api/repos/old"] = (301, {"Location": "/api/repositories/7"}, b"")
    server.says("/api/repositories/7", {"name": "new"})
    assert client(server).get("/repos/old").data == {"name": "new"}
    server.replies["/api/repos/old/pulls"] = (307, {"Location": f"{server.url}/api/repositories/7/pulls"}, b"")
    server.says("/api/repositories/7/pulls", {"number": 1}, 201)
    assert client(server).send("POST", "/repos/old/pulls", idempotent=False, body={"a": 1}).data == {"number": 1}
    assert server.asked[-1][0] == "POST"
    assert json.loads(server.asked[-1][3]) == {"a": 1}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_never_goes_to_another_server(server: Server, status: int) -> None:
    with serving() as other:
        other.says("/api/user", {})
        server.replies["/api/user"] = (status, {"Location": f"{other.url}/api/user"}, b"")
        with pytest.raises(ForgeError, match="redirects to another server"):
            client(server).get("/user")
        assert other.asked == []


def test_a_change_is_not_turned_into_a_reading_by_a_redirect(server: Server) -> None:
    server.replies["/api/pulls"] = (302, {"Location": "/api/elsewhere"}, b"")
    server.says("/api/elsewhere", {})
    with pytest.raises(ForgeError, match="redirects to"):
        client(server).send("POST", "/pulls", idempotent=True)
    assert server.seen() == ["POST /api/pulls"]


def test_redirects_in_a_circle_end(server: Server) -> None:
    server.replies["/api/user"] = (302, {"Location": "/api/user"}, b"")
    with pytest.raises(ForgeError, match="do not end"):
        client(server).get("/user")


def test_all_pages_are_read_by_the_link_whatever_server_it_names(server: Server) -> None:
    link = '<https://elsewhere.example.com/repositories/7/comments?per_page=2&page={}>; rel="{}"'
    server.says("/api/comments?per_page=2", [1, 2], headers={"Link": link.format(2, "next")})
    server.says(
        "/api/comments?per_page=2&page=2", [3], headers={"Link": f"{link.format(1, 'prev')}, {link.format(2, 'last')}"}
    )
    assert list(client(server).pages("/comments", {"per_page": 2})) == [1, 2, 3]


def test_pages_without_links_end_at_the_total(server: Server) -> None:
    total = {"X-Total-Count": "3"}
    server.says("/api/forks?limit=2", [1, 2], headers=total)
    server.says("/api/forks?limit=2&page=2", [3], headers=total)
    assert list(client(server).pages("/forks", {"limit": 2})) == [1, 2, 3]
    server.says("/api/lying", [], headers=total)
    assert list(client(server).pages("/lying")) == []


def test_a_list_without_an_end_is_reported(server: Server) -> None:
    server.says("/api/loop?page=1", [1], headers={"Link": '</api/loop?page=1>; rel="next"'})
    with pytest.raises(ForgeError, match="no end"):
        list(client(server).pages("/loop", {"page": 1}))
    server.says("/api/object", {"a": 1})
    with pytest.raises(ForgeError, match="with a list"):
        list(client(server).pages("/object"))


def test_a_request_that_may_have_been_done_is_not_repeated_blindly(server: Server) -> None:
    server.says("/api/pulls", {}, 201)
    with FaultProxy(server.url) as proxy:
        asking = Client(f"{proxy.url}/api", TOKEN, limits=QUICK)
        for fault in (DropAfter(), Status(500), Status(502), Hold(after=False)):
            server.asked.clear()
            proxy.add("POST", "/pulls", fault)
            with pytest.raises(OutcomeUnknownError, match="look there"):
                asking.send("POST", "/pulls", idempotent=False)
            assert len(server.asked) <= 1


def test_what_surely_was_not_done_is_repeated(server: Server) -> None:
    server.says("/api/pulls", {}, 201)
    with FaultProxy(server.url) as proxy:
        proxy.add("POST", "/pulls", Status(429, {"Retry-After": "0"}), times=2)
        assert Client(f"{proxy.url}/api", TOKEN, limits=QUICK).send("POST", "/pulls", idempotent=False).status == 201
    assert len(server.asked) == 1


def test_a_forge_that_nobody_listens_for_is_asked_again_within_bounds() -> None:
    began = time.monotonic()
    with pytest.raises(ForgeUnavailableError, match=r"no connection .*\(3 attempts in [\d.]+ m?s\)"):
        Client("http://127.0.0.1:9", TOKEN, limits=QUICK).send("POST", "/x", idempotent=False)
    assert time.monotonic() - began < 30


def test_the_deadline_holds_for_an_answer_that_trickles_in(server: Server) -> None:
    server.says("/api/user", {"login": "x" * 1000})
    with FaultProxy(server.url) as proxy:
        proxy.add("GET", "/user", Trickle(0.2), times=9)
        began = time.monotonic()
        with pytest.raises(ForgeUnavailableError, match="no complete answer"):
            Client(f"{proxy.url}/api", TOKEN, limits=replace(QUICK, deadline=1.0)).get("/user")
        assert time.monotonic() - began < 30


def test_an_endless_answer_is_cut_off(server: Server) -> None:
    server.replies["/api/user"] = (200, {}, b'"' + b"x" * 100_000 + b'"')
    with pytest.raises(ForgeError, match="larger than 50000 bytes"):
        client(server, replace(QUICK, largest_bytes=50_000)).get("/user")


def test_a_short_rate_limit_is_waited_for(server: Server) -> None:
    replies = iter([(429, {"Retry-After": "1"}, b"{}"), (200, {}, b'{"ok": 1}')])
    server.replies["/api/user"] = lambda: next(replies)
    began = time.monotonic()
    assert client(server).get("/user").data == {"ok": 1}
    assert time.monotonic() - began >= 1


def date(at: datetime) -> str:
    return format_datetime(at, usegmt=True)


LATER = datetime.now(UTC) + timedelta(days=2)
"""Still ahead when a long run comes to its last test."""


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (429, {"Retry-After": "3600"}, ""),
        (403, {"Retry-After": "3600"}, ""),
        (429, {"Retry-After": date(LATER)}, ""),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(LATER.timestamp()))}, ""),
        # By the forge's own clock, which is years behind here.
        (
            403,
            {
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": "1500003600",
                "Date": date(datetime.fromtimestamp(1_500_000_000, UTC)),
            },
            "",
        ),
        (403, {}, "You have exceeded a secondary rate limit."),
        (429, {}, ""),
        (503, {"Retry-After": "3600"}, ""),
    ],
)
def test_a_long_rate_limit_is_not_waited_for_and_its_end_is_told(
    server: Server, status: int, headers: Mapping[str, str], message: str
) -> None:
    server.says("/api/user", {"message": message}, status, headers)
    began = time.monotonic()
    with pytest.raises(
        ForgeUnavailableError, match=r"for [\d.]+ (s|min|h)( \d+ (s|min))? more, until \d{4}-\d\d-\d\d \d\d:\d\d UTC"
    ):
        client(server).get("/user")
    assert time.monotonic() - began < 30
    assert len(server.asked) == 1


@pytest.mark.parametrize("value", ["-1", "soon", "9" * 400, "", "1e9"])
def test_a_time_that_makes_no_sense_is_no_reason_to_hang(server: Server, value: str) -> None:
    server.says("/api/user", {}, 503, {"Retry-After": value})
    began = time.monotonic()
    with pytest.raises(ForgeUnavailableError):
        client(server).get("/user")
    assert time.monotonic() - began < 30


def test_an_ordinary_refusal_with_403_is_no_rate_limit(server: Server) -> None:
    server.says("/api/user", {"message": "Forbidden"}, 403, {"X-RateLimit-Remaining": "4999", "X-RateLimit-Reset": "1"})
    with pytest.raises(AnswerError):
        client(server).get("/user")


@pytest.mark.parametrize(
    "url",
    [
        "http://forge.example.com",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com/api",
        "http://10.0.0.1",
        "ftp://127.0.0.1",
        "https://user:hunter2@forge.example.com",
        "https://user@forge.example.com",
        "https://forge.example.com?x=1",
        "https://forge.example.com/#x",
        "https://",
        "http://[::1",
        "https://forge.example.com:port",
        "",
    ],
)
def test_addresses_that_a_token_must_not_go_to_are_refused(url: str) -> None:
    with pytest.raises(InputError) as raised:
        Client(url, TOKEN)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("secret", ["hunter2-hunter2-hunter2\r\nX-Other: 1", "hunter2-hunter2-ü", "hunter2", ""])
def test_a_token_that_is_none_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(InputError) as raised:
        Client("http://127.0.0.1:9", Token(secret))
    assert "hunter2" not in str(raised.value)


def test_plain_http_is_for_this_machine_only() -> None:
    for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost"):
        assert is_loopback(host)
    for host in ("10.0.0.1", "0.0.0.0", "example.com", "localhost.example.com", "::2", ""):
        assert not is_loopback(host)
    assert checked_address("http://[::1]:3000/git/", ADDRESS, SECRET) == "http://[::1]:3000/git"


def test_proxies_of_the_environment_are_not_asked_for_this_machine(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.says("/api/user", {"ok": 1})
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert client(server).get("/user").data == {"ok": 1}


def test_proxies_of_the_environment_are_used_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ForgeUnavailableError, match="no connection"):
        Client("https://forge.invalid", TOKEN, limits=QUICK).get("/user")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificate, is not installed")
def test_a_certificate_that_nobody_vouches_for_ends_it_before_the_token_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "1", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with serving(context) as server:
        server.says("/api/user", {"ok": 1})
        with pytest.raises(ForgeError, match=r"certificate is not valid.*SSL_CERT_FILE"):
            client(server).get("/user")
        assert server.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert client(server).get("/user").data == {"ok": 1}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, max_size=4))
def test_each_part_of_a_path_stays_one_part_whatever_it_holds(parts: list[str]) -> None:
    if any(part in (".", "..") for part in parts):
        with pytest.raises(InputError):
            segments(*parts)
        return
    path = segments(*parts)
    assert path.count("/") == len(parts) - 1
    assert not set(path) & set("?#\\ \n\r")

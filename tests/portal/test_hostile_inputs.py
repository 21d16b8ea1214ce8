"""Inputs that mean harm, at a server as it really listens: none is written, none is run, none ends it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from neuroscale.core.errors import InputError
from neuroscale.portal import exposure
from neuroscale.portal.exposure import LARGEST_BODY, exposure_at
from neuroscale.rendering.planning_inputs import PlanningInputs
from plan_factory import ANSWERS
from platform_repository import CATALOG, SETTINGS, TEMPLATE
from portal_lab import DEVELOPER, FakePendingChanges, NoCluster, listening
from waiting import wait_for

SCRIPT = '"><script>alert(1)</script>{{7*7}}$(id)\u202e'
FORM = "application/x-www-form-urlencoded"


@dataclass
class Live:
    """A server on a free port, and what it was asked to publish."""

    pending_changes: FakePendingChanges
    port: int
    cookies: str = ""
    form_token: str = ""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str = b"",
        headers: dict[str, str] | None = None,
        by: str = "127.0.0.1",
    ) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30, source_address=(by, 0))
        try:
            data = body.encode() if isinstance(body, str) else body
            connection.putrequest(method, path, skip_host=True)
            sent = {"Host": self.host, "Cookie": self.cookies, "Content-Length": str(len(data)), **(headers or {})}
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders()
            with contextlib.suppress(OSError):  # it was refused before it was read
                connection.send(data)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), {name.lower(): text for name, text in answer.getheaders()}
        finally:
            connection.close()

    def form(self, path: str, fields: dict[str, Any], headers: dict[str, str] | None = None) -> tuple[int, str]:
        body = urlencode({"form_token": self.form_token, **fields})
        status, text, _ = self.ask("POST", path, body, {"Content-Type": FORM, **(headers or {})})
        return status, text

    @property
    def is_well(self) -> bool:
        return self.ask("GET", "/healthz")[0] == 200


@pytest.fixture
def live(running: Live) -> Live:
    """With nothing asked for yet."""
    running.pending_changes.brought.clear()
    return running


@pytest.fixture(scope="module")
def running(clone: Path) -> Iterator[Live]:
    """With somebody who is signed in."""
    with served(clone) as found:
        status, text, headers = found.ask("GET", "/sign-in")
        assert status == 200
        found.cookies = headers["set-cookie"].split(";")[0]
        found.form_token = text.split('name="form_token" value="')[1][:64]
        body = urlencode({"form_token": found.form_token, "token": DEVELOPER})
        status, _, headers = found.ask("POST", "/sign-in", body, {"Content-Type": FORM})
        assert status == 303
        found.cookies += "; " + headers["set-cookie"].split(";")[0]
        found.form_token = found.ask("GET", "/new")[1].split('name="form_token" value="')[1][:64]
        yield found


@contextlib.contextmanager
def served(clone: Path, proxies: tuple[str, ...] = ()) -> Iterator[Live]:
    """The application on a free port, with short times."""
    pending_changes = FakePendingChanges(clone, PlanningInputs(CATALOG, SETTINGS, TEMPLATE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exposure, "BODY_WITHIN", 1.5)
        with listening(pending_changes, NoCluster(), proxies) as port:
            yield Live(pending_changes, port)
    pending_changes.close()


_EDIT = "/services/dev/support-chat/edit"
_CHANGED = {**ANSWERS, "concurrent_users": 6, "do": "open"}
_OPEN = {**ANSWERS, "do": "open"}
_FORMS: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
    # Another site's page, which sends the person's cookies along.
    ("no form token", "/new", {**_OPEN, "form_token": ""}, {}),
    ("a wrong form token", "/new", {**_OPEN, "form_token": "0" * 64}, {}),
    ("a form token that is not ASCII", "/new", {**_OPEN, "form_token": "ä"}, {}),
    ("a foreign origin", "/new", _OPEN, {"Origin": "https://evil.example"}),
    ("no origin of a page", "/new", _OPEN, {"Origin": "null"}),
    ("another port's origin", "/new", _OPEN, {"Origin": "http://127.0.0.1:1"}),
    ("a cross-site request", "/new", _OPEN, {"Sec-Fetch-Site": "cross-site"}),
    ("a same-site request", "/new", _OPEN, {"Sec-Fetch-Site": "same-site"}),
    ("a foreign host", "/new", _OPEN, {"Host": "evil.example"}),
    ("a rebound host", "/new", _OPEN, {"Host": "evil.example:80"}),
    ("an empty host", "/new", _OPEN, {"Host": ""}),
    ("a change by a foreign page", _EDIT, {**_CHANGED, "form_token": ""}, {}),
    ("a removal by a foreign page", "/services/dev/support-chat/retire", {"form_token": ""}, {}),
    ("a promotion by a foreign page", "/services/dev/support-chat/promote", {"form_token": "", "to": "prod"}, {}),
    ("a sign-in by a foreign page", "/sign-in", {"form_token": "", "token": DEVELOPER}, {}),
    # Scripts and commands in every field.
    *((f"a script as {name}", "/new", {**_OPEN, name: SCRIPT}, {}) for name in ANSWERS),
    ("a path as the service", "/new", {**_OPEN, "service": "../../etc"}, {}),
    ("a path as the environment", "/new", {**_OPEN, "environment": "../prod"}, {}),
    ("a document in the service", "/new", {**_OPEN, "service": "a\n---\nkind: Secret"}, {}),
    ("a script to fill in", "/new", {**ANSWERS, "fill": json.dumps({"service": SCRIPT})}, {}),
    ("a list to fill in", "/new", {**ANSWERS, "fill": '{"service": ["a"]}'}, {}),
    ("deep JSON to fill in", "/new", {**ANSWERS, "fill": "[" * 20000}, {}),
    ("another environment to promote to", "/services/dev/support-chat/promote", {"to": SCRIPT}, {}),
    ("no environment to promote to", "/services/dev/support-chat/promote", {"to": ""}, {}),
    ("a service that is not there", "/services/dev/nobody/retire", {}, {}),
    ("a path as a service", "/services/../dev/retire", {}, {}),
    ("a session that is not there", "/new", _OPEN, {"Cookie": "neuroscale_session=x; neuroscale_visit=y"}),
    ("a field twice", "/new", {"service": ["a", "b"]}, {}),
]


@pytest.mark.parametrize(("path", "fields", "headers"), [one[1:] for one in _FORMS], ids=[one[0] for one in _FORMS])
def test_a_hostile_form_is_neither_written_nor_run(
    live: Live, path: str, fields: dict[str, Any], headers: dict[str, str]
) -> None:
    status, text = live.form(path, fields, headers)
    assert status in (200, 303, 403, 404, 405, 421, 422)
    assert "<script>alert" not in text
    time.sleep(0.05)
    assert live.pending_changes.brought == []
    assert live.is_well


_RAW: list[tuple[str, str, str, bytes, dict[str, str], set[int]]] = [
    ("10 MB", "POST", "/new", b"a" * 10_000_000, {"Content-Type": FORM}, {413}),
    ("10 MB of JSON", "POST", "/api/v1/plan", b" " * 10_000_000, {"Content-Type": "application/json"}, {413}),
    ("bytes that are no text", "POST", "/new", b"service=%ff%fe", {"Content-Type": FORM}, {422}),
    ("a thousand fields", "POST", "/new", b"&".join(b"f%d=1" % n for n in range(1000)), {"Content-Type": FORM}, {422}),
    ("another content type", "POST", "/new", b"{}", {"Content-Type": "application/json"}, {422}),
    ("several parts", "POST", "/new", b"--x", {"Content-Type": "multipart/form-data; boundary=x"}, {422}),
    ("a pull request of nobody", "POST", "/api/v1/pull-request", b"{}", {"Content-Type": "application/json"}, {401}),
    ("a path out of the files", "GET", "/static/../app.py", b"", {}, {404}),
    ("a quoted path out of the files", "GET", "/static/%2e%2e/app.py", b"", {}, {404}),
    ("a template as a file", "GET", "/static/..%2ftemplates/base.html", b"", {}, {404}),
    ("a script as a path", "GET", "/%3Cscript%3Ealert(1)%3C/script%3E", b"", {}, {404}),
    ("a number that is none", "GET", "/pull-requests/-1", b"", {}, {404}),
    ("a large number", "GET", "/pull-requests/99999999999999999999", b"", {}, {404}),
    ("another place after the sign-in", "GET", "/sign-in?to=//evil.example", b"", {}, {200}),
    ("a script as answers", "GET", "/new?answers=%22%3Cscript%3Ealert(1)%3C/script%3E%22", b"", {}, {422}),
    ("a header of a proxy", "GET", "/services", b"", {"Cookie": "", "X-User": "root", "Forwarded": "for=x"}, {303}),
    ("another method", "TRACE", "/new", b"", {}, {405}),
    ("an upgrade", "GET", "/new", b"", {"Connection": "upgrade", "Upgrade": "websocket"}, {200}),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "wanted"), [one[1:] for one in _RAW], ids=[one[0] for one in _RAW]
)
def test_a_hostile_request_is_refused(
    live: Live, method: str, path: str, body: bytes, headers: dict[str, str], wanted: set[int]
) -> None:
    status, text, told = live.ask(method, path, body, headers)
    assert status in wanted
    assert "<script>alert" not in text
    assert 'value="//evil' not in text
    assert "Traceback" not in text
    assert "default-src 'none'" in told["content-security-policy"]
    assert live.pending_changes.brought == []
    assert live.is_well


def test_every_answer_forbids_scripts_frames_and_copies(live: Live) -> None:
    for path in ("/new", "/static/portal.js", "/api/v1/catalog", "/nowhere", "/sign-in"):
        _, _, headers = live.ask("GET", path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /new HTTP/1.1\r\nHost: x",
        b"",
        b"POST /new HTTP/1.1\r\nHost: HERE\r\nContent-Length: 100\r\n\r\nservice=",
        b"POST /new HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
    ids=["half a head", "nothing", "half a body", "half a chunked body"],
)
def test_a_slow_request_is_ended(live: Live, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", live.port), 20) as connection:
        connection.sendall(sent.replace(b"HERE", live.host.encode()))
        began = time.monotonic()
        received = b""
        while part := connection.recv(4096):
            received += part
        assert time.monotonic() - began < 15
    assert received == b"" or b" 408 " in received
    assert live.is_well


@pytest.mark.parametrize(
    "head",
    [
        b"POST /new HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"POST /new HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"GET /healthz HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        b"POST /new HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_a_request_whose_end_is_told_in_two_ways_is_refused_with_all_that_follows(live: Live, head: bytes) -> None:
    follows = b"GET /healthz HTTP/1.1\r\nHost: HERE\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port), 20) as connection:
        connection.sendall((head + b"Host: HERE\r\n\r\n0\r\n\r\n" + follows).replace(b"HERE", live.host.encode()))
        received = b""
        while part := connection.recv(4096):
            received += part
    assert received.startswith(b"HTTP/1.1 400 ")
    assert (received.count(b"HTTP/1.1 "), b"connection: close" in received.lower()) == (1, True)
    assert live.is_well


_IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
_FRAME = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
_LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize("path", ["/api/v1/plan", "/new"])
def test_another_sites_page_leads_here_and_loads_nothing_from_here(live: Live, path: str) -> None:
    place = f"{path}?{urlencode({'answers': json.dumps(ANSWERS)})}"
    for headers, status in (({}, 200), (_LINK, 200), (_IMAGE, 403), (_FRAME, 403)):
        assert live.ask("GET", place, headers=headers)[0] == status


@contextlib.contextmanager
def half_requests(live: Live, by: str, count: int) -> Iterator[None]:
    """So many connections of an address, all of which have sent half a request."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", live.port), 20, (by, 0)))
            with contextlib.suppress(OSError):  # it was refused before that
                connection.sendall(b"GET /new HTTP/1.1\r\nHost: x")
        yield


def test_one_address_cannot_take_all_connections(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "BODY_WITHIN", 20.0)
    monkeypatch.setattr(exposure, "MOST_OF_ONE", 20)
    with half_requests(live, "127.0.0.2", 40):
        assert live.ask("GET", "/healthz", by="127.0.0.2")[0] == 503
        assert live.ask("GET", "/healthz", by="127.0.0.3")[0] == 200
    wait_for(lambda: live.ask("GET", "/healthz", by="127.0.0.2")[0] == 200, what="the share is free again")


def test_whoever_does_not_come_by_the_proxy_cannot_shut_it_out(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(clone, ("127.0.0.1",)) as live:
        monkeypatch.setattr(exposure, "BODY_WITHIN", 20.0)
        monkeypatch.setattr(exposure, "MOST_OF_ONE", 20)
        with half_requests(live, "127.0.0.2", 15), half_requests(live, "127.0.0.3", 15):
            assert live.ask("GET", "/healthz", by="127.0.0.4")[0] == 503
            with half_requests(live, "127.0.0.1", 40):
                assert live.ask("GET", "/new")[0] == 200


def test_two_hundred_at_once_get_an_answer(live: Live) -> None:
    body = json.dumps(ANSWERS)

    def ask(number: int) -> int:
        if number % 4:
            return live.ask("GET", "/new")[0]
        return live.ask("POST", "/api/v1/plan", body, {"Content-Type": "application/json"})[0]

    with ThreadPoolExecutor(200) as pool:
        statuses = list(pool.map(ask, range(200)))
    assert set(statuses) == {200}
    assert live.pending_changes.brought == []


@pytest.mark.parametrize(
    ("host", "public", "proxies", "header", "named"),
    [
        ("0.0.0.0", "", (), "", "--host"),
        ("10.1.2.3", "https://models.example.com", (), "", "--host"),
        ("0.0.0.0", "", ("10.0.0.5",), "X-User", "--host"),
        ("0.0.0.0", "http://models.example.com", ("10.0.0.5",), "X-User", "--host"),
        ("::", "", (), "", "--host"),
        ("127.0.0.1", "", (), "X-User", "--user-header"),
        ("127.0.0.1", "", ("proxy.example",), "", "--trusted-proxy"),
        ("127.0.0.1", "models", (), "", "--public-url"),
        ("127.0.0.1", "https://models.example.com/below", (), "", "--public-url"),
    ],
)
def test_it_refuses_to_start_open_to_a_network(
    host: str, public: str, proxies: tuple[str, ...], header: str, named: str
) -> None:
    with pytest.raises(InputError) as refused:
        exposure_at(host, 8088, public, proxies, header)
    assert refused.value.problems[0].field == named


def test_the_largest_form_is_read(live: Live) -> None:
    padded = json.dumps(ANSWERS).encode().ljust(LARGEST_BODY)
    assert live.ask("POST", "/api/v1/plan", padded, {"Content-Type": "application/json"})[0] == 200

"""The relay between the forge's push events and Argo CD's ApplicationSet controller."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from neuroscale.local.webhook_relay import Relay, signature

SECRET = b"a secret of the forge"
EVENT = {
    "ref": "refs/heads/main",
    "before": "1" * 40,
    "after": "2" * 40,
    "commits": [{"id": "2" * 40, "message": "Merge", "timestamp": "2026-01-01T00:00:00Z"}],
    # GitHub sends a number of seconds here, and the controller refuses anything else.
    "repository": {
        "html_url": "http://127.0.0.1:3000/neuroscale/platform",
        "default_branch": "main",
        "created_at": "2026-01-01T00:00:00Z",
    },
}


class Controller(ThreadingHTTPServer):
    """Keeps what it is sent, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.status = 200


class _Receiver(BaseHTTPRequestHandler):
    server: Controller

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(({key.lower(): value for key, value in self.headers.items()}, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def relay(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("neuroscale.local.webhook_relay.Handler.log_message", lambda *_: None)
    with Relay(0, controller.server_address[1], SECRET) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def send(relay: str, body: bytes, *, signed: str | None = None, event: str = "push") -> int:
    headers = {"X-Gitea-Event": event, "X-GitHub-Event": event}
    headers["X-Hub-Signature-256"] = signature(SECRET, body) if signed is None else signed
    return httpx.post(f"{relay}/api/webhook", content=body, headers=headers, trust_env=False).status_code


def test_a_push_reaches_the_controller_as_an_event_of_github(relay: str, controller: Controller) -> None:
    assert send(relay, json.dumps(EVENT).encode()) == 200
    ((headers, body),) = controller.received
    assert headers["x-github-event"] == "push"
    assert headers["x-hub-signature-256"] == signature(SECRET, body)
    assert json.loads(body) == {
        "ref": "refs/heads/main",
        "before": "1" * 40,
        "after": "2" * 40,
        "repository": {"html_url": "http://127.0.0.1:3000/neuroscale/platform", "default_branch": "main"},
    }


@pytest.mark.parametrize("signed", ["", "sha256=", signature(b"another secret", json.dumps(EVENT).encode())])
def test_an_event_without_the_forges_signature_goes_nowhere(relay: str, controller: Controller, signed: str) -> None:
    assert send(relay, json.dumps(EVENT).encode(), signed=signed) == 401
    assert not controller.received


def test_an_event_that_was_changed_on_its_way_goes_nowhere(relay: str, controller: Controller) -> None:
    body = json.dumps(EVENT).encode()
    assert send(relay, body.replace(b"neuroscale/", b"somebody/"), signed=signature(SECRET, body)) == 401
    assert not controller.received


def test_other_events_are_left_alone(relay: str, controller: Controller) -> None:
    assert send(relay, json.dumps(EVENT).encode(), event="pull_request") == 204
    assert not controller.received


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"ref": 1, "repository": {}}', b'{"ref":"r","repository":1}']
)
def test_what_is_no_push_event_is_refused(relay: str, controller: Controller, body: bytes) -> None:
    assert send(relay, body) == 400
    assert not controller.received


def test_the_forge_is_told_what_the_controller_answers(relay: str, controller: Controller) -> None:
    controller.status = 503
    assert send(relay, json.dumps(EVENT).encode()) == 503


def test_the_forge_is_told_when_the_controller_is_not_there(relay: str, controller: Controller) -> None:
    controller.shutdown()
    controller.server_close()
    assert send(relay, json.dumps(EVENT).encode()) == 502


def test_a_body_of_any_size_is_not_taken_in(relay: str, controller: Controller) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", httpx.URL(relay).port or 0, timeout=5)
    connection.putrequest("POST", "/api/webhook")
    connection.putheader("Content-Length", str(10**9))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert not controller.received


def test_nothing_else_is_answered(relay: str) -> None:
    assert httpx.get(f"{relay}/healthz", trust_env=False).status_code == 200
    assert httpx.get(f"{relay}/", trust_env=False).status_code == 404
    assert httpx.post(f"{relay}/api/other", content=b"{}", trust_env=False).status_code == 404

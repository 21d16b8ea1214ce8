"""Passes the forge's push events on to Argo CD's ApplicationSet controller in the form that it reads.

That controller knows only the events of GitHub, GitLab and Azure DevOps. Gitea sends the headers of GitHub's events,
but the body has times as text where GitHub sends numbers, and the controller refuses that. The relay passes on the
fields that the controller needs: the branch, the commits, and the repository's address and default branch.

A bare Python runs this file by itself: only the standard library may be imported here.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LARGEST = 25 * 1024 * 1024  # bytes; as much as GitHub sends
TIMEOUT = 10.0  # seconds
PATH = "/api/webhook"


def signature(secret: bytes, body: bytes) -> str:
    """The body's signature as in the header X-Hub-Signature-256."""
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


def translated(body: bytes) -> bytes:
    """A push event as GitHub would send it, with the fields that the ApplicationSet controller reads.

    Raises ValueError if it is not a push event.
    """
    event = json.loads(body)
    if not isinstance(event, dict) or not isinstance(event.get("repository"), dict):
        raise ValueError("not a push event")
    repository = event["repository"]
    pushed: dict[str, Any] = {key: event.get(key) for key in ("ref", "before", "after")}
    pushed["repository"] = {key: repository.get(key) for key in ("html_url", "default_branch")}
    if not all(isinstance(value, str) for value in (pushed["ref"], *pushed["repository"].values())):
        raise ValueError("not a push event")
    return json.dumps(pushed).encode()


class Relay(ThreadingHTTPServer):
    """Listens on the loopback device; `target` is the port of the ApplicationSet controller's webhook."""

    daemon_threads = True

    def __init__(self, port: int, target: int, secret: bytes) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.target = target
        self.secret = secret

    def hand_on(self, body: bytes) -> int:
        """Pass the event on. Returns the controller's HTTP status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=TIMEOUT)
        try:
            event = translated(body)
            headers = {
                "Content-Type": "application/json",
                "X-GitHub-Event": "push",
                "X-Hub-Signature-256": signature(self.secret, event),
            }
            connection.request("POST", PATH, event, headers)
            return connection.getresponse().status
        finally:
            connection.close()


class Handler(BaseHTTPRequestHandler):
    """Takes signed push events, and answers /healthz."""

    server: Relay
    timeout = TIMEOUT

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/healthz" else 404)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != PATH or not length.isdigit() or int(length) > LARGEST:
            self._answer(404 if self.path != PATH else 413)
            return
        body = self.rfile.read(int(length))
        shown = self.headers.get("X-Hub-Signature-256", "")
        if not hmac.compare_digest(shown.encode(), signature(self.server.secret, body).encode()):
            self._answer(401)
            return
        if self.headers.get("X-Gitea-Event") != "push":
            self._answer(204)
            return
        try:
            self._answer(self.server.hand_on(body))
        except ValueError:
            self._answer(400)
        except OSError:
            self._answer(502)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log only events: requests of its health would fill the log."""
        if self.command == "POST":
            super().log_request(code, size)

    def version_string(self) -> str:
        return "webhook-relay"


def main(arguments: list[str]) -> None:
    """Serve until ended. Arguments: the port, the controller's port, and the file of the webhook's secret."""
    port, target, secret = arguments
    Relay(int(port), int(target), Path(secret).read_bytes().strip()).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])

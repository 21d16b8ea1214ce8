"""A stand-in for the Hugging Face Hub on this machine: one repository, and what was asked of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAME = "someone/Some-Model"
COMMIT = "1" * 40


@dataclass
class Hub:
    """A stand-in for the Hub: one repository with these files, and what was asked of it."""

    files: dict[str, bytes]
    status: int = 200
    error: str = ""
    asked: list[str] = field(default_factory=list)
    sent: int = 0
    url: str = ""
    told: dict[str, Any] = field(default_factory=dict)
    """What the Hub tells of the model beside its files: gated, tags, another sha."""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = self.path.split("?")[0]
            hub.asked.append(path)
            commit = hub.told.get("sha", COMMIT)
            name = path.split(f"/resolve/{commit}/")[-1].split("/resolve/main/")[-1]
            headers = {"X-Repo-Commit": commit, "ETag": f'"{name}"'}
            status, body = 200, b""
            if hub.status != 200:
                status, headers["X-Error-Code"], headers["X-Error-Message"] = hub.status, hub.error, "no"
            elif path.startswith("/api/models/"):
                siblings = [{"rfilename": file, "size": len(data)} for file, data in hub.files.items()]
                body = json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings, **hub.told}).encode()
            elif name in hub.files:
                body = hub.files[name]
                if asked := self.headers.get("Range"):
                    first, last = asked.removeprefix("bytes=").split("-")
                    status, body = 206, body[int(first) : int(last) + 1]
            else:
                status, headers["X-Error-Code"] = 404, "EntryNotFound"
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)
                hub.sent += len(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def hub_environment(home: Path, *, url: str = "http://127.0.0.1:9", offline: bool = False) -> dict[str, str]:
    """The variables of a process that asks that Hub: the Hub's library reads its address when it is imported."""
    return {
        **os.environ,
        "HF_ENDPOINT": url,
        "HF_HOME": str(home / "hub"),
        "NO_PROXY": "127.0.0.1",
        "HF_HUB_OFFLINE": "1" if offline else "0",
    }

"""A model server for tests: it sends exactly the given bytes, however broken, and keeps the requests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from neuroscale.cluster.endpoint.connection import Endpoint, client
from neuroscale.core.secret_text import SecretText

KEY = "key-of-the-test-0123456789"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"

Reply = Callable[[socket.socket], None]


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: Any


@dataclass
class BrokenServer:
    """Replies with `reply`, which gets the connection and may do anything with it."""

    listener: socket.socket
    reply: Reply = field(default=lambda _: None)
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def says(self, *parts: bytes) -> None:
        """Send each part in a packet of its own, as far as the system allows it, and then end."""

        def reply(connection: socket.socket) -> None:
            for part in parts:
                connection.sendall(part)

        self.reply = reply

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed: the test is over
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            head, _, body = data.partition(b"\r\n\r\n")
            line, *rows = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
            while len(body) < int(headers.get("content-length", 0)):
                body += connection.recv(65536)
            self.asked.append(Asked(line, headers, json.loads(body) if body else None))
            self.reply(connection)


@contextlib.contextmanager
def broken_server() -> Iterator[tuple[BrokenServer, Endpoint]]:
    """The server, and an endpoint that leads to it."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        server = BrokenServer(listener)
        threading.Thread(target=server.serve, daemon=True).start()
        with client(server.url, direct=True) as http:
            yield server, Endpoint(server.url, "tiny", SecretText(KEY), http, "url", service="chat")
        listener.shutdown(socket.SHUT_RDWR)


def event(value: object) -> bytes:
    """An event of a stream."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def delta(text: str, tokens: int, finish: str | None = None, field_name: str = "content") -> dict[str, Any]:
    """A part of a chat's answer as vLLM streams it, with the tokens until here."""
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {field_name: text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens},
    }


def usage(tokens: int) -> dict[str, Any]:
    """The last event, which has only the counts."""
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}}


def stream(texts: Iterable[str]) -> bytes:
    """A whole, sound stream of one token for each text."""
    parts = [event(delta(text, index + 1)) for index, text in enumerate(texts)]
    return b"".join([*parts, event(delta("", len(parts), "stop")), event(usage(len(parts))), DONE])


def error(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    """A complete response with an error."""
    head = f"HTTP/1.1 {status} No\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body

"""A reverse proxy in front of a real vLLM that breaks one thing at a time.

    with ModelProxy("http://127.0.0.1:8080", key) as proxy:
        proxy.fault = Fault(answer=lambda call, found: {**found, "choices": []})

Without a fault it changes nothing. With a certificate it speaks TLS, as a gateway would, and lets in only `/v1`.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

_HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "host"}
_STARTS_WITHIN = 20.0


@dataclass
class Call:
    """One request on its way. `key`: the key in its header, "" for none; `asked`: its JSON."""

    path: str
    key: str
    asked: dict[str, Any]
    number: int
    running: int


Meet = Callable[[Call], Awaitable[Response | None]]
Answer = Callable[[Call, Any], Any]


@dataclass(frozen=True)
class Fault:
    """The fault; nothing is broken if all fields are left out.

    `meet` answers in place of the server. `ask` changes the request's JSON, `answer` the JSON of the answer, `text` any
    other answer. `stream` gets the bytes of an answer as they come. `key` is sent in place of the caller's.
    """

    meet: Meet | None = None
    ask: Callable[[Call], dict[str, Any]] | None = None
    answer: Answer | None = None
    text: Callable[[Call, str], str] | None = None
    stream: Callable[[Call, AsyncGenerator[bytes]], AsyncGenerator[bytes]] | None = None
    key: Callable[[Call], str | None] | None = None


@dataclass(frozen=True)
class Certificate:
    """Files for TLS, and the authority that signed them. None: no TLS."""

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None


@dataclass
class ModelProxy:
    """Listens on 127.0.0.1 while it is entered. `opens`: paths that it lets in beside /v1 (None: all)."""

    upstream: str
    key: str = field(repr=False)
    certificate: Certificate = field(default_factory=Certificate)
    opens: tuple[str, ...] | None = None
    fault: Fault = field(default_factory=Fault)

    def __post_init__(self) -> None:
        self._running = self._number = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate.certificate else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        app = FastAPI(openapi_url=None)
        app.add_api_route("/{path:path}", self._handle, methods=["GET", "POST"], response_model=None)
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        files: dict[str, Any] = {}
        if self.certificate.certificate is not None:
            files = {"ssl_certfile": str(self.certificate.certificate), "ssl_keyfile": str(self.certificate.key)}
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, **files)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()
        ends = time.monotonic() + _STARTS_WITHIN
        while not self._server.started:
            assert self._thread.is_alive(), "the proxy ended"
            assert time.monotonic() < ends, "the proxy does not start"
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = True
        self._thread.join(15.0)

    # ------------------------------------------------------------ one request

    async def _handle(self, request: Request) -> Response:
        fault = self.fault
        body = await request.body()
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self._number += 1
        self._running += 1
        try:
            asked = json.loads(body) if body else {}
            call = Call(request.url.path, key, asked, self._number, self._running)
            if self.opens is not None and not call.path.startswith("/v1/") and call.path not in self.opens:
                return Response("no such route", 404)
            if fault.meet is not None and (met := await fault.meet(call)) is not None:
                return met
            if fault.ask is not None and asked:
                body = json.dumps(fault.ask(call)).encode()
            shown = fault.key(call) if fault.key is not None else None
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
            if shown is not None:
                headers["authorization"] = f"Bearer {shown}"
            return await self._forward(request, call, fault, body, headers)
        finally:
            self._running -= 1

    async def _forward(
        self, request: Request, call: Call, fault: Fault, body: bytes, headers: Mapping[str, str]
    ) -> Response:
        client = httpx.AsyncClient(base_url=self.upstream, timeout=300.0, trust_env=False)
        sent = client.build_request(request.method, request.url.path, content=body, headers=dict(headers))
        try:
            response = await client.send(sent, stream=True)
        except httpx.HTTPError as error:
            await client.aclose()
            return JSONResponse({"error": f"no upstream: {type(error).__name__}"}, 502)
        kept = {name: value for name, value in response.headers.items() if name.lower() not in _HOP_BY_HOP}
        if "text/event-stream" in response.headers.get("Content-Type", ""):
            parts = self._parts(client, response)
            parts = parts if fault.stream is None else fault.stream(call, parts)
            return StreamingResponse(parts, response.status_code, kept)
        try:
            data = await response.aread()
        finally:
            await response.aclose()
            await client.aclose()
        if response.is_success and "json" in kept.get("content-type", "") and fault.answer is not None:
            data = json.dumps(fault.answer(call, json.loads(data))).encode()
        elif fault.text is not None:
            data = fault.text(call, data.decode()).encode()
        return Response(data, response.status_code, kept)

    async def _parts(self, client: httpx.AsyncClient, response: httpx.Response) -> AsyncGenerator[bytes]:
        # While it streams, the request is still running.
        self._running += 1
        try:
            async for part in response.aiter_raw():
                yield part
        finally:
            self._running -= 1
            await response.aclose()
            await client.aclose()

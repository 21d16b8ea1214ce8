"""`neuroscale serve`: plans over HTTP for the portal (`POST /api/v1/plan`), and names what its form offers."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Settings
from neuroscale.cli.options import RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.rendering.scaffolder.form import expected_enums
from neuroscale.rendering.scaffolder.plan_step import FORM, SCHEMA_VERSION, RefusedPlanError, answer
from neuroscale.rendering.scaffolder.template import PLAN_ROUTE, Template
from neuroscale.request.service_request import Request as ServiceRequest

LARGEST_BODY = 64 * 1024
"""Bytes of a request's body; a form's answers take less than one kibibyte."""

_log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def create_app(catalog: Catalog, settings: Settings, template: Template) -> FastAPI:
    """The application for one state of the repository.

    `POST /api/v1/plan`: the form's answers to `schema_version`, `verdict`, `summary`, `plan` and `values` (the
    skeleton's values). `GET /api/v1/catalog`: the names that the form offers. `GET /healthz`.
    """
    app = FastAPI(title="NeuroScale planner", version="1", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/healthz")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/api/v1/catalog")
    async def names() -> dict[str, Any]:
        availability = ServiceRequest.model_json_schema()["properties"]["availability"]["enum"]
        return {
            "schema_version": SCHEMA_VERSION,
            "catalog_digest": catalog.digest,
            "template_version": template.version,
            **expected_enums(catalog, settings),
            "availability": availability,
        }

    @app.post(PLAN_ROUTE)
    async def plan(request: Request) -> JSONResponse:
        answers = _answers(await request.body(), request.headers.get("content-type", ""))
        return JSONResponse(await run_in_threadpool(answer, answers, catalog, settings, template.version))

    @app.exception_handler(InputError)
    async def unusable(_: Request, error: InputError) -> JSONResponse:
        refused = isinstance(error, RefusedPlanError)
        extra = {"plan": error.plan.model_dump(mode="json")} if isinstance(error, RefusedPlanError) else {}
        return _failure(422, "refused" if refused else "invalid", error.problems, **extra)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        problem = Problem("the request", "", str(error.detail), f"Use POST {PLAN_ROUTE}.")
        return _failure(error.status_code, "invalid", [problem])

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> JSONResponse:
        _log.error("a request failed", exc_info=error)
        problem = Problem("the server", "", "this program failed", "See its log; the answers did not cause this.")
        return _failure(500, "error", [problem])

    app.add_middleware(_BodyLimit)
    return app


def serve(catalog: Catalog, settings: Settings, template: Template, listener: socket.socket) -> None:
    """Serve one state of the repository on a listening socket, until interrupted.

    It does not authenticate: Backstage's proxy does.
    """
    application = create_app(catalog, settings, template)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(application, server_header=False)).run(sockets=[listener])


class _BodyLimit:
    """Refuses a body above `LARGEST_BODY` before it is read whole, also one that does not state its length."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        messages: list[Message] = []
        size = 0
        while True:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                problem = Problem(
                    FORM, "", f"is larger than {LARGEST_BODY} bytes", "Send the form's answers and nothing else."
                )
                await _failure(413, "invalid", [problem])(scope, receive, send)
                return
            if message["type"] != "http.request" or not message.get("more_body", False):
                break
        waiting = iter(messages)

        async def again() -> Message:
            return next(waiting, None) or await receive()

        await self.app(scope, again, send)


def _answers(body: bytes, content_type: str) -> dict[str, Any]:
    if content_type.split(";")[0].strip().lower() != "application/json":
        raise InputError.at(FORM, "", "is not sent as JSON", "Send it with `content-type: application/json`.")
    repeated: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                repeated.append(key)
            found[key] = value
        return found

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError.at(FORM, "", "is not valid JSON", "Send one JSON object in UTF-8.") from error
    if not isinstance(value, dict):
        raise InputError.at(FORM, "", "is not a JSON object", "Send an object of the form's answers.")
    if repeated:
        raise InputError([Problem(FORM, key[:60], "stands twice", "Send each field once.") for key in repeated])
    return value


def _failure(status: int, verdict: str, problems: list[Problem], **extra: Any) -> JSONResponse:
    """The one shape of every answer without a plan; `message` comes first because Backstage logs the body."""
    return JSONResponse(
        {
            "message": "; ".join(
                f"{problem.field + ': ' if problem.field else ''}{problem.message}. {problem.fix}"
                for problem in problems
            ),
            "schema_version": SCHEMA_VERSION,
            "verdict": verdict,
            "problems": [asdict(problem) for problem in problems],
            **extra,
        },
        status_code=status,
    )


def serve_plans(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8088,
    repository: RepositoryOption = None,
) -> int:
    """Serve `POST /api/v1/plan` for the portal."""
    import socket

    from neuroscale.cli.open_repository import open_repository

    opened = open_repository(repository)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError.at(
            "the command line",
            "--host, --port",
            f"this program cannot listen at {host} port {port}: {error.strerror}",
            "Name an address of this machine and a free port; --port 0 takes any.",
        ) from error
    with listener:
        address = f"[{host}]" if family is socket.AF_INET6 else host
        typer.echo(f"Serving POST http://{address}:{listener.getsockname()[1]}{PLAN_ROUTE}")
        serve(opened.catalog, opened.settings, opened.template, listener)
    return ExitStatus.PASSED

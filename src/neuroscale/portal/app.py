"""Assembles the server: the routes for programs, the pages, and what stands before and behind every route."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from neuroscale.core.errors import InputError, NeuroscaleError, Problem
from neuroscale.forge.interface import ForgeError, Token
from neuroscale.portal.api import Api, nobody
from neuroscale.portal.exposure import (
    HEALTH,
    MOST_CONNECTIONS,
    PAGE,
    Exposure,
    Guard,
    PunctualProtocol,
    TooMuchError,
    failure,
)
from neuroscale.portal.pages import AskingPages, PageContext, SignInNeededError
from neuroscale.portal.pending_changes import BusyError, NoReaderError, PendingChanges
from neuroscale.portal.people import People
from neuroscale.portal.rendering import STATIC, Renderer
from neuroscale.portal.service_pages import ServicePages
from neuroscale.portal.services import Surroundings
from neuroscale.rendering.scaffolder.plan_step import RefusedPlanError
from neuroscale.rendering.scaffolder.template import PLAN_ROUTE

OPEN = frozenset({HEALTH, "/", "/sign-in", "/sign-out", "/new", "/plan", PLAN_ROUTE, "/api/v1/catalog"})
"""The routes for everybody: they show the form and plans. Every other one is for those who may read the repository."""
_log = logging.getLogger(__name__)


def create_app(
    pending_changes: PendingChanges,
    surroundings: Surroundings,
    exposure: Exposure,
    own: Token | None = None,
    portal: Token | None = None,
) -> FastAPI:
    """The application. `own`: the server's own token of the forge, for people whom the proxy names and for a portal;
    `portal`: the token by which that portal shows itself."""
    people = People(exposure, pending_changes.account, own, portal)
    page_context = PageContext(people, pending_changes, Renderer(people, secure=exposure.secure), exposure.secure)

    def for_readers(request: Request) -> None:
        if request.scope["route"].path in OPEN:
            return
        token = people.bearer(request) if _is_api(request) else page_context.person(request).token
        if token is None:
            raise nobody()
        pending_changes.check_reader(token)

    closed = [Depends(for_readers)]
    app = FastAPI(title="NeuroScale", version="1", docs_url=None, redoc_url=None, openapi_url=None, dependencies=closed)
    Api(page_context).add_to(app)
    AskingPages(page_context).add_to(app)
    ServicePages(page_context, surroundings).add_to(app)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    _answer_errors(app, page_context)
    app.state.exposure = exposure
    app.add_middleware(Guard, exposure=exposure)
    return app


def _is_api(request: Request) -> bool:
    return request.url.path.startswith(("/api/", HEALTH))


def _answer_errors(app: FastAPI, page_context: PageContext) -> None:
    """Every error becomes an answer in the shape of its route: JSON for programs, a page for people."""

    def answer(request: Request, status: int, verdict: str, problems: list[Problem], **extra: Any) -> Response:
        if _is_api(request):
            return JSONResponse(failure(verdict, problems, **extra), status)
        try:
            on_page = [problem.on(PAGE) for problem in problems]
            return page_context.show(request, "message.html", status, heading="", problems=on_page, text="")
        except InputError:  # the proxy's header names nobody, which the page would show
            return JSONResponse(failure(verdict, problems), status)

    @app.exception_handler(InputError)
    async def unusable(request: Request, error: InputError) -> Response:
        if isinstance(error, RefusedPlanError):
            return answer(request, 422, "refused", error.problems, plan=error.plan.model_dump(mode="json"))
        return answer(request, 422, "invalid", error.problems)

    @app.exception_handler(NeuroscaleError)
    async def failed(request: Request, error: NeuroscaleError) -> Response:
        status = 503 if isinstance(error, BusyError) else 502 if isinstance(error, ForgeError) else 500
        where = "the forge" if isinstance(error, ForgeError) else "the server"
        return answer(request, status, "error", [Problem(where, "", str(error).removesuffix("."), "Then try again.")])

    @app.exception_handler(TooMuchError)
    async def too_much(request: Request, error: TooMuchError) -> Response:
        why, fix = str(error).removesuffix(".").split(". ")
        response = answer(request, 429, "error", [Problem("the request", "", why, fix)])
        response.headers["Retry-After"] = str(error.seconds)
        return response

    @app.exception_handler(NoReaderError)
    async def no_reader(request: Request, error: NoReaderError) -> Response:
        return answer(request, 403, "invalid", error.problems)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, _: RequestValidationError) -> Response:
        return answer(request, 404, "invalid", [Problem("the request", "", "names nothing that is here", "Go back.")])

    @app.exception_handler(SignInNeededError)
    async def stranger(request: Request, _: SignInNeededError) -> Response:
        if page_context.people.by_proxy:
            fix = "Come by the address at which the proxy asks who you are."
            return answer(request, 403, "invalid", [Problem("the proxy", "", "names nobody", fix)])
        to = request.url.path if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?to={to}", 303)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        fix = f"Use POST {PLAN_ROUTE}." if request.url.path.startswith("/api/") else "Go back, and choose again."
        response = answer(request, error.status_code, "invalid", [Problem("the request", "", str(error.detail), fix)])
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        _log.error("a request failed", exc_info=error)
        problem = Problem("the server", "", "this program failed", "See its log; the answers did not cause this.")
        return answer(request, 500, "error", [problem])


def settings_of(app: FastAPI) -> uvicorn.Config:
    """How the application is served."""

    class Protocol(PunctualProtocol):
        exposure: Exposure = app.state.exposure

    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        server_header=False,
        # The connection's own address is what counts: a header could name any.
        proxy_headers=False,
        access_log=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=8,
    )


def serve(app: FastAPI, pending_changes: PendingChanges, listener: socket.socket) -> None:
    """Serve on a listening socket, until interrupted."""
    try:
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(settings_of(app)).run(sockets=[listener])
    finally:
        pending_changes.close()

"""Answers programs: a portal that plans, fills its form in with a service's answers, and opens pull requests."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.json_text import RepeatedKeysError, read_object
from neuroscale.core.yaml_io import read_mapping
from neuroscale.forge.interface import Token
from neuroscale.forge.request_flow import Outcome, Refused
from neuroscale.forge.service_changes import Requested, own_version
from neuroscale.planning.model_revision import with_revision
from neuroscale.portal.exposure import HEALTH
from neuroscale.portal.pages import PageContext
from neuroscale.portal.pending_changes import Job, new_key
from neuroscale.portal.people import Person
from neuroscale.rendering.scaffolder.form import expected_enums
from neuroscale.rendering.scaffolder.plan_step import (
    FORM,
    SCHEMA_VERSION,
    RefusedPlanError,
    answers_of,
    body,
    request_of,
)
from neuroscale.rendering.scaffolder.template import PLAN_ROUTE
from neuroscale.repo.layout import CATALOG_INFO, ServicePath
from neuroscale.repo.services import services_of
from neuroscale.repo.snapshot import read_file
from neuroscale.report.json_report import to_json
from neuroscale.request.service_request import Request as ServiceRequest

PULL_REQUEST_ROUTE = "/api/v1/pull-request"
_log = logging.getLogger(__name__)
_FIELDS = {"answers", "asked_by"}


class Api:
    """The routes for programs. Whoever connects may plan; everything else needs a token that may read the repository.

    `POST /api/v1/plan`, or `GET` with `?answers=JSON`: the form's answers to `schema_version`, `verdict`, `summary`,
    `plan` and `values` (the skeleton's values). `GET /api/v1/catalog`: the names that the form offers.
    `POST /api/v1/pull-request`: `answers` (and `asked_by`, from a portal) to the outcome.
    `GET /api/v1/services`: the teams, and each service's `catalog_info` and `answers`.
    `GET /api/v1/services/ENVIRONMENT/SERVICE/answers`: those of a service.
    """

    def __init__(self, page_context: PageContext) -> None:
        self._page_context = page_context

    def add_to(self, app: FastAPI) -> None:
        """Add the routes."""
        app.add_api_route(HEALTH, self.health, methods=["GET"])
        app.add_api_route("/api/v1/catalog", self.names, methods=["GET"], response_model=None)
        app.add_api_route(PLAN_ROUTE, self.plan, methods=["POST"], response_model=None)
        app.add_api_route(PLAN_ROUTE, self.plan_of_question, methods=["GET"], response_model=None)
        app.add_api_route(PULL_REQUEST_ROUTE, self.pull_request, methods=["POST"], response_model=None)
        app.add_api_route("/api/v1/services", self.services, methods=["GET"], response_model=None)
        place = "/api/v1/services/{environment}/{service}/answers"
        app.add_api_route(place, self.answers, methods=["GET"], response_model=None)

    async def health(self) -> dict[str, str]:
        """Whether the server is alive."""
        return {"status": "ok"}

    def names(self, request: Request) -> dict[str, Any]:
        """The names that the form offers."""
        inputs = self._page_context.pending_changes.inputs(self._reader(request))
        availability = ServiceRequest.model_json_schema()["properties"]["availability"]["enum"]
        return {
            "schema_version": SCHEMA_VERSION,
            "catalog_digest": inputs.catalog.digest,
            "template_version": inputs.template.version,
            **expected_enums(inputs.catalog, inputs.settings),
            "availability": availability,
        }

    async def plan(self, request: Request) -> JSONResponse:
        """The plan of a form's answers."""
        answers = _object(await request.body(), request.headers.get("content-type", ""))
        return await run_in_threadpool(self._planned, request, answers)

    def plan_of_question(self, request: Request, answers: str = "") -> JSONResponse:
        """The same for answers in the address: a dry run of Backstage sends nothing but GET."""
        return self._planned(request, _object(answers.encode("utf-8", "surrogatepass"), "application/json"))

    def _planned(self, request: Request, answers: dict[str, Any]) -> JSONResponse:
        reader = self._reader(request)
        inputs = self._page_context.pending_changes.inputs(reader)
        with self._page_context.planning(request, reader):
            wanted = request_of(answers, inputs.known)
            newest = self._page_context.pending_changes.newest
            wanted, _ = with_revision(wanted, inputs.catalog, inputs.settings, newest)
            return JSONResponse(body(wanted, inputs.plan(wanted)))

    def _reader(self, request: Request) -> Token | None:
        """The request's token; None without one, or where no forge says whether that may read the repository."""
        has_forge = self._page_context.pending_changes.address
        return self._page_context.people.bearer(request) if has_forge else None

    async def pull_request(self, request: Request) -> JSONResponse:
        """Open the pull request of a form's answers, or bring the open one up to date."""
        sent = _object(await request.body(), request.headers.get("content-type", ""))
        if unknown := sorted(sent.keys() - _FIELDS):
            raise InputError.at("the request", unknown[0][:60], "is not known", "Send answers, and asked_by.")
        answers, asked_by = sent.get("answers"), sent.get("asked_by", "")
        if not isinstance(answers, dict) or not isinstance(asked_by, str):
            raise InputError.at("the request", "answers", "is not an object", "Send the form's answers.")
        person = await run_in_threadpool(self._person, request, asked_by)
        wanted = await run_in_threadpool(request_of, answers, None)
        job = Job(new_key(), person.name, "", "", {})
        change = self._page_context.pending_changes.start(
            person, job, lambda _: Requested(lambda main: request_of(answers, main.known))
        )
        # Shielded: a caller that goes away takes no change out of the queue.
        outcome = await asyncio.shield(asyncio.wrap_future(change))
        if isinstance(outcome, Refused):
            raise RefusedPlanError(outcome.request, outcome.plan, FORM)
        return _answered(wanted, outcome)

    def _person(self, request: Request, asked_by: str | None) -> Person:
        person = self._page_context.people.by_bearer(request, asked_by)
        if person is None:
            raise nobody()
        return person

    def services(self, request: Request) -> JSONResponse:
        """Teams and services of the forge's main branch, for a portal's catalog, without those services that cannot be
        read, or whose folder has no catalog-info.yaml."""
        main = self._page_context.pending_changes.main(self._person(request, None))
        services: list[dict[str, Any]] = []
        for path in services_of(main.snapshot):
            try:
                info = read_file(main.snapshot, f"{path.folder}/{CATALOG_INFO}", read_mapping)
                version = own_version(main.git, main.base.commit, path, main.base.branch)
            except InputError as error:
                _log.warning("%s is left out of the catalog: %s", path.name, error)
                continue
            if info is not None:
                services.append({"catalog_info": info.value, "answers": answers_of(version.request)})
        teams = [{"owner": team.owner, "name": team.name} for team in main.inputs.catalog.teams.values()]
        content = {"schema_version": SCHEMA_VERSION, "commit": main.base.commit, "teams": teams, "services": services}
        return JSONResponse(content)

    def answers(self, request: Request, environment: str, service: str) -> JSONResponse:
        """The answers of a service of the forge's main branch, with which a portal fills its form in."""
        main = self._page_context.pending_changes.main(self._person(request, None), now=True)
        path = ServicePath(environment, service)
        if path not in services_of(main.snapshot):
            raise HTTPException(404, "there is no service of this name on the forge's main branch")
        version = own_version(main.git, main.base.commit, path, main.base.branch)
        return JSONResponse(
            {
                "schema_version": SCHEMA_VERSION,
                "environment": environment,
                "service": service,
                "commit": main.base.commit,
                "answers": answers_of(version.request),
            }
        )


def nobody() -> HTTPException:
    """The answer for a program without a credential."""
    fix = "send `Authorization: Bearer TOKEN`, with a token of the forge, or with the portal's"
    return HTTPException(401, fix, {"WWW-Authenticate": "Bearer"})


def _answered(wanted: ServiceRequest, outcome: Outcome) -> JSONResponse:
    published, verdict = outcome.published, outcome.verdict
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "outcome": published.result if published else "not_passed" if verdict else "no_difference",
        "environment": wanted.environment,
        "service": wanted.service,
        "branch": outcome.branch,
        "base_commit": outcome.base.commit,
        "notes": list(outcome.notes),
    }
    if published:
        content |= {"url": published.pull.url, "number": published.pull.number, "commit": published.commit}
    if verdict is not None:
        message = f"{verdict.headline}. Nothing was pushed."
        content = {"message": message, **content, "report": json.loads(to_json(verdict))}
    return JSONResponse(content, 422 if verdict is not None else 200)


def _object(body: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object of a request's body. Raises InputError for anything else, and where a field stands twice."""
    if content_type.split(";")[0].strip().lower() != "application/json":
        raise InputError.at(FORM, "", "is not sent as JSON", "Send it with `content-type: application/json`.")
    try:
        members = read_object(body)
    except RepeatedKeysError as error:
        problems = [Problem(FORM, key[:60], "stands twice", "Send each field once.") for key in error.keys]
        raise InputError(problems) from error
    except ValueError as error:
        raise InputError.at(FORM, "", "is not valid JSON", "Send one JSON object in UTF-8.") from error
    if members is None:
        raise InputError.at(FORM, "", "is not a JSON object", "Send an object of the form's answers.")
    return members

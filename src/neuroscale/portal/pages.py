"""Shows the pages of asking: sign-in, the form with its plan, a change on its way, and its pull request."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from neuroscale.core.errors import InputError, NeuroscaleError, Problem
from neuroscale.core.json_text import read_object
from neuroscale.forge.interface import ForgeError, Token
from neuroscale.forge.request_flow import Change, Desk, Refused
from neuroscale.forge.service_changes import Requested
from neuroscale.portal.exposure import PAGE, Allowance
from neuroscale.portal.form_fields import answers_in, posted, sheet
from neuroscale.portal.form_token import FormTokens
from neuroscale.portal.pending_changes import BusyError, Job, NoReaderError, PendingChanges, new_key
from neuroscale.portal.people import SESSION, People, Person
from neuroscale.portal.plan_panel import Panel, live_panel, panel
from neuroscale.portal.pull_requests import progress
from neuroscale.portal.rendering import Renderer
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.plan_step import request_of
from neuroscale.repo.services import services_of

_HERE = re.compile(r"/[A-Za-z0-9/_.-]*")
"""Places of this server; `//` would be another one."""


class SignInNeededError(Exception):
    """The page is for people who are signed in."""


async def _posted(request: Request) -> dict[str, str]:
    return posted(await request.body(), request.headers.get("content-type", ""))


Fields = Annotated[dict[str, str], Depends(_posted)]


@dataclass(frozen=True)
class PageContext:
    """What the pages share."""

    people: People
    pending_changes: PendingChanges
    renderer: Renderer
    secure: bool
    allowance: Allowance = field(default_factory=Allowance)

    def planning(self, request: Request, reader: Token | None = None) -> contextlib.AbstractContextManager[None]:
        """Whatever plans for the request runs within this. `reader`: the token of a program, if that may read the
        repository. Raises TooMuchError."""
        person = None if reader else self.people.of(request)
        address = request.client.host if request.client else ""
        return self.allowance.planning(reader.secret if reader else person.name if person else address)

    def show(self, request: Request, name: str, status: int = 200, **context: Any) -> HTMLResponse:
        """A page, with who is signed in and what its forms carry."""
        return self.renderer.page(request, name, status, person=self.people.of(request), **context)

    def person(self, request: Request) -> Person:
        """Who asks. Raises SignInNeededError."""
        person = self.people.of(request)
        if person is None:
            raise SignInNeededError
        return person

    def inputs(self, request: Request) -> PlanningInputs:
        """What a form is planned with: main's for somebody who may read it, else what the server was started with."""
        person = self.people.of(request)
        with contextlib.suppress(NoReaderError, ForgeError):
            return self.pending_changes.inputs(person.token if person else None)
        return self.pending_changes.inputs(None)

    @property
    def form_tokens(self) -> FormTokens:
        return self.renderer.form_tokens

    def begin(
        self, person: Person, title: str, back: str, answers: dict[str, Any], change: Callable[[Desk], Change]
    ) -> Response:
        """Begin a change, and show how far it is."""
        self.pending_changes.check_reader(person.token)
        job = Job(new_key(), person.name, title, back, answers)
        self.pending_changes.start(person, job, change)
        return RedirectResponse(f"/changes/{job.key}", 303)


def here(text: str) -> str:
    """A place of this server that a form names; "/" for anything else."""
    return text if _HERE.fullmatch(text) and not text.startswith("//") else "/"


class AskingPages:
    """The pages on which somebody asks for a service."""

    def __init__(self, page_context: PageContext) -> None:
        self._page_context = page_context

    def add_to(self, app: FastAPI) -> None:
        """Add their routes."""
        get_options: dict[str, Any] = {"methods": ["GET"], "response_model": None}
        post_options: dict[str, Any] = {"methods": ["POST"], "response_model": None}
        app.add_api_route("/", self.front, **get_options)
        app.add_api_route("/sign-in", self.sign_in_form, **get_options)
        app.add_api_route("/sign-in", self.sign_in, **post_options)
        app.add_api_route("/sign-out", self.sign_out, **post_options)
        app.add_api_route("/new", self.new, **get_options)
        app.add_api_route("/new", self.submitted, **post_options)
        app.add_api_route("/plan", self.plan, **post_options)
        app.add_api_route("/changes/{key}", self.change, **get_options)
        app.add_api_route("/changes/{key}/state", self.change_state, **get_options)
        app.add_api_route("/pull-requests/{number}", self.pull, **get_options)
        app.add_api_route("/pull-requests/{number}/state", self.pull_state, **get_options)

    def front(self, request: Request) -> Response:
        """The services for somebody who is signed in, else the form."""
        return RedirectResponse("/services" if self._page_context.people.of(request) else "/new", 303)

    def sign_in_form(self, request: Request, to: str = "/") -> Response:
        """Ask for a token."""
        return self._page_context.show(
            request, "sign_in.html", to=here(to), carried={}, problem="", forge=self._forge()
        )

    def _forge(self) -> str:
        pending_changes = self._page_context.pending_changes
        return pending_changes.address.removesuffix(".git") or pending_changes.missing

    def sign_in(self, request: Request, fields: Fields) -> Response:
        """Begin a session, and go on where the person was: with the answers, if the form sent them along."""
        page_context = self._page_context
        page_context.form_tokens.check(request, fields)
        carried = {name.removeprefix("answer."): text for name, text in fields.items() if name.startswith("answer.")}
        try:
            session = page_context.people.sign_in(fields.get("token", ""))
        except NeuroscaleError as error:
            message = str(error)
            if isinstance(error, InputError):
                problems = [each.on(PAGE) for each in error.problems]
                message = "; ".join(f"{problem.message}. {problem.fix}" for problem in problems)
            to = here(fields.get("to", "/"))
            return page_context.show(
                request, "sign_in.html", 422, to=to, carried=carried, problem=message, forge=self._forge()
            )
        to = f"/new?answers={_packed(carried)}" if carried else here(fields.get("to", "/"))
        response = RedirectResponse(to, 303)
        response.set_cookie(SESSION, session, httponly=True, samesite="strict", secure=page_context.secure)
        return response

    def sign_out(self, request: Request, fields: Fields) -> Response:
        """End the session."""
        self._page_context.form_tokens.check(request, fields)
        self._page_context.people.sign_out(request)
        response = RedirectResponse("/new", 303)
        response.delete_cookie(SESSION)
        return response

    def new(self, request: Request, answers: str = "", change: str = "") -> Response:
        """The form for a new service. `answers`: JSON of what stands in it; `change`: the change to mend."""
        page_context = self._page_context
        person = page_context.people.of(request)
        if person is not None and page_context.pending_changes.address:
            # Without the forge, the plan is by what was seen last, and the request itself tells.
            with contextlib.suppress(NoReaderError, ForgeError):
                page_context.pending_changes.main(person)
        answered = _unpacked(answers) if answers else None
        if person is not None and change and (job := page_context.pending_changes.job(change, person)) is not None:
            answered = job.answers
        return self._form(request, answered, (), with_plan=answered is not None)

    def _form(
        self,
        request: Request,
        answers: Mapping[str, Any] | None,
        problems: tuple[Problem, ...],
        *,
        with_plan: bool,
        status: int = 200,
    ) -> Response:
        inputs = self._page_context.inputs(request)
        filled_sheet = sheet(inputs.template, answers, problems)
        plan_panel = Panel()
        if with_plan and answers:
            with self._page_context.planning(request):
                plan_panel = live_panel(answers, inputs)
        return self._page_context.show(
            request,
            "form.html",
            status,
            title="Ask for a service",
            sheet=filled_sheet,
            panel=plan_panel,
            titles=filled_sheet.titles,
            action="/new",
            plan_at="/plan",
            submit="Open the pull request",
            missing=self._page_context.pending_changes.missing,
        )

    def plan(self, request: Request, fields: Fields) -> Response:
        """The plan of a form while somebody types: a part of its page."""
        self._page_context.form_tokens.check(request, fields)
        inputs = self._page_context.inputs(request)
        answers = answers_in(inputs.template, fields)
        titles = sheet(inputs.template).titles
        with self._page_context.planning(request):
            plan_panel = live_panel(answers, inputs)
        return self._page_context.show(request, "plan.html", panel=plan_panel, titles=titles)

    def submitted(self, request: Request, fields: Fields) -> Response:
        """What the form's buttons do: fill in a choice, show the plan, or open the pull request."""
        page_context = self._page_context
        page_context.form_tokens.check(request, fields)
        inputs = page_context.inputs(request)
        answers = answers_in(inputs.template, fields)
        if "fill" in fields:
            return self._form(request, filled(answers, fields), (), with_plan=True)
        if fields.get("do") != "open":
            return self._form(request, answers, (), with_plan=True)
        try:
            wanted = request_of(answers, inputs.known)
        except InputError as error:
            return self._form(
                request, answers, tuple(problem.on(PAGE) for problem in error.problems), with_plan=True, status=422
            )
        person = page_context.people.of(request)
        if person is None:
            return page_context.show(
                request, "sign_in.html", to="/new", carried=answers, problem="", forge=self._forge()
            )
        title = f"Ask for {wanted.environment}/{wanted.service}"
        try:
            return page_context.begin(person, title, "/new", answers, lambda _: Requested(lambda _: wanted))
        except BusyError as error:
            problems = (Problem("the server", "", str(error).removesuffix("."), "Your answers are kept."),)
            return self._form(request, answers, problems, with_plan=True, status=503)

    def _job(self, request: Request, key: str) -> Job:
        job = self._page_context.pending_changes.job(key, self._page_context.person(request))
        if job is None:
            raise HTTPException(404, "There is no change of this name (any more)")
        return job

    def change(self, request: Request, key: str) -> Response:
        """A change on its way."""
        return self._page_context.show(request, "change.html", **_facts_of(self._job(request, key)))

    def change_state(self, request: Request, key: str) -> Response:
        """How far it is: a part of its page."""
        return self._page_context.show(request, "change_state.html", **_facts_of(self._job(request, key)))

    def pull(self, request: Request, number: int) -> Response:
        """A pull request, with its checks."""
        return self._pull(request, number, "pull.html")

    def pull_state(self, request: Request, number: int) -> Response:
        """How far it is: a part of its page."""
        return self._pull(request, number, "pull_state.html")

    def _pull(self, request: Request, number: int, name: str) -> Response:
        page_context = self._page_context
        person = page_context.person(request)
        if not 1 <= number < 2**31:
            raise HTTPException(404, "There is no pull request of this number")
        with page_context.pending_changes.desk(person) as desk:
            now = progress(desk.publisher.forge, number)
        is_merged = now.path is not None and now.pull.state == "merged"
        is_served = is_merged and now.path in services_of(page_context.pending_changes.main(person).snapshot)
        if is_merged and not is_served:  # main may be older than the merge
            is_served = now.path in services_of(page_context.pending_changes.main(person, now=True).snapshot)
        return page_context.show(request, name, now=now, is_served=is_served)


def _facts_of(job: Job) -> dict[str, Any]:
    """What a page says of a change."""
    outcome, problem = job.outcome, job.problem
    facts: dict[str, Any] = {
        "job": job,
        "panel": None,
        "titles": {},
        "findings": (),
        "headline": "",
        "problems": (),
        "fault": "",
        "published": None,
        "base": "",
        "notes": (),
    }
    if isinstance(problem, InputError):
        facts["problems"] = [each.on(PAGE) for each in problem.problems]
    elif problem is not None:
        facts["fault"] = str(problem) if isinstance(problem, NeuroscaleError) else "This program failed: see its log."
    if isinstance(outcome, Refused):
        facts["panel"] = panel(outcome.plan)
    elif outcome is not None and outcome.verdict is not None:
        facts["headline"] = outcome.verdict.headline
        facts["findings"] = [finding for finding in outcome.verdict.findings if finding.severity == "error"]
    elif outcome is not None:
        facts |= {"published": outcome.published, "base": outcome.base.branch, "notes": outcome.notes}
    return facts


def filled(answers: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """The answers with those of the choice whose button was pressed. Raises InputError."""
    return {**answers, **(_unpacked(fields["fill"]) if "fill" in fields else {})}


def _packed(answers: Mapping[str, Any]) -> str:
    return quote(json.dumps(dict(answers)), safe="")


def _unpacked(text: str) -> dict[str, Any]:
    """Answers in JSON, as this server's page sent them: plain values alone."""
    with contextlib.suppress(ValueError):
        answers = read_object(text)
        if answers is not None and all(isinstance(value, str | int | float) for value in answers.values()):
            return answers
    raise InputError.at("the form", "fill", "does not hold answers", "Send it from this server's page.")

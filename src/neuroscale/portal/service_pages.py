"""Shows the pages of what is served: the list, one service with its state and history, and its changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.core.errors import ASKED, InputError, Problem
from neuroscale.core.printable import one_line
from neuroscale.forge.request_flow import Change, Desk, Main, Version
from neuroscale.forge.service_changes import Named, Promoted, Retired, Updated, compared
from neuroscale.portal.form_fields import answers_in, sheet
from neuroscale.portal.kept_answers import KeptAnswers
from neuroscale.portal.pages import Fields, PageContext, filled
from neuroscale.portal.pending_changes import BusyError
from neuroscale.portal.plan_panel import Panel, panel
from neuroscale.portal.services import Measured, Surroundings, history, listing, row_of
from neuroscale.rendering.scaffolder.plan_step import answers_of
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.services import services_of
from neuroscale.report import change_view
from neuroscale.request.field_changes import IDENTITY, FieldChanges, changed
from neuroscale.request.service_request import Request as ServiceRequest

_PLACE = "/services/{environment}/{service}"
_LONGEST_REASON = 500


class ServicePages:
    """The pages on which somebody looks after services."""

    def __init__(self, page_context: PageContext, surroundings: Surroundings) -> None:
        self._page_context = page_context
        self._surroundings = surroundings
        self._statuses: KeptAnswers[Sequence[ServiceStatus]] = KeptAnswers()
        self._metrics: KeptAnswers[Measured] = KeptAnswers()
        self._leaving: KeptAnswers[list[str]] = KeptAnswers()

    def add_to(self, app: FastAPI) -> None:
        """Add their routes."""
        get_options: dict[str, Any] = {"methods": ["GET"], "response_model": None}
        post_options: dict[str, Any] = {"methods": ["POST"], "response_model": None}
        app.add_api_route("/services", self.services, **get_options)
        app.add_api_route("/services/states", self.states, **get_options)
        app.add_api_route(_PLACE, self.service, **get_options)
        app.add_api_route(f"{_PLACE}/state", self.state, **get_options)
        app.add_api_route(f"{_PLACE}/metrics", self.metrics, **get_options)
        app.add_api_route(f"{_PLACE}/history", self.history, **get_options)
        app.add_api_route(f"{_PLACE}/edit", self.edit, **get_options)
        app.add_api_route(f"{_PLACE}/edit", self.edited, **post_options)
        app.add_api_route(f"{_PLACE}/plan", self.plan, **post_options)
        app.add_api_route(f"{_PLACE}/promote", self.promote, **get_options)
        app.add_api_route(f"{_PLACE}/promote", self.promoted, **post_options)
        app.add_api_route(f"{_PLACE}/retire", self.retire, **get_options)
        app.add_api_route(f"{_PLACE}/retire", self.retired, **post_options)

    # what is served

    def services(self, request: Request) -> Response:
        """The list; its states follow, since a cluster may be slow."""
        person = self._page_context.person(request)
        rows = listing(self._page_context.pending_changes, person)
        return self._page_context.show(request, "services.html", listing=rows, states=None, states_missing="")

    def states(self, request: Request) -> Response:
        """The list with what the cluster says: a part of its page."""
        person = self._page_context.person(request)
        rows = listing(self._page_context.pending_changes, person)
        inputs = self._page_context.pending_changes.inputs(person.token)
        statuses, missing = self._statuses.ask("", lambda: self._surroundings.statuses(inputs, "", ""))
        by_name = {(status.environment, status.name): status for status in statuses or ()}
        return self._page_context.show(
            request, "services_table.html", listing=rows, states=by_name, states_missing=missing
        )

    def _path(self, request: Request, environment: str, service: str) -> tuple[Main, ServicePath]:
        pending_changes, person = self._page_context.pending_changes, self._page_context.person(request)
        main, path = pending_changes.main(person), ServicePath(environment, service)
        if path not in services_of(main.snapshot):
            main = pending_changes.main(person, now=True)  # it may have been merged a moment ago
        if path not in services_of(main.snapshot):
            raise HTTPException(404, "There is no service of this name on the forge's main branch")
        return main, path

    def service(self, request: Request, environment: str, service: str) -> Response:
        """One service."""
        _, path = self._path(request, environment, service)
        row = row_of(self._page_context.pending_changes, self._page_context.person(request), path)
        if row is None:
            raise HTTPException(404, "There is no service of this name on the forge's main branch")
        plan_panel = panel(row.plan) if row.plan is not None else Panel()
        return self._page_context.show(request, "service.html", row=row, panel=plan_panel, titles={})

    def state(self, request: Request, environment: str, service: str) -> Response:
        """What the cluster says of it: a part of its page."""
        main, path = self._path(request, environment, service)
        statuses, missing = self._statuses.ask(
            path.name, lambda: self._surroundings.statuses(main.inputs, path.environment, path.service)
        )
        status = next((status for status in statuses or () if status.environment in ("", path.environment)), None)
        if status is None and not missing:
            missing = "the cluster does not have it"
        return self._page_context.show(request, "service_state.html", state=status, missing=missing, path=path)

    def metrics(self, request: Request, environment: str, service: str) -> Response:
        """Its figures of the last minutes: a part of its page."""
        main, path = self._path(request, environment, service)
        figures, missing = self._metrics.ask(
            path.name, lambda: self._surroundings.metrics(main.inputs, path.environment, path.service)
        )
        return self._page_context.show(request, "service_metrics.html", figures=figures, missing=missing)

    def history(self, request: Request, environment: str, service: str) -> Response:
        """Its last changes: a part of its page."""
        _, path = self._path(request, environment, service)
        changes, missing = history(self._page_context.pending_changes, self._page_context.person(request), path)
        return self._page_context.show(request, "service_history.html", changes=changes, missing=missing)

    # what becomes of it

    def _named(self, path: ServicePath) -> Named:
        return Named(path.name, self._page_context.pending_changes.root)

    def edit(self, request: Request, environment: str, service: str) -> Response:
        """The form with the service's answers."""
        main, path = self._path(request, environment, service)
        version = self._named(path).version(main)
        return self._form(request, main, path, version, answers_of(version.request), (), "")

    def _form(
        self,
        request: Request,
        main: Main,
        path: ServicePath,
        version: Version,
        answers: Mapping[str, Any],
        problems: tuple[Problem, ...],
        reason: str,
        status: int = 200,
    ) -> Response:
        filled_sheet = sheet(main.inputs.template, answers, problems, fixed=True)
        return self._page_context.show(
            request,
            "form.html",
            status,
            title=f"Change {path.name}",
            sheet=filled_sheet,
            titles=filled_sheet.titles,
            panel=self._compared(request, main, version, answers, reason),
            action=f"/services/{path.name}/edit",
            plan_at=f"/services/{path.name}/plan",
            submit="Open the pull request of this change",
            missing="",
            reason=reason,
            path=path,
        )

    def _compared(
        self, request: Request, main: Main, version: Version, answers: Mapping[str, Any], reason: str
    ) -> Panel:
        """The plan of the changed answers, beside the present one."""
        try:
            wanted = changed(version.request, _changes(version.request, answers, reason), main.known)
        except InputError as error:
            return Panel(problems=tuple(error.problems))
        with self._page_context.planning(request):
            plan = main.inputs.plan(wanted)
        plan_panel = panel(plan)
        if wanted == version.request or plan.verdict == "refused":
            return plan_panel
        report = compared(version, wanted, plan)
        rows = tuple((name, old, new) for name, old, new in change_view.rows(report) if old != new)
        return replace(plan_panel, changes=rows, merge=change_view.merge(report))

    def plan(self, request: Request, fields: Fields, environment: str, service: str) -> Response:
        """The plan while somebody changes the answers: a part of the form's page."""
        self._page_context.form_tokens.check(request, fields)
        main, path = self._path(request, environment, service)
        version = self._named(path).version(main)
        answers = self._answers(main, version, fields)
        plan_panel = self._compared(request, main, version, answers, fields.get("reason", ""))
        titles = sheet(main.inputs.template).titles
        return self._page_context.show(request, "plan.html", panel=plan_panel, titles=titles)

    def _answers(self, main: Main, version: Version, fields: Mapping[str, str]) -> dict[str, Any]:
        own = {name: getattr(version.request, name) for name in IDENTITY}
        return {**answers_in(main.inputs.template, fields), **own}

    def edited(self, request: Request, fields: Fields, environment: str, service: str) -> Response:
        """What the buttons of the form do."""
        page_context = self._page_context
        page_context.form_tokens.check(request, fields)
        main, path = self._path(request, environment, service)
        version = self._named(path).version(main)
        answers, reason = self._answers(main, version, fields), _reason(fields)
        if "fill" in fields or fields.get("do") != "open":
            answers = filled(answers, fields)
            return self._form(request, main, path, version, answers, (), reason)
        problems: list[Problem] = []
        changes = _changes(version.request, answers, reason)
        try:
            changed(version.request, changes, main.known)
        except InputError as error:
            problems = error.problems
        if not problems and not changes.values and not changes.removed:
            problems = [Problem("the form", "", "changes nothing", "Change an answer, or leave the page.")]
        if problems:
            return self._form(request, main, path, version, answers, tuple(problems), reason, 422)
        return self._begin(
            request, f"Change {path.name}", f"/services/{path.name}/edit", lambda _: Updated(self._named(path), changes)
        )

    def _begin(self, request: Request, title: str, back: str, change: Any) -> Response:
        try:
            return self._page_context.begin(self._page_context.person(request), title, back, {}, change)
        except BusyError as error:
            return self._page_context.show(request, "message.html", 503, heading="Busy", problems=(), text=str(error))

    def promote(self, request: Request, environment: str, service: str) -> Response:
        """Ask where to."""
        main, path = self._path(request, environment, service)
        places = [name for name in main.inputs.settings.environments if name != path.environment]
        defaults = {name: main.inputs.settings.environments[name].default_availability for name in places}
        return self._page_context.show(request, "promote.html", path=path, places=places, defaults=defaults)

    def promoted(self, request: Request, fields: Fields, environment: str, service: str) -> Response:
        """Open the pull request that carries it there."""
        page_context = self._page_context
        page_context.form_tokens.check(request, fields)
        main, path = self._path(request, environment, service)
        to, reason = fields.get("to", ""), _reason(fields)
        if to not in main.inputs.settings.environments:
            raise InputError.at(ASKED, "to", "is not an environment", "Choose one of the list.")
        values = {"availability": fields["availability"]} if fields.get("availability") else {}
        changes = FieldChanges(values, (), reason, "")

        def change(desk: Desk) -> Change:
            evidence = self._surroundings.evidence(desk.publisher.forge, reason, to)
            return Promoted(self._named(path), to, changes, evidence)

        return self._begin(request, f"Promote {path.name} to {to}", f"/services/{path.name}/promote", change)

    def retire(self, request: Request, environment: str, service: str) -> Response:
        """Say what that means."""
        main, path = self._path(request, environment, service)
        version = self._named(path).version(main)
        retiring = self._surroundings.retiring
        lines, missing = self._leaving.ask(path.name, lambda: list(retiring("")(main, path, version)))
        return self._page_context.show(request, "retire.html", path=path, lines=lines, missing=missing)

    def retired(self, request: Request, fields: Fields, environment: str, service: str) -> Response:
        """Open the pull request that removes it."""
        self._page_context.form_tokens.check(request, fields)
        _, path = self._path(request, environment, service)
        sentences = self._surroundings.retiring(_reason(fields))
        return self._begin(
            request,
            f"Retire {path.name}",
            f"/services/{path.name}/retire",
            lambda _: Retired(self._named(path), sentences),
        )


def _reason(fields: Mapping[str, str]) -> str:
    return one_line(fields.get("reason", ""), _LONGEST_REASON)


def _changes(present: ServiceRequest, answers: Mapping[str, Any], reason: str) -> FieldChanges:
    """What the answers change of the present ones; an answer that is left empty is left out."""
    old = answers_of(present)
    values = {name: value for name, value in answers.items() if name not in IDENTITY and value != old.get(name)}
    removed = tuple(name for name in old if name not in IDENTITY and name not in answers)
    return FieldChanges(values, removed, reason, "")

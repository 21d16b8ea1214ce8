"""Runs the planning step of a template: makes the answer of `POST /api/v1/plan` from a form's answers.

The server sends this body to Backstage, and the interpreter takes it in-process: both fill the skeleton with the same
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Settings
from neuroscale.core import yaml_io
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.validation import shorten, suggest
from neuroscale.planning.plan import Alternative, Plan
from neuroscale.planning.planner import plan, request_digest
from neuroscale.rendering.scaffolder.form import FORM_FIELDS
from neuroscale.rendering.scaffolder.skeleton_values import template_values
from neuroscale.repo.layout import REQUEST_FILE
from neuroscale.request.service_request import Override, Request, check_request, load_request

SCHEMA_VERSION = 1
FORM = "the form"


class RefusedPlanError(InputError):
    """The planner found no way to serve the request; the problem says why, and what works instead."""

    exit_status = ExitStatus.FINDINGS

    def __init__(self, refused: Plan, where: str) -> None:
        self.plan = refused
        reason = " ".join(refused.reasons).rstrip(".") or "the planner gave no reason"
        super().__init__(
            Problem(where, "", f"{refused.service} cannot be served: {reason}", _instead(refused.alternatives))
        )


@dataclass(frozen=True)
class Existing:
    """The parts of an existing service that stay: its overrides, and its plan for as long as the answers are the
    same."""

    overrides: tuple[Override, ...] = ()
    lock: Plan | None = None


def answer(
    answers: Mapping[str, Any],
    catalog: Catalog,
    settings: Settings,
    template_version: str,
    there: Existing | None = None,
) -> dict[str, Any]:
    """The body of the answer to a form, for a new service or one that exists (`there`).

    Raises InputError naming the fields, and RefusedPlanError.
    """
    request = request_of(answers)
    check_request(request, catalog, settings, FORM)
    if there is not None:
        request = request.model_copy(update={"overrides": there.overrides})
        check_request(request, catalog, settings, REQUEST_FILE)
        if there.lock is not None and there.lock.lock.request_digest == request_digest(request):
            return body(request, there.lock)
    return body(request, plan(request, catalog, settings, template_version))


def request_of(answers: Mapping[str, Any], where: str = FORM) -> Request:
    """The request that a form's answers make. Raises InputError naming the fields."""
    problems = [
        Problem(where, yaml_io.dotted((name[:60],)), "is not a field of the form", _not_asked(name))
        for name in answers
        if name not in FORM_FIELDS
    ]
    for name, value in answers.items():
        if name not in FORM_FIELDS:
            continue
        if not isinstance(value, str | int | float | bool | None):
            problems.append(Problem(where, name, "is a list or a mapping", "Write one value."))
            continue
        try:
            yaml_io.scalar(value)
        except ValueError:
            problems.append(
                Problem(where, name, f"{shorten(value)} is not a value that a file can hold", "Write plain text.")
            )
    if problems:
        raise InputError(problems)
    try:
        # Written as in `request.yaml`: files and forms are read by the same rules.
        return load_request(yaml_io.dump(dict(answers)), where)
    except InputError as error:
        raise InputError([replace(problem, line=None) for problem in error.problems]) from error


def _not_asked(name: str) -> str:
    if name in Request.model_fields:
        return f"Leave it out: {name} belongs in the service's {REQUEST_FILE}, for `neuroscale replan` to read."
    return suggest(name, FORM_FIELDS)


def answers_of(request: Request) -> dict[str, Any]:
    """A request's answers as the form gives them, without fields that a form does not ask for (overrides) and those
    that were left empty."""
    answers: dict[str, Any] = request.model_dump(mode="json", include=set(FORM_FIELDS))
    return answers


def body(request: Request, planned: Plan, where: str = FORM) -> dict[str, Any]:
    """The answer for a request and its plan. Raises RefusedPlanError for a refused plan."""
    if planned.verdict == "refused":
        raise RefusedPlanError(planned, where)
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": planned.verdict,
        "summary": summary(planned),
        "plan": planned.model_dump(mode="json"),
        "values": template_values(request, planned),
    }


def summary(planned: Plan) -> str:
    """A plan in a few lines of Markdown, for the description of a pull request."""
    replicas = planned.replicas
    pods = f"{replicas.min}" if replicas.min == replicas.max else f"{replicas.min} to {replicas.max}"
    price = "unknown" if planned.cost.monthly_min is None else f"US$ {planned.cost.monthly_min:,.2f} per month"
    lines = [
        f"- Model: `{planned.model}` ({planned.verdict}, confidence {planned.confidence})",
        f"- Accelerators per replica: {planned.accelerator_count} x `{planned.accelerator}`",
        f"- Replicas: {pods}",
        f"- Price at the fewest replicas: {price}",
        f"- Owner: `{planned.tenancy.owner}`, cost centre `{planned.tenancy.cost_center}`",
        "",
        *[f"- {reason}" for reason in planned.reasons],
    ]
    return "\n".join(lines) + "\n"


def _instead(alternatives: tuple[Alternative, ...]) -> str:
    if not alternatives:
        return "Nothing near it works: choose another model or another environment."
    return "What works: " + "; ".join(alternative.change.rstrip(".") for alternative in alternatives) + "."

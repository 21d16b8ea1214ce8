"""Runs the planning step of a template: makes the answer of `POST /api/v1/plan` from a form's answers.

The server sends this body to Backstage, and the interpreter takes it in-process: both fill the skeleton with the same
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroscale.core import yaml_io
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.validation import shorten, suggest
from neuroscale.core.yaml_io import Document
from neuroscale.planning.plan import Alternative, Plan
from neuroscale.planning.plan_facts import facts
from neuroscale.rendering.scaffolder.form import FORM_FIELDS
from neuroscale.rendering.scaffolder.skeleton_values import template_values
from neuroscale.repo.layout import REQUEST_FILE
from neuroscale.request.service_request import KnownNames, Request, request_in

SCHEMA_VERSION = 1
FORM = "the form"


class RefusedPlanError(InputError):
    """The planner found no way to serve the request; the problem says why, and what works instead."""

    exit_status = ExitStatus.FINDINGS

    def __init__(self, request: Request, refused: Plan, where: str) -> None:
        self.request = request
        self.plan = refused
        reason = " ".join(refused.reasons).rstrip(".") or "the planner gave no reason"
        super().__init__(
            Problem(where, "", f"{refused.service} cannot be served: {reason}", _instead(refused.alternatives))
        )


def request_of(answers: Mapping[str, Any], known: KnownNames | None) -> Request:
    """The request that a form's answers make. Raises InputError with every mistake, by its field: what a form does not
    ask for, values that no request may have, and names that are not `known` (None: somebody else checks the names)."""
    problems = [
        Problem(FORM, yaml_io.dotted((name[:60],)), "is not a field of the form", _not_asked(name))
        for name in answers
        if name not in FORM_FIELDS
    ]
    usable: dict[str, Any] = {}
    for name, value in answers.items():
        if name not in FORM_FIELDS:
            continue
        if not isinstance(value, str | int | float | bool | None):
            problems.append(Problem(FORM, name, "is a list or a mapping", "Write one value."))
            continue
        try:
            yaml_io.scalar(value)
        except ValueError:
            problems.append(
                Problem(FORM, name, f"{shorten(value)} is not a value that a file can hold", "Write plain text.")
            )
            continue
        usable[name] = value
    refused = {problem.field for problem in problems}
    try:
        request = request_in(Document(usable), FORM, known)
    except InputError as error:
        problems += [problem for problem in error.problems if problem.field not in refused]
        order = {name: index for index, name in enumerate(FORM_FIELDS)}
        raise InputError(sorted(problems, key=lambda problem: order.get(problem.field, len(order)))) from error
    if problems:
        raise InputError(problems)
    return request


def _not_asked(name: str) -> str:
    if name in Request.model_fields:
        return f"Leave it out: {name} belongs in the service's {REQUEST_FILE}, for `neuroscale replan` to read."
    return suggest(name, FORM_FIELDS)


def answers_of(request: Request) -> dict[str, Any]:
    """A request's answers as the form gives them, without fields that a form does not ask for (overrides) and those
    that were left empty."""
    answers: dict[str, Any] = request.model_dump(mode="json", include=set(FORM_FIELDS))
    return answers


def body(request: Request, made: Plan, where: str = FORM) -> dict[str, Any]:
    """The answer for a request and its plan. Raises RefusedPlanError for a refused plan."""
    if made.verdict == "refused":
        raise RefusedPlanError(request, made, where)
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": made.verdict,
        "summary": summary(made),
        "plan": made.model_dump(mode="json"),
        "values": template_values(request, made),
    }


def summary(made: Plan) -> str:
    """A plan in a few lines of Markdown, for the description of a pull request."""
    known = facts(made, lambda name: f"`{name}`")
    price = f"{known['Price a month']} a month" if made.cost.monthly_min is not None else "unknown"
    lines = [
        f"- Model: {known['Model']} ({made.verdict}, confidence {made.confidence})",
        f"- Accelerators per replica: {known['Accelerators']}",
        f"- Replicas: {known['Replicas'].value}",
        f"- Price at the fewest replicas: {price}",
        f"- Owner: `{made.tenancy.owner}`, cost centre {known['Cost centre']}",
        "",
        *[f"- {reason}" for reason in made.reasons],
    ]
    return "\n".join(lines) + "\n"


def _instead(alternatives: tuple[Alternative, ...]) -> str:
    if not alternatives:
        return "Nothing near it works: choose another model or another environment."
    return "What works: " + "; ".join(alternative.change.rstrip(".") for alternative in alternatives) + "."

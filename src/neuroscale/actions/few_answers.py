"""Makes a request from the few answers that decide on accelerators; the form's defaults answer the rest, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from neuroscale.core.errors import ASKED, InputError, Problem, field_of
from neuroscale.core.money_and_time import duration
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.plan_step import FORM, request_of
from neuroscale.request.service_request import Request

ASKED_FIELDS = {
    "model": "model",
    "concurrent_users": "users",
    "longest_prompt_tokens": "prompt-tokens",
    "longest_answer_tokens": "answer-tokens",
    "environment": "environment",
}
"""The form's fields that are asked for, each with its name in the question. Only the environment has a default."""

_SERVICE = "advice"
_FIRST_TOKEN = 2  # seconds, where the form has no default
_CPU = "cpu"  # the family of accelerators


def request_of_few(answers: Mapping[str, Any], inputs: PlanningInputs) -> tuple[Request, str]:
    """The request of some answers by their form's fields (None: not answered), and a sentence about what was assumed.

    Raises InputError with every mistake, by the field of the question.
    """
    missing = [field_of(ASKED_FIELDS[name]) for name, value in answers.items() if value is None]
    missing = [name for name in missing if name != field_of("environment")]
    if missing:
        fix = "Give all of them, or a file with a form's answers."
        raise InputError.at(ASKED, "", f"lacks {', '.join(missing)}", fix)
    form = inputs.template.form()
    environment = answers.get("environment") or _environment(inputs)
    known = inputs.settings.environments.get(environment)
    assumed = {
        "service": _SERVICE,
        "team": min(inputs.catalog.teams),
        "p95_ttft_seconds": form.get("p95_ttft_seconds", {}).get("default", _FIRST_TOKEN),
        "availability": known.default_availability if known else "standard",
    }
    try:
        request = request_of({**answers, **assumed, "environment": environment}, inputs.known)
    except InputError as error:
        raise InputError([_asked(problem) for problem in error.problems]) from error
    taken = "" if answers.get("environment") else f"the environment {environment}, "
    return request, (
        f"Assumed: {taken}the team {request.team}, {request.availability} availability, and the first token in "
        f"{duration(request.p95_ttft_seconds)} for 95 of 100 requests."
    )


def _environment(inputs: PlanningInputs) -> str:
    """The first environment of the settings with an accelerator beyond the CPU, else the first one."""
    known, environments = inputs.catalog.accelerators, inputs.settings.environments
    with_accelerators = (
        name
        for name, environment in environments.items()
        if any(known[accelerator].family != _CPU for accelerator in environment.accelerators)
    )
    return next(with_accelerators, next(iter(environments)))


def _asked(problem: Problem) -> Problem:
    if problem.where != FORM or problem.field not in ASKED_FIELDS:
        return problem
    return replace(problem, where=ASKED, field=ASKED_FIELDS[problem.field])

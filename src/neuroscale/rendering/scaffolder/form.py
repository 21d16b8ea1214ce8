"""Checks that the form offers the catalog's names, and the limits that a request has."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import Problem
from neuroscale.core.yaml_io import Path, dotted
from neuroscale.rendering.scaffolder.actions import PUBLISH
from neuroscale.rendering.scaffolder.model_list import label, model_names
from neuroscale.rendering.scaffolder.template import Template
from neuroscale.repo.layout import SETTINGS
from neuroscale.request.service_request import Request

# The fields of a request beside the form's answers.
_NOT_ASKED = frozenset({"schema_version", "overrides"})
_ADD = {"model": "Run `neuroscale catalog form`, and commit its change."}
_LIMITS = ("pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

FORM_FIELDS = tuple(name for name in Request.model_fields if name not in _NOT_ASKED)
"""The fields that a form asks for, in the order of `request.yaml`."""

REQUIRED_FIELDS = tuple(name for name in FORM_FIELDS if Request.model_fields[name].is_required())
"""Those that must be answered."""


def expected_enums(catalog: Catalog, settings: Settings) -> dict[str, list[str]]:
    """The names that the form's lists must hold, by field, sorted."""
    return {
        "model": sorted(catalog.models),
        "team": sorted(catalog.teams),
        "environment": sorted(settings.environments),
    }


def check_form(template: Template, catalog: Catalog, settings: Settings) -> list[Problem]:
    """The places where template.yaml differs from what the catalog, the settings and a request allow."""
    problems: list[Problem] = []

    def refuse(path: Path, message: str, fix: str) -> None:
        line = template.document.line(*path)
        problems.append(Problem(template.where, dotted(path), message, fix, line))

    form = template.form()
    root: Path = ("spec", "parameters")
    for name in sorted(form.keys() - set(FORM_FIELDS)):
        refuse(_place(template, name), "is not an answer that a request holds", f"Ask for {', '.join(FORM_FIELDS)}.")
    for name in FORM_FIELDS:
        if name not in form:
            refuse(root, f"does not ask for {name}", f"Add `{name}:` to the properties.")
    required = {name for page in template.pages() for name in page.get("required", [])}
    for name in FORM_FIELDS:
        if name in form and name in REQUIRED_FIELDS and name not in required:
            refuse(_place(template, name), "may be left out", "List it under `required:` of its page.")
        if name in form and name in required and name not in REQUIRED_FIELDS:
            refuse(_place(template, name), "must be answered", "Take it out of `required:` of its page.")

    enums = expected_enums(catalog, settings)
    schema = Request.model_json_schema()["properties"]
    for name in (name for name in FORM_FIELDS if name in form):
        field, wanted = form[name], schema[name]
        # A field that may be left out is a number or null; a form leaves it out instead.
        wanted = next((one for one in wanted.get("anyOf", []) if one["type"] != "null"), wanted)
        place = _place(template, name)
        if field.get("type") != wanted["type"]:
            refuse(place, f"has the type {field.get('type')!r}", f"Write `type: {wanted['type']}`.")
        for limit in _LIMITS:
            if field.get(limit) != wanted.get(limit):
                fix = f"Write `{limit}: {wanted[limit]}`." if limit in wanted else f"Remove `{limit}`."
                refuse((*place, limit), f"is {field.get(limit)!r}, and a request has {wanted.get(limit)!r}", fix)
        if (names := enums.get(name, wanted.get("enum"))) is not None:
            given = field.get("enum")
            offered = given if isinstance(given, list) else []
            if missing := [item for item in names if item not in offered]:
                refuse((*place, "enum"), f"lacks {', '.join(missing)}", _ADD.get(name, "Add what is missing."))
            if extra := [str(item) for item in offered if item not in names]:
                refuse(
                    (*place, "enum"),
                    f"offers {', '.join(extra)}, which the repository lacks",
                    "Remove it.",
                )
    problems += _check_models(template, catalog)
    problems += _check_repository(template, settings)
    return problems


def _check_models(template: Template, catalog: Catalog) -> list[Problem]:
    """What the form says of each model must be what the catalog says."""
    field = template.form().get("model", {})
    given, names = field.get("enum"), field.get("enumNames")
    if not isinstance(given, list) or set(map(str, given)) != set(catalog.models):
        return []  # told already
    wanted = [label(catalog.models[name], catalog) for name in given]
    if names == wanted and given == model_names(catalog):
        return []
    place = (*_place(template, "model"), "enumNames")
    return [
        Problem(
            template.where,
            dotted(place),
            "the list of models is not as the catalog renders it",
            "Run `neuroscale catalog form`, and commit its change.",
            template.document.line(*place),
        )
    ]


def _check_repository(template: Template, settings: Settings) -> list[Problem]:
    """The pull request must go to the repository that the settings name."""
    problems = []
    repository = urlsplit(settings.repository.url)
    owner, _, name = repository.path.strip("/").removesuffix(".git").rpartition("/")
    for step in template.steps:
        if step.action != PUBLISH:
            continue
        given = str(step.input["repoUrl"])
        host, _, query = given.partition("?")
        if (host, parse_qs(query)) != (repository.netloc, {"owner": [owner], "repo": [name]}):
            problems.append(
                _differs(
                    template, (*step.path, "input", "repoUrl"), given, f"{repository.netloc}?owner={owner}&repo={name}"
                )
            )
        branch = step.input.get("targetBranchName")
        if branch != settings.repository.default_branch:
            problems.append(
                _differs(
                    template, (*step.path, "input", "targetBranchName"), str(branch), settings.repository.default_branch
                )
            )
    return problems


def _differs(template: Template, path: Path, given: str, wanted: str) -> Problem:
    return Problem(
        template.where,
        dotted(path),
        f"is {given!r}, and {SETTINGS} names another repository or branch",
        f"Write `{wanted}`.",
        template.document.line(*path),
    )


def _place(template: Template, name: str) -> Path:
    """The place of a field in template.yaml."""
    parameters: Any = template.document.value["spec"]["parameters"]
    if not isinstance(parameters, list):
        return ("spec", "parameters", "properties", name)
    for index, page in enumerate(parameters):
        if name in page.get("properties", {}):
            return ("spec", "parameters", index, "properties", name)
    return ("spec", "parameters")

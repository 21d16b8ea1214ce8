"""Checks that the form offers the catalog's names, and the limits that a request has.

Renders the form's lists from catalog and settings: the models by family, each with the facts by which people choose,
the teams, the environments, and the repository that a pull request goes to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from neuroscale.catalog import Catalog, ModelEntry
from neuroscale.catalog.parser_families import TRIAL, heading_of
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import Problem
from neuroscale.core.yaml_io import Path, dotted, read_mapping, scalar
from neuroscale.rendering.scaffolder.template import DEFINITION, PUBLISH, Step, Template
from neuroscale.repo.layout import SETTINGS
from neuroscale.request.service_request import Request

Refuse = Callable[[Path, str, str], None]
"""Notes a problem: its place in template.yaml, the message, and what to write instead."""
_STEP = "  "


def model_names(catalog: Catalog) -> list[str]:
    """The models in the form's order: by family, the smaller first, the quantised copies behind their model."""

    def place(model: ModelEntry) -> tuple[bool, str, int, str, bool, str]:
        root = _root(model, catalog)
        family = heading(model, catalog)
        return family == TRIAL, family.lower(), root.facts.total_params, root.name, model is not root, model.name

    return [model.name for model in sorted(catalog.models.values(), key=place)]


def heading(model: ModelEntry, catalog: Catalog) -> str:
    """The family that the form lists a model under. A quantised copy stands with its model."""
    root = _root(model, catalog)
    return root.family or heading_of(root.name)


def _root(model: ModelEntry, catalog: Catalog) -> ModelEntry:
    return catalog.models[model.variant_of] if model.variant_of else model


def label(model: ModelEntry, catalog: Catalog) -> str:
    """One line about a model: family, title, parameters, context, weights' format, licence, what it is good at."""
    facts, stored = model.facts, model.checkpoint.quantization
    published = model.parameters
    size = f"{_count(published.published_total or facts.total_params)} parameters"
    if facts.experts:
        size += f", {_count(published.published_active or facts.active_params)} active"
    told = [
        size,
        f"{facts.max_position_embeddings:,} tokens",
        "16-bit weights" if stored == "none" else f"{stored} weights",
        f"licence {model.weights.license}" if model.weights.license else "licence not known",
    ]
    if model.weights.gated:
        told.append("its publisher lets you in first")
    good_at = model.good_at or _root(model, catalog).good_at
    if good_at:
        told.append(f"good at {good_at.text}")
    return f"{heading(model, catalog)}: {model.title} ({'; '.join(told)})"


def _count(parameters: int) -> str:
    billions = parameters / 1e9
    if billions < 1:
        return f"{parameters / 1e6:.0f} M" if parameters >= 1e6 else f"{parameters:,}"
    return f"{billions:.0f} B" if billions >= 20 else f"{billions:.1f} B"


def as_configured(template: Template, catalog: Catalog, settings: Settings) -> str:
    """The text of template.yaml with the choices of its lists as catalog and settings have them.

    The models come in an order of their own, each with a line of facts; the teams and environments that the form names
    already stay in its order. The pull request goes to the repository and the branch of the settings. Everything else
    stays byte for byte. A form without one of these fields, or one with more answers, stays without it.
    """
    text = template.files[DEFINITION]
    names = model_names(catalog)
    shown = [label(catalog.models[name], catalog) for name in names]
    wanted = expected_enums(catalog, settings)
    for field, key, values in (
        ("model", "enumNames", shown),
        ("model", "enum", names),
        *((field, "enum", _in_order(template, field, wanted[field])) for field in ("team", "environment")),
    ):
        text = _replaced(text, template, field, key, values)
    return _with_repository(text, template, settings)


def _in_order(template: Template, field: str, names: list[str]) -> list[str]:
    """The names that the form has already in its order, and the others behind them."""
    offered = template.form().get(field, {}).get("enum")
    kept = [name for name in offered if name in names] if isinstance(offered, list) else []
    return [*kept, *(name for name in names if name not in kept)]


def _replaced(text: str, template: Template, field: str, key: str, values: list[str]) -> str:
    """The text with the list `key` of a field replaced, or added behind `enum`."""
    document = read_mapping(text, template.where)
    place = _with_choices(document.value, field)
    if place is None:
        return text
    lines = text.splitlines()
    start = document.lines.get((*place, key))
    beside = document.lines[(*place, "enum")]
    pad = lines[beside - 1][: len(lines[beside - 1]) - len(lines[beside - 1].lstrip())]
    if start is None:
        start = _end(lines, beside, pad) + 1
        end = start - 1
    else:
        end = _end(lines, start, pad)
    block = [f"{pad}{key}:", *(f"{pad}{_STEP}- {scalar(value)}" for value in values)]
    return "\n".join([*lines[: start - 1], *block, *lines[end:]]) + "\n"


def _with_repository(text: str, template: Template, settings: Settings) -> str:
    """The text with the settings' repository and branch in each step that opens a pull request."""
    lines = read_mapping(text, template.where).lines
    written = text.splitlines()
    for step, field, given, wanted in _other_targets(template, settings):
        if (number := lines.get((*step.path, "input", field))) is not None:
            written[number - 1] = written[number - 1].replace(f" {given}", f" {wanted}", 1)
    return "\n".join(written) + "\n"


def _end(lines: list[str], start: int, pad: str) -> int:
    """The number of the last line of what begins at the line `start` with that indentation."""
    last = start
    for number in range(start + 1, len(lines) + 1):
        line = lines[number - 1]
        if not line.startswith((f"{pad} ", f"{pad}-")):
            break
        last = number
    return last


def _with_choices(definition: object, name: str) -> Path | None:
    """The path of a field of the form that has a list of choices."""
    parameters = definition["spec"]["parameters"]  # type: ignore[index]
    pages = list(enumerate(parameters)) if isinstance(parameters, list) else [(None, parameters)]
    for index, page in pages:
        field = page.get("properties", {}).get(name)
        if isinstance(field, dict) and isinstance(field.get("enum"), list):
            root: Path = ("spec", "parameters") if index is None else ("spec", "parameters", index)
            return (*root, "properties", name)
    return None


# The fields of a request beside the form's answers.
_NOT_ASKED = frozenset({"schema_version", "model_revision", "overrides"})
_RENDER = "Run `neuroscale catalog form`, and commit its change."
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
                fix = _RENDER if name in enums else "Add what is missing."
                refuse((*place, "enum"), f"lacks {', '.join(missing)}", fix)
            if extra := [str(item) for item in offered if item not in names]:
                fix = _RENDER if name in enums else "Remove it."
                refuse((*place, "enum"), f"offers {', '.join(extra)}, which the repository lacks", fix)
    _check_models(template, catalog, refuse)
    _check_repository(template, settings, refuse)
    return problems


def _check_models(template: Template, catalog: Catalog, refuse: Refuse) -> None:
    """What the form says of each model must be what the catalog says."""
    field = template.form().get("model", {})
    given, names = field.get("enum"), field.get("enumNames")
    if not isinstance(given, list) or set(map(str, given)) != set(catalog.models):
        return  # told already
    wanted = [label(catalog.models[name], catalog) for name in given]
    if names != wanted or given != model_names(catalog):
        refuse(
            (*_place(template, "model"), "enumNames"), "the list of models is not as the catalog renders it", _RENDER
        )


def _check_repository(template: Template, settings: Settings, refuse: Refuse) -> None:
    """The pull request must go to the repository that the settings name."""
    for step, field, given, wanted in _other_targets(template, settings):
        message = f"is {given!r}, and {SETTINGS} names another repository or branch"
        refuse((*step.path, "input", field), message, f"Write `{wanted}`.")


def _other_targets(template: Template, settings: Settings) -> Iterator[tuple[Step, str, str, str]]:
    """The inputs that send a pull request elsewhere than the settings: step, name, value, and the settings' value."""
    repository = urlsplit(settings.repository.url)
    owner, _, name = repository.path.strip("/").removesuffix(".git").rpartition("/")
    for step in (step for step in template.steps if step.action == PUBLISH):
        given = str(step.input["repoUrl"])
        host, _, query = given.partition("?")
        if (host, parse_qs(query)) != (repository.netloc, {"owner": [owner], "repo": [name]}):
            yield step, "repoUrl", given, f"{repository.netloc}?owner={owner}&repo={name}"
        branch = step.input.get("targetBranchName")
        if branch != settings.repository.default_branch:
            yield step, "targetBranchName", str(branch), settings.repository.default_branch


def _place(template: Template, name: str) -> Path:
    """The place of a field in template.yaml."""
    parameters: Any = template.document.value["spec"]["parameters"]
    if not isinstance(parameters, list):
        return ("spec", "parameters", "properties", name)
    for index, page in enumerate(parameters):
        if name in page.get("properties", {}):
            return ("spec", "parameters", index, "properties", name)
    return ("spec", "parameters")

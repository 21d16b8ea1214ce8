"""Reads the template's form as fields of an HTML form, and what is posted as a form's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from neuroscale.core.errors import InputError, Problem
from neuroscale.rendering.scaffolder.template import Template
from neuroscale.request.field_changes import IDENTITY, number_of

_MOST_FIELDS = 60
_LONGEST = 2000  # characters of an answer


@dataclass(frozen=True)
class Choice:
    """A choice of a field: what is sent, and what people read."""

    value: str
    text: str


@dataclass(frozen=True)
class Field:
    """A question of the form. `groups`: the choices under their headings ("": none); empty for a field that is typed.
    `value` is what stands in it, `errors` is what is wrong with that. `fixed`: it can only be read."""

    name: str
    title: str
    description: str
    kind: str  # text, integer or number
    required: bool
    groups: tuple[tuple[str, tuple[Choice, ...]], ...] = ()
    pattern: str = ""
    longest: int | None = None
    minimum: str = ""
    maximum: str = ""
    example: str = ""
    autofocus: bool = False
    value: str = ""
    errors: tuple[str, ...] = ()
    fixed: bool = False

    @property
    def is_broad(self) -> bool:
        """Whether its choices are told in so many words that it takes a row of its own."""
        return any(len(choice.text) > 40 for _, choices in self.groups for choice in choices)

    @property
    def described_by(self) -> str:
        """The ids of what describes the field, for screen readers; the error's place is always there."""
        return " ".join([*([f"help-{self.name}"] if self.description else []), f"error-{self.name}"])


@dataclass(frozen=True)
class Page:
    """A page of the form in the portal; here, a group of fields under its heading."""

    title: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Sheet:
    """A form with what stands in it. `errors`: those of no field."""

    pages: tuple[Page, ...]
    errors: tuple[Problem, ...] = field(default=())

    @property
    def titles(self) -> dict[str, str]:
        """What each field is called."""
        return {field.name: field.title for page in self.pages for field in page.fields}

    @property
    def faults(self) -> list[tuple[Field, str]]:
        """Every fault of a field, in the order of the form."""
        return [(field, text) for page in self.pages for field in page.fields for text in field.errors]


def sheet(
    template: Template,
    answers: Mapping[str, Any] | None = None,
    problems: Sequence[Problem] = (),
    *,
    fixed: bool = False,
) -> Sheet:
    """The template's form with these answers (None: its defaults). `fixed`: the answers that say which service it is
    can only be read."""
    form = template.form()
    pages = []
    for page in template.pages():
        required = set(page.get("required", ()))
        fields = [
            _field(name, schema, name in required, answers, problems, fixed=fixed and name in IDENTITY)
            for name, schema in page.get("properties", {}).items()
        ]
        pages.append(Page(str(page.get("title", "")), tuple(fields)))
    others = tuple(problem for problem in problems if problem.field not in form)
    return Sheet(tuple(pages), others)


def _field(
    name: str,
    schema: Mapping[str, Any],
    required: bool,
    answers: Mapping[str, Any] | None,
    problems: Sequence[Problem],
    *,
    fixed: bool,
) -> Field:
    value = schema.get("default", "") if answers is None else answers.get(name, "")
    kind = schema.get("type", "string")
    return Field(
        name=name,
        title=str(schema.get("title", name)),
        description=str(schema.get("ui:help") or schema.get("description", "")),
        kind=kind if kind in ("integer", "number") else "text",
        required=required,
        groups=_groups(schema),
        pattern=str(schema.get("pattern", "")),
        longest=schema.get("maxLength"),
        minimum=_text(schema.get("minimum")),
        maximum=_text(schema.get("maximum")),
        example=str(schema.get("ui:placeholder", "")),
        autofocus=bool(schema.get("ui:autofocus")) and not problems and not fixed,
        value=_text(value),
        errors=tuple(f"{problem.message}. {problem.fix}" for problem in problems if problem.field == name),
        fixed=fixed,
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)


def _groups(schema: Mapping[str, Any]) -> tuple[tuple[str, tuple[Choice, ...]], ...]:
    """The choices; names such as `Family: Title (facts)` stand under their family."""
    values = [str(value) for value in schema.get("enum", ())]
    names = [str(name) for name in schema.get("enumNames", ())]
    groups: dict[str, list[Choice]] = {}
    for index, value in enumerate(values):
        name = names[index] if index < len(names) else value
        heading, colon, rest = name.partition(": ")
        groups.setdefault(heading if colon else "", []).append(Choice(value, rest if colon else name))
    return tuple((heading, tuple(choices)) for heading, choices in groups.items())


def posted(body: bytes, content_type: str) -> dict[str, str]:
    """The fields of a form that a browser sent. Raises InputError for anything else, and where a field stands twice."""
    where = "the form"
    if content_type.split(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise InputError.at(where, "", "is not sent as a form", "Send it from this server's page.")
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise InputError.at(where, "", "cannot be read", "Send it from this server's page.") from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name in fields:
            raise InputError.at(where, name[:60], "stands twice", "Send each field once.")
        if len(value) > _LONGEST and name != "fill":
            raise InputError.at(where, name[:60], f"has more than {_LONGEST} characters", "Write less.")
        fields[name] = value
    return fields


def answers_in(template: Template, fields: Mapping[str, str]) -> dict[str, Any]:
    """The answers among the fields of a form: numbers as numbers, and without those that are empty."""
    answers: dict[str, Any] = {}
    for name, schema in template.form().items():
        text = fields.get(name, "").strip()
        if text:
            answers[name] = number_of(text) if schema.get("type") in ("integer", "number") else text
    return answers

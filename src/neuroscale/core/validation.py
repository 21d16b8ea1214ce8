"""Reads typed values from YAML, and reports all problems at once, with file, field, line and what to write instead.

For documents of unknown shape it reads single fields.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, PlainSerializer, ValidationError
from pydantic_core import PydanticCustomError

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import Document, dotted, read_mapping


def part(value: Any, *path: str) -> dict[str, Any]:
    """The mapping at a path within a document; {} if it is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def items(value: Any, *path: str) -> list[dict[str, Any]]:
    """The mappings of the list at a path within a document; [] if it is missing."""
    found = part(value, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def mapping(value: Any, name: str) -> dict[str, Any]:
    """`value` if it is a mapping, {} for None. Raises ValueError for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not a mapping")
    return value


def sequence(value: Any, name: str) -> list[Any]:
    """`value` if it is a list, [] for None. Raises ValueError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value


MOST_PROBLEMS = 100
"""The most problems of one file that a message lists."""
Model = TypeVar("Model", bound=BaseModel)


def wrong(message: str, fix: str) -> PydanticCustomError:
    """The error that a validator raises: what is wrong, and what to write instead."""
    return PydanticCustomError("wrong", "{message}", {"message": message, "fix": fix})


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,10})?", value):
        raise wrong(f"{shorten(value)} is not an amount", 'Write quoted text with digits and a point, such as "1.375".')
    return Decimal(value)


Money = Annotated[
    Decimal,
    BeforeValidator(_decimal),
    PlainSerializer(lambda value: format(value, "f"), return_type=str, when_used="json"),
]
"""US dollars. Quoted text in files, and never a binary floating-point number."""


def parse(model: type[Model], text: str, where: str, fixes: Mapping[str, str] | None = None) -> Model:
    """The value that `text` (one strict YAML mapping) holds.

    `fixes` maps a field's name to the sentence that says what to write there. Raises InputError with every problem, at
    most MOST_PROBLEMS of them.
    """
    return from_document(model, read_mapping(text, where), where, fixes)


def from_document(model: type[Model], document: Document, where: str, fixes: Mapping[str, str] | None = None) -> Model:
    """As `parse`, for a document that was read before."""
    try:
        text = json.dumps(document.value)
        # JSON mode stays strict, but reads dates, decimals and tuples from the types of YAML.
        return known_part(model, text) if _drops_unknown.get() else model.model_validate_json(text)
    except ValidationError as error:
        entries = error.errors(include_url=False)
        problems = [_problem(model, document, where, entry, fixes or {}) for entry in entries[:MOST_PROBLEMS]]
        if len(entries) > MOST_PROBLEMS:
            more = f"has {len(entries) - MOST_PROBLEMS} more problems"
            problems.append(Problem(where, "", more, "Correct the first ones, and run this again."))
        raise InputError(problems) from error


_drops_unknown: ContextVar[bool] = ContextVar("drops_unknown", default=False)


@contextlib.contextmanager
def unknown_fields_dropped() -> Iterator[None]:
    """Within it, and in this thread, fields that a model does not know are left out instead of refused: what a newer
    version of this tool wrote is read as far as this one knows it."""
    token = _drops_unknown.set(True)
    try:
        yield
    finally:
        _drops_unknown.reset(token)


def drops_unknown_fields() -> bool:
    """Whether files are read without the fields that this version does not know."""
    return _drops_unknown.get()


def known_part(model: type[Model], text: str, *, strict: bool | None = None) -> Model:
    """The value in a text of JSON, without the fields that the model does not know.

    Raises ValidationError if anything else is wrong with it.
    """
    try:
        return model.model_validate_json(text, strict=strict)
    except ValidationError as error:
        unknown = [entry["loc"] for entry in error.errors() if entry["type"] == "extra_forbidden"]
        if len(unknown) < error.error_count():
            raise
        value: Any = json.loads(text)
        for location in unknown:
            *path, field = _clip(value, location)
            holder = value
            for key in path:
                holder = holder[key]
            del holder[field]
        return model.model_validate_json(json.dumps(value), strict=strict)


_MOST_NAMES = 16
_FEW_NAMES = 5
_LIKE = 0.5


def suggest(name: str, known: Iterable[str], listed: str = "") -> str:
    """`Did you mean X?` and the valid names, for the fix of a problem.

    `listed`: the place that lists the names; of more than 16 names the text then gives the nearest ones alone.
    """
    names = sorted(known)
    close = same_but_owner(name, names) or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not close and len(name) > 1:
        close = sorted((known for known in names if name.lower() in known.lower()), key=len)[:1]
    hint = f"Did you mean {close[0]!r}? " if close else ""
    if not listed or len(names) <= _MOST_NAMES:
        return f"{hint}Valid: {', '.join(names) if names else 'none'}."
    near = _nearest(name, names)
    told = f"Near it: {', '.join(near)}. " if set(near) - set(close) else ""
    return f"{hint}{told}All {len(names)} names are in {listed}."


def same_but_owner(name: str, known: Iterable[str]) -> list[str]:
    """The known names that have another owner before the slash, and otherwise the same words."""
    owner, _, short = name.lower().rpartition("/")
    return sorted(one for one in known if one.lower().rpartition("/")[2] == short) if owner else []


def _nearest(name: str, names: Sequence[str]) -> list[str]:
    """The few names that are most like one, without regard to case and to what stands before a slash."""
    asked = name.lower().rpartition("/")[2]
    scores = []
    for each in names:
        short = each.lower().rpartition("/")[2]
        alike = difflib.SequenceMatcher(None, asked, short).ratio()
        scores.append((max(alike, 0.8 if len(asked) > 1 and asked in short else 0.0), each))
    return [each for score, each in sorted(scores, key=lambda one: -one[0])[:_FEW_NAMES] if score >= _LIKE]


def shorten(value: Any, limit: int = 60) -> str:
    """`value` as printable text of at most `limit` characters, for messages."""
    text = ascii(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _problem(model: type[BaseModel], document: Document, where: str, entry: Any, fixes: Mapping[str, str]) -> Problem:
    kind: str = entry["type"]
    location = _clip(document.value, entry["loc"])
    name = str(location[-1]) if location else ""
    line = document.line(*location)
    field = dotted(location)
    last = next((part for part in reversed(location) if isinstance(part, str)), "")
    if kind == "extra_forbidden":
        allowed = _fields(model, location[:-1])
        return Problem(where, field, f"{shorten(name)} is not a field here", suggest(name, allowed), line)
    if kind == "missing":
        missing = str(entry["loc"][-1])
        fix = fixes.get(missing, f"Add `{missing}:` with its value.")
        return Problem(where, dotted((*location, missing)), "is missing", fix, line)
    if kind == "json_invalid":
        return Problem(where, "", "holds a character that is not text", "Remove it.", line)
    message = str(entry["msg"])
    if kind == "wrong":
        return Problem(where, field, message.rstrip("."), entry["ctx"]["fix"], line)
    message = message[:1].lower() + message[1:]
    if not isinstance(given := entry.get("input"), dict | list):
        # A pattern tells a reader less than the fix does.
        detail = "" if kind == "string_pattern_mismatch" else f": {message}"
        message = f"{shorten(given)} is wrong{detail}"
    fix = fixes.get(last) or fixes.get(name) or _fix(kind, entry)
    return Problem(where, field, message.rstrip("."), fix, line)


_LIMITS = {
    "gt": "a number above {}",
    "ge": "a number from {} on",
    "lt": "a number below {}",
    "le": "a number up to {}",
    "min_length": "at least {}",
    "max_length": "at most {}",
}


def _fix(kind: str, entry: Any) -> str:
    context = entry.get("ctx", {})
    if kind in ("literal_error", "enum"):
        return f"Write {context['expected']}."
    if "pattern" in context:
        return f"Write text that matches {context['pattern']}."
    if kind.startswith("date_"):
        return 'Write a quoted date such as "2027-01-31".'
    for limit, words in _LIMITS.items():
        if limit in context:
            return f"Write {words.format(context[limit])}."
    return {
        "string_type": "Write text; quote it if it looks like a number or date.",
        "int_type": "Write a whole number.",
        "int_from_float": "Write a whole number.",
        "float_type": "Write a number.",
        "bool_type": "Write true or false.",
        "tuple_type": "Write a list.",
        "dict_type": "Write `key: value` lines.",
        "model_type": "Write `key: value` lines.",
    }.get(kind, "Correct the value.")


def _clip(value: Any, location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The part of an error's location that exists in the document; tags of unions and missing fields fall away."""
    path: list[str | int] = []
    for part in location:
        within_mapping = isinstance(value, dict) and part in value
        within_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if within_mapping or within_list:
            value = value[part]
            path.append(part)
    return tuple(path)


def _fields(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The names that a mapping at `location` below `model` may hold."""
    here: type[BaseModel] | None = model
    for part in location:
        if here is None:
            break
        if isinstance(part, str) and part in here.model_fields:
            here = _inner(here.model_fields[part].annotation)
        # A list index or a free key (of a dict) stays at the model that the container holds.
    return list(here.model_fields) if here else []


def _inner(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if (found := _inner(argument)) is not None:
            return found
    return None

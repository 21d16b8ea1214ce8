"""Checks whether a field of vLLM's configurations accepts a JSON value, as leniently as vLLM itself.

A small part of JSON Schema, which scripts/snapshot_vllm_arguments.py writes, describes each field. Numbers may be given
as text, and true and false as words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

_WORDS = frozenset({"0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"})
_WHOLE = re.compile(r"[+-]?\d+(_\d+)*(\.0*)?")
_BOUNDS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (lambda value, bound: value >= bound, "less than"),
    "maximum": (lambda value, bound: value <= bound, "more than"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "not more than"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "not less than"),
}
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "a JSON object",
    "null": "null",
}


def allowed(schema: Mapping[str, Any] | None, value: Any, place: str = "") -> str:
    """The fault of a value; "" if the field accepts it. `place`: the field's name, for the sentence."""
    if not schema:
        return ""
    if "anyOf" in schema:
        told = [allowed(part, value, place) for part in schema["anyOf"]]
        # The first alternative describes the field's real values: the others are mostly forms of null.
        return "" if "" in told else told[0]
    name = place or "it"
    if "enum" in schema:
        return _one_of(schema, value, name)
    kind = schema.get("type")
    if kind is not None and not _is(kind, value):
        return f"{name} is {_short(value)}, not {_TYPES[kind]}"
    if told_of_it := out_of_bounds(schema, value):
        return f"{name}: {told_of_it}"
    if isinstance(value, list):
        return _items(schema, value, place)
    if isinstance(value, dict):
        return _members(schema, value, place)
    return ""


def out_of_bounds(bounds: Mapping[str, Any], value: Any) -> str:
    """The fault in the size of a number; "" if it is within the bounds."""
    number = _number(value)
    if number is None:
        return ""
    for key, (right, told) in _BOUNDS.items():
        if key in bounds and not right(number, bounds[key]):
            return f"{value} is {told} {bounds[key]}"
    return ""


def is_one_of(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value is listed; with `any_case` in the schema, capital letters do not matter."""
    if isinstance(value, str) and schema.get("any_case"):
        value = value.lower()
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in schema["enum"])


def _one_of(schema: Mapping[str, Any], value: Any, name: str) -> str:
    if is_one_of(schema, value):
        return ""
    return f"{name} is {_short(value)}, not one of {', '.join(str(one) for one in schema['enum'])}"


def _items(schema: Mapping[str, Any], value: list[Any], place: str) -> str:
    if len(value) < schema.get("minItems", 0):
        return f"{place or 'it'} is empty"
    told = (allowed(schema.get("items"), item, f"{place}[{number}]") for number, item in enumerate(value))
    return next(filter(None, told), "")


def _members(schema: Mapping[str, Any], value: Mapping[str, Any], place: str) -> str:
    fields = schema.get("properties")
    if len(value) < schema.get("minProperties", 0):
        return f"{place or 'it'} is empty"
    for key, item in value.items():
        name = f"{place}.{key}" if place else key
        if fields is not None and key not in fields:
            close = get_close_matches(key, list(fields), n=1)
            return f"{name} is not one of its keys" + (f" ({close[0]} is)" if close else "")
        told = allowed(fields[key] if fields is not None else schema.get("additionalProperties"), item, name)
        if told:
            return told
    return ""


def _is(kind: str, value: Any) -> bool:
    if kind == "boolean":
        return isinstance(value, bool) or value in (0, 1) or (isinstance(value, str) and value.lower() in _WORDS)
    if kind == "integer" and isinstance(value, str):
        return _WHOLE.fullmatch(value.strip()) is not None
    if kind in ("integer", "number"):
        number = _number(value)
        return number is not None and (kind == "number" or number % 1 == 0)
    types: dict[str, type] = {"string": str, "array": list, "object": dict, "null": type(None)}
    return isinstance(value, types[kind])


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

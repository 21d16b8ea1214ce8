"""Loads the arguments that a version of vLLM accepts, and checks JSON values by their schemas.

scripts/snapshot_vllm_arguments.py writes them, with a small part of JSON Schema for each field of a configuration. As
in vLLM, numbers may be given as text, and true and false as words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from neuroscale.core.releases import release

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
    return any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in schema["enum"])


def _one_of(schema: Mapping[str, Any], value: Any, name: str) -> str:
    if is_one_of(schema, value):
        return ""
    return f"{name} is {_short(value)}, not one of {', '.join(str(choice) for choice in schema['enum'])}"


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


_NAME = re.compile(r"arguments-(\d+\.\d+\.\d+)\.json")

Kind = Literal["store", "store_true", "append", "help", "boolean", "lora"]


@dataclass(frozen=True)
class Argument:
    """One argument of `vllm serve`. `dest` is vLLM's own name of its value. `options` are all spellings (none: the
    positional argument). `type` names the conversion of a text to a value."""

    options: tuple[str, ...]
    dest: str
    kind: Kind
    type: str = "str"
    optional: bool = False  # an empty text or `None` stands for no value
    nargs: str | None = None
    const: Any = None
    choices: tuple[str | int, ...] | None = None
    # The only fields of a JSON object, each with the schema of its value (None: any value), as
    # neuroscale.vllm.known_arguments reads it. The command line accepts numbers beyond `limits` and texts outside
    # `names`, but vLLM's configurations refuse them.
    fields: Mapping[str, Any] | None = field(default=None, repr=False)
    limits: Mapping[str, float] | None = None
    names: Mapping[str, Any] | None = None
    default: Any = None
    deprecated: bool = False

    @property
    def flag(self) -> str:
        """The most common spelling, for messages."""
        return self.options[0] if self.options else self.dest


@dataclass(frozen=True)
class Snapshot:
    """Everything that one version accepts: arguments by vLLM's name, parsers, quantisation, model architectures. Of the
    quantisation methods, `described` ones read their settings from the checkpoint's files, `deprecated` ones are
    refused unless the command allows them, and `float32` ones compute in that dtype, too."""

    version: str
    arguments: Mapping[str, Argument]
    tool_parsers: frozenset[str]
    reasoning_parsers: frozenset[str]
    quantization_methods: frozenset[str]
    architectures: frozenset[str]
    described_quantizations: frozenset[str]
    deprecated_quantizations: frozenset[str]
    float32_quantizations: frozenset[str]
    float16_refused: frozenset[str]  # model types that vLLM does not serve in float16
    removed_architectures: Mapping[str, str]  # architectures that vLLM no longer serves, with the last version that did
    kv_connectors: frozenset[str]

    def choices(self, dest: str) -> tuple[str | int, ...]:
        """The values that an argument may have; empty if the snapshot does not list them."""
        return self.arguments[dest].choices or ()


def versions() -> tuple[str, ...]:
    """The versions with a snapshot, oldest first."""
    names = (_NAME.fullmatch(entry.name) for entry in files("neuroscale.vllm").iterdir())
    return tuple(sorted((name[1] for name in names if name), key=release))


def nearest(version: str) -> Snapshot:
    """The snapshot of `version`, or else of the nearest version with one, which its own `version` names."""
    there = versions()
    if version in there:
        return load(version)
    try:
        wanted = release(version)
    except ValueError:
        return load(there[-1])
    older = [one for one in there if release(one) <= wanted]
    return load(older[-1] if older else there[0])


@cache
def load(version: str) -> Snapshot:
    """The snapshot of exactly this version, which `versions()` names."""
    text = (files("neuroscale.vllm") / f"arguments-{version}.json").read_text(encoding="utf-8")
    value = json.loads(text)
    arguments = [_argument(item) for item in value.pop("arguments")]
    sets = {key: frozenset(names) for key, names in value.items() if isinstance(names, list)}
    return Snapshot(**{**value, **sets}, arguments={argument.dest: argument for argument in arguments})


def _argument(item: dict[str, Any]) -> Argument:
    choices = item.pop("choices", None)
    return Argument(**item | {"options": tuple(item["options"]), "choices": None if choices is None else (*choices,)})

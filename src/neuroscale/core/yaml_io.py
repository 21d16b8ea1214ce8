"""Reads and writes YAML and JSON.

Reading is strict: no duplicate keys, anchors, tags or merge keys, and no plain scalar that another YAML parser reads as
something else (`yes`, `0o7`, `1_000`, `12:30`, dates). The rest has one meaning for PyYAML, go-yaml and Backstage.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml
from yaml.events import (
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from neuroscale.core.errors import InputError
from neuroscale.core.files import sha256
from neuroscale.core.scalar_advice import instead_of, instead_of_key

Path = tuple[str | int, ...]

_DEEPEST = 100
_LONGEST_KEPT = 100  # characters of a plain scalar whose meaning is remembered
_VALUES = (ScalarEvent, MappingStartEvent, SequenceStartEvent)
_LONGEST_KEY = 1000  # YAML 1.1 gives a key on one line at most 1024 characters

_NULL = re.compile(r"(?:~|null|Null|NULL)?")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
# A plain number with an exponent needs a point and a sign: YAML 1.1 reads any other spelling as text.
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+][0-9]+)?")
LARGEST_INTEGER = 2**53 - 1  # the largest that JavaScript and JSON numbers hold exactly
# Plain scalars that YAML 1.1 reads as text, and YAML 1.2 or go-yaml as another type.
_AMBIGUOUS = re.compile(
    r"""
    [yYnN]
    | [-+]?0[oO][0-7_]+                                        # octal
    | [-+]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?       # any number that is not written plainly
    | [-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?
    | [-+]?0[xXbB][0-9a-fA-F_]+
    | <<
    """,
    re.VERBOSE,
)
_NO_TAG = "Write the value without a tag, and in quotes if it is text."
_ESCAPED_SLASH = re.compile(r"(?<!\\)(?:\\\\)*\\/")
_YAML_1_1 = Resolver()


def _ambiguous(text: str) -> bool:
    """Whether a plain scalar that is text here is another type to another parser."""
    tag = _YAML_1_1.resolve(ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return tag != "tag:yaml.org,2002:str" or _AMBIGUOUS.fullmatch(text) is not None


@dataclass(frozen=True)
class Document:
    """One YAML document: its value, and the 1-based line of every path in it (the value's line; () is the root's)."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, *path: str | int) -> int | None:
        """The line of `path`, or of its nearest ancestor that has one."""
        for length in range(len(path), -1, -1):
            if (line := self.lines.get(tuple(path[:length]))) is not None:
                return line
        return None


def read_documents(text: str, where: str, most_values: int | None = None) -> list[Document]:
    """Every non-empty document of `text`; `where` names the file in messages.

    Raises InputError for anything that is not plain, unambiguous YAML, and for more than `most_values` values.
    """
    documents: list[Document] = []
    try:
        reader = _Reader(text, where, most_values)
        while (document := reader.next_document()) is not None:
            if document.value is not None:
                documents.append(document)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError.at(
            where, "", f"not valid YAML: {error.problem}", "Correct the syntax at that line.", line
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise InputError.at(
            where, "", f"not valid YAML: {error}", "Write plain UTF-8 text without control characters."
        ) from error
    return documents


def read_document(text: str, where: str) -> Document:
    """The single document of `text`. Raises InputError if there are none or several."""
    documents = read_documents(text, where)
    if len(documents) != 1:
        raise InputError.at(
            where, "", f"holds {len(documents)} YAML documents", "Write exactly one document in this file."
        )
    return documents[0]


def read_mapping(text: str, where: str) -> Document:
    """The single document of `text`, which must be a mapping."""
    document = read_document(text, where)
    if not isinstance(document.value, dict):
        raise InputError.at(
            where, "", "is not a mapping", "Write `key: value` lines at the top level.", document.line()
        )
    return document


def decode(data: bytes, where: str) -> str:
    """UTF-8 text without a byte order mark. Raises InputError for other encodings and for binary content."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError.at(
            where, "", f"is not UTF-8 text (byte {error.start})", "Save the file as UTF-8 without a BOM."
        ) from error
    if text.startswith("\ufeff"):
        raise InputError.at(where, "", "starts with a byte order mark", "Save the file as UTF-8 without a BOM.", 1)
    if "\0" in text:
        raise InputError.at(where, "", "holds a NUL byte", "Manifests are text: remove the binary content.")
    return text


class _Reader:
    """Builds plain values from the parser's events, and notes their lines.

    It reads events, not PyYAML's composed nodes: libyaml's composer recurses in C, so deep nesting would crash it.
    """

    def __init__(self, text: str, where: str, most_values: int | None = None) -> None:
        # The next event; None after the stream's end.
        self._next: Callable[[], Any] = yaml.CSafeLoader(text).get_event
        self._text = text
        self._where = where
        self._flow = 0  # how many brackets and braces are open
        self._lines: dict[Path, int] = {}
        self._most_values = most_values
        self._values = 0

    def next_document(self) -> Document | None:
        """The next document, or None after the last."""
        while (event := self._next()) is not None:
            if isinstance(event, DocumentStartEvent):
                self._lines = {}
                return Document(self._value(self._next(), ()), self._lines)
        return None

    def _error(self, event: Event, path: Path, message: str, fix: str) -> InputError:
        return InputError.at(self._where, dotted(path), message, fix, _line(event))

    def _value(self, event: Event, path: Path) -> Any:
        self._lines.setdefault(path, _line(event))
        self._values += 1
        if self._most_values is not None and self._values > self._most_values:
            raise self._error(event, (), f"holds more than {self._most_values} values", "Write several smaller files.")
        if len(path) > _DEEPEST:
            raise self._error(event, (), "is nested too deeply", f"Nest at most {_DEEPEST} levels.")
        if not isinstance(event, _VALUES) or event.anchor is not None:
            raise self._error(event, path, "uses a YAML anchor or alias", "Write the value out at each place.")
        if event.tag is not None:
            raise self._error(event, path, f"carries the tag {event.tag!r}", _NO_TAG)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path)
        self._flow += bool(event.flow_style)
        try:
            return self._collection(event, path)
        finally:
            self._flow -= bool(event.flow_style)

    def _collection(self, event: MappingStartEvent | SequenceStartEvent, path: Path) -> Any:
        if isinstance(event, MappingStartEvent):
            mapping: dict[str, Any] = {}
            while not isinstance(key_event := self._next(), MappingEndEvent):
                key = self._key(key_event, path)
                place = (*path, key)
                if key in mapping:
                    raise self._error(key_event, place, f"the key {key!r} stands twice", "Keep one of the two.")
                # A block value starts on the line below its key; the key's line is where people look.
                self._lines[place] = _line(key_event)
                mapping[key] = self._value(self._next(), place)
            return mapping
        items: list[Any] = []
        while not isinstance(item := self._next(), SequenceEndEvent):
            items.append(self._value(item, (*path, len(items))))
        return items

    def _key(self, event: Event, path: Path) -> str:
        if not isinstance(event, ScalarEvent):
            raise self._error(event, path, "a key is not plain text", "Write a plain text key.")
        place = (*path, event.value)
        try:
            value = self._value(event, place)
        except InputError as error:
            if not event.style and isinstance(fault := _meaning(event.value), _Fault):
                raise self._error(event, place, fault.message, instead_of_key(event.value)) from error
            raise
        if not isinstance(value, str):
            raise self._error(event, path, f"the key {event.value!r} is not text", f'Quote it: "{event.value}".')
        return value

    def _scalar(self, event: ScalarEvent, path: Path) -> Any:
        text: str = event.value
        if event.style:
            if event.style == '"' and _ESCAPED_SLASH.search(self._written(event)):
                raise self._error(event, path, "escapes a slash, which go-yaml cannot read", "Write / without \\.")
            return text
        if self._flow and "?" in text:
            # go-yaml reads it as the sign of a key.
            raise self._error(event, path, f"{text!r} is read differently by different YAML parsers", "Quote it.")
        value = _meaning(text)
        if isinstance(value, _Fault):
            raise self._error(event, path, value.message, value.fix or instead_of(text, path))
        return value

    def _written(self, event: Event) -> str:
        """The event's spelling in the text."""
        start, end = event.start_mark, event.end_mark
        return self._text[start.index : end.index] if start and end else self._text


@dataclass(frozen=True)
class _Fault:
    """Why a plain scalar is refused, and what to write instead; "" where that depends on its spelling and field."""

    message: str
    fix: str = ""


def _meaning(text: str) -> str | float | bool | _Fault | None:
    """The value of a plain scalar, or why it is refused."""
    return _plain(text) if len(text) <= _LONGEST_KEPT else _plain.__wrapped__(text)


@lru_cache(maxsize=2**13)
def _plain(text: str) -> str | float | bool | _Fault | None:
    """As `_meaning`; cached, because manifests repeat the same words."""
    if _NULL.fullmatch(text):
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        # Python refuses to convert thousands of digits.
        if len(text) > 17 or abs(int(text)) > LARGEST_INTEGER:
            fix = f"Quote it if it is text, or write a number up to {LARGEST_INTEGER}."
            return _Fault(f"{text[:20]} is too large for JSON numbers", fix)
        return int(text)
    if _FLOAT.fullmatch(text):
        if not math.isfinite(number := float(text)):
            return _Fault(f"{text} is not finite", "Write a smaller number.")
        return number
    if _ambiguous(text):
        return _Fault(f"{text!r} is read differently by different YAML parsers")
    return text


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def dotted(path: Path) -> str:
    """`spec.predictor.containers[0].image` for ("spec", "predictor", "containers", 0, "image")."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9_-]+", part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part)}]"
    return text


def dump(value: Any) -> str:
    """Block-style YAML in insertion order; `read_document` gives the same value back.

    Every piece of text is written as a JSON string unless it is a plain word that no parser reads as anything else.
    Raises ValueError for text that YAML cannot hold: half a surrogate pair, a key of more than a thousand characters.
    """
    lines: list[str] = []
    _dump(value, 0, "", lines)
    return "\n".join(lines) + "\n"


def scalar(value: str | float | bool | None) -> str:
    """One scalar on one line, with one meaning for every YAML and JSON parser.

    Raises ValueError for numbers that are not finite.
    """
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and not _ambiguous(value):
            return value
        return quoted(value)
    text = json.dumps(value, allow_nan=False)
    # A mantissa without a point is text to YAML 1.1: 1e-05 is written as 1.0e-05.
    return text.replace("e", ".0e", 1) if isinstance(value, float) and "e" in text and "." not in text else text


def quoted(text: str) -> str:
    """`text` as a JSON string that is also a YAML double-quoted scalar. Raises ValueError for half a surrogate pair."""
    return flow(text)


def flow(value: Any) -> str:
    """JSON on one line that every YAML parser reads as the same value.

    Everything but printable ASCII is escaped, except characters beyond U+FFFF: JSON escapes those as a pair of
    surrogates, which YAML does not join. Raises ValueError for half a surrogate pair, which no file can hold.
    """
    return _ESCAPED.sub(_unescape, json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f"))


# An escaped backslash is matched first, so that the text behind it is not read as an escape.
_ESCAPED = re.compile(r"\\\\|\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\ud[89a-f][0-9a-f]{2}")


def _unescape(match: re.Match[str]) -> str:
    if match[0] == "\\\\":
        return match[0]
    if match[1] is None:
        raise ValueError("the text holds half of a surrogate pair, which is not a character")
    return chr(0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00)


_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./-]*[A-Za-z0-9_/-])?")


def _dump(value: Any, indent: int, prefix: str, lines: list[str]) -> None:
    pad = " " * indent
    if isinstance(value, dict) and value:
        for key, item in value.items():
            name = scalar(str(key))
            if len(name) > _LONGEST_KEY:
                raise ValueError(f"the key {name[:20]}... is longer than YAML allows")
            head = f"{prefix or pad}{name}:"
            prefix = ""
            if isinstance(item, dict | list | tuple) and item:
                lines.append(head)
                _dump(item, indent + 2, "", lines)
            else:
                lines.append(f"{head} {_inline(item)}")
    elif isinstance(value, list | tuple) and value:
        for item in value:
            dash = f"{prefix or pad}- "
            prefix = ""
            if isinstance(item, dict | list | tuple) and item:
                _dump(item, indent + 2, dash, lines)
            else:
                lines.append(dash + _inline(item))
    else:
        lines.append(f"{prefix or pad}{_inline(value)}")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    return scalar(value)


def canonical_json(value: Any) -> str:
    """Sorted, compact JSON, from which digests are computed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_of(value: Any) -> str:
    """`sha256:...` over the canonical JSON of `value`."""
    return sha256(canonical_json(value).encode())


def parts(value: object, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """A value and everything in it, each with its path, from the outside in."""
    yield at, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from parts(item, (*at, key))

"""GitHub's published OpenAPI description, as far as tests need it: the fields of requests and answers.

Read out of the TypeScript types that `@octokit/openapi-types` makes of it (set-up installs them below `tests/node`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

TYPES = Path(__file__).parents[1] / "node/node_modules/@octokit/openapi-types/types.d.ts"

_SPACE = re.compile(r"(?:\s|/\*.*?\*/)+", re.DOTALL)
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|-?[0-9]+(?:\.[0-9]+)?|[A-Za-z_$][\w$-]*|[{}()\[\]<>|&;:?,]')


class ShapeError(AssertionError):
    """A request or an answer does not match the description."""


@dataclass(frozen=True)
class Primitive:
    name: str


@dataclass(frozen=True)
class Literal:
    value: Any


@dataclass(frozen=True)
class Many:
    item: Type


@dataclass(frozen=True)
class Either:
    of: tuple[Type, ...]


@dataclass(frozen=True)
class Both:
    of: tuple[Type, ...]


@dataclass(frozen=True)
class Reference:
    section: str
    name: str


@dataclass(frozen=True)
class Fields:
    """An object; `optional` are the names that may be missing, `others` the type of names that are not listed."""

    named: Mapping[str, Type]
    optional: frozenset[str]
    others: Type | None


Type = Primitive | Literal | Many | Either | Both | Reference | Fields


@dataclass(frozen=True)
class Operation:
    """One method on one path: its query's names, the type of its body, and that of each answer by status."""

    name: str
    query: frozenset[str]
    body: Type | None
    answers: Mapping[int, Type | None]


def operation(method: str, path: str) -> Operation:
    """The operation that a request's path (quoted, without query) leads to. Raises ShapeError if there is none."""
    template = _template(path)
    methods = _fields(_block("paths", template, 2))
    found = methods.get(method.lower())
    if not isinstance(found, Reference):
        raise ShapeError(f"{method} {template} is not in the description")
    parts = _fields(_block("operations", found.name, 2))
    parameters = _fields(parts["parameters"]) if "parameters" in parts else {}
    query = _fields(parameters["query"]) if "query" in parameters else {}
    answers = {int(status): _content(answer) for status, answer in _fields(parts["responses"]).items()}
    return Operation(found.name, frozenset(query), _content(parts.get("requestBody")), answers)


def check(kind: Type, value: Any, where: str) -> None:
    """Raises ShapeError unless `value` is of that type: no field too much, none missing."""
    match kind:
        case Primitive(name):
            if not _is(name, value):
                raise ShapeError(f"{where}: {value!r} is not {name}")
        case Literal(expected):
            if value != expected:
                raise ShapeError(f"{where}: {value!r} is not {expected!r}")
        case Many(item):
            if not isinstance(value, list):
                raise ShapeError(f"{where}: {value!r} is not a list")
            for position, entry in enumerate(value):
                check(item, entry, f"{where}[{position}]")
        case Either(of):
            problems = []
            for option in of:
                try:
                    return check(option, value, where)
                except ShapeError as error:
                    problems.append(str(error))
            raise ShapeError(f"{where}: none of {len(of)} types: {problems}")
        case Reference():
            check(_resolve(kind), value, where)
        case Both() | Fields():
            fields = _merged(kind)
            if not isinstance(value, Mapping):
                raise ShapeError(f"{where}: {value!r} is not an object")
            if missing := fields.named.keys() - fields.optional - value.keys():
                raise ShapeError(f"{where}: lacks {sorted(missing)}")
            for name, entry in value.items():
                inner = fields.named.get(name, fields.others)
                if inner is None:
                    raise ShapeError(f"{where}: has {name!r}, which is not in the description")
                check(inner, entry, f"{where}.{name}")
    return None


def build(kind: Type, values: Any = ...) -> Any:
    """A value of that type: fields from `values` if given, the plainest allowed value otherwise."""
    match kind:
        case Reference():
            return build(_resolve(kind), values)
        case Many(item):
            return [build(item, entry) for entry in values] if isinstance(values, list) else []
        case Either(of):
            if isinstance(values, Mapping):
                return _build_one([option for option in of if _holds_fields(option)], values)
            return values if values is not ... else build(of[0])
        case Both() | Fields():
            if values is not ... and not isinstance(values, Mapping):
                return values
            given: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
            fields = _merged(kind)
            if unknown := given.keys() - fields.named.keys():
                raise ShapeError(f"the description has no fields {sorted(unknown)}")
            names = [name for name in fields.named if name not in fields.optional or name in given]
            return {name: build(fields.named[name], given.get(name, ...)) for name in names}
        case Literal(value):
            return value if values is ... else values
        case Primitive(name):
            plain = {"string": "", "number": 0, "boolean": False, "null": None}
            return plain.get(name, {}) if values is ... else values


def _build_one(options: Sequence[Type], values: Mapping[str, Any]) -> Any:
    """An object of the first alternative that may hold these values; of the first one at all, if none may."""
    for option in options:
        try:
            built = build(option, values)
            check(option, built, "an alternative")
        except ShapeError:
            continue
        return built
    return build(options[0], values)


def fields_of(kind: Type) -> tuple[Mapping[str, Type], frozenset[str]]:
    """The fields of an object's type (of each of its alternatives that is one), and which of them may be missing."""
    if isinstance(kind, Reference):
        return fields_of(_resolve(kind))
    if isinstance(kind, Either):
        parts = [fields_of(option) for option in kind.of if _holds_fields(option)]
        common = set.intersection(*(set(named) for named, _ in parts))
        named = {name: inner for fields, _ in parts for name, inner in fields.items()}
        return named, frozenset({name for _, optional in parts for name in optional} | (named.keys() - common))
    merged = _merged(kind)
    return merged.named, merged.optional


def _is(name: str, value: Any) -> bool:
    match name:
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null" | "undefined":
            return value is None
        case "never":
            return False
    return True  # unknown, and objects whose fields are not described


def _holds_fields(kind: Type) -> bool:
    resolved = _resolve(kind) if isinstance(kind, Reference) else kind
    if isinstance(resolved, Either):
        return any(_holds_fields(option) for option in resolved.of)
    return isinstance(resolved, Fields | Both)


def _merged(kind: Type) -> Fields:
    match kind:
        case Fields():
            return kind
        case Reference():
            return _merged(_resolve(kind))
        case Both(of):
            parts = [_merged(part) for part in of]
            named = {name: inner for part in parts for name, inner in part.named.items()}
            required = {name for part in parts for name in part.named.keys() - part.optional}
            others = next((part.others for part in parts if part.others), None)
            return Fields(named, frozenset(named.keys() - required), others)
    raise ShapeError(f"{kind} has no fields")


def _fields(kind: Type) -> Mapping[str, Type]:
    return _merged(kind).named


def _content(kind: Type | None) -> Type | None:
    """The JSON in a request or an answer, or None."""
    while isinstance(kind, Reference):
        kind = _resolve(kind)
    if kind is None or isinstance(kind, Primitive):
        return None
    content = _fields(kind).get("content")
    if content is None or isinstance(content, Primitive):
        return None
    return _fields(content).get("application/json")


@cache
def _text() -> str:
    return TYPES.read_text()


@cache
def _templates() -> list[str]:
    start = _section("paths")
    return re.findall(r'^  "(/[^"]*)": \{', _text()[start : _text().index("\n}", start)], re.MULTILINE)


def _template(path: str) -> str:
    parts = path.split("/")
    fitting = [
        template
        for template in _templates()
        if len(template.split("/")) == len(parts)
        and all(one == other or one.startswith("{") for one, other in zip(template.split("/"), parts, strict=True))
    ]
    if not fitting:
        raise ShapeError(f"the description has no path {unquote(path)}")
    return min(fitting, key=lambda template: template.count("{"))


def _section(name: str) -> int:
    if name in ("paths", "operations"):
        return _text().index(f"export interface {name} {{")
    return _text().index(f"\n  {name}: {{", _text().index("export interface components {"))


@cache
def _block(section: str, name: str, indent: int) -> Type:
    pattern = re.compile(rf'^ {{{indent}}}"?{re.escape(name)}"?\??:', re.MULTILINE)
    match = pattern.search(_text(), _section(section))
    if match is None:
        raise ShapeError(f"the description has no {section} {name}")
    return _Reader(match.end()).type()


def _resolve(reference: Reference) -> Type:
    return _block(reference.section, reference.name, 2 if reference.section == "operations" else 4)


class _Reader:
    """Reads one type from a position of the text on."""

    def __init__(self, position: int) -> None:
        self.position = position

    def type(self) -> Type:
        self._skip("|")
        options = [self._both()]
        while self._skip("|"):
            options.append(self._both())
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _both(self) -> Type:
        parts = [self._postfix()]
        while self._skip("&"):
            parts.append(self._postfix())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _postfix(self) -> Type:
        found = self._one()
        while self._peek() == "[":
            self._next()
            self._expect("]")
            found = Many(found)
        return found

    def _one(self) -> Type:
        token = self._next()
        if token == "{":
            return self._object()
        if token == "(":
            found = self.type()
            self._expect(")")
            return found
        if token == "[":
            return Many(Either(self._list("]")))
        if token[0] == '"' or token[0] in "-0123456789":
            return Literal(json.loads(token))
        if token in ("true", "false"):
            return Literal(token == "true")
        if token in ("components", "operations"):
            names = [self._index() for _ in range(2 if token == "components" else 1)]
            return Reference(*names) if token == "components" else Reference("operations", names[0])
        if token == "OneOf":
            self._expect("<")
            self._expect("[")
            options = self._list("]")
            self._expect(">")
            return Either(options)
        if token == "Record":
            self._expect("<")
            self._list(">")
            return Primitive("object")
        return Primitive(token)

    def _object(self) -> Fields:
        named: dict[str, Type] = {}
        optional = set()
        others: Type | None = None
        while not self._skip("}"):
            if self._skip("["):
                while self._next() != "]":
                    pass
                self._expect(":")
                others = self.type()
            else:
                name = self._next().strip('"')
                if self._skip("?"):
                    optional.add(name)
                self._expect(":")
                named[name] = self.type()
            self._skip(";")
        return Fields(named, frozenset(optional), others)

    def _list(self, end: str) -> tuple[Type, ...]:
        found = [self.type()]
        while self._skip(","):
            if self._peek() == end:
                break
            found.append(self.type())
        self._expect(end)
        return tuple(found)

    def _index(self) -> str:
        self._expect("[")
        name: str = json.loads(self._next())
        self._expect("]")
        return name

    def _peek(self) -> str:
        position = self.position
        token = self._next()
        self.position = position
        return token

    def _skip(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._next()
        return True

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            raise ShapeError(f"the description has {found!r} where {token!r} is expected, at {self.position}")

    def _next(self) -> str:
        if space := _SPACE.match(_text(), self.position):
            self.position = space.end()
        match = _TOKEN.match(_text(), self.position)
        if match is None:
            raise ShapeError(f"the description cannot be read at {self.position}")
        self.position = match.end()
        return match[0]

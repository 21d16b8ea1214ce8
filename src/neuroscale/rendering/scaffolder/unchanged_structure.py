"""Proves that filling a template changed nothing but values.

It fills the template a second time with markers in place of the values. The structure of that file is the one that the
template's author wrote; the real file must have the same structure with each marker replaced by its value.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import Path, dotted, read_documents
from neuroscale.rendering.scaffolder.encoding import decoded
from neuroscale.rendering.scaffolder.skeleton_values import KINDS
from neuroscale.rendering.scaffolder.template_engine import Whitespace, fill

Signature = tuple[tuple[str, bool | int | None], ...]
"""The facts of the values that decide a file's structure: each flag, and the length of each list."""

_MARK = "marker:"


def signature(values: Mapping[str, Any]) -> Signature:
    """The signature of a full set of values."""
    return tuple(
        (name, value if isinstance(value, bool) else len(value) if isinstance(value, list) else None)
        for name, value in sorted(values.items())
    )


def check(template: str, whitespace: Whitespace, values: Mapping[str, Any], filled: str, where: str) -> None:
    """Raises InputError if `filled` holds anything that comes neither from the template nor from the values."""
    if (text := _whole_text(template, values)) is not None:
        if filled != f"{text}\n":
            raise InputError.at(where, "", "is not the text that it was filled with", _FIX)
        return
    expected = _structure(template, whitespace, signature(values), where)
    actual = [document.value for document in read_documents(filled, where)]
    if (path := _difference(expected, actual, _decoded(values), ())) is not None:
        raise InputError.at(where, dotted(path), "differs from the template and the plan", _FIX)
    if (repeated := _repeated(actual)) is not None:
        raise InputError.at(
            where,
            "",
            f"two entries of one list have the name {repeated!a}",
            "Kubernetes keeps one of them only: rename or remove one in the plan or in the template.",
        )


def check_places(template: str, whitespace: Whitespace, where: str) -> list[Problem]:
    """Problems of values that are not a whole key or value: they are inside quotes, a comment or other text."""
    if _whole_text(template, _example(True)) is not None:
        return []
    problems = []
    for flag in (True, False):
        example = _example(flag)
        marked = fill(template, _marked(signature(example)), whitespace, where)
        try:
            found = Counter(_texts([document.value for document in read_documents(marked, where)]))
        except InputError as error:
            return error.problems
        for name in example:
            # The items of a list have markers of their own, which contain the marker of the list's name.
            if marked.count(f"{_MARK}{name}:") != sum(
                count for text, count in found.items() if text.startswith(f"{_MARK}{name}:")
            ):
                problems.append(
                    Problem(
                        where,
                        "",
                        f"values.{name} is inside quotes, a comment or other text",
                        "Let it be a whole key or a whole value: it is encoded already.",
                    )
                )
    return list(dict.fromkeys(problems))


_FIX = "This is a fault of the template or of this program: nothing was written."


def _whole_text(template: str, values: Mapping[str, Any]) -> str | None:
    for name, kind in KINDS.items():
        if kind == "text" and template == f"${{{{ values.{name} }}}}\n":
            text: str = values[name]
            return text
    return None


def _example(flag: bool) -> dict[str, Any]:
    """Values of every kind: two items in each list, and each flag as given."""
    examples: dict[str, Callable[[], Any]] = {
        "scalar": lambda: "x",
        "text": lambda: "x",
        "flag": lambda: flag,
        "scalars": lambda: ["x", "x"],
        "named": lambda: [{"name": "x", "value": "x"}] * 2,
    }
    return {name: examples[kind]() for name, kind in KINDS.items()}


def _marked(of: Signature) -> dict[str, Any]:
    marked: dict[str, Any] = {}
    for name, size in of:
        kind = KINDS[name]
        if kind == "flag":
            marked[name] = size
        elif kind == "scalars":
            marked[name] = [f'"{_MARK}{name}:{index}"' for index in range(size or 0)]
        elif kind == "named":
            marked[name] = [
                {part: f'"{_MARK}{name}:{index}:{part}"' for part in ("name", "value")} for index in range(size or 0)
            ]
        else:
            marked[name] = f'"{_MARK}{name}:"'
    return marked


def _decoded(values: Mapping[str, Any]) -> dict[str, str | int]:
    """Each marker's real value."""
    table: dict[str, str | int] = {}
    for name, value in values.items():
        kind = KINDS[name]
        if kind == "scalar":
            table[f"{_MARK}{name}:"] = decoded(value)
        elif kind == "scalars":
            table.update((f"{_MARK}{name}:{index}", decoded(item)) for index, item in enumerate(value))
        elif kind == "named":
            for (index, item), part in itertools.product(enumerate(value), ("name", "value")):
                table[f"{_MARK}{name}:{index}:{part}"] = decoded(item[part])
    return table


@lru_cache(maxsize=1024)
def _structure(template: str, whitespace: Whitespace, of: Signature, where: str) -> list[Any]:
    text = fill(template, _marked(of), whitespace, where)
    return [document.value for document in read_documents(text, where)]


def _difference(expected: Any, actual: Any, table: Mapping[str, str | int], path: Path) -> Path | None:
    """The first place where `actual` differs from `expected` with its markers replaced, or None."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or len(actual) != len(expected):
            return path
        for (marked, item), (key, found) in zip(expected.items(), actual.items(), strict=True):
            if key != table.get(marked, marked):
                return (*path, key)
            if (different := _difference(item, found, table, (*path, key))) is not None:
                return different
        return None
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return path
        for index, (item, found) in enumerate(zip(expected, actual, strict=True)):
            if (different := _difference(item, found, table, (*path, index))) is not None:
                return different
        return None
    wanted = table.get(expected, expected) if isinstance(expected, str) else expected
    return None if type(wanted) is type(actual) and wanted == actual else path


def _repeated(value: Any) -> str | None:
    """A name that is twice in a list of named entries (containers, ports, volumes, environment variables), or None."""
    if isinstance(value, list):
        names = [item["name"] for item in value if isinstance(item, dict) and isinstance(item.get("name"), str)]
        if len(set(names)) < len(names):
            return next(name for name, count in Counter[str](names).items() if count > 1)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((name for item in items if (name := _repeated(item)) is not None), None)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)

"""Evaluates `${{ parameters.NAME }}` and `${{ steps.ID.output.NAME }}` in the steps of a template.

If filling an input fails, Backstage passes it on unfilled; here that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import Path, dotted

_PART = r"[A-Za-z][A-Za-z0-9_-]*"
_REFERENCE = re.compile(rf"\$\{{\{{ ((?:parameters|steps)(?:\.{_PART})+) \}}\}}")
_DELIMITER = re.compile(r"\$\{\{|\}\}|\{%|%\}|\{#|#\}")
_FIX = "Write `${{ parameters.NAME }}` or `${{ steps.ID.output.NAME }}`, with single spaces and no filter."


def strings(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text inside `value` with its path, keys of mappings excluded."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, (*path, index))


def references(text: str) -> list[str]:
    """The dotted names that `text` refers to. Raises ValueError for any other template syntax."""
    if stray := _DELIMITER.search(_REFERENCE.sub("", text)):
        raise ValueError(f"holds {stray[0]!r} outside the syntax that is allowed in steps")
    return _REFERENCE.findall(text)


def sole_reference(text: Any) -> str | None:
    """The dotted name if `text` is one reference and nothing else, otherwise None."""
    match = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    return match[1] if match else None


def evaluate(value: Any, context: Mapping[str, Any], where: str, path: Path) -> Any:
    """`value` with every reference replaced; a text that is one reference becomes the value itself.

    Raises InputError for a name without a value, and for a value inside a longer text that is neither text nor a whole
    number: Backstage would print such values in a way of its own.
    """
    if isinstance(value, dict):
        return {key: evaluate(item, context, where, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [evaluate(item, context, where, (*path, index)) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def find(name: str) -> Any:
        found: Any = context
        for part in name.split("."):
            if not isinstance(found, Mapping) or part not in found:
                raise InputError.at(where, dotted(path), f"{name} has no value", _FIX)
            found = found[part]
        return found

    def printed(match: re.Match[str]) -> str:
        found = find(match[1])
        if not isinstance(found, str | int) or isinstance(found, bool):
            raise InputError.at(
                where,
                dotted(path),
                f"{match[1]} is neither text nor a whole number and is part of a longer text",
                "Use it as the whole value.",
            )
        return str(found)

    if (name := sole_reference(value)) is not None:
        return find(name)
    return _REFERENCE.sub(printed, value)


def problem(where: str, path: Path, error: ValueError, line: int | None) -> Problem:
    """The error of `references` as a problem of the file."""
    return Problem(where, dotted(path), str(error), _FIX, line)

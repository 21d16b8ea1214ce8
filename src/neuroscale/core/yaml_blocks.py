"""Changes single values in block-style YAML text, and leaves its comments and all other lines as they are.

For files of this project's own: keys stand alone on their lines, each level is indented by two blanks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from neuroscale.core.yaml_io import read_mapping, scalar


def block_of(text: str, path: Sequence[str]) -> str:
    """The lines of a key and all below it, with the comments right above it, at its own indentation.

    Raises KeyError if the text has no such key.
    """
    lines = text.splitlines(keepends=True)
    start, end = _span(lines, path)
    while start and lines[start - 1].strip().startswith("#") and _indent(lines[start - 1]) == _indent(lines[start]):
        start -= 1
    return "".join(lines[start:end])


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    """The text with another value at a path of keys; a missing key is added at the end of its parent.

    `value`: plain data; a mapping or list stands on one line. The text stays as it is where the value is there already.
    Raises KeyError if the parent is missing.
    """
    there: Any = read_mapping(text, "the text").value
    for key in path:
        there = there.get(key, _MISSING) if isinstance(there, dict) else _MISSING
    if there == value and there is not _MISSING:
        return text
    lines = text.splitlines(keepends=True)
    line = f"{'  ' * (len(path) - 1)}{path[-1]}: {_inline(value)}\n"
    if there is _MISSING:
        _, end = _span(lines, path[:-1]) if len(path) > 1 else (0, len(lines))
        return "".join([*lines[:end], line, *lines[end:]])
    start, end = _span(lines, path)
    return "".join([*lines[:start], line, *lines[end:]])


def without(text: str, path: Sequence[str]) -> str:
    """The text without a key, all below it, and the comments right above it. Raises KeyError if it is missing."""
    return text.replace(block_of(text, path), "", 1)


def _inline(value: Any) -> str:
    """Plain data on one line, in the flow style that people write: `[a, b]`, `{a: 1}`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return scalar(value)


_MISSING = object()


def _span(lines: Sequence[str], path: Sequence[str]) -> tuple[int, int]:
    """The first line of a key, and the line behind its last one, without the comments that belong to what follows."""
    start, end = 0, len(lines)
    for level, key in enumerate(path):
        named = re.compile(rf"{'  ' * level}{re.escape(key)}:(\s|$)")
        begin = start if level == 0 else start + 1
        start = next((number for number in range(begin, end) if named.match(lines[number])), -1)
        if start < 0:
            raise KeyError(".".join(path[: level + 1]))
        below = range(start + 1, end)
        end = next((number for number in below if _is_key_at(lines[number], level)), end)
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].strip().startswith("#")):
        if _indent(lines[end - 1]) > _indent(lines[start]) and lines[end - 1].strip():
            break
        end -= 1
    return start, end


def _is_key_at(line: str, level: int) -> bool:
    """Whether the line ends what stands below a key of that level."""
    return bool(line.strip()) and not line.strip().startswith("#") and _indent(line) <= 2 * level


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))

"""Writes JSON for other programs, and reads one JSON object.

A number that is not finite has no JSON: it is written as null, and refused where it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any


class RepeatedKeysError(ValueError):
    """Keys stand twice in one object. `keys` lists them as they came."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        super().__init__(f"the key {keys[0]!r} stands twice")


def read_object(text: str | bytes, number: Callable[[str], Any] | None = None) -> dict[str, Any] | None:
    """The JSON object that a text holds, in UTF-8 where it is bytes; None for another JSON value.

    `number` makes each number of its digits. Raises ValueError for text that is no JSON, for NaN, infinities and too
    deep a nesting, and RepeatedKeysError where a key stands twice in an object.
    """
    repeated: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in pairs:
            if key in members:
                repeated.append(key)
            members[key] = value
        return members

    text = text.decode("utf-8") if isinstance(text, bytes) else text
    hooks: dict[str, Any] = {"parse_int": number, "parse_float": number, "parse_constant": _refused}
    try:
        value = json.loads(text, object_pairs_hook=once, **hooks)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        return None
    if repeated:
        raise RepeatedKeysError(repeated)
    return value


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def json_text(value: Any, indent: int | None = 2) -> str:
    """`value` as JSON. NaN and the infinities become null: their values are not known."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, allow_nan=False)


def finite(number: float) -> float | None:
    """The number, or None for one that is not finite."""
    return number if math.isfinite(number) else None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

"""Compares a live object with the wanted one, to which API servers and controllers add fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroscale.manifests.quantity import quantity

# Fields in which `4` and `4000m` are equal.
_QUANTITIES = ("limits", "requests", "sizeLimit")


def differences(wanted: Any, actual: Any, path: str = "") -> list[str]:
    """The dotted fields of `wanted` that `actual` lacks or holds with another value; other fields of `actual` are
    ignored.

    Each item of a list of mappings must be held by some item; other lists must be equal.
    """
    if wanted is None or wanted == "" or (isinstance(wanted, Mapping | list) and not wanted):
        return []
    if isinstance(wanted, Mapping):
        if not isinstance(actual, Mapping):
            return [path]
        return [
            field
            for key, value in wanted.items()
            for field in differences(value, actual.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(wanted, list) and all(isinstance(item, Mapping) for item in wanted):
        there = actual if isinstance(actual, list) else []
        return [
            f"{path}[{item.get('name', index)}]"
            for index, item in enumerate(wanted)
            if not any(not differences(item, other, path) for other in there)
        ]
    return [] if _same(wanted, actual, path) else [path]


def named(fields: list[str], most: int = 3) -> str:
    """The first few fields, and how many more."""
    more = f" and {len(fields) - most} more" if len(fields) > most else ""
    return ", ".join(fields[:most]) + more


def _same(wanted: Any, actual: Any, path: str) -> bool:
    if wanted == actual and isinstance(wanted, bool) == isinstance(actual, bool):
        return True
    if not any(part in _QUANTITIES for part in path.split(".")):
        return False
    try:
        return quantity(wanted) == quantity(actual)
    except ValueError:
        return False

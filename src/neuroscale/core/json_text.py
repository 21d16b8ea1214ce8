"""Writes JSON for other programs. A number that is not finite has no JSON, and is written as null."""

from __future__ import annotations

import json
import math
from typing import Any


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

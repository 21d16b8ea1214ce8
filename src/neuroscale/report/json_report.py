"""A verdict as JSON, for other programs; `verdict.schema.json` beside this file describes it."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

from neuroscale.report.text import encodable
from neuroscale.verdict import Verdict


def to_json(verdict: Verdict) -> str:
    """The whole verdict: ASCII, fields in the order of the types, decimals as strings, a newline at the end.

    Reading it back gives an equal verdict, except that text with undecodable bytes has them written out.
    """
    return json.dumps(_plain(verdict.model_dump(mode="python")), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """`value` in the types that JSON has."""
    if isinstance(value, dict):
        return {encodable(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    return value

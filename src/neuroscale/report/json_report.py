"""Writes a verdict as JSON, for other programs; `verdict.schema.json` beside this file describes it."""

from __future__ import annotations

from typing import Any

from neuroscale.core.json_text import json_text
from neuroscale.core.printable import encodable
from neuroscale.gate.verdict import Verdict


def to_json(verdict: Verdict) -> str:
    """The whole verdict: ASCII, fields in the order of the types, decimals as strings, a newline at the end.

    Reading it back gives an equal verdict, except that text with undecodable bytes has them written out.
    """
    return json_text(_encodable(verdict.model_dump(mode="json"))) + "\n"


def _encodable(value: Any) -> Any:
    """`value` with all its text made encodable."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value

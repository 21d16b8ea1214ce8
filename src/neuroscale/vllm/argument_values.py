"""Converts the texts of a command line to values, type by type, as vLLM reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from neuroscale.vllm.json_fields import allowed
from neuroscale.vllm.known_arguments import Argument

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SHORT = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_SHORT_IN_JSON = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_BRACED = re.compile(r"\s*\{.*\}\s*", re.DOTALL)
_LORA = frozenset({"name", "path", "base_model_name", "is_3d_lora_weight"})


def convert(argument: Argument, text: str) -> Any:
    """The value of `text`. Raises ValueError, which says what is wrong, for a text that vLLM refuses."""
    if argument.optional and text in ("", "None"):
        return None
    if argument.kind == "lora":
        return lora(text)
    value = _CONVERT[argument.type](text) if argument.type != "object" else _object(argument.fields or {}, text)
    if argument.choices is not None and value not in argument.choices:
        raise ValueError(f"{value!r} is not one of its values")
    return value


def whole(text: str) -> int:
    """A whole number, also with k, m, g, t for powers of 1000 (25.6k) and K, M, G, T for powers of 1024."""
    text = text.strip()
    short = _SHORT.fullmatch(text)
    if short is None:
        return _int(text)
    number, suffix = short.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    if "." in number:
        raise ValueError(f"{text!r} has decimals, which go with the small letter alone: {number}{suffix.lower()}")
    return int(number) * _BINARY[suffix]


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _whole_or_auto(text: str) -> int:
    return -1 if text.strip() == "-1" or text.strip().lower() == "auto" else whole(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not JSON: {error}") from None


def _json_or_text(text: str) -> Any:
    return _json(text) if _BRACED.fullmatch(text) else text


def _devices(text: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in (part.strip() for part in text.split(","))]


def _object(fields: Mapping[str, Any], text: str) -> Any:
    """A JSON object of known fields, in which numbers may have a unit (such as 8k)."""
    parts = _QUOTED.split(text)
    parts[::2] = [_SHORT_IN_JSON.sub(lambda found: str(whole(found[0])), part) for part in parts[::2]]
    value = _json("".join(parts))
    if told := allowed({"type": "object", "properties": fields}, value):
        raise ValueError(told)
    return value


def lora(text: str) -> Any:
    """One LoRA module: NAME=PATH, or a JSON object."""
    if "=" in text and "," not in text:
        return text
    value = _json(text)
    if not isinstance(value, dict) or not {"name", "path"} <= set(value) <= _LORA:
        raise ValueError(f"{text!r} is neither NAME=PATH nor a JSON object with name and path")
    return value


_CONVERT: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": _int,
    "float": _float,
    "human_int": whole,
    "human_int_or_auto": _whole_or_auto,
    "json": _json,
    "json_or_str": _json_or_text,
    "devices": _devices,
    "lowered": lambda text: text.lower().replace("-", "_"),
}

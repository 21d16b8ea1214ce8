"""Fills the templates of the platform's manifests as those of services: values are encoded as YAML, never pasted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from neuroscale.core.yaml_io import read_documents, scalar
from neuroscale.rendering.scaffolder.template_engine import Whitespace, fill

Object = dict[str, Any]

_WHITESPACE = Whitespace(trim_blocks=True, lstrip_blocks=True)


def filled(name: str, /, **values: Any) -> str:
    """The text of a template with values. Text and numbers are encoded, also within lists and mappings of them."""
    return fill(_text(name), {key: _encoded(value) for key, value in values.items()}, _WHITESPACE, f"template {name}")


def objects(text: str, where: str) -> list[Object]:
    """The objects of a rendered file."""
    return [document.value for document in read_documents(text, where)]


class Verbatim(str):
    """Text that is already encoded as YAML."""


def _encoded(value: Any) -> Any:
    if isinstance(value, bool | Verbatim):
        return value
    if isinstance(value, Mapping):
        return {key: _encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(item) for item in value]
    return scalar(value)


@cache
def _text(name: str) -> str:
    folder = resources.files("neuroscale.rendering.platform") / "templates"
    return (folder / name).read_text(encoding="utf-8")

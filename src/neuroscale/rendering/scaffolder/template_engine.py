"""Fills template files as Backstage's engine does, for the syntax that `lint` lets through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from neuroscale.core.errors import InputError

_LARGEST = 128 * 1024
"""The most characters of a filled file; a request or a plan may have as many bytes."""


@dataclass(frozen=True)
class Whitespace:
    """Whether line breaks and indentation around `{% %}` are removed: the inputs of these names of `fetch:template`."""

    trim_blocks: bool = False
    lstrip_blocks: bool = False


@lru_cache(maxsize=8)
def _environment(whitespace: Whitespace) -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        variable_start_string="${{",
        variable_end_string="}}",
        trim_blocks=whitespace.trim_blocks,
        lstrip_blocks=whitespace.lstrip_blocks,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
    )


@lru_cache(maxsize=256)
def _compiled(text: str, whitespace: Whitespace) -> Template:
    return _environment(whitespace).from_string(text)


def fill(text: str, values: Mapping[str, Any], whitespace: Whitespace, where: str) -> str:
    """`text` with `values` substituted.

    Raises InputError if Backstage would print nothing, or fail, or if the result is too long for a manifest.
    """
    parts: list[str] = []
    room = _LARGEST
    try:
        for part in _compiled(text, whitespace).generate(values=values):
            parts.append(part)
            room -= len(part)
            if room < 0:
                told = f"becomes longer than {_LARGEST} characters"
                raise InputError.at(where, "", told, "Keep the files of a service small.")
        return "".join(parts)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise InputError.at(where, "", f"cannot be filled: {error.message}", "Correct the template.", line) from error

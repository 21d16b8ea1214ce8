"""Encodes values for the skeleton: each becomes a YAML scalar, and a value that could do harm becomes a problem."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NewType, TypedDict

from neuroscale.core import yaml_io
from neuroscale.core.errors import Problem

Scalar = NewType("Scalar", str)
"""A YAML scalar on one line, already encoded: it is substituted as it is, and never quoted in the skeleton."""

FileText = NewType("FileText", str)
"""The text of a whole file, without its last line break."""


class NamedValue(TypedDict):
    """An entry of a mapping or of a list of environment variables."""

    name: Scalar
    value: Scalar


_LABEL_NAME = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PATTERNS = {
    "a Kubernetes label value": re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"),
    "a Kubernetes label name": re.compile(_LABEL_NAME),
    "an extended resource": re.compile(_LABEL_NAME),
    "a namespace's name": re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    "a Secret's name": re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"),
    "a key of a Secret": re.compile(r"[-._A-Za-z0-9]{1,253}"),
    "an environment variable's name": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
}
LABEL, LABEL_NAME, EXTENDED_RESOURCE, NAMESPACE, SECRET, SECRET_KEY, VARIABLE = _PATTERNS
"""What a name or a label must be, as `Encoder.name` tells it."""


class Encoder:
    """Encodes the values of one file, and collects in `problems` those that it refuses.

    Each method takes the field's name in the file, and the value. A refused value is encoded, too: the caller raises
    the problems before anybody uses it.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self.problems: list[Problem] = []

    def refuse(self, field: str, message: str, fix: str) -> None:
        """Record a problem of the field."""
        self.problems.append(Problem(self._file, field, message, fix))

    def text(self, field: str, value: str) -> Scalar:
        """Any text of one line."""
        try:
            return Scalar(yaml_io.scalar(value))
        except ValueError as error:
            self.refuse(field, str(error), "Write plain text.")
            return Scalar('""')

    def file(self, dump: Callable[[], str]) -> FileText:
        """The text of a whole file, which `dump` makes; it raises ValueError for text that a file cannot hold."""
        try:
            return FileText(dump().removesuffix("\n"))
        except ValueError as error:
            # The field's own check says more, if there is one.
            if not self.problems:
                self.refuse("", str(error), "Write plain text.")
            return FileText("")

    def literal(self, field: str, value: str) -> Scalar:
        """Text of a container, in which nothing may be replaced later."""
        # KServe fills the container as a Go template, and Kubernetes expands $(NAME) in arguments and variables.
        for opening, reader in (("{{", "KServe"), ("$(", "Kubernetes")):
            if opening in value:
                self.refuse(field, f"holds {opening!r}, which {reader} would replace", "Write the value itself.")
        return self.text(field, value)

    def positive(self, field: str, value: int, encode: Callable[[int], str] = str) -> Scalar:
        """A whole number of at least 1, which `encode` writes."""
        if value < 1:
            self.refuse(field, f"{value} is below 1", "Write a whole number of at least 1.")
        return Scalar(encode(value))

    def name(self, what: str, field: str, value: str) -> Scalar:
        """A name or a label of Kubernetes; `what`: of which kind, such as LABEL."""
        pattern = _PATTERNS[what]
        if not pattern.fullmatch(value):
            self.refuse(field, f"{shown(value)} is not {what}", f"Write text that matches {pattern.pattern}.")
        return self.text(field, value)


def decoded(scalar: str) -> str | int:
    """The value of an encoded scalar, decoded without the YAML reader, which this function helps to check."""
    if scalar.startswith('"'):
        text: str = json.loads(scalar)
        return text
    return int(scalar) if scalar.isdigit() else scalar


def shown(text: str) -> str:
    """A value for a message: its beginning, in ASCII."""
    return ascii(text[:60])

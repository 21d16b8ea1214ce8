"""Defines the errors that a user reads: each names the place, the fault, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit status of every command.

    `UNTRUSTED` outranks `UNUSABLE`, which outranks `FINDINGS`.
    """

    PASSED = 0
    FINDINGS = 1
    UNUSABLE = 2
    UNTRUSTED = 3


class NeuroscaleError(Exception):
    """Root of the errors that end a command with one clear message and no traceback."""

    exit_status: ExitStatus = ExitStatus.UNUSABLE


@dataclass(frozen=True)
class Face:
    """How a face spells what it asks of its person: the name of the whole (`where`), a field of it with the word for
    its value ("": none), and an action of the platform."""

    where: str
    field: Callable[[str, str], str]
    action: Callable[[str], str]


ASKED = "the question"
"""The `where` of a problem with what a person asked; each face names it as its own."""
_NAMED = re.compile("\ue000(field|action) ([a-z-]+) ?([A-Z]*)\ue001")


def field_of(name: str, value: str = "") -> str:
    """A field of the question inside a sentence of a problem, with a word for its value; each face spells it."""
    return f"\ue000field {name} {value}\ue001"


def action_of(name: str) -> str:
    """An action of the platform inside a sentence of a problem; each face spells it."""
    return f"\ue000action {name}\ue001"


def _option(name: str, value: str) -> str:
    return "SERVICE" if name == "service" else f"--{name} {value}".rstrip()


COMMAND_LINE = Face("the command line", _option, lambda name: f"neuroscale {name}")


@dataclass(frozen=True)
class Problem:
    """One fault of an input.

    `where` is a file or the word for another input ("the form"), `field` a dotted path into it ("" for the whole),
    `line` is 1-based, or None if it is unknown. Where a person asked for it, `where` is `ASKED`, `field` is the
    question's, and `on` spells both for a face.
    """

    where: str
    field: str
    message: str
    fix: str
    line: int | None = None

    def on(self, face: Face) -> Problem:
        """The problem as a face tells it."""

        def spell(match: re.Match[str]) -> str:
            return face.field(match[2], match[3]) if match[1] == "field" else face.action(match[2])

        message, fix = (_NAMED.sub(spell, text) for text in (self.message, self.fix))
        if self.where != ASKED:
            return replace(self, message=message, fix=fix)
        field = face.field(self.field, "") if self.field else ""
        return replace(self, where=face.where, field=field, message=message, fix=fix)

    def __str__(self) -> str:
        """The problem as the command line tells it."""
        told = self.on(COMMAND_LINE)
        place = told.where if self.line is None else f"{told.where}:{self.line}"
        field = f": {told.field}" if told.field else ""
        return f"{place}{field}: {told.message}. {told.fix}"


class InputError(NeuroscaleError):
    """An input cannot be used; `problems` holds one or more entries."""

    def __init__(self, problems: Problem | list[Problem]) -> None:
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @staticmethod
    def at(where: str, field: str, message: str, fix: str, line: int | None = None) -> InputError:
        """The error of one fault; see `Problem`."""
        return InputError(Problem(where, field, message, fix, line))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, the innermost last."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class UntrustedError(NeuroscaleError):
    """A check cannot be trusted: a tool is missing, crashed, or did not look at all of its input."""

    exit_status = ExitStatus.UNTRUSTED

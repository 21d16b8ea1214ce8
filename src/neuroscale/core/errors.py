"""Defines the errors that a user reads: each names the place, the fault, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
class Problem:
    """One fault of an input.

    `where` is a file or the word for another input ("the form"), `field` a dotted path into it ("" for the whole),
    `line` is 1-based, or None if it is unknown.
    """

    where: str
    field: str
    message: str
    fix: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.where if self.line is None else f"{self.where}:{self.line}"
        field = f": {self.field}" if self.field else ""
        return f"{place}{field}: {self.message}. {self.fix}"


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

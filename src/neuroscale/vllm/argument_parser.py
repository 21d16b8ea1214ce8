"""Builds the parser that a version of vLLM has: Python's argparse, but a refused argument does not end the program."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from neuroscale.vllm.argument_values import convert
from neuroscale.vllm.known_arguments import Argument, load


class Refused:
    """Stands for a refused value."""


class ArgparseError(Exception):
    """The error with which argparse would end the program; `option` is the option that it names, or ""."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        option, colon, _ = message.removeprefix("argument ").partition(": ")
        self.option = option.split("/")[0] if message.startswith("argument ") and colon else ""
        self.message = message.removeprefix("argument ").partition(": ")[2] if self.option else message


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ArgparseError(message)


class _Converter:
    """Converts texts and notes what it refuses, so that one refusal does not hide the next."""

    def __init__(self, argument: Argument) -> None:
        self.argument = argument
        self.refused: list[tuple[str, str]] = []

    def __call__(self, text: str) -> Any:
        try:
            return convert(self.argument, text)
        except (ValueError, OverflowError, RecursionError) as error:
            self.refused.append((text, str(error)))
            return Refused()


@dataclass(frozen=True)
class VersionParser:
    """argparse's parser of a version, its converters by dest, and the dest of every spelling."""

    parser: _Parser
    converters: Mapping[str, _Converter]
    spellings: Mapping[str, str]


@cache
def parser_of(version: str) -> VersionParser:
    """The parser of a known version. All callers share it: its converters keep refusals until `take_refusals`."""
    snapshot = load(version)
    parser = _Parser(prog="vllm serve", add_help=False, argument_default=argparse.SUPPRESS)
    converters: dict[str, _Converter] = {}
    spellings: dict[str, str] = {}
    for argument in snapshot.arguments.values():
        converters[argument.dest] = converter = _Converter(argument)
        spellings |= dict.fromkeys(argument.options, argument.dest)
        more: dict[str, Any] = {}
        names: Sequence[str] = argument.options or (argument.dest,)
        if argument.options:
            more["dest"] = argument.dest
        if argument.kind == "boolean":
            more["action"] = argparse.BooleanOptionalAction
            # argparse makes the --no- forms itself.
            names = [name for name in argument.options if not name.startswith("--no-")] or argument.options
        elif argument.kind in ("store_true", "help"):
            more["action"] = "store_true"
        else:
            more |= {"type": converter, "nargs": argument.nargs}
            if argument.kind == "append":
                more["action"] = "append"
            if argument.const is not None:
                more["const"] = argument.const
        parser.add_argument(*names, **more)
    return VersionParser(parser, converters, spellings)


def take_refusals(built: VersionParser) -> dict[str, list[tuple[str, str]]]:
    """The refusals of the converters since the last call: by dest, each text with the reason."""
    found = {}
    for dest, converter in built.converters.items():
        if converter.refused:
            found[dest] = list(dict.fromkeys(converter.refused))
            converter.refused.clear()
    return found


def dest_of(text: str, built: VersionParser) -> str | None:
    """The dest of the argument that a word names, also by an abbreviation; None if it names none."""
    if not text.startswith("-") or text in ("-", "--"):
        return None
    option = text.partition("=")[0]
    if option in built.spellings:
        return built.spellings[option]
    if option.startswith("--"):
        matching = {dest for spelling, dest in built.spellings.items() if spelling.startswith(option)}
        return matching.pop() if len(matching) == 1 else None
    short = [spelling for spelling in built.spellings if not spelling.startswith("--") and text.startswith(spelling)]
    return built.spellings[max(short, key=len)] if short else None


def recognised(text: str, built: VersionParser) -> str:
    """`known`, `unknown`, or argparse's message on an abbreviation that fits several options."""
    option = text.partition("=")[0]
    if option in built.spellings:
        return "known"
    try:
        _, extra = built.parser.parse_known_args([text], argparse.Namespace())
    except (ArgparseError, argparse.ArgumentError) as error:
        told = str(error)
        return told if told.startswith("ambiguous option") else "known"
    finally:
        take_refusals(built)
    return "unknown" if extra else "known"

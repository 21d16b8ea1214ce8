"""Words the problems of a command line: arguments that vLLM refuses or ignores."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from neuroscale.vllm.argument_parser import VersionParser
from neuroscale.vllm.known_arguments import Argument

ProblemKind = Literal["unknown", "removed", "ambiguous", "incomplete", "value", "stray", "ignored", "config", "ends"]
CONFIG_UNREAD = "Write the file's arguments into the command: what is in the file cannot be checked here."


@dataclass(frozen=True)
class ArgumentProblem:
    """A problem: vLLM does not start, or serves another model, or this reader cannot read the command.

    `place`: the number of the word, from 0 (None: the problem is not about one word). `ends`: vLLM prints something and
    ends. `ignored`: vLLM starts, and ignores the word.
    """

    kind: ProblemKind
    word: str
    place: int | None
    message: str
    fix: str


def unknown_argument(written: str, place: int, built: VersionParser) -> ArgumentProblem:
    """An option that the version does not have; the message suggests one with a similar name."""
    close = get_close_matches(written.replace("_", "-"), list(built.spellings), n=1, cutoff=0.8)
    fix = f"Write {close[0]}." if close else "Remove it, or look its new name up in the documentation of that version."
    return ArgumentProblem("unknown", written, place, "vLLM has no such argument", fix)


def incomplete_argument(written: str, place: int, told: str) -> ArgumentProblem:
    """An option without its value, or with a value that it cannot have. `told`: argparse's own message."""
    option = written.partition("=")[0]
    if "ignored explicit argument" in told:
        return ArgumentProblem(
            "incomplete", option, place, "takes no value", f"Write {option} alone, or its --no- form."
        )
    return ArgumentProblem("incomplete", option, place, f"is incomplete: {told}", "Write its value behind it.")


def without_model(written: str, place: int) -> ArgumentProblem:
    """A served name before the model's."""
    message = "is refused where no model is named: vLLM begins with the model, or --model"
    return ArgumentProblem("incomplete", written.partition("=")[0], place, message, "Name the model.")


def value_fix(argument: Argument) -> str:
    """The advice on what to write in place of a refused value."""
    if argument.choices is not None:
        return f"Write one of {', '.join(map(str, argument.choices))}."
    return {
        "int": "Write a whole number.",
        "float": "Write a number.",
        "human_int": "Write a whole number, such as 8192, 8k (8000) or 8K (8192).",
        "human_int_or_auto": "Write a whole number, such as 8192, 8k (8000) or 8K (8192), or auto.",
        "json": "Write JSON, in single quotes for a shell.",
        "json_or_str": "Write JSON, in single quotes for a shell.",
        "object": "Write a JSON object with those keys.",
    }.get(argument.type, "Correct it.")


def ends_at_once(namespace: argparse.Namespace, places: Mapping[str, int]) -> Iterable[ArgumentProblem]:
    """The problem of `--help`, with which vLLM prints its help and ends."""
    if getattr(namespace, "help", False):
        yield ArgumentProblem("ends", "--help", places.get("help"), "vLLM prints its help and ends", "Remove it.")


def unread_config(namespace: argparse.Namespace, places: Mapping[str, int]) -> Iterable[ArgumentProblem]:
    """The problem of `--config=FILE` in one word: vLLM accepts it, but never reads the file."""
    if (file := getattr(namespace, "config", None)) is not None:
        message = f"vLLM does not read {file}: it looks for the word --config alone"
        yield ArgumentProblem("config", f"--config={file}", places.get("config"), message, CONFIG_UNREAD)

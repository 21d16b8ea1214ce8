"""Reads a command line of `vllm serve` as the parser of its version does, and names the arguments that it refuses."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any

from neuroscale.vllm.argument_parser import (
    ArgparseError,
    Refused,
    VersionParser,
    Word,
    dest_of,
    parser_of,
    take_refusals,
)
from neuroscale.vllm.argument_problems import (
    ArgumentProblem,
    ends_at_once,
    incomplete_argument,
    unread_config,
    value_fix,
)
from neuroscale.vllm.argument_words import Program, prepared_words, without_unknown
from neuroscale.vllm.engine_arguments import EngineArguments, engine_arguments
from neuroscale.vllm.known_arguments import Snapshot, load, nearest

# A shared parser's converters collect refusals, so only one command line may be read at a time.
_ONE_AT_A_TIME = Lock()
_NOT_THE_MODEL = "is ignored: started as a module, vLLM serves the model of --model, or its default"


@dataclass(frozen=True)
class Parsed:
    """A command line as `version` reads it, which is the known version nearest to the requested one (`asked`).

    `values` holds the values in the command by vLLM's own names, and `places` the number of the last word that sets it.
    If there are `problems`, the values are those of the command without the words that cause them.
    """

    version: str
    asked: str
    arguments: EngineArguments
    problems: tuple[ArgumentProblem, ...]
    values: Mapping[str, Any] = field(repr=False)
    places: Mapping[str, int] = field(repr=False)

    @property
    def exact(self) -> bool:
        """Whether the requested version is known."""
        return self.version == self.asked

    @property
    def snapshot(self) -> Snapshot:
        """The arguments that the version accepts."""
        return load(self.version)

    def value(self, dest: str) -> Any:
        """The value of an argument in the command, or else vLLM's default (None if that is not a plain value)."""
        return self.values[dest] if dest in self.values else self.snapshot.arguments[dest].default


def parse_arguments(words: Iterable[str], version: str, *, program: Program = "serve") -> Parsed:
    """Read the words that follow `vllm serve` (or the module's name), variables filled in."""
    return _parsed(tuple(words), version, program)


# In each run, the gate reads the commands of its known-bad services, and the same service in several commits.
@lru_cache(maxsize=256)
def _parsed(words: tuple[str, ...], version: str, program: Program) -> Parsed:
    snapshot = nearest(version)
    given = list(words)
    problems: list[ArgumentProblem] = []
    prepared = prepared_words([Word(text, place) for place, text in enumerate(given)], given, program, problems)
    with _ONE_AT_A_TIME:
        parser = parser_of(snapshot.version)
        known = without_unknown(prepared, given, parser, problems)
        namespace, places = _parse(known, given, parser, problems)
    values = {dest: value for dest, value in vars(namespace).items() if not isinstance(value, Refused)}
    if (tag := values.pop("model_tag", None)) is not None:
        place = places.pop("model_tag", 0)
        if program == "serve":
            values["model"], places["model"] = tag, place
        else:
            problems.append(ArgumentProblem("ignored", str(tag), place, _NOT_THE_MODEL, f"Write --model={tag}."))
    order = sorted(problems, key=lambda problem: len(given) if problem.place is None else problem.place)
    return Parsed(snapshot.version, version, engine_arguments(values), tuple(order), values, places)


def _parse(
    words: list[Word], given: list[str], built: VersionParser, problems: list[ArgumentProblem]
) -> tuple[argparse.Namespace, dict[str, int]]:
    """Lets argparse read words whose options are all known; removes a word that it cannot read."""
    while True:
        namespace = argparse.Namespace()
        try:
            _, extra = built.parser.parse_known_args([word.text for word in words], namespace)
        except (ArgparseError, argparse.ArgumentError) as error:
            refused = error if isinstance(error, ArgparseError) else ArgparseError(str(error))
            take_refusals(built)
            guilty = _guilty(words, refused.option, built)
            if guilty is None:
                problems.append(ArgumentProblem("incomplete", "", None, refused.message, "Correct the command."))
                return argparse.Namespace(), {}
            problems.append(incomplete_argument(given[guilty.place], guilty.place, refused.message))
            words = [word for word in words if word is not guilty]
            continue
        break
    places: dict[str, int] = {}
    for word in words:
        if (dest := dest_of(word.text, built)) is not None:
            places[dest] = word.place
        elif "model_tag" not in places and getattr(namespace, "model_tag", None) == word.text:
            places["model_tag"] = word.place
    for dest, refused_values in take_refusals(built).items():
        argument = built.converters[dest].argument
        for text, told in refused_values:
            place = _place_of(words, dest, text, built)
            message = f"{argument.flag}: {told}"
            problems.append(ArgumentProblem("value", text, place, message, value_fix(argument)))
    problems.extend(ends_at_once(namespace, places))
    problems.extend(unread_config(namespace, places))
    for text in extra:
        place = next((word.place for word in words if word.text == text), None)
        message = "belongs to no argument"
        problems.append(ArgumentProblem("stray", text, place, message, "Remove it, or name the argument it is for."))
    return namespace, places


def _guilty(words: list[Word], option: str, built: VersionParser) -> Word | None:
    """The word that argparse complains of: among several with the same option, the one without a value."""
    mine = [
        (index, word)
        for index, word in enumerate(words)
        if dest_of(word.text, built) == built.spellings.get(option, "")
    ]
    for index, word in mine:
        last = index + 1 == len(words) or words[index + 1].text.startswith("-")
        if ("=" in word.text) != last:
            return word
    return mine[-1][1] if mine else None


def _place_of(words: list[Word], dest: str, text: str, built: VersionParser) -> int | None:
    """The place of a refused value: after the option, or in the same word."""
    for index, word in enumerate(words):
        if dest_of(word.text, built) == dest and (
            word.text.partition("=")[2] == text
            or word.text.endswith(text)
            or any(later.text == text for later in words[index + 1 :])
        ):
            return word.place
    return None

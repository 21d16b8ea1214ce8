"""Prepares the words of a command line for argparse: rewrites them as vLLM does, and removes those that it refuses."""

from __future__ import annotations

from typing import Literal

from neuroscale.vllm.argument_parser import VersionParser, recognised
from neuroscale.vllm.argument_problems import (
    CONFIG_UNREAD,
    ArgumentProblem,
    incomplete_argument,
    unknown_argument,
    without_model,
)
from neuroscale.vllm.argument_spelling import UnfinishedError, Word, gathered, misses_its_model, model_first, spelled
from neuroscale.vllm.removed_arguments import REMOVED

Program = Literal["serve", "module"]
"""`vllm serve`, or `python -m vllm.entrypoints.openai.api_server`, which reads the same arguments."""


def prepared_words(
    words: list[Word], given: list[str], program: Program, problems: list[ArgumentProblem]
) -> list[Word]:
    """The words as argparse gets them."""
    problems += [
        ArgumentProblem("value", word.text, word.place, "holds a NUL, which ends an argument", "Remove the NUL.")
        for word in words
        if "\0" in word.text
    ]
    kept = _without_dashes(_without_config(words, problems), problems)
    while True:
        try:
            moved = model_first(kept) if program == "serve" else kept
            prepared = gathered(spelled(moved))
            break
        except UnfinishedError as error:
            problems.append(incomplete_argument(given[error.place], error.place, "expected one argument"))
            kept = [word for word in kept if word.place != error.place]
    configured = any(text == "--config" or text.startswith("--config=") for text in given)
    if program == "serve" and not configured and (named := misses_its_model(moved)) is not None:
        problems.append(without_model(given[named.place], named.place))
    return prepared


def _without_config(words: list[Word], problems: list[ArgumentProblem]) -> list[Word]:
    """The words without `--config FILE`; vLLM would insert the arguments of that file."""
    rest: list[Word] = []
    waiting = iter(words)
    for word in waiting:
        if word.text == "--config":
            file = next(waiting, None)
            named = f"its arguments lie in the file {file.text}" if file else "it names no file"
            problems.append(ArgumentProblem("config", word.text, word.place, named, CONFIG_UNREAD))
        else:
            rest.append(word)
    return rest


def _without_dashes(words: list[Word], problems: list[ArgumentProblem]) -> list[Word]:
    """The words without `--option=--`, which argparse turns into an empty list, and vLLM refuses only as it starts."""
    rest: list[Word] = []
    for word in words:
        option, _, value = word.text.partition("=")
        if option.startswith("-") and value == "--":
            problems.append(
                ArgumentProblem("value", word.text, word.place, "has no value: -- is none", "Write a value.")
            )
        else:
            rest.append(word)
    return rest


def without_unknown(
    words: list[Word], given: list[str], built: VersionParser, problems: list[ArgumentProblem]
) -> list[Word]:
    """The words without unknown options, and without the words after them that would be their values."""
    rest: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.text == "--":
            return rest + words[index - 1 :]
        verdict = recognised(word.text, built) if word.text.startswith("-") and word.text != "-" else "known"
        option, equals, _ = word.text.partition("=")
        removed = REMOVED.get(option)
        if verdict == "known" and (removed is None or option in built.spellings):
            rest.append(word)
            continue
        written = given[word.place].partition("=")[0] if given[word.place].startswith("-") else option
        if removed is not None:
            problems.append(
                ArgumentProblem("removed", written, word.place, "vLLM has removed this argument", removed.instead)
            )
        elif verdict == "unknown":
            problems.append(unknown_argument(written, word.place, built))
        else:
            problems.append(
                ArgumentProblem("ambiguous", written, word.place, verdict, "Write the argument's whole name.")
            )
        takes_value = removed.takes_value if removed is not None else True
        if not equals and takes_value and index < len(words) and not words[index].text.startswith("-"):
            index += 1
    return rest

"""Rewrites the words of a command line as vLLM does before argparse sees them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from neuroscale.vllm.argument_values import whole

_SERVED_NAME = re.compile(r"--served[-_]model[-_]name(=.+|$)")


@dataclass(frozen=True)
class Word:
    """A word as argparse gets it, and the place in the command line of the word that it was made from."""

    text: str
    place: int


class UnfinishedError(ValueError):
    """The last word needs another word after it; `place` is the number of the last word."""

    def __init__(self, place: int) -> None:
        super().__init__("needs a value behind it")
        self.place = place


def model_first(words: list[Word]) -> list[Word]:
    """The words with the model of `--model` first, as `vllm serve` puts it before it reads anything else."""
    for index, word in enumerate(words):
        if word.text == "--model":
            if index + 1 == len(words):
                raise UnfinishedError(word.place)
            return [words[index + 1], *words[:index], *words[index + 2 :]]
        if word.text.startswith("--model=") and word.text != "--model=":
            return [Word(word.text.removeprefix("--model="), word.place), *words[:index], *words[index + 1 :]]
    return words


def misses_its_model(words: list[Word]) -> Word | None:
    """The word that sets a served name although the command does not begin with a model, which `vllm serve` refuses;
    None if no word does."""
    if not words or not words[0].text.startswith("-"):
        return None
    return next((word for word in words if _SERVED_NAME.match(word.text)), None)


def spelled(words: list[Word]) -> list[Word]:
    """The words with dashes for the underscores of options, and with `--optimization-level 3` for `-O3`."""
    result: list[Word] = []
    for index, word in enumerate(words):
        text = word.text
        if text.startswith("--"):
            option, equals, value = text.partition("=")
            name, dot, rest = option.partition(".")
            result.append(Word(name.replace("_", "-") + dot + rest + equals + value, word.place))
        elif text.startswith("-O") and text != "-O":
            level = text[3:] if text[2] == "=" else text[2:]
            result += [Word("--optimization-level", word.place), Word(level, word.place)]
        elif text == "-O" and index + 1 < len(words) and words[index + 1].text in ("0", "1", "2", "3"):
            result.append(Word("--optimization-level", word.place))
        else:
            result.append(word)
    return result


def gathered(words: list[Word]) -> list[Word]:
    """The words with one JSON object, after all other words, for all `--option.key value` of an option.

    `--option.key+ value` adds to a list. Raises UnfinishedError for a key without a value.
    """
    rest: list[Word] = []
    objects: dict[str, dict[str, Any]] = {}
    places: dict[str, int] = {}
    waiting = iter(range(len(words)))
    for index in waiting:
        word = words[index]
        option, equals, value = word.text.partition("=")
        if not word.text.startswith("-") or "." not in option:
            rest.append(word)
            continue
        if not equals:
            if index + 1 == len(words):
                raise UnfinishedError(word.place)
            value = words[next(waiting)].text
        if option.endswith("+"):
            option, value = option[:-1], json.dumps(value.split(","))
        name, *keys = option.split(".")
        nested: Any = _read(value)
        for key in reversed(keys):
            nested = {key: nested}
        _update(objects.setdefault(name, {}), nested)
        places[name] = word.place
    for name, found in objects.items():
        rest += [Word(name, places[name]), Word(json.dumps(found), places[name])]
    return rest


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    try:
        return whole(text)
    except ValueError:
        return text


def _update(value: dict[str, Any], more: dict[str, Any]) -> None:
    for key, item in more.items():
        there = value.get(key)
        if isinstance(item, dict) and isinstance(there, dict):
            _update(there, item)
        elif isinstance(item, list) and isinstance(there, list):
            there.extend(item)
        else:
            value[key] = item

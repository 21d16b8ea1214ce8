"""Builds the parser that a version of vLLM has, rewrites words as vLLM does, and converts texts to values.

It is Python's argparse, but a refused argument does not end the program.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from neuroscale.vllm.known_arguments import Argument, allowed, load

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MOST_DIGITS = 300
_SHORT = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_SHORT_IN_JSON = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_BRACED = re.compile(r"\s*\{.*\}\s*", re.DOTALL)
_LORA = frozenset({"name", "path", "base_model_name", "is_3d_lora_weight"})


def convert(argument: Argument, text: str) -> Any:
    """The value of `text`. Raises ValueError, which says what is wrong, for a text that vLLM refuses."""
    if argument.optional and text in ("", "None"):
        return None
    if argument.kind == "lora":
        return lora(text)
    value = _CONVERT[argument.type](text) if argument.type != "object" else _object(argument.fields or {}, text)
    if argument.choices is not None and value not in argument.choices:
        raise ValueError(f"{value!r} is not one of its values")
    return value


def whole(text: str) -> int:
    """A whole number, also with k, m, g, t for powers of 1000 (25.6k) and K, M, G, T for powers of 1024."""
    text = text.strip()
    short = _SHORT.fullmatch(text)
    if short is None:
        return _int(text)
    number, suffix = short.groups()
    if len(number) > _MOST_DIGITS:
        raise ValueError(f"{text!r} has too many digits")
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    if "." in number:
        raise ValueError(f"{text!r} has decimals, which go with the small letter alone: {number}{suffix.lower()}")
    return int(number) * _BINARY[suffix]


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text!r} is not JSON: {error}") from None


def _devices(text: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in (part.strip() for part in text.split(","))]


def _object(fields: Mapping[str, Any], text: str) -> Any:
    """A JSON object of known fields, in which numbers may have a unit (such as 8k)."""
    parts = _QUOTED.split(text)
    parts[::2] = [_SHORT_IN_JSON.sub(lambda found: str(whole(found[0])), part) for part in parts[::2]]
    value = _json("".join(parts))
    if told := allowed({"type": "object", "properties": fields}, value):
        raise ValueError(told)
    return value


def lora(text: str) -> Any:
    """One LoRA module: NAME=PATH, or a JSON object."""
    if "=" in text and "," not in text:
        return text
    value = _json(text)
    if not isinstance(value, dict) or not {"name", "path"} <= set(value) <= _LORA:
        raise ValueError(f"{text!r} is neither NAME=PATH nor a JSON object with name and path")
    return value


_CONVERT: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": _int,
    "float": _float,
    "human_int": whole,
    "human_int_or_auto": lambda text: -1 if text.strip().lower() in ("-1", "auto") else whole(text),
    "json": _json,
    "json_or_str": lambda text: _json(text) if _BRACED.fullmatch(text) else text,
    "devices": _devices,
    "lowered": lambda text: text.lower().replace("-", "_"),
}


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
    """The words with one JSON object, after all other words, for all `--option.key value` of an option. `--option.key+
    value` adds to a list. Raises UnfinishedError for a key without a value."""
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

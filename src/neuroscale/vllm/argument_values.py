"""Carries the arguments of `vllm serve` as values by vLLM's own names, and writes them as words again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neuroscale.vllm.arguments import ArgumentProblem, parse_arguments
from neuroscale.vllm.command import serve_command
from neuroscale.vllm.known_arguments import Argument, nearest

_READ = frozenset({"ignored", "ends", "stray"})
"""Problems with words that set nothing."""


def values_of(words: Sequence[str], version: str = "", *, names_model: bool = False) -> dict[str, Any]:
    """The arguments that the words after `vllm serve` set, in their order: values as `version` reads them ("": the
    newest known one). What that version refuses keeps its text, by the name that was written; a flag alone is True.
    `names_model`: the first word may be the model."""
    parsed = parse_arguments(words, version, names_model=names_model)
    found = {dest: (parsed.places.get(dest, 0), value) for dest, value in parsed.values.items()}
    for problem in parsed.problems:
        if (refused := _refused(problem, words)) is not None:
            place, name, value = refused
            found.setdefault(name, (place, value))
    return {name: value for name, (_, value) in sorted(found.items(), key=lambda item: item[1][0])}


def values_of_container(container: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a container's server; empty if its command cannot be read. Where nothing shows that it is vLLM,
    its `args` are read alike."""
    command = serve_command(container)
    if command is None:
        return values_of([str(word) for word in container.get("args") or ()])
    return values_of([word.text for word in command.words], command.version, names_model=True)


def words_of(values: Mapping[str, Any], version: str = "") -> tuple[str, ...]:
    """The words of a command line of `vllm serve` that set these values (None: not set)."""
    known = nearest(version).arguments
    return tuple(word for name, value in values.items() for word in _words(name, value, known.get(name)))


def _words(name: str, value: Any, argument: Argument | None) -> Iterable[str]:
    option = f"--{name.replace('_', '-')}"
    if value is None:
        return
    if isinstance(value, bool):
        if value:
            yield option
        elif argument is None or argument.kind != "store_true":
            yield option.replace("--", "--no-", 1)
    elif isinstance(value, list | tuple) and argument is not None and argument.nargs in ("+", "*"):
        yield from (option, *map(_text, value))
    else:
        yield f"{option}={_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _refused(problem: ArgumentProblem, words: Sequence[str]) -> tuple[int, str, Any] | None:
    """The place, the name and the text of an argument that the version refuses."""
    place = problem.place
    if place is None or problem.kind in _READ or place >= len(words):
        return None
    while place > 0 and not words[place].startswith("-"):
        place -= 1
    option, equals, value = words[place].lstrip("-").partition("=")
    if not words[place].startswith("-") or not option:
        return None
    if not equals and place + 1 < len(words) and not words[place + 1].startswith("--"):
        value, equals = words[place + 1], "="
    return place, option.replace("-", "_"), value if equals else True

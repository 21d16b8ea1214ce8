"""Writes the command line of a bad object in other spellings that mean the same to vLLM's parser or to a shell."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache

from neuroscale.core.yaml_io import Path, dotted
from neuroscale.vllm.known_arguments import versions
from neuroscale.vllm.version_parser import VersionParser, dest_of, parser_of
from policy_mutation.mutant import Mutant, Object, at, changed, of_value, paths

_SHELLS = re.compile(r"(.*/)?(ba|da|a)?sh")
_NUMBER = re.compile(r"(--?[\w-]+=)?([0-9]+)")
_SWITCHES = ("boolean", "store_true", "help")
_FULL_WIDTH = {digit: digit + 0xFEE0 for digit in range(ord("0"), ord("9") + 1)}
_FLAG = r"--[A-Za-z][\w-]*"
_FLAGGED = re.compile(rf"{_FLAG}=")
# A flag, or a word of which a shell takes the quotes away before it looks what it is.
_WORD = re.compile(rf"(?<![\w'\"=./-])({_FLAG}|vllm|env|exec|unset|export)(?![\w'\"./])")


def respelled(policy: str, bad: Sequence[Object]) -> Iterator[Mutant]:
    """Each command line of the bad objects in other spellings, each line once."""
    seen: set[tuple[str, ...]] = set()
    for one in bad:
        for path, words in paths(one):
            if path[-1] not in ("args", "command") or not isinstance(words, list):
                continue
            if not words or not all(isinstance(word, str) for word in words):
                continue
            for detail, value in _of_line(one, path, words):
                key = (detail, *words)
                if key not in seen:
                    seen.add(key)
                    yield of_value(policy, f"spelling:{detail}", one, dotted(path), value)


def _of_line(one: Object, path: Path, words: list[str]) -> Iterator[tuple[str, Object]]:
    holder = at(one, path[:-1])
    command = holder.get("command") or words if path[-1] == "args" else words
    script = _script(command, words)
    if script is not None:
        for detail, text in script_spellings(words[script]):
            yield detail, _with(one, path, [*words[:script], text, *words[script + 1 :]])
        return
    if _is_shell(command):
        return
    for detail, others in flag_spellings(words):
        yield detail, _with(one, path, others)
    if path[-1] == "args" or not isinstance(holder.get("args"), list):
        program = _program(holder, path, words)
        if program is not None:
            yield "in a shell", _in_a_shell(one, path, program)


def flag_spellings(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Other words that vLLM's parser reads as these: its own forms of names, of values and of their place."""
    built = _parser()
    for detail, others in (
        ("underscores", [_underscored(word) for word in words]),
        ("abbreviated", [_abbreviated(word) for word in words]),
        ("two items", [part for word in words for part in _parted(word)]),
        ("one item", _joined(words)),
        ("number:sign", [_NUMBER.sub(r"\1+\2", word) if _NUMBER.fullmatch(word) else word for word in words]),
        ("number:zero", [_NUMBER.sub(r"\g<1>0\2", word) if _NUMBER.fullmatch(word) else word for word in words]),
        ("number:space", [f"{word} " if _NUMBER.fullmatch(word) else word for word in words]),
        ("number:full width", [word.translate(_FULL_WIDTH) if _NUMBER.fullmatch(word) else word for word in words]),
    ):
        if others != list(words) and any(dest_of(word, built) for word in words):
            yield detail, others


def script_spellings(script: str) -> Iterator[tuple[str, str]]:
    """Other texts that a shell runs as this script."""
    for detail, form in (
        ("single quotes", lambda word: f"'{word}'"),
        ("double quotes", lambda word: f'"{word}"'),
        ("quotes inside", lambda word: f'{word[:3]}""{word[3:]}'),
        ("backslash", lambda word: f"{word[:2]}\\{word[2:]}"),
        ("underscores", _underscored),
    ):
        other = _WORD.sub(lambda match, form=form: form(match[0]), script)  # type: ignore[misc]
        if other != script:
            yield f"script:{detail}", other
    if " " in script:
        yield "script:tab", re.sub(r"(?<=\w) (?=--)", "\t", script)
        yield "script:next line", re.sub(r"(?<=\w) (?=--)", " \\\\\n  ", script)


@cache
def _parser() -> VersionParser:
    return parser_of(versions()[-1])


def _underscored(word: str) -> str:
    name, equals, value = word.partition("=")
    head, dot, rest = name.partition(".")
    return f"--{head[2:].replace('-', '_')}{dot}{rest}{equals}{value}" if name.startswith("--") else word


def _abbreviated(word: str) -> str:
    """The flag in the shortest form that names it alone."""
    built = _parser()
    name, equals, value = word.partition("=")
    dest = built.spellings.get(name.replace("_", "-"))
    if not name.startswith("--") or dest is None:
        return word
    short = next(name[:end] for end in range(3, len(name) + 1) if dest_of(name[:end].replace("_", "-"), built) == dest)
    return f"{short}{equals}{value}"


def _parted(word: str) -> list[str]:
    """`--flag=value` as two words, where the second one cannot be taken for a flag."""
    parts = word.split("=", 1)
    return parts if _FLAGGED.match(word) and not parts[1].startswith("-") and _takes_a_value(word) else [word]


def _takes_a_value(flag: str) -> bool:
    dest = dest_of(flag.replace("_", "-"), _parser())
    return dest is not None and _parser().converters[dest].argument.kind not in _SWITCHES


def _joined(words: Sequence[str]) -> list[str]:
    """The words with `--flag value` as `--flag=value`, where the flag takes a value."""
    found: list[str] = []
    for word in words:
        last = found[-1] if found else ""
        if last.startswith("--") and "=" not in last and _takes_a_value(last) and not word.startswith("-"):
            found[-1] = f"{last}={word}"
        else:
            found.append(word)
    return found


def _is_shell(command: Sequence[str]) -> bool:
    return _SHELLS.fullmatch(command[0]) is not None


def _script(command: Sequence[str], words: Sequence[str]) -> int | None:
    """The index of the shell script in a list of words, or None. A script can be in `args`, behind a shell's `-c`."""
    if not _is_shell(command):
        return None
    index = next((index for index, word in enumerate(command) if re.fullmatch(r"-[a-z]*c", word)), None)
    if index is None:
        return None
    if words is command:
        return index + 1 if index + 1 < len(words) else None
    return 0 if index + 1 == len(command) else None


def _program(holder: Object, path: Path, words: list[str]) -> list[str] | None:
    """All words of the program that a container or a hook starts, or None if its image hides the first ones."""
    if path[-1] == "command":
        return words
    if isinstance(holder.get("command"), list) and holder["command"]:
        return [*holder["command"], *words]
    if "vllm" not in str(holder).lower():
        return None
    return ["vllm", *words] if words[0] == "serve" else ["vllm", "serve", *words]


def _in_a_shell(one: Object, path: Path, program: Sequence[str]) -> Object:
    value = copy.deepcopy(one)
    holder = at(value, path[:-1])
    holder.pop("args", None)
    holder["command"] = ["sh", "-c", f"exec {shlex.join(program)}"]
    return value


def _with(one: Object, path: Path, words: list[str]) -> Object:
    value, holder, last = changed(one, path)
    holder[last] = words
    return value

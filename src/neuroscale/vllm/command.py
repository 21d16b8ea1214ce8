"""Which command line of vLLM a container runs: out of its command, its arguments, its image, or a shell's script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuroscale.vllm.arguments import Program

Place = tuple[str | int, ...]
"""A path inside a container, such as `("args", 3)`."""

_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.api_server",
)
_SCRIPT = re.compile(r"(^|/)vllm/entrypoints/(openai/)?api_server\.py$")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_IMAGE = re.compile(r"(^|-)vllm(-|$)|^llm-d-(cuda|cpu|aws|xpu|hpu|rocm)$")
_NO_ENTRYPOINT = ("vllm-tpu", "llm-d-cuda")
"""Images whose own command serves nothing."""
_BESIDE = frozenset({"exporter", "router", "sim"})
"""Parts of the names of images that stand beside vLLM and do not run it."""
_IN_SCRIPT = re.compile(r"\bvllm\s+serve\b|vllm\.entrypoints")
_VERSION = re.compile(r"^v?(\d+\.\d+\.\d+)")
_OPERATORS = frozenset(";&|\n")


@dataclass(frozen=True)
class Word:
    """A word of the command line, and where in the container it stands. `known`: None, or why it is not known."""

    text: str
    place: Place
    unknown: str | None = None


@dataclass(frozen=True)
class ServeCommand:
    """The words behind `vllm serve` (or the module's name).

    `unreadable`: why the command line cannot be told, with the place of what hides it. `version`: of the image, ""
    where its tag is none.
    """

    program: Program
    words: tuple[Word, ...]
    version: str
    unreadable: tuple[tuple[Place, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class _NoCommand(Exception):  # noqa: N818
    """The container does not run vLLM."""


def serve_command(container: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> ServeCommand | None:
    """The command line of a container; None for one that does not run vLLM.

    `extra`: variables that whoever starts the container adds.
    """
    environment, hidden = _environment(container, extra or {})
    command, arguments = (
        [Word(str(text), (key, index)) for index, text in enumerate(_list(container.get(key)))]
        for key in ("command", "args")
    )
    words = [_filled(word, environment, hidden) for word in (*command, *arguments)]
    image = str(container.get("image") or "")
    try:
        found = _find(words, environment, hidden, bool(command), image)
    except _NoCommand:
        return None
    program, rest, unreadable = found
    told = [*unreadable, *((word.place, word.unknown) for word in rest if word.unknown)]
    return ServeCommand(program, tuple(rest), image_version(image), tuple(dict.fromkeys(told)), environment)


def image_version(image: str) -> str:
    """The version of vLLM that an image's tag names; "" for none."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = _VERSION.match(tag)
    return found[1] if found else ""


def _find(
    words: list[Word], environment: Mapping[str, str], hidden: Mapping[str, str], commanded: bool, image: str
) -> tuple[Program, list[Word], list[tuple[Place, str]]]:
    if (start := _start(words)) is not None:
        program, index = start
        return program, words[index:], []
    if (script := _script(words)) is not None:
        index, rest = script
        return _of_script(words[index], rest, environment, hidden)
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    if not _IMAGE.search(name) or _BESIDE & set(name.split("-")):
        raise _NoCommand
    if not commanded and name not in _NO_ENTRYPOINT:
        return "serve", words, []
    if commanded and words and not any("vllm" in word.text for word in words):
        place = words[0].place
        return "serve", [], [(place, f"the image {image} runs {words[0].text}, whose arguments are not known")]
    place = ("command",) if commanded else ("image",)
    return "serve", [], [(place, f"the image {image} brings a command of its own, which is not known")]


def _start(words: Sequence[Word]) -> tuple[Program, int] | None:
    """Where vLLM's own words begin."""
    for index, word in enumerate(words):
        following = words[index + 1].text if index + 1 < len(words) else ""
        if word.text.rpartition("/")[2] == "vllm" and following == "serve":
            return "serve", index + 2
        if word.text == "vllm.entrypoints.cli.main" and following == "serve":
            return "serve", index + 2
        if word.text == "-m" and following in _MODULES:
            return "module", index + 2
        if word.text.removeprefix("-m") in _MODULES and word.text.startswith("-m"):
            return "module", index + 1
        if _SCRIPT.search(word.text):
            return "module", index + 1
    return None


def _script(words: Sequence[Word]) -> tuple[int, list[Word]] | None:
    """The index of a shell's script among the words, and the words behind it."""
    if not words or words[0].text.rpartition("/")[2] not in _SHELLS:
        return None
    for index, word in enumerate(words[1:], 1):
        if not word.text.startswith("-"):
            return None
        if not word.text.startswith("--") and "c" in word.text and index + 1 < len(words):
            return index + 1, list(words[index + 2 :])
    return None


def _of_script(
    script: Word, behind: list[Word], environment: Mapping[str, str], hidden: Mapping[str, str]
) -> tuple[Program, list[Word], list[tuple[Place, str]]]:
    if not _IN_SCRIPT.search(script.text) and not any("vllm" in word.text for word in behind):
        raise _NoCommand
    place = script.place
    try:
        commands = _commands(script.text)
    except ValueError as error:
        return "serve", [], [(place, f"its script cannot be read: {error}")]
    shell = _Shell(dict(environment), hidden, behind[1:])
    found: list[tuple[Program, list[Word]]] = []
    for words in commands:
        expanded = [Word(text, place, why) for word in words for text, why in shell.expand(word)]
        while expanded and expanded[0].text == "eval":
            inner = _commands(" ".join(word.text for word in expanded[1:]))
            why = next((word.unknown for word in expanded if word.unknown), None)
            expanded = [Word(text, place, why) for text in (inner[0] if inner else ())]
        if (start := _start(expanded)) is not None:
            found.append((start[0], expanded[start[1] :]))
        else:
            shell.assign([word.text for word in expanded])
    if len(found) == 1:
        return found[0][0], found[0][1], []
    if not found:
        return "serve", [], [(place, "its script does not call vLLM in a way that can be read")]
    return "serve", [], [(place, f"its script starts vLLM {len(found)} times, in one pod")]


class _Shell:
    """The variables of a script, as far as they are plain."""

    _VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*|[@*#?0-9])(?::?-([^}]*))?\}?")
    _ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)

    def __init__(self, variables: dict[str, str], hidden: Mapping[str, str], positional: list[Word]) -> None:
        self.variables = variables
        self.hidden = hidden
        self.positional = positional

    def assign(self, words: Sequence[str]) -> None:
        """Take over `NAME=value`, also behind export."""
        rest = list(words[1:]) if words and words[0] in ("export", "declare", "readonly") else list(words)
        for word in rest:
            found = self._ASSIGNMENT.fullmatch(word)
            if found is None:
                return
            self.variables[found[1]] = found[2]

    def expand(self, word: str) -> list[tuple[str, str | None]]:
        """The words that a word becomes, each with why it is not known (None)."""
        if word in ("$@", "$*", "${@}", "${*}"):
            return [(one.text, one.unknown) for one in self.positional]
        if "`" in word or "$(" in word:
            return [(word, "its script takes a part of it from another command's output")]
        unknown: list[str] = []

        def value(found: re.Match[str]) -> str:
            name, default = found[1], found[2]
            if name in ("@", "*"):
                unknown.extend(one.unknown for one in self.positional if one.unknown)
                return " ".join(one.text for one in self.positional)
            if name.isdigit() and 0 < int(name) <= len(self.positional):
                one = self.positional[int(name) - 1]
                unknown.extend([one.unknown] if one.unknown else [])
                return one.text
            if name in self.variables:
                return self.variables[name]
            if name not in self.hidden and default is not None:
                return str(default)
            unknown.append(self.hidden.get(name, f"its script takes ${name} from elsewhere"))
            return found[0]

        text = self._VARIABLE.sub(value, word)
        if unknown:
            return [(text, unknown[0])]
        if text != word and self._VARIABLE.fullmatch(word):
            return [(part, None) for part in text.split()]
        return [(text, None)]


def _commands(script: str) -> list[list[str]]:
    """The simple commands of a script, word by word; redirections end one."""
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=";&|<>\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    skipping = commented = False
    for token in lexer:
        if token and set(token) <= _OPERATORS:
            commands.append([])
            skipping = False
            commented = commented and "\n" not in token
        elif token and set(token) <= set("<>&"):
            if commands[-1] and commands[-1][-1] in ("1", "2"):
                commands[-1].pop()
            skipping = True
        elif token.startswith("#") or commented:
            commented = True
        elif not skipping:
            commands[-1].append(token)
    return [words for words in commands if words]


def _environment(container: Mapping[str, Any], extra: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables whose values stand in the manifest, and why others do not."""
    known: dict[str, str] = dict(extra)
    hidden: dict[str, str] = {}
    for entry in _list(container.get("env")):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        name = entry["name"]
        if entry.get("valueFrom") is not None:
            hidden[name] = f"the variable {name} gets its value in the cluster"
            known.pop(name, None)
        else:
            hidden.pop(name, None)
            value = str(entry.get("value") or "")
            known[name] = _REFERENCE.sub(
                lambda found: "$" if found[1] is None else known.get(found[1], found[0]), value
            )
    if container.get("envFrom"):
        hidden.setdefault("", "its variables come from elsewhere (envFrom)")
    return known, hidden


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _filled(word: Word, known: Mapping[str, str], hidden: Mapping[str, str]) -> Word:
    """As a kubelet: `$(NAME)` replaced, `$$` for `$`, and a name that there is not left as it stands."""
    unknown: list[str] = []

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "$"
        if name in known:
            return known[name]
        if name in hidden or "" in hidden:
            unknown.append(hidden.get(name) or hidden[""])
        return found[0]

    # A shell's own `$(command)` looks the same and stays as it stands.
    return Word(_REFERENCE.sub(value, word.text), word.place, unknown[0] if unknown else None)

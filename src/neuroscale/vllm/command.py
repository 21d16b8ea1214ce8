"""Finds the command line of vLLM that a container runs: in its command, arguments, image, or a plain shell script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from neuroscale.vllm.arguments import Program
from neuroscale.vllm.images import image_repository, image_version

Place = tuple[str | int, ...]
"""A path inside a container, such as `("args", 3)`."""

_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.api_server",
)
_SCRIPT = re.compile(r"(^|/)vllm/entrypoints/(openai/)?api_server\.py$")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_MOST_FILLED = 64 * 1024  # characters of all references of a container; a long command line has a few thousand
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_TEMPLATE = re.compile(r"\{\{-?\s*\.[^}]*\}\}")
_IMAGE = re.compile(r"(^|-)vllm(-|$)|^llm-d-(cuda|cpu|aws|xpu|hpu|rocm)$")
_SERVES = "vllm-openai"  # images whose name begins with this run `vllm serve`, whatever their arguments are
_NO_ENTRYPOINT = ("vllm-tpu", "llm-d-cuda")  # images whose own command does not start a server
_BESIDE = frozenset({"exporter", "router", "sim"})  # parts of names of images that run beside vLLM, but not vLLM itself
_PLAIN = re.compile(r"""(?:[\w%+,./:=@-]|[ \t]|\\.|\\\n|'[^'\n]*'|"(?:[^"$\\`\n]|\\["\\])*")*+""", re.ASCII)
"""A script of one command without anything that a shell expands: `shlex` splits it as each shell does."""
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_IN_SCRIPT = re.compile(r"\bvllm\s+serve\b|vllm\.entrypoints")
_PYTHON = re.compile(r"python[0-9.]*")
_WRAPPERS = frozenset(
    {
        *("exec", "env", "tini", "dumb-init", "timeout", "numactl", "nice", "nohup", "stdbuf", "taskset"),
        *("command", "time", "setsid", "ionice", "catchsegv"),
    }
)
"""Programs that start another program, which their arguments name."""
_DURATION = re.compile(r"[0-9]+(\.[0-9]*)?[smhd]?")
_OF_WRAPPER = re.compile(r"-|\d|[A-Za-z_]\w*=")
"""The words between such a program and the one that it starts: options, numbers and variables."""


@dataclass(frozen=True)
class Word:
    """A word of the command line, and its place in the container. `unknown`: why its text is not known, if so."""

    text: str
    place: Place
    unknown: str | None = None


@dataclass(frozen=True)
class ServeCommand:
    """The words after `vllm serve` (or the module's name)."""

    program: Program
    words: tuple[Word, ...]
    version: str  # the version of vLLM in the image's tag, "" if it does not show
    # Why the command line is unknown, with the place in the manifest that hides it.
    unreadable: tuple[tuple[Place, str], ...] = ()
    unread_script: bool = False  # a shell's script hides the command line
    environment: Mapping[str, str] = field(default_factory=dict)  # the known variables of the server
    # Why other variables are unknown, by name ("": any other may be set).
    hidden: Mapping[str, str] = field(default_factory=dict)
    ended: str = ""  # the words that end the server after a while, "" if none do


@dataclass(frozen=True)
class _Start:
    """Where vLLM's own words begin, the variables before them, and the words that end the server after a while."""

    program: Program
    index: int
    environment: Mapping[str, str]
    ended: str = ""


class _NoCommand(Exception):  # noqa: N818
    """The container does not run vLLM."""


def serve_command(container: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> ServeCommand | None:
    """The command line of a container; None if the container does not run vLLM. `extra`: variables that the program
    which starts the container adds."""
    filling = _Filling()
    environment, hidden = _environment(container, extra or {}, filling)
    command, arguments = (
        [Word(str(text), (key, index)) for index, text in enumerate(_list(container.get(key)))]
        for key in ("command", "args")
    )
    words = tuple(filling.fill(word, environment, hidden) for word in (*command, *arguments))
    image = str(container.get("image") or "")
    try:
        own = ServeCommand("serve", words, image_version(image), environment=environment, hidden=hidden)
        read = _find(own, bool(command), image)
    except _NoCommand:
        return None
    unknown = [*read.unreadable, *((word.place, word.unknown) for word in read.words if word.unknown)]
    return replace(read, unreadable=tuple(dict.fromkeys(unknown)))


def _find(own: ServeCommand, commanded: bool, image: str) -> ServeCommand:
    """The command line of vLLM among the container's `own` words."""
    words = own.words
    name = image_repository(image)
    ours = bool(_IMAGE.search(name)) and not _BESIDE & set(name.split("-"))
    entered = ours and not commanded and name not in _NO_ENTRYPOINT
    if entered and name.startswith(_SERVES):
        return own
    if (script := _script(words)) is not None:
        return _of_script(own, script, ours=ours)
    if (start := _start([word.text for word in words])) is not None:
        variables = {**own.environment, **start.environment}
        return replace(own, program=start.program, words=words[start.index :], environment=variables, ended=start.ended)
    if entered:
        return own
    if not ours and not _IN_SCRIPT.search(" ".join(word.text for word in words)):
        raise _NoCommand
    if commanded and words:
        return _hidden(own, words[0].place, f"it runs {words[0].text}, whose arguments are not known")
    place = ("command",) if commanded else ("image",)
    return _hidden(own, place, f"the image {image} brings a command of its own, which is not known")


def _hidden(own: ServeCommand, place: Place, why: str) -> ServeCommand:
    return replace(own, words=(), unreadable=((place, why),))


def _base(text: str) -> str:
    return text.rpartition("/")[2]


def _start(words: Sequence[str]) -> _Start | None:
    """Where vLLM's own words begin: at the front, or after programs that start another program."""
    found = _start_of(words)
    return None if found is None else replace(found, ended=_ended(words[: found.index]))


def _ended(words: Sequence[str]) -> str:
    """The `timeout` before a command, with its duration; "" if there is none, or if it never ends the command."""
    for index, word in enumerate(words):
        if _base(word) == "timeout":
            given = list(takewhile(_OF_WRAPPER.match, words[index + 1 :]))
            durations = [one for one in given if _DURATION.fullmatch(one)]
            if durations and float(durations[-1].rstrip("smhd")) > 0:
                return f"timeout {durations[-1]}"
    return ""


def _start_of(words: Sequence[str]) -> _Start | None:
    index, assigned = _behind_wrappers(words)
    if index is None:
        return None
    rest = [*words[index:], "", ""]
    if _base(rest[0]) == "vllm" and rest[1] == "serve":
        return _Start("serve", index + 2, assigned)
    if _SCRIPT.search(rest[0]):
        return _Start("module", index + 1, assigned)
    if not _PYTHON.fullmatch(_base(rest[0])):
        return None
    at = index + 1
    while at < len(words) and words[at].startswith("-") and not words[at].startswith("-m"):
        at += 2 if words[at] in ("-X", "-W") else 1
    rest = [*words[at:], "", "", ""]
    module, behind = (rest[1], at + 2) if rest[0] == "-m" else (rest[0].removeprefix("-m"), at + 1)
    if module in _MODULES and rest[0].startswith("-m"):
        return _Start("module", behind, assigned)
    if module == "vllm.entrypoints.cli.main" and words[behind : behind + 1] == ["serve"]:
        return _Start("serve", behind + 1, assigned)
    if _SCRIPT.search(rest[0]):
        return _Start("module", at + 1, assigned)
    return None


def _behind_wrappers(words: Sequence[str]) -> tuple[int | None, dict[str, str]]:
    """The index of the program that runs in the end, and the variables that `env` sets for it."""
    index = 0
    assigned: dict[str, str] = {}
    while index < len(words) and _base(words[index]) in _WRAPPERS:
        index += 1
        while index < len(words) and _OF_WRAPPER.match(words[index]):
            name, equals, value = words[index].partition("=")
            if equals and not name.startswith("-"):
                assigned[name] = value
            index += 1
    return (index, assigned) if index < len(words) else (None, {})


def _script(words: Sequence[Word]) -> int | None:
    """The index of a shell's script among the words."""
    shell, _ = _behind_wrappers([word.text for word in words])
    if shell is None or _base(words[shell].text) not in _SHELLS:
        return None
    for index, word in enumerate(words[shell + 1 :], shell + 1):
        if not word.text.startswith("-"):
            return None
        if not word.text.startswith("--") and "c" in word.text and index + 1 < len(words):
            return index + 1
    return None


def _of_script(own: ServeCommand, index: int, *, ours: bool) -> ServeCommand:
    """Finds vLLM's command in the script that is the word `index`; of the words after it, the first is its name.
    `ours`: the image is one of vLLM."""
    script, behind = own.words[index], own.words[index + 1 :]
    if not ours and not _IN_SCRIPT.search(script.text) and not any("vllm" in word.text for word in behind):
        raise _NoCommand
    if script.unknown is not None:
        return _unread(own, script.place, f"its script is not known: {script.unknown}")
    text = script.text.strip(" \t\n")
    plain = _PLAIN.match(text)
    assert plain is not None
    if plain.end() < len(text):
        why = f"its script is not one command in plain words: it holds {text[plain.end()]!r}"
        return _unread(own, script.place, why)
    words = shlex.split(text.replace("\\\n", ""))
    assigned = list(takewhile(_ASSIGNED.match, words))
    program = words[len(assigned) :]
    start = _start(program)
    if start is None:
        hides = _unread if _IN_SCRIPT.search(" ".join(words)) else _hidden
        return hides(own, script.place, "its script does not call vLLM in a way that can be read")
    return replace(
        own,
        program=start.program,
        words=tuple(Word(word, script.place) for word in program[start.index :]),
        environment={**own.environment, **dict(word.split("=", 1) for word in assigned), **start.environment},
        ended=start.ended,
    )


def _unread(own: ServeCommand, place: Place, why: str) -> ServeCommand:
    return replace(_hidden(own, place, why), unread_script=True)


def _environment(
    container: Mapping[str, Any], extra: Mapping[str, str], filling: _Filling
) -> tuple[dict[str, str], dict[str, str]]:
    """The variables whose values stand in the manifest, and why the values of others do not."""
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
            filled = filling.fill(Word(str(entry.get("value") or ""), ()), known, hidden)
            if filled.unknown:
                hidden[name] = filled.unknown
                known.pop(name, None)
            else:
                hidden.pop(name, None)
                known[name] = filled.text
    if container.get("envFrom"):
        hidden.setdefault("", "its variables come from elsewhere (envFrom)")
    return known, hidden


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _Filling:
    """Fills the references of one container as a kubelet does: it replaces `$(NAME)`, writes `$` for `$$`, and leaves
    unknown names as they stand. Variables can contain each other, so the length of the result has a limit."""

    def __init__(self) -> None:
        self._room = _MOST_FILLED

    def fill(self, word: Word, known: Mapping[str, str], hidden: Mapping[str, str]) -> Word:
        """The word with its references replaced, as far as they are known."""
        unknown: list[str] = []

        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name is None:
                return "$"
            if name in known:
                self._room -= len(known[name])
                if self._room >= 0:
                    return known[name]
                unknown.append(f"references make more than {_MOST_FILLED} characters of it")
            elif name in hidden or "" in hidden:
                unknown.append(hidden.get(name) or hidden[""])
            return match[0]

        # A shell's own `$(command)` looks the same and stays as it stands.
        text = _REFERENCE.sub(value, word.text)
        if (left := _TEMPLATE.search(text)) is not None:
            unknown.append(f"KServe fills in {left[0]} in the cluster")
        return Word(text, word.place, unknown[0] if unknown else None)

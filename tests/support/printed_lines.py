"""Checks of command lines that the program prints: this project's parser and kubectl's take them as they stand."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
from pathlib import Path

import typer

from neuroscale.cli.app import app
from neuroscale.cluster.command_lines import kubectl_program

_LINE = re.compile(r"(?:^|[ :;`])((?:\S*/)?(?:kubectl|neuroscale) [-a-z].*)")


def lines_in(text: str) -> list[str]:
    """The command lines of a sentence: `kubectl ...` and `neuroscale ...`, each until a semicolon or the end."""
    parts = re.split(r"; |\n|, and ", text)
    found = [match[1].rstrip(".`") for part in parts if (match := _LINE.search(part))]
    return [re.sub(r" \(.*\)$", "", line) for line in found]


def check_lines(text: str) -> list[str]:
    """Check every command line of a sentence; returns them."""
    lines = lines_in(text)
    for line in lines:
        _check(line)
    return lines


@functools.cache
def _check(line: str) -> None:
    words = shlex.split(line)
    if Path(words[0]).name == "kubectl":
        _check_kubectl(words)
    else:
        _check_own(words[1:])


def _check_own(words: list[str]) -> None:
    """Raises click's UsageError if this project's parser refuses the words."""
    command, context, rest = typer.main.get_command(app), None, words
    while True:
        context = type(command).context_class(command, info_name="neuroscale", parent=context)
        if not hasattr(command, "resolve_command"):
            command.parse_args(context, list(rest))
            return
        _, command, rest = command.resolve_command(context, list(rest))


def _check_kubectl(words: list[str]) -> None:
    """kubectl reads all flags before the last one, and refuses an unknown one; it asks no cluster for its help."""
    program = kubectl_program()
    assert program is not None
    done = subprocess.run([program, *words[1:], "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
    named = [word for word in words[1:] if not word.startswith("-")]
    if "logs" in named:
        after = named[named.index("logs") + 1 :]
        assert after or any(word.startswith("-l") for word in words), f"{shlex.join(words)} names no pod"

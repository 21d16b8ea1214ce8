"""Finds the commands of this program that a text names, and says whether the command line takes them."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from neuroscale.cli.app import COMMANDS, app

VALUE = "1"
"""Stands for what a message fills in: a name, a path and a number alike."""
_NAMED = re.compile(r"neuroscale (?=[a-z])")
_ENDS = re.compile(r"[`\n\"]|[.,;:)](?=\s|$|[`)])|\s#\s| \(|, ")
_UsageError: Any = typer.BadParameter.__bases__[0]  # typer carries a click of its own
_GROUPS = {name for name, command in COMMANDS.items() if command.attribute == "app"}
CLUSTER = ["--state=1", "--kubeconfig=1", "--context=1"]


def texts(path: Path) -> Iterator[str]:
    """The texts of a module but for its docstrings, with VALUE for what is filled in; and, as a whole command, what it
    hands to `CommandLines.own`, which adds the options of a cluster."""
    tree = ast.parse(path.read_text())
    whole = {id(part) for one in ast.walk(tree) if isinstance(one, ast.JoinedStr) for part in one.values}
    told = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "own" and one.args:
            for option in CLUSTER:
                yield f"`neuroscale {_text(one.args[0])} {option}`"
        elif isinstance(one, ast.JoinedStr | ast.Constant) and id(one) not in whole | told:
            yield _text(one)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else VALUE


def commands_in(text: str) -> Iterator[str]:
    """The commands that a text names: up to the end of the quotation, the sentence or the line."""
    for start in _NAMED.finditer(text):
        rest = text[start.end() :]
        quoted = text[: start.start()].endswith("`")
        ends = rest.find("`") if quoted else next((found.start() for found in _ENDS.finditer(rest)), len(rest))
        yield rest[: ends if ends >= 0 else len(rest)].strip()


def refusal(command: str) -> str:
    """Why the command line does not take a command; "" if it does. Nothing is run.

    Prose may go on behind a command (`neuroscale request changes that`), and may name one alone (`by neuroscale gate`),
    or with the option that it means (`neuroscale gate --markdown`). Brackets stand around what may be left out.
    """
    plain = re.sub(r"[\[\]]", "", command).replace("...", VALUE)
    try:
        words = shlex.split(plain)
    except ValueError:
        words = plain.split()
    last = max((place + 1 for place, word in enumerate(words) if word.startswith("--")), default=0)
    why, least = "", max(last, 2 if words[0] in _GROUPS else 1)
    for end in range(len(words), min(least, len(words)) - 1, -1):
        why = _refusal(words[:end])
        if not why:
            return ""
    return why


def _refusal(words: list[str]) -> str:
    command: Any = typer.main.get_command(app)
    alone = True
    try:
        context = command.make_context("neuroscale", list(words))
        while hasattr(command, "resolve_command"):
            rest = [*context._protected_args, *context.args]
            if not rest:
                return ""  # a group of commands, named alone
            name, command, rest = command.resolve_command(context, rest)
            alone = not rest
            context = command.make_context(name, rest, parent=context)
    except _UsageError as error:
        why, kind = error.format_message(), type(error).__name__
        named = kind == "NoArgsIsHelpError" or (kind == "MissingParameter" and alone)
        return "" if named or f"{words[-1]!r} requires an argument" in why else why
    return ""
